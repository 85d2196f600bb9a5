"""The native convention: a ragged batch over `[num_blocks, block_size, num_kv_heads, head_dim]`."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..guard import KernelFault
from ..truth import Codes, Problem, Spec
from .base import Call, Convention, Kernel
from .packing import ORDERS, array, caches, tensor, within_wider

OPTIONS = {  # argument: the feature that needs it, and what the feature becomes without it
    "causal": ("causal", (True,)),
    "window": ("left_window", False),
    "softcap": ("softcap", False),
    "alibi_slopes": ("alibi", False),
    "sinks": ("sinks", False),
    "k_scale": ("kv_forms", ()),
    "v_scale": ("kv_forms", ()),
    "return_lse": ("lse", False),
}


class Native(Convention):
    """`paged_attention(query, key_cache, value_cache, block_tables, seq_lens, query_start_loc)`."""

    name = "native"
    features = Features(
        dtypes=("float32", "bfloat16", "float16"),
        block_sizes=(1, 2, 3, 4, 8, 16, 32, 64, 128),
        kv_forms=("float8_e4m3fn", "float8_e5m2", "int8", "bfloat16"),
        kv_scales=("tensor", "head"),
        value_head_dims=(1, 2, 3, 4, 5, 8, 16, 40, 64, 128),
        right_window=False,
        far=True,
        shared_tails=True,
        storages=ORDERS,
    )
    contract = Contract(holes=True, hidden="finite")
    lse_dtype = "float32"
    source = "minipaged/attention/paged.py"

    def pack(self, case: Case, device: str = "cpu") -> Call:
        """Keyword arguments only where an option is on, so that a plain kernel can be plain.

        In every memory order but the plain one the query is part of a wider tensor, as queries
        fresh from a fused projection are, and the table part of a wider table.
        """
        spec, plain = case.problem.spec, case.placement.storage in ("", "NHD")
        key_cache, value_cache = caches(case, case.placement.storage or "NHD", device)
        left = spec.window[0]
        options = {
            "causal": None if spec.causal else False,
            "window": None if left is None else left + 1,
            "softcap": spec.softcap,
            "alibi_slopes": _floats(spec.alibi_slopes, device),
            "sinks": _floats(spec.sinks, device),
            "k_scale": _scale(case, "key", device),
            "v_scale": _scale(case, "value", device),
        }
        kwargs = {name: value for name, value in options.items() if value is not None}
        query = tensor(case.flat_query, case.problem.dtype, device)
        tables, lens, starts = (
            tensor(x, torch.int32, device)
            for x in (case.table, case.seq_lens, case.query_start_loc)
        )
        if not plain:
            query = within_wider(query, dim=1, beside=torch.nan)
            tables = within_wider(tables, dim=1, beside=case.placement.padding)
        return Call(
            (query, key_cache, value_cache, tables, lens, starts),
            {"scale": spec.scale, **kwargs, "return_lse": True},
            lambda returned: returned,
        )

    def read(  # noqa: D102
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        query_start_loc: Tensor,
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
        softcap: float | None = None,
        alibi_slopes: Tensor | None = None,
        sinks: Tensor | None = None,
        k_scale: Tensor | float | None = None,
        v_scale: Tensor | float | None = None,
        return_lse: bool = False,
    ) -> Problem:
        spec = Spec(
            scale,
            causal,
            (None if window is None else window - 1, None),
            softcap,
            None if alibi_slopes is None else array(alibi_slopes),
            None if sinks is None else array(sinks),
        )
        rows = query_start_loc.tolist()
        size = key_cache.shape[1]
        key, value = [], []
        for table, kv_len in zip(block_tables.tolist(), seq_lens.tolist()):
            place = [(table[p // size], p % size) for p in range(kv_len)]
            blocks, offsets = [b for b, _ in place], [o for _, o in place]
            key.append(array(key_cache[blocks, offsets]))
            value.append(array(value_cache[blocks, offsets]))
        codes = [
            None if s is None else Codes("float64", "tensor", tuple(x), array(torch.as_tensor(s)))
            for s, x in ((k_scale, key), (v_scale, value))
        ]
        return Problem(
            tuple(array(query[a:b]) for a, b in itertools.pairwise(rows)),
            codes[0].values() if codes[0] else tuple(key),
            codes[1].values() if codes[1] else tuple(value),
            spec,
            str(query.dtype).removeprefix("torch."),
        )

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        query: Tensor = args[0]
        out = torch.from_numpy(outs).to(query)
        return (out, torch.from_numpy(lses).float()) if kwargs.get("return_lse") else out

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """With rows of query that belong to no sequence, as a padded batch has; without lse."""
        query, *rest = call.args
        rows = len(query)
        # NaN shows in whoever mixes rows; but it may vanish in a comparison, and a number does not
        spare = (query.new_full((1, *query.shape[1:]), x) for x in (torch.nan, 1))
        padded = torch.cat([query, *spare])

        def cut(returned: Any) -> tuple[Any, Any]:
            out, lse = returned
            spare = out[rows:]
            if contract.spare_rows == "zero" and not torch.equal(spare, torch.zeros_like(spare)):
                raise KernelFault("spare rows", f"they return {spare.flatten()[0]:.3g}, not 0")
            return out[:rows], None if lse is None else lse[:rows]

        yield (
            "two more rows of query, of no sequence",
            replace(call, args=(padded, *rest), unpack=cut),
        )
        if call.kwargs.get("return_lse"):
            kwargs = {**call.kwargs, "return_lse": False}
            yield "without lse", replace(call, kwargs=kwargs, unpack=lambda out: (out, None))

    def fit(self, kernel: Kernel) -> tuple[Kernel, Features, list[str]]:
        """Features whose argument the kernel does not have are not asked of it."""
        features, notes = self.features, []
        try:
            parameters = inspect.signature(kernel).parameters
        except Exception:  # a builtin, or stranger: it will say so itself
            return kernel, features, notes
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return kernel, features, notes
        for argument, (feature, without) in OPTIONS.items():
            if argument not in parameters:
                features = features.only(**{feature: without})
                notes.append(f"{feature}: the kernel has no argument {argument!r}")
        return (kernel if features.lse else _without_lse(kernel)), features, notes


def _without_lse(kernel: Kernel) -> Kernel:
    @functools.wraps(kernel)
    def call(*args: Any, return_lse: bool = False, **kwargs: Any) -> Any:
        out = kernel(*args, **kwargs)
        return (out, None) if return_lse else out

    return call


def _floats(x: Any, device: str) -> Tensor | None:
    return None if x is None else tensor(x, torch.float32, device)


def _scale(case: Case, which: Any, device: str) -> Tensor | float | None:
    scale = case.scales(which)
    if scale is None:
        return None
    return float(scale) if np.ndim(scale) == 0 else tensor(scale, torch.float32, device)
