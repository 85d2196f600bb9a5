"""JAX's Pallas kernels for GPU and TPU: heads outermost, and no scale; arrays, not tensors."""

from __future__ import annotations

import importlib.util
from typing import Any, ClassVar

import numpy as np

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .keywords import Keyworded, given
from .reading import dtype_of, integers, rows, stated, tokens

HAS_BFLOAT16 = importlib.util.find_spec("ml_dtypes") is not None
DTYPES = ("float32", "bfloat16", "float16") if HAS_BFLOAT16 else ("float32", "float16")


class JaxPaged(Keyworded):
    """`paged_attention` of `jax.experimental.pallas.ops.gpu`, decode only.

    What differs from the native convention:

    - Pages are `[num_kv_heads, num_pages, page_size, head_dim]`, one array for keys and one for
      values; queries are `[batch_size, num_heads, head_dim]`.
    - There is no softmax scale: queries come multiplied by it. So it is `1 / sqrt(head_dim)`, and
      head dims are powers of 4, where that is exact (but for the smallest numbers of float16).
    - Every entry of `block_tables` must be a page. Its width is a multiple of 8 here, for
      `pages_per_compute_block` and `k_splits` must divide it.
    - `attn_logits_soft_cap`: None is off, 0 an error. No lse, no window, no ALiBi, no sinks.
    """

    name = "jax"
    features = Features(
        dtypes=tuple(d for d in DTYPES if d != "float16"),
        head_dims=(4, 16, 64, 256),
        query_len=(1, 1),
        ragged=False,
        causal=(True,),
        left_window=False,
        right_window=False,
        alibi=False,
        sinks=False,
        scales=False,
        lse=False,
    )
    contract = Contract(padding="valid")
    source = "jax/experimental/pallas/ops/gpu/paged_attention.py"
    options: ClassVar = {"attn_logits_soft_cap": ("softcap", False)}

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem = case.problem
        query = ndarray(case.flat_query * problem.spec.scale, problem.dtype)
        pools = (case.pool("key"), case.pool("value"))
        keys, values = (ndarray(x.transpose(2, 0, 1, 3), problem.dtype) for x in pools)
        more = -case.table.shape[1] % 8
        padding = case.placement.padding % case.placement.num_blocks
        table = np.pad(case.table, ((0, 0), (0, more)), constant_values=padding)
        args = self.order(query, keys, values, table, case.seq_lens)
        return Call(args, given(attn_logits_soft_cap=problem.spec.softcap), lambda out: (out, None))

    def order(
        self, query: Any, keys: Any, values: Any, table: Any, lengths: Any
    ) -> tuple[Any, ...]:
        """The positional arguments."""
        return query, keys, values, table, lengths

    def read(  # noqa: D102
        self,
        q: Any,
        k_pages: Any,
        v_pages: Any,
        block_tables: Any,
        lengths: Any,
        *,
        attn_logits_soft_cap: float | None = None,
    ) -> Problem:
        # What the caller must have multiplied by; exact, as the head dims are powers of 4.
        scale = q.shape[-1] ** -0.5
        table, lens = integers(block_tables), integers(lengths)
        key, value = (tokens(x.transpose(1, 2, 0, 3), table, lens) for x in (k_pages, v_pages))
        query = (x / scale for x in rows(q, np.arange(len(q) + 1)))
        return stated(query, key, value, Spec(scale, softcap=attn_logits_soft_cap), dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        return outs.astype(args[0].dtype)


class JaxPagedTPU(JaxPaged):
    """`paged_attention` of `jax.experimental.pallas.ops.tpu`.

    As `JaxPaged`, but `lengths` come before `page_indices`.
    """

    name = "jax_tpu"
    source = "jax/experimental/pallas/ops/tpu/paged_attention/paged_attention_kernel.py"

    def order(  # noqa: D102
        self, query: Any, keys: Any, values: Any, table: Any, lengths: Any
    ) -> tuple[Any, ...]:
        return query, keys, values, lengths, table

    def read(  # noqa: D102
        self, q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_indices: Any, **options: Any
    ) -> Problem:
        return super().read(q, k_pages, v_pages, page_indices, lengths, **options)


class RaggedPaged(Keyworded):
    """`ragged_paged_attention` of JAX and of XLA for TPUs.

    What differs from the native convention:

    - One array `[num_pages, page_size, 2 * num_kv_heads, head_dim]`: keys at the even heads,
      values at the odd ones.
    - `kv_lens`, `page_indices` and `cu_q_lens` are padded to a largest number of sequences; the
      first `num_seqs[0]` count. Rows of `q` behind the last sequence count neither.
    - `sliding_window` counts the query itself; None is off. `soft_cap`: None is off. The default
      of `sm_scale` is 1.
    - Always causal, no more queries than keys, no lse, no ALiBi, no sinks.
    """

    name = "rpa"
    features = Features(
        dtypes=DTYPES,
        causal=(True,),
        right_window=False,
        alibi=False,
        sinks=False,
        query_len=(1, 12),
        kv_len=(1, 50),
        queries_beyond_keys=False,
        lse=False,
    )
    source = "jax/experimental/pallas/ops/tpu/ragged_paged_attention/kernel.py"
    options: ClassVar = {
        "sliding_window": ("left_window", False),
        "soft_cap": ("softcap", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        left, padding = spec.window[0], case.placement.padding
        heads = [case.pool(which) for which in ("key", "value")]
        pages = np.stack(heads, 3).reshape(*heads[0].shape[:2], -1, problem.head_dim)
        tail = np.full((3, *case.flat_query.shape[1:]), np.nan)
        query = np.concatenate([case.flat_query, tail])
        count, seqs = len(case.flat_query), problem.num_seqs
        args = (
            ndarray(query, problem.dtype),
            ndarray(pages, problem.dtype),
            np.pad(case.seq_lens, (0, 1), constant_values=1),
            np.pad(case.table, ((0, 1), (0, 0)), constant_values=padding),
            np.pad(case.query_start_loc, (0, 1), constant_values=count + 2),
            np.array([seqs], dtype=np.int32),
        )
        window = None if left is None else left + 1
        kwargs = given(sm_scale=spec.scale, sliding_window=window, soft_cap=spec.softcap)
        return Call(args, kwargs, lambda out: (out[:count], None))

    def read(  # noqa: D102
        self,
        q: Any,
        kv_pages: Any,
        kv_lens: Any,
        page_indices: Any,
        cu_q_lens: Any,
        num_seqs: Any,
        *,
        sm_scale: float = 1.0,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
    ) -> Problem:
        count = int(num_seqs[0])
        table, lens = integers(page_indices[:count]), integers(kv_lens[:count])
        key = tokens(kv_pages[:, :, 0::2], table, lens)
        value = tokens(kv_pages[:, :, 1::2], table, lens)
        left = None if sliding_window is None else sliding_window - 1
        spec = Spec(sm_scale, window=(left, None), softcap=soft_cap)
        return stated(rows(q, cu_q_lens[: count + 1]), key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        out = np.full((len(args[0]), *outs.shape[1:]), np.nan, dtype=args[0].dtype)
        out[: len(outs)] = outs
        return out


def ndarray(x: Any, dtype: str) -> Any:
    """Numbers on the grid of `dtype` as an array of it; bfloat16 needs the package `ml_dtypes`."""
    if dtype == "bfloat16":
        dtype = importlib.import_module("ml_dtypes").bfloat16
    return np.ascontiguousarray(x).astype(dtype)
