"""What attention in parts must have to do with attention in one piece.

Every part is a case of its own and is held against the truth; the merge of two halves is held
against the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from . import edits
from .cases import Case
from .comparisons import finite, lse_within_bound, within_bound
from .contract import Contract, Features
from .guard import KernelFault
from .trial import Trial
from .truth import Codes, Problem

Promised = Callable[[Contract, Features], bool]


def cut(case: Case, s: int, queries: slice, keys: slice) -> Case:
    """Sequence s alone, with some of its queries and some of its keys, on blocks of its own."""
    problem = edits.take_sequences(case, [s]).problem

    def codes(codes: Codes | None) -> Codes | None:
        if codes is None:
            return None
        scale = codes.scale
        scale = tuple(x[keys] for x in scale) if isinstance(scale, tuple) else scale
        return replace(codes, numbers=tuple(x[keys] for x in codes.numbers), scale=scale)

    masks = problem.spec.masks
    part = replace(
        problem,
        query=(problem.query[0][queries],),
        key=(problem.key[0][keys],),
        value=(problem.value[0][keys],),
        spec=replace(problem.spec, masks=masks and (masks[0][queries, keys],)),
        key_codes=codes(problem.key_codes),
        value_codes=codes(problem.value_codes),
    )
    return _placed_anew(case, part, case.placement.block_size)


def _placed_anew(case: Case, problem: Problem, block_size: int) -> Case:
    rows, first = [], 1
    for kv_len in problem.kv_lens:
        count = -(-kv_len // block_size)
        rows.append(tuple(range(first + count - 1, first - 1, -1)))  # the last block first
        first += count
    place = case.placement
    return Case(
        problem, replace(place, block_size=block_size, num_blocks=first + 1, block_ids=tuple(rows))
    )


def chunks(trial: Trial) -> Iterator[tuple[str, Case]]:
    """Each prefill in two chunks: first without its last queries and keys, then those."""
    case = trial.case
    if not case.problem.spec.causal or case.problem.spec.alignment != "bottom-right":
        return
    for s, (query_len, kv_len) in enumerate(zip(case.problem.query_lens, case.problem.kv_lens)):
        if 2 <= query_len <= kv_len:
            half = query_len // 2
            keys = slice(0, kv_len - (query_len - half))
            yield f"first chunk of sequence {s}", cut(case, s, slice(0, half), keys)
            yield f"second chunk of sequence {s}", cut(case, s, slice(half, None), slice(None))


def rows(trial: Trial) -> Iterator[tuple[str, Case]]:
    """Each query of a prefill as the decode step that it would have been."""
    case = trial.case
    if not case.problem.spec.causal or case.problem.spec.alignment != "bottom-right":
        return
    for s, (query_len, kv_len) in enumerate(zip(case.problem.query_lens, case.problem.kv_lens)):
        for i in range(query_len if 2 <= query_len <= kv_len else 0):
            keys = slice(0, kv_len - query_len + i + 1)
            yield f"query {i} of sequence {s} as decode", cut(case, s, slice(i, i + 1), keys)


def block_sizes(trial: Trial) -> Iterator[tuple[str, Case]]:
    """The same content in blocks of every other size."""
    for size in trial.subject.features.block_sizes:
        if size != trial.case.placement.block_size:
            yield f"blocks of {size}", _placed_anew(trial.case, trial.case.problem, size)


def within_truth(parts: Callable[[Trial], Iterator[tuple[str, Case]]]):
    """A check: every part is as near to its truth as its arithmetic allows."""

    def examine(trial: Trial) -> str | None:
        for name, case in parts(trial):
            part = Trial(trial.subject, case)
            try:
                wrong = finite(part) or within_bound(part) or lse_within_bound(part)
            except KernelFault as fault:
                wrong = None if fault.declined else fault.text
            if wrong:
                return f"{name}: {wrong}"
        return None

    return examine


def merged_halves(trial: Trial) -> str | None:
    """Over the keys' first and second half, merged by their lse, the last query is as over all."""
    spec, problem = trial.case.problem.spec, trial.case.problem
    if spec.sinks is not None or spec.alibi_slopes is not None or spec.window != (None, None):
        return None
    if spec.masks is not None or spec.alignment != "bottom-right":
        return None
    for s, (query_len, kv_len) in enumerate(zip(problem.query_lens, problem.kv_lens)):
        if query_len < 1 or kv_len < 2:
            continue
        last, middle = slice(query_len - 1, None), (kv_len + 1) // 2
        halves = [
            Trial(trial.subject, cut(trial.case, s, last, keys))
            for keys in (slice(0, middle), slice(middle, None))
        ]
        try:
            got, bound = _merge(halves)
        except KernelFault as fault:
            if fault.declined:
                continue
            return f"one half of sequence {s}: {fault.text}"
        right, own = trial.truth.out[s][-1:], trial.truth.out_bound[s][-1:]
        wrong = ~(np.abs(got - right) <= bound + own)
        if wrong.any():
            at = tuple(int(x[0]) for x in np.nonzero(wrong))
            return (
                f"sequence {s}: keys 0..{middle - 1} and {middle}..{kv_len - 1}, merged by lse, "
                f"give {got[at]:.7g} at head {at[1]}, element {at[2]}; the whole is {right[at]:.7g}"
            )
    return None


def _merge(halves: list[Trial]) -> tuple[np.ndarray, np.ndarray]:
    outs = [t.result.out[0] for t in halves]
    lses = [t.result.lse[0] for t in halves]  # pyright: ignore[reportOptionalSubscript]
    top = np.maximum(*lses)
    parts = [np.exp(lse - top)[..., None] for lse in lses]
    total = parts[0] + parts[1]
    out = (parts[0] * outs[0] + parts[1] * outs[1]) / total
    slack = sum(np.expm1(np.minimum(t.truth.lse_bound[0], 50))[..., None] for t in halves)
    bound = sum(t.truth.out_bound[0] for t in halves) + slack * np.abs(outs[0] - outs[1])
    return out, bound


def _decodes(contract: Contract, features: Features) -> bool:
    return features.query_len[0] <= 1 < features.query_len[1]


CHECKS = (
    (
        "chunks",
        "A prefill in chunks is the prefill.",
        within_truth(chunks),
        lambda contract, features: features.query_len[1] > 1,
    ),
    ("decode equals prefill", "A row of a prefill is a decode.", within_truth(rows), _decodes),
    (
        "block size",
        "The block size changes nothing but bits.",
        within_truth(block_sizes),
        lambda contract, features: len(features.block_sizes) > 1,
    ),
    (
        "merged halves",
        "Attention over two halves, merged by lse, is attention over all.",
        merged_halves,
        lambda contract, features: features.lse,
    ),
)
