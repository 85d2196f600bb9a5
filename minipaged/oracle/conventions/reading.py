"""What the ways back have in common: rows of sequences, tokens of pages; knows no library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..truth import Problem, Spec
from ..truth.problem import Array
from .packing import array


def integers(x: Any) -> list[Any]:
    """A tensor or array of integers as nested lists."""
    return x.tolist()


def dtype_of(x: Any) -> str:
    """Name of the dtype of a tensor or array."""
    return str(x.dtype).removeprefix("torch.")


def rows(x: Any, starts: Any) -> tuple[Array, ...]:
    """`x[starts[i]:starts[i + 1]]` for every i."""
    flat, bounds = array(x), integers(starts)
    return tuple(flat[a:b] for a, b in pairwise(bounds))


def lists(indices: Any, starts: Any) -> list[list[int]]:
    """The rows of a CSR matrix's index list."""
    flat, bounds = integers(indices), integers(starts)
    return [flat[a:b] for a, b in pairwise(bounds)]


def tokens(pages: Any, ids: Iterable[Sequence[int]], lengths: Iterable[int]) -> tuple[Array, ...]:
    """Token p of a sequence is at offset `p % page_size` of its page number `p // page_size`.

    Args:
        pages: `[num_pages, page_size, heads, dim]`, a tensor or array of any strides.
        ids: The pages of every sequence.
        lengths: Tokens of every sequence.
    """
    size, found = pages.shape[1], []
    for row, length in zip(ids, lengths):
        position = np.arange(length)
        page = np.array([row[p // size] for p in position], dtype=np.int64)
        found.append(array(pages[page, position % size]))
    return tuple(found)


def scaled(many: tuple[Array, ...], scale: Any) -> tuple[Array, ...]:
    """Stored numbers times their scale: None, a number, or one for every sequence and head."""
    if scale is None:
        return many
    scale = array(scale)
    per_sequence = scale if scale.ndim == 2 else [scale.reshape(())] * len(many)
    return tuple(x * np.asarray(s)[..., None] for x, s in zip(many, per_sequence))


def side(width: int) -> int | None:
    """One side of an inclusive window, where a negative number leaves it open."""
    return None if width < 0 else int(width)


def total(width: int | None) -> int | None:
    """The left side of a window that counts the query itself; none if there is no window."""
    return int(width) - 1 if width else None


def optional(x: Any) -> Array | None:
    """Numbers per head, or None."""
    return None if x is None else array(x).reshape(-1)


def stated(
    query: Iterable[Array], key: Iterable[Array], value: Iterable[Array], spec: Spec, dtype: str
) -> Problem:
    """The problem of these sequences."""
    return Problem(tuple(query), tuple(key), tuple(value), spec, dtype)
