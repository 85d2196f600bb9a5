"""Index lists that libraries take beside or in place of a block table; knows cases, no library.

Lists and tables lie in a larger memory: what is before and after them is padding.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cases import Case
from .packing import tensor

Integers = NDArray[np.int64]


def block_table(case: Case, device: str = "cpu") -> Tensor:
    """`[num_seqs, max_blocks_per_seq]` int32, a row of padding before it and one after."""
    padding = case.placement.padding
    return tensor(
        np.pad(case.table, ((1, 1), (0, 0)), constant_values=padding), torch.int32, device
    )[1:-1]


def guarded_list(
    ids: Integers, case: Case, dtype: torch.dtype = torch.int32, device: str = "cpu"
) -> Tensor:
    """A list with more than a tile of padding behind it."""
    memory = np.concatenate([ids, np.full(64, case.placement.padding)])
    return tensor(memory, dtype, device)[: len(ids)]


def starts(lengths: list[int] | tuple[int, ...]) -> Integers:
    """`[len(lengths) + 1]`: where each part begins, and the end."""
    return np.cumsum([0, *lengths])


def page_lists(case: Case) -> tuple[Integers, Integers, Integers]:
    """`indptr`, `indices` and `last_page_len`: the block table as the rows of a CSR matrix.

    A sequence of no tokens has no page; its last page is called full, for it must have a length.
    """
    size, ids = case.placement.block_size, case.placement.block_ids
    indices = np.array([b for row in ids for b in row], dtype=np.int64)
    last = [(kv_len - 1) % size + 1 for kv_len in case.problem.kv_lens]
    return starts([len(row) for row in ids]), indices, np.array(last)


def token_slots(case: Case, tokens: list[slice]) -> Integers:
    """Slots of these positions of every sequence, one sequence after another."""
    return np.concatenate([case.slots(s)[part] for s, part in enumerate(tokens)]).astype(np.int64)


def past_and_new(case: Case) -> tuple[list[slice], list[slice]]:
    """Per sequence, the positions before this step, and those of it: as many as it has queries."""
    pairs = list(zip(case.problem.query_lens, case.problem.kv_lens))
    return [slice(0, k - q) for q, k in pairs], [slice(k - q, k) for q, k in pairs]


def without_new(case: Case, pool: NDArray[np.float64], which: str) -> NDArray[np.float64]:
    """The pool before this step: poison where its tokens will be written.

    A slot that is the past of another sequence keeps its content.
    """
    past, new = past_and_new(case)
    slots = np.setdiff1d(token_slots(case, new), token_slots(case, past))
    empty = case.poison(pool.shape, case.problem.dtype, which)
    flat = pool.copy().reshape(-1, *pool.shape[2:])
    flat[slots] = empty.reshape(flat.shape)[slots]
    return flat.reshape(pool.shape)
