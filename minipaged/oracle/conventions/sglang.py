"""SGLang: a pool of token slots, and lists of slots in place of block tables."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .indices import guarded_list, past_and_new, starts, token_slots
from .keywords import Keyworded, given
from .packing import caches, guarded_rows, tensor
from .reading import dtype_of, integers, lists, optional, rows, scaled, side, stated, tokens

SPLITS = 4


class SGLang(Keyworded):
    """`extend_attention_fwd` of SGLang: the past is in the pool, this step is dense.

    What differs from the native convention:

    - The pool is `[size, num_kv_heads, head_dim]`, one row per slot. The slots of a sequence's
      prefix are `kv_indices[kv_indptr[i]:kv_indptr[i + 1]]`; this step's keys and values are
      `k_extend` and `v_extend`, ragged by `qo_indptr` like the queries.
    - `sliding_window_size` does not count the query itself; 0 is off, like -1. Without `is_causal`
      it reaches as far to the right as to the left. Other windows are said by a mask.
    - `custom_mask`: a byte per pair, flattened `[query_len, prefix_len + query_len]`, from
      `mask_indptr[i]` on. It leaves the prefix alone unless `skip_prefix_custom_mask` is False.
    - `logit_cap` 0 is off. No ALiBi.
    - It writes to `o_extend` and `lse_extend` (natural logarithms), and returns nothing.
    """

    name = "sglang"
    features = Features(
        block_sizes=(1, 2, 4, 16),
        value_head_dims=(1, 2, 3, 4, 5, 8, 16, 40, 64),
        alibi=False,
        masks=("tree", "random"),
        queries_beyond_keys=False,
    )
    source = "sglang/kernels/ops/attention/extend_attention.py; srt/mem_cache/memory_pool.py"
    options: ClassVar = {"sinks": ("sinks", False), "lse_extend": ("lse", False)}

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        past, new = past_and_new(case)
        out, lse = results(case, device)
        mask, mask_indptr, left = None, None, spec.window[0]
        if not _window_says_it(spec):
            seen = [problem.visible(s).reshape(-1) for s in range(problem.num_seqs)]
            mask = tensor(np.concatenate(seen), torch.uint8, device)
            mask_indptr, left = tensor(starts([len(x) for x in seen]), torch.int64, device), None
        args = (
            tensor(case.flat_query, problem.dtype, device),
            *(dense(many, new, problem.dtype, device) for many in (problem.key, problem.value)),
            out,
            *pool(case, device),
            tensor(case.query_start_loc, torch.int32, device),
            tensor(starts([part.stop for part in past]), torch.int32, device),
            guarded_list(token_slots(case, past), case, torch.int64, device),
            mask,
            spec.causal,
            mask_indptr,
            max(problem.query_lens),
            1.0,
            1.0,
        )
        kwargs = dict(
            sm_scale=spec.scale,
            logit_cap=spec.softcap or 0.0,
            skip_prefix_custom_mask=False,
            sliding_window_size=-1 if left is None else left,
            **given(sinks=None if spec.sinks is None else tensor(spec.sinks, device=device)),
            lse_extend=lse,
        )
        return Call(args, kwargs, lambda _: (out, lse), outputs=(out, lse))

    def read(  # noqa: D102
        self,
        q_extend: Tensor,
        k_extend: Tensor,
        v_extend: Tensor,
        o_extend: Tensor,
        k_buffer: Tensor,
        v_buffer: Tensor,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_indices: Tensor,
        custom_mask: Tensor | None,
        is_causal: bool,
        mask_indptr: Tensor | None,
        max_len_extend: int,
        k_scale: float,
        v_scale: float,
        *,
        sm_scale: float | None = None,
        logit_cap: float = 0.0,
        skip_prefix_custom_mask: bool = True,
        sliding_window_size: int = -1,
        sinks: Tensor | None = None,
        lse_extend: Tensor | None = None,
    ) -> Problem:
        slots = lists(kv_indices, kv_indptr)
        query = rows(q_extend, qo_indptr)
        many = []
        for buffer, scale, fresh in ((k_buffer, k_scale, k_extend), (v_buffer, v_scale, v_extend)):
            olds = scaled(tokens(buffer[:, None], slots, map(len, slots)), scale)
            many.append([np.concatenate(x) for x in zip(olds, rows(fresh, qo_indptr))])
        masks = None
        if custom_mask is not None and mask_indptr is not None:
            masks = _read_masks(custom_mask, integers(mask_indptr), query, many[0])
            if skip_prefix_custom_mask:
                for mask, prefix in zip(masks, slots):
                    mask[:, : len(prefix)] = True
        window = side(sliding_window_size) or None
        spec = Spec(
            sm_scale or q_extend.shape[-1] ** -0.5,
            is_causal and masks is None,
            (window, None if is_causal else window),
            logit_cap or None,
            sinks=optional(sinks),
            masks=masks,
        )
        return stated(query, many[0], many[1], spec, dtype_of(q_extend))

    def write(self, outs, lses, *args, **kwargs) -> None:  # noqa: D102
        args[3].copy_(torch.from_numpy(outs))
        if "lse_extend" in kwargs:
            kwargs["lse_extend"].copy_(torch.from_numpy(lses))


class SGLangDecode(Keyworded):
    """`decode_attention_fwd` of SGLang: one query per sequence, all keys in the pool.

    The pool, `kv_indptr` and `kv_indices` are as in `SGLang`, with this step's token included;
    `attn_logits` and `attn_lse` are scratch for the splits. `k_scale` and `v_scale` are numbers.
    `logit_cap` 0 is off; a window would be a shorter list of slots. It writes to `o`, returns
    nothing, and has no lse of the whole. Rows of no key are anything: NaN, by version 0.5.23.
    """

    name = "sglang_decode"
    features = SGLang.features.only(
        kv_forms=("float8_e4m3fn", "float8_e5m2"),
        query_len=(1, 1),
        ragged=False,
        causal=(True,),
        left_window=False,
        right_window=False,
        masks=(),
        queries_beyond_keys=True,
        lse=False,
    )
    contract = Contract(empty_row="any")
    source = "sglang/kernels/ops/attention/decode_attention.py"
    options: ClassVar = {"sinks": ("sinks", False)}

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        out, _ = results(case, device)
        slots = token_slots(case, [slice(None)] * problem.num_seqs)
        shape = (problem.num_seqs, problem.num_heads, SPLITS, problem.value_head_dim)
        scratch = guarded_rows(shape, "float32", device), guarded_rows(shape[:3], "float32", device)
        scales = (1.0 if s is None else float(s) for s in map(case.scales, ("key", "value")))
        args = (
            tensor(case.flat_query, problem.dtype, device),
            *pool(case, device),
            out,
            tensor(starts(problem.kv_lens), torch.int32, device),
            guarded_list(slots, case, torch.int64, device),
            *scratch,
            torch.full((problem.num_seqs,), SPLITS, dtype=torch.int32, device=device),
            SPLITS,
            spec.scale,
            *scales,
        )
        sinks = None if spec.sinks is None else tensor(spec.sinks, device=device)
        kwargs = given(logit_cap=spec.softcap or 0.0, sinks=sinks)
        return Call(args, kwargs, lambda _: (out, None), (out,), scratch)

    def read(  # noqa: D102
        self,
        q: Tensor,
        k_buffer: Tensor,
        v_buffer: Tensor,
        o: Tensor,
        kv_indptr: Tensor,
        kv_indices: Tensor,
        attn_logits: Tensor,
        attn_lse: Tensor,
        num_kv_splits: Tensor,
        max_kv_splits: int,
        sm_scale: float,
        k_scale: float,
        v_scale: float,
        *,
        logit_cap: float = 0.0,
        sinks: Tensor | None = None,
    ) -> Problem:
        slots = lists(kv_indices, kv_indptr)
        key = scaled(tokens(k_buffer[:, None], slots, map(len, slots)), k_scale)
        value = scaled(tokens(v_buffer[:, None], slots, map(len, slots)), v_scale)
        spec = Spec(sm_scale, softcap=logit_cap or None, sinks=optional(sinks))
        return stated(rows(q, torch.arange(len(q) + 1)), key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> None:  # noqa: D102
        args[3].copy_(torch.from_numpy(outs))


def pool(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """`[num_slots, num_kv_heads, dim]`: keys and values by slot."""
    key, value = caches(case, "NHD", device)
    return key.flatten(0, 1), value.flatten(0, 1)


def dense(many: Any, parts: list[slice], dtype: str, device: str) -> Tensor:
    """These positions of every sequence, one sequence after another."""
    return tensor(np.concatenate([x[part] for x, part in zip(many, parts)]), dtype, device)


def results(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """Buffers for the output and the lse."""
    problem, count = case.problem, len(case.flat_query)
    shape = count, problem.num_heads, problem.value_head_dim
    return guarded_rows(shape, problem.dtype, device), guarded_rows(shape[:2], "float32", device)


def _window_says_it(spec: Spec) -> bool:
    left, right = spec.window
    symmetric = right is None if spec.causal else left == right
    return spec.masks is None and symmetric and left != 0


def _read_masks(mask: Tensor, begin: list[int], query: Any, key: Any) -> tuple[np.ndarray, ...]:
    flat = mask.cpu().numpy() != 0
    shapes = [(len(q), len(k)) for q, k in zip(query, key)]
    return tuple(flat[b : b + q * k].reshape(q, k) for b, (q, k) in zip(begin, shapes))
