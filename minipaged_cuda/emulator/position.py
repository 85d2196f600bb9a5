"""Where a program was when it went wrong, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minipaged_cuda.emulator.parser import Instruction


def where(
    instruction: Instruction, cta: Sequence[int], threads: Sequence[int] | np.ndarray = ()
) -> str:
    """The end of a message: the line, the CTA, and up to eight threads."""
    shown = ", ".join(str(int(thread)) for thread in threads[:8])
    more = f" and {len(threads) - 8} more" if len(threads) > 8 else ""
    names = f", thread{'s' * (len(threads) > 1)} {shown}{more}" if len(threads) else ""
    return f"\n  PTX line {instruction.line}: {instruction.text}\n  CTA {tuple(cta)}{names}"
