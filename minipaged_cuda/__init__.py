"""Paged attention on a GPU in kernels written in Python, and the means to prove them on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minipaged_cuda.operations import (
        copy_blocks,
        merge_states,
        paged_attention,
        swap_blocks,
        write_kv,
    )

__all__ = ["copy_blocks", "merge_states", "paged_attention", "swap_blocks", "write_kv"]


def __getattr__(name: str) -> Any:
    """The operations, imported when first asked for: they need torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from minipaged_cuda import operations

    return getattr(operations, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
