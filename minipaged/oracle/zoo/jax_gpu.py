"""JAX's Pallas paged attention for GPUs, run by Pallas' own interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.jax_paged import JaxPaged
from ..truth import NumericModel
from .animal import Animal, Finding, required
from .jax_arrays import COLUMNS, FEW_SHAPES, PAGES, SEQUENCES, jax, rounded_up

TUNING = {"k_splits": 16, "pages_per_compute_block": 2, "interpret": True}
FILE = "jax/experimental/pallas/ops/gpu/paged_attention.py"


def load() -> Kernel:
    """Decode in 16 splits, two pages at a time."""
    jax()
    library = required("jax.experimental.pallas.ops.gpu.paged_attention")

    def paged_attention(
        q: Any, k_pages: Any, v_pages: Any, block_tables: Any, lengths: Any, **options: Any
    ) -> Any:
        pools = (rounded_up(x, 1, PAGES) for x in (k_pages, v_pages))
        table = rounded_up(rounded_up(block_tables, 1, COLUMNS), 0, SEQUENCES)
        batch = rounded_up(q, 0, SEQUENCES), *pools, table, rounded_up(lengths, 0, SEQUENCES)
        out = library.paged_attention(*batch, **options, **TUNING)
        return np.asarray(out)[: len(q)]

    return paged_attention


TAILS = Finding(
    "NaN in slots of no position",
    ("finite",),
    f"masked weights are 0 but their values stay, and 0 * NaN is NaN ({FILE}:114)",
    {"poison": "finite"},
)
EMPTY = Finding(
    "sequences of no key, float16",
    ("empty rows",),
    "0 / 0: the eps of float32 that guards the division is cast to float16, where it is subnormal "
    f"and a CPU flushes it ({FILE}:277-278)",
    {"empty_row": "any"},
    {"dtypes": ("float16",), "numeric": NumericModel("float16", "float16", "float16")},
)
PARTIALS = Finding(
    "splits are merged in half precision",
    ("bound", "statistic"),
    "the outputs of the splits, the factors that merge them, their sum and the quotient are all "
    f"rounded to the dtype of the query ({FILE}:274-278)",
    {"dtypes": ("float32",)},
)

ANIMALS = (
    Animal(
        "JAX GPU paged_attention",
        "fast",
        "jax",
        load,
        "jax",
        JaxPaged.features.only(**FEW_SHAPES, head_dims=(16,), groups=(2, 2)),
        Contract(padding="valid"),
        (TAILS, EMPTY, PARTIALS),
    ),
)
