"""Every claim in the order in which it is told; loads one only when it is measured."""

from __future__ import annotations

from difflib import get_close_matches
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
NUMBERED = (  # as C1, C2, ... in their titles
    "waste",
    "throughput",
    "sharing",
    "prefix",
    "chat",
    "block_size",
    "kernel",
    "preemption",
)


def find(name: str) -> str | None:
    """The claim of this name, however it is spelled, or of this number; None: there is none.

    Examples:
        >>> find("block-size"), find("C1"), find("c8"), find("wast")
        ('block_size', 'waste', 'preemption', None)
    """
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    numbers = {f"c{i}": key for i, key in enumerate(NUMBERED, 1)}
    return plain if plain in CLAIMS else numbers.get(plain)


def nearest(name: str) -> str:
    """What may have been meant by a name that no claim has: a hint, or nothing."""
    close = get_close_matches(name.lower(), CLAIMS, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def takes(key: str, piece_len: int) -> bool:
    """Whether a claim looks at the user's own trace, with pieces of ``piece_len`` tokens or none.

    What draws its requests itself, or runs a model whose prompts they would not fit, does not.
    """
    return key in ("waste", "throughput") or (key == "hit_rate" and piece_len > 0)


def measure_of(key: str) -> Measure:
    """The function that measures a claim.

    Raises:
        KeyError: there is no such claim.
    """
    if key not in CLAIMS:
        raise KeyError(key)
    return import_module(f"minipaged.claims.{key}").measure
