"""Paged attention to read, to trust and to run.

Every name below is imported when it is first asked for, so that ``import minipaged`` is cheap and
the bookkeeping can be used without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minipaged.attention import paged_attention
    from minipaged.cache import KVCache, PagedBatch
    from minipaged.core import (
        BlockPool,
        BlockTable,
        InvalidBatch,
        InvalidRequest,
        Ledger,
        MinipagedError,
        ModelError,
        OutOfBlocks,
        Snapshot,
    )
    from minipaged.engine.llm import LLM
    from minipaged.engine.params import BeamSearchParams, SamplingParams
    from minipaged.sanitizer import SanitizerError

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "BeamSearchParams",
    "BlockPool",
    "BlockTable",
    "InvalidBatch",
    "InvalidRequest",
    "KVCache",
    "Ledger",
    "MinipagedError",
    "ModelError",
    "OutOfBlocks",
    "PagedBatch",
    "SamplingParams",
    "SanitizerError",
    "Snapshot",
    "paged_attention",
]

_HOMES = {
    "LLM": "minipaged.engine.llm",
    "BeamSearchParams": "minipaged.engine.params",
    "SamplingParams": "minipaged.engine.params",
    "KVCache": "minipaged.cache",
    "PagedBatch": "minipaged.cache",
    "SanitizerError": "minipaged.sanitizer",
    "paged_attention": "minipaged.attention",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "minipaged.core")), name)
    globals()[name] = value  # asked once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
