"""FlashInfer: pages in CSR form, keys and values of a page together, the lse to base 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call, Kernel
from .indices import guarded_list, page_lists
from .keywords import Keyworded, accepts, given
from .packing import caches, tensor
from .reading import dtype_of, integers, lists, optional, rows, scaled, side, stated, tokens


class FlashInfer(Keyworded):
    """`plan` and `run` of `BatchPrefillWithPagedKVCacheWrapper` as one call, layout NHD.

    What differs from the native convention:

    - The pages of a sequence are `kv_indices[kv_indptr[i]:kv_indptr[i + 1]]`, and its length is
      `page_size * (pages - 1) + kv_last_page_len[i]`. A sequence of no keys is an empty row; its
      `kv_last_page_len` is not 0.
    - One tensor `[num_pages, 2, page_size, num_kv_heads, head_dim]`, or a pair.
    - `window_left` does not count the query itself: -1 is off, 0 sees only itself.
    - A `custom_mask` (flattened `[query_len, kv_len]`, one sequence after another; or bits, eight
      to a byte from the lowest, every sequence from a byte of its own) replaces `causal`, not the
      window.
    - The lse is to base 2. ALiBi slopes are the library's own.
    """

    name = "flashinfer"
    layout: ClassVar[str] = "NHD"
    takes_bits = True
    features = Features(
        kv_forms=("float8_e4m3fn", "float8_e5m2"),
        right_window=False,
        alibi=False,
        masks=("tree", "random"),
        storages=("pair", "padded pair"),
        far=True,
        shared_tails=True,
    )
    contract = Contract(lse_base="2")
    source = "flashinfer docs/tutorials/kv_layout.rst; flashinfer/prefill.py; variants.cuh"
    options: ClassVar = {
        "causal": ("causal", (False,)),
        "window_left": ("left_window", False),
        "logits_soft_cap": ("softcap", False),
        "custom_mask": ("masks", ()),
        "sinks": ("sinks", False),
        "k_scale": ("kv_forms", ()),
        "v_scale": ("kv_forms", ()),
        "return_lse": ("lse", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        indptr, indices, last = page_lists(case)
        mask = None if spec.masks is None else _flat_mask(problem)
        codes = {f"{w[0]}_scale": case.scales(w) for w in ("key", "value")}
        kwargs = given(
            causal=True if spec.causal and mask is None else None,
            window_left=spec.window[0],
            logits_soft_cap=spec.softcap,
            custom_mask=None if mask is None else tensor(mask, torch.bool, device),
            sinks=None if spec.sinks is None else tensor(spec.sinks, torch.float32, device),
            **{name: None if s is None else float(s) for name, s in codes.items()},
        )
        return Call(
            (
                tensor(case.flat_query, problem.dtype, device),
                self._paged(case, device),
                tensor(case.query_start_loc, torch.int32, device),
                tensor(indptr, torch.int32, device),
                guarded_list(indices, case, device=device),
                tensor(last, torch.int32, device),
            ),
            {"sm_scale": spec.scale, **kwargs, "return_lse": True},
        )

    def _paged(self, case: Case, device: str) -> Tensor | tuple[Tensor, Tensor]:
        storage = case.placement.storage
        if storage or case.is_far("key"):
            order = {"pair": self.layout, "padded pair": "padded"}.get(storage, storage)
            key, value = caches(case, order or self.layout, device)
            nhd = self.layout == "NHD"
            return (key, value) if nhd else (key.transpose(1, 2), value.transpose(1, 2))
        return joined_pages(case, self.layout, device)

    def read(  # noqa: D102
        self,
        q: Tensor,
        paged_kv_cache: Tensor | tuple[Tensor, Tensor],
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_indices: Tensor,
        kv_last_page_len: Tensor,
        *,
        sm_scale: float | None = None,
        causal: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
        sinks: Tensor | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        return_lse: bool = False,
    ) -> Problem:
        pair = paged_kv_cache if isinstance(paged_kv_cache, tuple) else paged_kv_cache.unbind(1)
        k_pages, v_pages = (x.transpose(1, 2) if self.layout == "HND" else x for x in pair)
        ids, size = lists(kv_indices, kv_indptr), k_pages.shape[1]
        lengths = [
            size * (len(row) - 1) + last if row else 0
            for row, last in zip(ids, integers(kv_last_page_len))
        ]
        query = rows(q, qo_indptr)
        shapes = [(len(x), kv_len) for x, kv_len in zip(query, lengths)]
        masks = _read_mask(shapes, custom_mask, packed_custom_mask)
        spec = Spec(
            sm_scale or 1 / math.sqrt(q.shape[-1]),
            causal and masks is None,
            (side(window_left), None),
            logits_soft_cap or None,
            sinks=optional(sinks),
            masks=masks,
        )
        key = scaled(tokens(k_pages, ids, lengths), k_scale)
        value = scaled(tokens(v_pages, ids, lengths), v_scale)
        return stated(query, key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        out = torch.from_numpy(outs).to(args[0])
        if not kwargs.get("return_lse"):
            return out
        return out, torch.from_numpy(lses / math.log(2)).float().to(out.device)

    def fit(self, kernel: Kernel) -> tuple[Kernel, Features, list[str]]:  # noqa: D102
        self.takes_bits = accepts(kernel, "packed_custom_mask")
        return super().fit(kernel)

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Without the lse; with the mask as bits."""
        without = {**call.kwargs, "return_lse": False}
        yield "without lse", replace(call, kwargs=without, unpack=lambda out: (out, None))
        masks = self.read(*call.args, **call.kwargs).spec.masks
        if masks is not None and self.takes_bits:
            bits = np.concatenate([np.packbits(m, bitorder="little") for m in masks])
            kwargs = {name: x for name, x in call.kwargs.items() if name != "custom_mask"}
            packed = torch.from_numpy(bits).to(call.args[0].device)
            yield "mask as bits", replace(call, kwargs={**kwargs, "packed_custom_mask": packed})


class FlashInferHND(FlashInfer):
    """FlashInfer with layout HND: `[num_pages, 2, num_kv_heads, page_size, head_dim]`, or a pair.

    All else is as in `FlashInfer`.
    """

    name = "flashinfer_hnd"
    layout = "HND"


def joined_pages(case: Case, layout: str, device: str = "cpu") -> Tensor:
    """`[num_pages, 2, ...]`: a page's keys, then its values; pages of poison before and after."""
    guards = case.placement.guards
    pools = [case.pool(which, guards) for which in ("key", "value")]
    if layout == "HND":
        pools = [pool.swapaxes(1, 2) for pool in pools]
    memory = tensor(np.stack(pools, 1), case.stored_dtype("key"), device)
    return memory[guards : guards + case.placement.num_blocks]


def _flat_mask(problem: Problem) -> np.ndarray:
    return np.concatenate([problem.visible(s).reshape(-1) for s in range(problem.num_seqs)])


def _read_mask(
    shapes: list[tuple[int, int]], mask: Tensor | None, bits: Tensor | None
) -> tuple[np.ndarray, ...] | None:
    found, at = [], 0
    for q, kv in shapes:
        if bits is not None:
            count = -(-q * kv // 8)
            part = [(int(bits[at + i // 8]) >> i % 8) & 1 for i in range(q * kv)]
            at += count
        elif mask is not None:
            part = mask[at : at + q * kv].tolist()
            at += q * kv
        else:
            return None
        found.append(np.array(part, dtype=bool).reshape(q, kv))
    return tuple(found)
