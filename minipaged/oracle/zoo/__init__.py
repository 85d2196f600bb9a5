"""The zoo: other people's paged-attention kernels, as they are shipped, and ours among them.

Every animal is held against a ledger of what is known to be wrong with it. Nothing else may be,
and all of it must be: a finding that no longer shows is as loud as a new one.
"""

from __future__ import annotations

import importlib

from .animal import Animal, Finding, Lane, NotHere
from .table import to_markdown
from .visit import Row, visit

HOUSES = (
    "ours",
    "openvino",
    "flex",
    "hugging_face",
    "jax_gpu",
    "jax_tpu",
    "vllm_triton",
    "sglang_triton",
)


def animals(lane: Lane | None = None) -> list[Animal]:
    """All animals, or those of a lane; no foreign package is imported."""
    houses = (importlib.import_module(f".{house}", __name__) for house in HOUSES)
    everyone = (animal for house in houses for animal in house.ANIMALS)
    return [animal for animal in everyone if lane in (None, animal.lane)]


def run_zoo(lane: Lane | None = None) -> list[Row]:
    """The verdict on every animal, or on those of a lane."""
    return [visit(animal) for animal in animals(lane)]


__all__ = [
    "Animal",
    "Finding",
    "Lane",
    "NotHere",
    "Row",
    "animals",
    "run_zoo",
    "to_markdown",
    "visit",
]
