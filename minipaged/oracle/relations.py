"""Changes of a case that must not change a bit of the answer, or only in a known way.

They need no tolerance: a kernel is compared with itself (metamorphic testing, Chen et al. 1998).
Each is a generator of steps, each step a name, another case, and what the answer to that case must
be, given the answer to the first. Where a kernel promises no bits, the other answer must still be
as near to the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from . import edits
from .cases import Case
from .contract import POISONS, Contract, Features
from .subject import Result
from .truth import FORMATS

Expected = Callable[[Result], Result]  # of numbers or of their error bounds
Step = tuple[str, Case, Expected]


@dataclass(frozen=True)
class Relation:
    """A law of the form: with these inputs instead, that output.

    Attributes:
        name: As reports print it.
        law: One sentence.
        promised: Whether it can be asked of a kernel of this contract and these features.
        strict: Whether other bits are a failure, and not only another right answer.
        steps: The changed cases.
    """

    name: str
    law: str
    promised: Callable[[Contract, Features], bool]
    strict: Callable[[Contract], bool]
    steps: Callable[[Case, Contract], Iterator[Step]]


def _same(result: Result) -> Result:
    return result


def again(case: Case, contract: Contract) -> Iterator[Step]:
    """The same call twice more: once might fall in step with what alternates."""
    yield "the same call again", case, _same
    yield "the same call once more", case, _same


def poison(case: Case, contract: Contract) -> Iterator[Step]:
    """Other garbage in the slots that hold no position."""
    for kind in POISONS[contract.poison]:
        if kind != case.placement.poison:
            name = f"slots of no position hold {kind!r}, not {case.placement.poison!r}"
            yield name, case.placed(poison=kind, seed=case.placement.seed + 1), _same


def padding(case: Case, contract: Contract) -> Iterator[Step]:
    """Other numbers, and more of them, where a block table has no block."""
    num_blocks = case.placement.num_blocks
    choices = {
        "any": (-1, num_blocks, 2**31 - 1, -(2**31), 0),
        "valid": (0, num_blocks - 1),
        "-1": (-1,),
        "0": (0,),
    }[contract.padding]
    for pad in choices:
        changed = case.placed(padding=pad, extra_columns=case.placement.extra_columns + 3)
        yield f"block table padded with 3 more columns of {pad}", changed, _same


def placement(case: Case, contract: Contract) -> Iterator[Step]:
    """Every block elsewhere in the pool."""
    yield "blocks at other ids", edits.move_blocks(case, seed=7), _same
    bigger = case.placed(num_blocks=case.placement.num_blocks + 5)
    yield "blocks at other ids of a larger pool", edits.move_blocks(bigger, seed=8), _same


def sharing(case: Case, contract: Contract) -> Iterator[Step]:
    """Shared blocks copied, so that every sequence has its own."""
    split = edits.split_blocks(case)
    if split.placement.block_ids != case.placement.block_ids:
        yield "shared blocks copied", split, _same


def batch_order(case: Case, contract: Contract) -> Iterator[Step]:
    """The sequences the other way round."""
    count = case.problem.num_seqs
    if count > 1:
        order = list(range(count))[::-1]
        yield "sequences in reverse", edits.take_sequences(case, order), _taken(order)


def alone(case: Case, contract: Contract) -> Iterator[Step]:
    """Each sequence by itself."""
    if case.problem.num_seqs > 1:
        for s in range(case.problem.num_seqs):
            yield f"sequence {s} alone", edits.take_sequences(case, [s]), _taken([s])


def _taken(order: list[int]) -> Expected:
    def pick(result: Result) -> Result:
        lse = None if result.lse is None else tuple(result.lse[s] for s in order)
        return Result(tuple(result.out[s] for s in order), lse)

    return pick


def heads(case: Case, contract: Contract) -> Iterator[Step]:
    """The kv heads the other way round, each with its queries."""
    count = case.problem.num_kv_heads
    if count > 1:
        order = list(range(count))[::-1]
        rows = edits.head_order(case.problem, order)

        def permuted(result: Result) -> Result:
            lse = None if result.lse is None else tuple(x[:, rows] for x in result.lse)
            return Result(tuple(x[:, rows] for x in result.out), lse)

        yield "kv heads in reverse", edits.permute_kv_heads(case, order), permuted


def values_times_4(case: Case, contract: Contract) -> Iterator[Step]:
    """All values times 4: so is the output, exactly, and the lse stays."""
    if case.problem.latent or not _far_from_the_rim(case, 4):
        return

    def times_4(result: Result) -> Result:
        return replace(result, out=tuple(x * 4 for x in result.out))

    yield "values times 4", edits.scale_values(case, 4.0), times_4


def query_times_2(case: Case, contract: Contract) -> Iterator[Step]:
    """Queries times 2 and scale halved: nothing changes."""
    if _far_from_the_rim(case, 2):
        yield "queries times 2, scale halved", edits.scale_query(case, 2.0), _same


def _far_from_the_rim(case: Case, factor: float) -> bool:
    """No number overflows by the factor, and none is so small that it loses bits without it."""
    form = FORMATS[case.problem.dtype]
    if form.name == "float16":  # its small numbers lose bits too early
        return False
    biggest = max(np.abs(x).max(initial=0) for x in (*case.problem.query, *case.problem.value))
    return bool(biggest * factor < form.max / 100)


def hidden(case: Case, contract: Contract) -> Iterator[Step]:
    """Other keys and values at positions that no query sees."""
    positions = edits.hidden_positions(case)
    if not any(len(p) for p in positions):
        return
    kinds = {"finite": 3.0} if contract.hidden == "finite" else {"finite": 3.0, "nan": np.nan}
    for kind, number in kinds.items():
        changed = case
        for which in ("key", "value"):
            form = FORMATS[case.stored_dtype(which)]
            if np.isnan(number) and form.is_integer:
                continue

            def put(s: int, x: np.ndarray, number: float = number) -> np.ndarray:
                x = x.copy()
                x[positions[s]] = number
                return x

            if which == "key" or not case.problem.latent:
                changed = edits.replace_tokens(changed, which, put)
        if case.problem.latent:
            dim = case.problem.value_head_dim
            value = tuple(k[..., :dim] for k in changed.problem.key)
            changed = replace(changed, problem=replace(changed.problem, value=value))
        yield f"keys and values that no query sees are {kind} others", changed, _same


def holes(case: Case, contract: Contract) -> Iterator[Step]:
    """Blocks that no query sees are gone from the table."""
    kept = [case.placed(holes=True).kept_blocks(s) for s in range(case.problem.num_seqs)]
    if not all(all(row) for row in kept):
        yield "no block where no query sees one", case.placed(holes=True, padding=-1), _same


RELATIONS = (
    Relation(
        "repeatable",
        "The same call gives the same bits.",
        lambda contract, features: contract.repeatable,
        lambda contract: True,
        again,
    ),
    Relation(
        "poison",
        "Slots of no position are never looked at: whatever they hold, the same bits.",
        lambda contract, features: True,
        lambda contract: contract.repeatable,
        poison,
    ),
    Relation(
        "table padding",
        "Entries of a block table beyond a sequence's blocks are never looked at.",
        lambda contract, features: True,
        lambda contract: contract.repeatable,
        padding,
    ),
    Relation(
        "placement",
        "Where in the pool the blocks lie changes no bit.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.placement_invariant,
        placement,
    ),
    Relation(
        "sharing",
        "A shared block and a copy of it give the same bits.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.placement_invariant,
        sharing,
    ),
    Relation(
        "batch order",
        "Sequences in another order give the same, in that order.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.batch_invariant,
        batch_order,
    ),
    Relation(
        "alone",
        "A sequence alone gives what it gives in company.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.batch_invariant,
        alone,
    ),
    Relation(
        "head order",
        "Permuted kv heads, each with its queries, give permuted outputs.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.head_invariant,
        heads,
    ),
    Relation(
        "values times 4",
        "The output is linear in the values: a factor of 4 is exact.",
        lambda contract, features: True,
        lambda contract: contract.repeatable and contract.scaling_exact,
        values_times_4,
    ),
    Relation(
        "query times 2",
        "Only query times scale counts: 2 q with half the scale gives the same.",
        lambda contract, features: features.scales,
        lambda contract: contract.repeatable and contract.scaling_exact,
        query_times_2,
    ),
    Relation(
        "hidden keys",
        "Keys that no query sees, behind a window or masked, change nothing.",
        lambda contract, features: True,
        lambda contract: contract.repeatable,
        hidden,
    ),
    Relation(
        "holes",
        "A block that no query sees may be missing from the table.",
        lambda contract, features: contract.holes,
        lambda contract: contract.repeatable,
        holes,
    ),
)
