"""Every claim in the order in which it is told; loads one only when it is measured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .claim import Measure

CLAIMS = {  # name on the command line, which is the module's too: what it measures, in few words
    "waste": "memory that holds no token: contiguous reservation beside paging",
    "throughput": "requests served on the same memory",
    "sharing": "blocks saved by parallel sampling and beam search",
    "prefix": "a prefix found instead of computed",
    "chat": "conversations whose history is sent again",
    "block_size": "tokens per block, from 1 to 256",
    "kernel": "what paging costs the attention kernel",
    "hit_rate": "prefix hits by size of the pool, beside the best possible",
    "preemption": "recomputing against swapping",
}


def measure_of(key: str) -> Measure:
    """The function that measures a claim.

    Raises:
        KeyError: there is no such claim.
    """
    if key not in CLAIMS:
        raise KeyError(key)
    return import_module(f"minipaged.claims.{key}").measure
