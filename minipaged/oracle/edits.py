"""Cases made from cases: the same sequences in another order, other heads, other content.

Pure functions; what becomes of the output is for `relations` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .cases import Case
from .truth import Codes, Problem
from .truth.problem import Array


def take_sequences(case: Case, order: Sequence[int]) -> Case:
    """The sequences named, in this order; the pool stays as it is."""
    problem, spec = case.problem, case.problem.spec

    def pick(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(items[s] for s in order)

    masks = None if spec.masks is None else pick(spec.masks)
    chosen = replace(
        problem,
        query=pick(problem.query),
        key=pick(problem.key),
        value=pick(problem.value),
        spec=replace(spec, masks=masks),
        key_codes=_each(problem.key_codes, pick),
        value_codes=_each(problem.value_codes, pick),
    )
    rest = replace(case.placement, block_ids=pick(case.placement.block_ids))
    return Case(chosen, rest)


def _each(codes: Codes | None, change: Callable[[Any], tuple[Any, ...]]) -> Codes | None:
    if codes is None:
        return None
    scale = change(codes.scale) if isinstance(codes.scale, tuple) else codes.scale
    return replace(codes, numbers=change(codes.numbers), scale=scale)


def permute_kv_heads(case: Case, order: Sequence[int]) -> Case:
    """Key and value heads in another order, each with its group of query heads."""
    problem, order = case.problem, list(order)
    heads, spec = head_order(problem, order), problem.spec

    def codes(codes: Codes | None) -> Codes | None:
        if codes is None:
            return None
        if isinstance(codes.scale, tuple):
            scale = tuple(x[:, order] for x in codes.scale)
        else:
            scale = codes.scale[order] if codes.scale.ndim else codes.scale
        return replace(codes, numbers=tuple(x[:, order] for x in codes.numbers), scale=scale)

    changed = replace(
        problem,
        query=tuple(x[:, heads] for x in problem.query),
        key=tuple(x[:, order] for x in problem.key),
        value=tuple(x[:, order] for x in problem.value),
        spec=replace(
            spec, alibi_slopes=_at(spec.alibi_slopes, heads), sinks=_at(spec.sinks, heads)
        ),
        key_codes=codes(problem.key_codes),
        value_codes=codes(problem.value_codes),
    )
    return replace(case, problem=changed)


def head_order(problem: Problem, kv_order: Sequence[int]) -> list[int]:
    """The order of the query heads that goes with an order of the kv heads."""
    group = problem.num_heads // problem.num_kv_heads
    return [h * group + i for h in kv_order for i in range(group)]


def _at(x: Array | None, order: Sequence[int]) -> Array | None:
    return None if x is None else x[list(order)]


def scale_values(case: Case, factor: float) -> Case:
    """All values times a power of two; of a quantised cache the scale is."""
    problem, codes = case.problem, case.problem.value_codes
    value = tuple(x * factor for x in problem.value)
    if codes is not None:
        scale = codes.scale
        many = isinstance(scale, tuple)
        codes = replace(codes, scale=tuple(x * factor for x in scale) if many else scale * factor)
    return replace(case, problem=replace(problem, value=value, value_codes=codes))


def scale_query(case: Case, factor: float) -> Case:
    """All queries times a power of two, and the softmax scale divided by it."""
    problem = case.problem
    spec = replace(problem.spec, scale=problem.spec.scale / factor)
    query = tuple(x * factor for x in problem.query)
    return replace(case, problem=replace(problem, query=query, spec=spec))


def replace_tokens(case: Case, which: str, change: Callable[[int, Array], Array]) -> Case:
    """Keys or values as `change(sequence, numbers)` returns them.

    In a quantised cache the stored numbers are changed, and what they stand for follows.
    """
    problem = case.problem
    codes = problem.key_codes if which == "key" else problem.value_codes
    if codes is not None:
        codes = replace(codes, numbers=tuple(change(s, x) for s, x in enumerate(codes.numbers)))
        changes = {which: codes.values(), f"{which}_codes": codes}
    else:
        tokens = getattr(problem, which)
        changes = {which: tuple(change(s, x) for s, x in enumerate(tokens))}
    return replace(case, problem=replace(problem, **changes))


def hidden_positions(case: Case) -> list[np.ndarray]:
    """Per sequence, the positions that none of its queries sees.

    A block may be shared: a position counts only if no sequence sees it in any of its slots.
    """
    seen_slots: set[int] = set()
    for s in range(case.problem.num_seqs):
        seen_slots.update(case.slots(s)[case.problem.visible(s).any(0)].tolist())
    return [
        np.array(
            [p for p, slot in enumerate(case.slots(s).tolist()) if slot not in seen_slots], int
        )
        for s in range(case.problem.num_seqs)
    ]


def split_blocks(case: Case) -> Case:
    """Every sequence on blocks of its own: what was shared is copied."""
    place = case.placement
    used: set[int] = set()
    fresh, rows = place.num_blocks, []
    for row in place.block_ids:
        mine = []
        for block in row:
            if block in used:
                block, fresh = fresh, fresh + 1
            used.add(block)
            mine.append(block)
        rows.append(tuple(mine))
    return case.placed(block_ids=tuple(rows), num_blocks=fresh)


def move_blocks(case: Case, seed: int) -> Case:
    """The same content at other block ids of the same pool."""
    place = case.placement
    new = np.random.default_rng(seed).permutation(place.num_blocks)
    if np.array_equal(new, np.arange(place.num_blocks)):
        new = np.roll(new, 1)
    return case.placed(block_ids=tuple(tuple(int(new[b]) for b in row) for row in place.block_ids))


def take_head(problem: Problem, head: int) -> Problem:
    """One query head and its kv head, nothing quantised."""
    kv_head, spec = head // (problem.num_heads // problem.num_kv_heads), problem.spec
    return replace(
        problem,
        query=tuple(x[:, [head]] for x in problem.query),
        key=tuple(x[:, [kv_head]] for x in problem.key),
        value=tuple(x[:, [kv_head]] for x in problem.value),
        spec=replace(
            spec, alibi_slopes=_at(spec.alibi_slopes, [head]), sinks=_at(spec.sinks, [head])
        ),
        key_codes=None,
        value_codes=None,
    )


def with_values(problem: Problem, value: tuple[Array, ...]) -> Problem:
    """Other values, of any dim."""
    return replace(problem, value=value, value_codes=None, latent=False)
