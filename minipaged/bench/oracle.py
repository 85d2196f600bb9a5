"""How long the judge takes over our own compiled kernel, level by level; judges nothing itself.

It runs as ``minipaged check``, in a process of its own, and says itself how long it took: what
importing and compiling cost is in the process's time alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .processes import run
from .stats import Figure

KERNEL = "minipaged.attention.cpu:cpu_paged_attention"
DEADLINE = 3600  # seconds: a verdict that was cut short is no measurement
Say = Callable[[str], None]


def measure_oracle(levels: Sequence[int], max_examples: int, rounds: int, say: Say) -> list[Figure]:
    """Seconds and cases per second of each level, which includes those before it.

    Raises:
        subprocess.CalledProcessError: the kernel was found wrong, or the judge failed.
    """
    figures = []
    for level in levels:
        verdicts = []
        for i in range(rounds):
            say(f"level {level}, round {i + 1} of {rounds}")
            verdicts.append(_judge(level, max_examples))
        seconds, processes, cases, shares = zip(*verdicts)
        name, share = f"level {level}", min(shares)
        note = f"{cases[-1]} cases, {max_examples} of them random"
        rates = tuple(n / s for n, s in zip(cases, seconds))
        figures += [
            Figure(f"{name}: judging", "minipaged", "s", seconds, share, note=note),
            Figure(f"{name}: cases", "minipaged", "cases/s", rates, share),
            Figure(f"{name}: the whole process", "minipaged", "s", processes, share),
        ]
    return figures


def _judge(level: int, max_examples: int) -> tuple[float, float, int, float]:
    """Seconds by the judge's own clock, of the process, cases, and the share of the CPU."""
    with tempfile.TemporaryDirectory(prefix="minipaged-bench-") as folder:
        path = Path(folder) / "verdict.json"
        options = ["--level", str(level), "--max-examples", str(max_examples)]
        options += ["--deadline", str(DEADLINE), "--json", str(path)]
        done = run(["-m", "minipaged", "check", KERNEL, *options])
        verdict = json.loads(path.read_text(encoding="utf-8"))
    return verdict["made"]["seconds"], done.seconds, verdict["cases"], done.share
