"""What a writer wrote against what it should have written, and the difference told in slots."""

from __future__ import annotations

import torch
from torch import Tensor

from .judge import Judge
from .memory import Pool, Views, bits, rows_differ, same_bits
from .writer_cases import WriteCase
from .writer_scaled import Scale, check_scaled_rows


def compare(
    judge: Judge,
    case: WriteCase,
    pool: Pool,
    expected: Pool,
    rows: Views,
    scales: tuple[Scale, Scale],
    saturates: bool,
    nan_bits: bool,
) -> None:
    """Everything that is right must be in `pool`, and everything else as it was in `expected`.

    Raises:
        Broken: Something is not.
    """
    block_size, names = case.sizes[1], ("key", "value")
    parts = zip(names, rows, scales, pool.views(), expected.views())
    kept = [(t, slot, *divmod(slot, block_size)) for t, slot in enumerate(case.slots) if slot >= 0]
    tokens, slots, *place = torch.tensor(kept, dtype=torch.int64).reshape(-1, 4).T
    for name, x, scale, found, right in parts:
        stored = found[tuple(place)]
        if scale is None:
            right[tuple(place)] = _expected(x[tokens], stored, nan_bits)
        else:
            check_scaled_rows(judge, name, slots, x[tokens], scale, stored, saturates)
            right[tuple(place)] = stored  # judged; what follows is about the other slots
    _explain(judge, case, pool, expected, rows)


def _expected(row: Tensor, found: Tensor, nan_bits: bool) -> Tensor:
    """The rows in the cache's type; what no law decides is taken from what was found."""
    right = row.to(found.dtype)
    if row.dtype == right.dtype and nan_bits:
        return right
    free = right.isnan() & found.isnan()  # any NaN will do
    if right.dtype.itemsize == 1:  # beyond its range each library does as it likes
        free |= row.float().abs() >= torch.finfo(right.dtype).max
    return torch.where(free, found, right)


def _explain(judge: Judge, case: WriteCase, pool: Pool, right: Pool, rows: Views) -> None:
    """Name the law that a difference breaks."""
    block_size, token_of = case.sizes[1], {slot: t for t, slot in enumerate(case.slots)}
    found, wanted = pool.views(), right.views()
    wrong = rows_differ(found[0], wanted[0], 2) | rows_differ(found[1], wanted[1], 2)
    slots = [int(slot) for slot in wrong.flatten().nonzero()]
    mine = [slot for slot in slots if slot in token_of]
    others = [slot for slot in slots if slot not in token_of]

    def picture() -> str:
        return _picture(slots, token_of, block_size, found, wanted, rows)

    def stray() -> str:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        return f"what is no token's slot was written: {others[:8]}{more}"

    def missing() -> str:
        place = mine[0] // block_size, mine[0] % block_size
        number = _difference([x[place] for x in found], [x[place] for x in wanted])
        return f"{number} of token {token_of[mine[0]]} in slot {mine[0]}"

    judge.require(not others, "other slots stay", 2, stray, picture)
    judge.require(not mine, "stores each token", 1, missing, picture)
    damage = pool.differs(right)
    text = f"{damage} bytes outside the pool were changed"
    judge.require(not damage, "other memory stays", 2, text)


def _difference(found: list[Tensor], right: list[Tensor]) -> str:
    """The first number that is wrong: which, what it is, what it should be."""
    for name, got, want in zip(("key", "value"), found, right):
        wrong = rows_differ(got, want, got.ndim)
        if wrong.any():
            head, dim = (int(i) for i in wrong.nonzero()[0])
            numbers = f"{got[head, dim].item()!r} instead of {want[head, dim].item()!r}"
            return f"{numbers} at head {head}, dim {dim} of the {name}"
    return "nothing"


def _picture(
    slots: list[int],
    token_of: dict[int, int],
    block_size: int,
    found: Views,
    right: Views,
    rows: Views,
) -> str:
    """Which slot holds which token, and which it should hold."""

    def content(cache: Tensor, wanted: Tensor, x: Tensor, slot: int) -> str:
        row, want = (c[slot // block_size, slot % block_size] for c in (cache, wanted))
        if same_bits(row, want):
            return "right"
        same = (bits(x.to(row.dtype)) == bits(row)).flatten(1).all(1).nonzero()
        return f"token {int(same[0])}" if len(same) else "something else"

    lines = [f"{'slot':>6}  {'key':<16}{'value':<16}should be"]
    for slot in slots[:12]:
        should = f"token {token_of[slot]}" if slot in token_of else "as before"
        key, value = (content(*three, slot) for three in zip(found, right, rows))
        lines.append(f"{slot:>6}  {key:<16}{value:<16}{should}")
    return "\n".join(lines + ([f"   ... {len(slots) - 12} more"] if len(slots) > 12 else []))
