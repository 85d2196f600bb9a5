"""PyTorch's flex attention over a paged cache: one long sequence of slots, and a mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .keywords import Keyworded, given
from .packing import array, caches, tensor
from .reading import dtype_of, integers, optional, stated, tokens


class Flex(Keyworded):
    """PyTorch's `flex_attention` with `PagedAttention`: what they are made from, dense.

    A kernel builds its block mask of `mask[b, q, kv]` and its score modification of the rest:
    `score -> softcap * tanh(score / softcap)`, then `+ alibi_slopes[h] * (kv - positions[b, q])`.

    What differs from the native convention:

    - Keys and values are `[1, num_kv_heads, num_pages * page_size, dim]`, all pages one after
      another; queries are padded, `[batch_size, num_heads, max_query_len, head_dim]`.
    - `page_table` is int64 and -1 where there is no page; `physical_to_logical[b, page]` is its
      inverse, -1 for pages that are not the sequence's.
    - Whatever hides a key is in the mask, `[batch_size, max_query_len, max_kv_len]` with
      `max_kv_len` a multiple of the page size; False beyond a sequence's lengths.
    - It returns output and lse padded like the queries: `[batch_size, num_heads, max_query_len]`.
    """

    name = "flex"
    features = Features(
        value_head_dims=(1, 2, 3, 4, 5, 8, 16, 40, 64),
        sinks=False,
        masks=("tree", "random"),
        alignments=("bottom-right", "top-left"),
    )
    contract = Contract(padding="-1")
    source = "torch/nn/attention/flex_attention.py; experimental/_paged_attention.py"
    options: ClassVar = {
        "softcap": ("softcap", False),
        "alibi_slopes": ("alibi", False),
        "return_lse": ("lse", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        batch, longest = problem.num_seqs, max(1, *problem.query_lens)
        shape = batch, problem.num_heads, longest, problem.head_dim
        query = case.poison(shape, problem.dtype, "query")
        positions = np.zeros((batch, longest), dtype=np.int64)
        mask = np.zeros(
            (batch, longest, case.table.shape[1] * case.placement.block_size), dtype=bool
        )
        inverse = np.full((batch, case.placement.num_blocks), -1)
        for s, (q, ids) in enumerate(zip(problem.query, case.placement.block_ids)):
            query[s, :, : len(q)] = q.swapaxes(0, 1)
            positions[s, : len(q)] = problem.positions(s)
            mask[s, : len(q), : problem.kv_lens[s]] = problem.visible(s)
            inverse[s, list(ids)] = range(len(ids))
        slopes = spec.alibi_slopes
        kwargs = given(
            scale=spec.scale,
            mask=tensor(mask, torch.bool, device),
            positions=tensor(positions, torch.int64, device),
            query_lens=tensor(problem.query_lens, torch.int64, device),
            kv_lens=tensor(case.seq_lens, torch.int64, device),
            softcap=spec.softcap,
            alibi_slopes=None if slopes is None else tensor(slopes, torch.float32, device),
            return_lse=True,
        )
        flat = (x.flatten(0, 1).transpose(0, 1)[None] for x in caches(case, "NHD", device))
        table = (tensor(x, torch.int64, device) for x in (case.table, inverse))
        args = (tensor(query, problem.dtype, device), *flat, *table, case.placement.block_size)

        def unpack(returned: Any) -> tuple[Any, Any]:
            out, lse = returned
            return _unpadded(out, problem.query_lens), _unpadded(lse, problem.query_lens)

        return Call(args, kwargs, unpack)

    def read(  # noqa: D102
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        page_table: Tensor,
        physical_to_logical: Tensor,
        page_size: int,
        *,
        scale: float,
        mask: Tensor,
        positions: Tensor,
        query_lens: Tensor,
        kv_lens: Tensor,
        softcap: float | None = None,
        alibi_slopes: Tensor | None = None,
        return_lse: bool = False,
    ) -> Problem:
        many, lengths = [], integers(kv_lens)
        ids = _agreed(integers(page_table), integers(physical_to_logical))
        for cache in (key, value):
            pages = cache[0].unflatten(1, (-1, page_size)).permute(1, 2, 0, 3)
            many.append(tokens(pages, ids, lengths))
        seen = mask.cpu().numpy()
        shapes = list(zip(integers(query_lens), lengths))
        spec = Spec(
            scale,
            causal=False,
            softcap=softcap,
            alibi_slopes=optional(alibi_slopes),
            alignment=_alignment(shapes, positions),
            masks=tuple(seen[s, :q, :kv] for s, (q, kv) in enumerate(shapes)),
        )
        queries = (array(x[:, :q].transpose(0, 1)) for x, (q, _) in zip(query, shapes))
        return stated(queries, many[0], many[1], spec, dtype_of(query))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        query, lengths = args[0], integers(kwargs["query_lens"])
        padded = torch.full((*query.shape[:3], outs.shape[-1] + 1), torch.nan, dtype=torch.float64)
        both, at = torch.from_numpy(np.concatenate([outs, lses[..., None]], -1)), 0
        for s, n in enumerate(lengths):
            padded[s, :, :n] = both[at : at + n].transpose(0, 1)
            at += n
        out = padded[..., :-1].to(query)
        return (out, padded[..., -1].float().to(out.device)) if kwargs.get("return_lse") else out

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Without the lse."""
        kwargs, lengths = {**call.kwargs, "return_lse": False}, integers(call.kwargs["query_lens"])
        other = replace(call, kwargs=kwargs, unpack=lambda out: (_unpadded(out, lengths), None))
        yield "without lse", other


def _unpadded(x: Any, lengths: Any) -> Any:
    return torch.cat([row[:, :n].transpose(0, 1) for row, n in zip(x, lengths)])


def _agreed(table: list[list[int]], inverse: list[list[int]]) -> list[list[int]]:
    """The pages of every sequence; -1 where the table and its inverse disagree."""
    return [
        [page if page >= 0 and back[page] == i else -1 for i, page in enumerate(row)]
        for row, back in zip(table, inverse)
    ]


def _alignment(shapes: list[tuple[int, int]], positions: Tensor) -> Any:
    """Where the queries stand: the same for all sequences."""
    at = [int(positions[s, 0]) == 0 for s, (q, kv) in enumerate(shapes) if q and q != kv]
    return "top-left" if any(at) else "bottom-right"
