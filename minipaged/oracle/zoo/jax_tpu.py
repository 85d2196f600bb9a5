"""JAX's two Pallas kernels for TPUs, on a CPU: paged attention, and ragged paged attention."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.jax_paged import JaxPaged, RaggedPaged
from ..truth import NumericModel
from .animal import Animal, Finding, required
from .jax_arrays import COLUMNS, FEW_SHAPES, PAGES, SEQUENCES, jax, rounded_up
from .jax_interpret import fill_the_hole

# The interpreter takes a masked store of more rows than a group has heads to be out of bounds
# (it masks the first axis for every axis, jax/_src/pallas/mosaic/interpret/shared_memory.py:912).
TUNING = {"num_queries_per_block": 2, "num_kv_pages_per_block": 2, "vmem_limit_bytes": 2**25}
OPS = "jax.experimental.pallas.ops.tpu"
FILE = "jax/experimental/pallas/ops/tpu/paged_attention/paged_attention_kernel.py"


def load_paged() -> Kernel:
    """Decode, by the interpreter that turns a kernel into plain XLA."""
    jax()
    pallas = required("jax.experimental.pallas")
    module = required(f"{OPS}.paged_attention.paged_attention_kernel")
    interpreted = functools.partial(pallas.pallas_call, interpret=True)
    module.pl = SimpleNamespace(**{**vars(pallas), "pallas_call": interpreted})

    def paged_attention(
        q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_indices: Any, **options: Any
    ) -> Any:
        pools = (rounded_up(x, 1, PAGES) for x in (k_pages, v_pages))
        table = rounded_up(rounded_up(page_indices, 1, COLUMNS), 0, SEQUENCES)
        batch = rounded_up(q, 0, SEQUENCES), *pools, rounded_up(lengths, 0, SEQUENCES), table
        out = module.paged_attention(*batch, **options, pages_per_compute_block=4)
        return np.asarray(out)[: len(q)]

    return paged_attention


def load_ragged() -> Kernel:
    """Chunks and decode, by the interpreter that has a TPU's memories, NaN at first."""
    jax()
    tpu = required("jax.experimental.pallas.tpu")
    module = required(f"{OPS}.ragged_paged_attention.kernel")
    fill_the_hole()

    def ragged_paged_attention(
        q: Any,
        kv_pages: Any,
        kv_lens: Any,
        page_indices: Any,
        cu_q_lens: Any,
        num_seqs: Any,
        **options: Any,
    ) -> Any:
        batch = (
            rounded_up(q, 0, SEQUENCES),
            rounded_up(kv_pages, 0, PAGES),
            rounded_up(kv_lens, 0, SEQUENCES),
            rounded_up(rounded_up(page_indices, 1, SEQUENCES), 0, SEQUENCES),
            np.append(rounded_up(cu_q_lens[:-1], 0, SEQUENCES, "edge"), cu_q_lens[-1]),
            num_seqs,
        )
        with tpu.force_tpu_interpret_mode(tpu.InterpretParams(uninitialized_memory="nan")):
            return np.asarray(module.ragged_paged_attention(*batch, **options, **TUNING))[: len(q)]

    return ragged_paged_attention


TAILS = Finding(
    "NaN in slots of no position",
    ("finite",),
    f"the mask is added to scores that are NaN already, and 0 * NaN is NaN ({FILE}:269,283)",
    {"poison": "finite"},
)
CAST = Finding(
    "float32 keys and values in bfloat16",
    ("bound", "statistic"),
    f"keys and values are cast to bfloat16, whatever their dtype ({FILE}:94-96)",
    {"numeric": NumericModel(load="bfloat16")},
)

ANIMALS = (
    Animal(
        "JAX TPU paged_attention",
        "fast",
        "jax",
        load_paged,
        "jax_tpu",
        JaxPaged.features.only(**FEW_SHAPES, head_dims=(16,), groups=(2, 2)),
        Contract(padding="valid"),
        (TAILS, CAST),
    ),
    Animal(
        "JAX TPU ragged_paged_attention",
        "slow",
        "jax",
        load_ragged,
        "rpa",
        # Other head dims and dtypes the kernel refuses; one head per group, the interpreter.
        RaggedPaged.features.only(
            **{**FEW_SHAPES, "kv_len": (1, 260)},
            dtypes=("float32", "bfloat16"),
            head_dims=(128,),
            groups=(2, 2),
            scales=False,
        ),
        RaggedPaged.contract,
        deadline_s=200,
    ),
)
