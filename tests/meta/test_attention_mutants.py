"""Faults planted into attention, one at a time: some check must see each of them.

The table of who sees what: ``python tests/meta/test_attention_mutants.py``.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from minipaged.core.errors import InvalidBatch
from support import attention_laws as laws
from support.attention_examples import by_hand, pictures
from support.attention_faulty import COMPILED, Fault, load
from support.attention_problems import Spec, specs

FAULTS = [
    # --- which keys are seen -------------------------------------------------------------------
    Fault(
        "causal from the top left",
        "semantics",
        "torch.arange(seq_len - query_len, seq_len, device=device)",
        "torch.arange(query_len, device=device)",
    ),
    Fault("one future key is seen", "semantics", "age >= 0", "age >= -1"),
    Fault("a window of w sees w + 1", "semantics", "age < window", "age <= window"),
    Fault("the oldest key of a window is not read", "semantics", "window + 1)", "window + 2)"),
    Fault("freed blocks are read", "semantics", "0 if window is None else max(", "0 * max(0, "),
    # --- what a score becomes ------------------------------------------------------------------
    Fault(
        "the cap is not multiplied back",
        "semantics",
        "scores = softcap * torch.tanh",
        "scores = torch.tanh",
    ),
    Fault(
        "the cap before the scale",
        "semantics",
        "softcap * torch.tanh(scores / softcap)",
        "scale * softcap * torch.tanh(scores / scale / softcap)",
    ),
    Fault(
        "alibi favours what is far",
        "semantics",
        "key_positions - query_positions[:, None]",
        "query_positions[:, None] - key_positions",
    ),
    Fault(
        "alibi counts from the first key",
        "semantics",
        "key_positions - query_positions[:, None]",
        "key_positions - 0 * query_positions[:, None]",
    ),
    Fault(
        "kv heads are tiled",
        "semantics",
        "kv.repeat_interleave(num_heads // kv.shape[1], dim=1)",
        "kv.repeat(1, num_heads // kv.shape[1], 1)",
    ),
    Fault(
        "half precision is summed in half",
        "semantics",
        "else torch.float32",
        "else tensors[0].dtype",
    ),
    # --- partial states ------------------------------------------------------------------------
    Fault(
        "-inf minus -inf",
        "online_softmax",
        "return m.masked_fill(m == -torch.inf, 0.0)",
        "return m",
    ),
    Fault(
        "the other side is not rescaled",
        "online_softmax",
        "torch.exp(other.m - _fin",
        "torch.exp(m - _fin",
    ),
    Fault("a sum is not rescaled", "online_softmax", "mine * self.l", "self.l"),
    Fault(
        "0 / 0 of an empty row", "online_softmax", "torch.where(self.l == 0, 1.0, self.l)", "self.l"
    ),
    Fault("lse in base 2", "online_softmax", "+ torch.log(self.l)", "+ torch.log2(self.l)"),
    Fault(
        "garbage of an empty side leaks",
        "online_softmax",
        ".masked_fill(empty[..., None], 0.0)",
        "",
    ),
    # --- the formula and the two paged forms -----------------------------------------------------
    Fault("a sink only if it is large", "dense", "torch.logaddexp(lse,", "torch.maximum(lse,"),
    Fault(
        "NaN where nothing is seen",
        "dense",
        "lse.masked_fill(lse == -torch.inf, 0.0)[..., None]",
        "lse[..., None]",
    ),
    Fault(
        "logical blocks are read as physical",
        "paged",
        "torch.tensor(block_ids, device=query.device)[position // key_cache.shape[1]]",
        "position // key_cache.shape[1]",
    ),
    Fault(
        "the tail of the last block is read",
        "paged",
        "min(first + block_size, seen.stop)",
        "first + block_size",
    ),
    Fault("slots behind the window are read", "paged", "max(first, seen.start)", "first"),
    Fault(
        "a partial last block is dropped",
        "paged",
        "-(-seen.stop // block_size)",
        "seen.stop // block_size",
    ),
    Fault(
        "values take the scale of keys",
        "paged",
        "value = _dequantize(value_cache[slots], v_scale",
        "value = _dequantize(value_cache[slots], k_scale",
    ),
    Fault(
        "rows of nobody are not cleared",
        "paged",
        "out = query.new_zeros(",
        "out = query.new_ones(",
    ),
    # --- what is refused -----------------------------------------------------------------------
    Fault(
        "a block id too large is used",
        "validation",
        "not 0 <= block_id < num_blocks",
        "block_id < 0",
    ),
    Fault(
        "-1 is the last block",
        "validation",
        "not 0 <= block_id < num_blocks",
        "block_id >= num_blocks",
    ),
    # --- the compiled form: numbers --------------------------------------------------------------
    Fault("exp lacks a term", "cpu_primitives", "r * F(1 / 720)", "r * F(0)"),
    Fault("exp of -inf is not 0", "cpu_primitives", "return F(0) if x < LOWEST else p", "return p"),
    Fault("tanh is even", "cpu_primitives", "return -t if x < F(0) else t", "return t"),
    Fault("float16 is half as large", "cpu_primitives", "2.0**112", "2.0**111"),
    Fault(
        "bfloat16 loses a bit",
        "cpu_primitives",
        "np.int32(bits) << 16",
        "np.int32(bits & -2) << 16",
    ),
    # --- the compiled form: items ----------------------------------------------------------------
    Fault(
        "compiled: a window sees w + 1",
        "cpu_plan",
        "position - p.window + 1",
        "position - p.window",
    ),
    Fault(
        "compiled: the query does not see itself",
        "cpu_plan",
        "max(position + 1, 0)",
        "max(position, 0)",
    ),
    Fault(
        "a partial last split is dropped", "cpu_plan", "max(-(-high // SPLIT)", "max(high // SPLIT"
    ),
    Fault(
        "an item ends one token early",
        "cpu_plan",
        "min(tokens_per_item, query_len",
        "min(tokens_per_item - 1, query_len",
    ),
    Fault(
        "a row is finished after every split",
        "cpu_plan",
        "item.begin, item.end = begin, end",
        "item.begin, item.end = begin, split + step",
    ),
    Fault(
        "compiled: a block id too large is used",
        "cpu_plan",
        "0 <= tables[seq, logical] < p.num_blocks",
        "0 <= tables[seq, logical]",
    ),
    Fault(
        "compiled: -1 is a block",
        "cpu_plan",
        "0 <= tables[seq, logical] < p.num_blocks",
        "tables[seq, logical] < p.num_blocks",
    ),
    # --- the compiled form: tiles ----------------------------------------------------------------
    Fault(
        "the first slot of a tile counts from the tile",
        "cpu_kernels",
        "(start + t) % p.block_size",
        "t % p.block_size",
    ),
    Fault(
        "compiled: values of the wrong kv head",
        "cpu_kernels",
        "item.kv_head * p.value_head",
        "0 * p.value_head",
    ),
    Fault("a tile that needs no mask by its end", "cpu_kernels", "start + lower < all_low or ", ""),
    Fault(
        "a tile that needs no mask by its start", "cpu_kernels", " or start + upper > all_high", ""
    ),
    Fault(
        "bounds count from the tile", "cpu_kernels", "bounds[1, i] - here)", "bounds[1, i] - start)"
    ),
    Fault(
        "a key is bounded by the next", "cpu_kernels", "first <= np.int32(j)", "first < np.int32(j)"
    ),
    Fault("compiled: alibi from the first key", "cpu_kernels", "here - bounds[2, i]", "here"),
    Fault(
        "compiled: slopes per kv head",
        "cpu_kernels",
        "p.num_heads, number)[head]\n\n",
        "p.num_heads, number)[item.kv_head]\n\n",
    ),
    Fault("compiled: -inf minus -inf", "cpu_kernels", "F(0) if top == NEVER else top", "top"),
    Fault(
        "the maximum is the smallest number of all",
        "cpu_primitives",
        'builder.fcmp_ordered(">", b, a)',
        'builder.fcmp_ordered("<", b, a)',
    ),
    Fault(
        "weights are counted twice",
        "cpu_kernels",
        "sum_of(x, x.dtype.type(0))",
        "F(2) * sum_of(x, x.dtype.type(0))",
    ),
    Fault(
        "what was summed up is in each of the 16 lanes",
        "cpu_kernels",
        "state[1, i] += sum_of(x, x.dtype.type(0))",
        "state[1, i] = sum_of(x, state[1, i])",
    ),
    Fault(
        "the maximum forgets the tiles before",
        "cpu_kernels",
        "largest(x, state[0, i])",
        "largest(x, x[0])",
    ),
    Fault(
        "scratch of rows overlaps by a line",
        "cpu_kernels",
        "count * array.itemsize + 63",
        "count * array.itemsize - 1",
    ),
    Fault(
        "keys are not turned beyond the first 16 dimensions",
        "cpu_kernels",
        "s.turned[lower:], s.turned_at,",
        "s.turned[lower:], s.turned_at % (16 * TILE),",
    ),
    Fault(
        "columns beyond a multiple of 16 are left out",
        "cpu_matrices",
        "range(width & ~15, width)",
        "range(width, width)",
    ),
    Fault(
        "dimensions beyond a multiple of 16 are those of the first key",
        "cpu_matrices",
        "keys[key_at[j] + d]",
        "keys[key_at[t] + d]",
    ),
    Fault(
        "the third of three rows is left out",
        "cpu_matrices",
        "    if rows - i == 3:\n        _strip_3(",
        "    if rows - i == 3:\n        _strip_2(",
    ),
    Fault(
        "missing keys of a group are not filled in",
        "cpu_kernels",
        "key_at[last : (last + 15) & ~15] = key_at[first]",
        "key_at[last : (last + 15) & ~15] = EVERYTHING",
    ),
    Fault("sums are not rescaled", "cpu_kernels", "row[d] *= factor", "pass"),
    Fault("weights are not rescaled", "cpu_kernels", "state[1, i] *= factor", "pass"),
    Fault("a merged sum is not rescaled", "cpu_kernels", "factor * other[1, i]", "other[1, i]"),
    Fault("an empty split is merged", "cpu_kernels", "if other[0, i] != NEVER:", "if True:"),
    Fault(
        "later splits are dropped", "cpu_kernels", "_merge(state, sums, into, into_sums)", "pass"
    ),
    Fault(
        "splits are not joined",
        "cpu_kernels",
        "_merge(states[first], sums[first], states[i], sums[i])",
        "pass",
    ),
    Fault("a sink is not exponentiated", "cpu_kernels", "+= exp(sink - m)", "+= sink - m"),
    Fault(
        "compiled: keys' scale for values",
        "cpu_kernels",
        "carray(pointer(p.v_scale)",
        "carray(pointer(p.k_scale)",
    ),
    Fault("slot -1 is written", "cpu_write", "if slots[i] >= 0:", "if slots[i] >= -1:"),
    Fault(
        "a slot is a block",
        "cpu_write",
        "slots[i] // block_size * block +",
        "slots[i] * block * 0 +",
    ),
    Fault(
        "the second tile is the first again",
        "cpu_kernels",
        "p, item, start + TILE, 0,",
        "p, item, start, 0,",
    ),
]


@cache
def problems() -> tuple[Spec, ...]:
    """The problems that every fault meets: what Hypothesis draws first."""
    drawn: list[Spec] = []

    @settings(max_examples=32, derandomize=True, database=None, deadline=None)
    @given(specs())
    def collect(spec: Spec) -> None:
        drawn.append(spec)

    collect()
    many_rows = (  # in one item of the compiled form, which its windows then split
        Spec(((10, 62),), window=2, block_size=3),  # begins beyond the first 16 keys of a tile
        Spec(((20, 120),), window=69, block_size=16),  # a whole tile is too early for some rows
        Spec(((30, 20), (24, 80)), num_kv_heads=2, group=2, head_dim=8),
        Spec(((120, 160),), window=3, block_size=3, sinks=True),  # three splits, one for each row
    )
    return (*drawn, *many_rows)


# --- who sees it ---------------------------------------------------------------------------------


def _forms(name: str, forms: SimpleNamespace) -> list:
    """The implementations that a fault in this module could change."""
    return [forms.cpu, forms.cpu_threads] if name in COMPILED else [forms.gather, forms.blockwise]


def _each(law):
    """A law as a check: on every form and problem."""

    def check(module: str, forms: SimpleNamespace) -> None:
        for form in _forms(module, forms):
            for spec in problems():
                law(form, spec)

    return check


def _chunks(module: str, forms: SimpleNamespace) -> None:
    law = laws.chunks_change_no_bit if module in COMPILED else laws.chunks_are_within_budget
    for form in _forms(module, forms):
        for spec in problems():
            if spec.causal and not spec.extra_rows:
                law(form, spec)


def _examples(check):
    return lambda module, forms: [check(form) for form in _forms(module, forms)]


def _merging(module: str, forms: SimpleNamespace) -> None:
    """Two halves of the keys are the whole, and an empty side, whatever it holds, is nothing."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 8, generator=generator).double() * 5
    values = torch.randn(8, 2, generator=generator).double()
    empty = forms.AttentionState.empty(3, 2, like=values)
    whole_out, whole_lse = empty.update(scores, values).finish()
    halves = [empty.update(scores[:, h], values[h]).finish() for h in (slice(5), slice(5, 8))]
    out, lse = forms.merge_states(*halves[0], *halves[1])
    torch.testing.assert_close(out, whole_out, atol=1e-13, rtol=1e-13)
    torch.testing.assert_close(lse, whole_lse, atol=1e-13, rtol=1e-13)
    for garbage in (0.0, 1.0, torch.nan):
        nothing = torch.full_like(out, garbage), torch.full_like(lse, -torch.inf)
        same, same_lse = forms.merge_states(out, lse, *nothing)
        assert torch.equal(same, out)
        assert torch.equal(same_lse, lse)
        none, none_lse = forms.merge_states(*nothing, *nothing)
        assert not none.any()
        assert (none_lse == -torch.inf).all()


def _refusals(module: str, forms: SimpleNamespace) -> None:
    """A table that does not cover what is asked is refused, not read."""
    key = torch.zeros(3, 2, 1, 4)
    one, start = torch.tensor([3], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    for form in _forms(module, forms):
        for ids in ([0, -1], [0, 3], [-1, 0]):
            table = torch.tensor([ids], dtype=torch.int32)
            try:
                form(torch.zeros(1, 1, 4), key, key, table, one, start, scale=1.0)
            except InvalidBatch:
                continue
            raise AssertionError(f"a table of {ids} is taken")


def _numbers(module: str, forms: SimpleNamespace) -> None:
    """exp, tanh and half precision, as the compiled form has them."""
    own = forms.primitives
    x = -np.linspace(0, 20, 501, dtype="f4")
    exact = np.exp(x.astype("f8"))
    assert (np.abs([own.exp(n) for n in x] - exact) < 3e-7 * exact).all()
    assert np.abs([own.tanh(n) - np.tanh(n) for n in [*x, *-x]]).max() < 2e-7
    halves = np.arange(0, 2**16, 97).astype("u2")
    finite = halves[np.isfinite(halves.view("f2"))]
    assert [own.widen(n) for n in finite] == finite.view("f2").tolist()
    upper_halves = (halves.astype("u4") << 16).view("f4")
    assert [own.widen(n) for n in halves.view("i2")] == pytest.approx(upper_halves, nan_ok=True)


def _writing(module: str, forms: SimpleNamespace) -> None:
    """Slots hold what was written, -1 is skipped: nothing before the cache changes either."""
    around = torch.zeros(2, 4, 2, 1, 3)
    token = torch.arange(1.0, 10.0).reshape(3, 1, 3)
    forms.write_kv(token, -token, *around[:, 1:], torch.tensor([5, -1, 0]))
    assert not around[:, 0].any()
    for stored, sign in zip(around[:, 1:], (1, -1)):
        slots = stored.reshape(6, 3)
        assert torch.equal(slots[[5, 0]], sign * token[[0, 2], 0])
        assert not slots[1:5].any()


CHECKS = {  # the quick ones first
    "by hand": _examples(by_hand),
    "pictures": _examples(pictures),
    "refusals": _refusals,
    "merging": _merging,
    "writing": _writing,
    "numbers": _numbers,
    "the formula": _each(laws.equals_the_formula),
    "placement": _each(laws.placement_changes_no_bit),
    "batch mates": _each(laws.batch_mates_change_no_bit),
    "chunks": _chunks,
}


def kills(check, fault: Fault) -> bool:
    """Whether the check notices the fault, in whatever way."""
    forms = load(fault)  # fails by itself if the fault no longer fits the source
    try:
        check(fault.module, forms)
    except Exception:
        return True
    return False


def kill_table(faults=FAULTS) -> dict[str, list[str]]:
    """Every fault and the names of all checks that notice it."""
    return {
        fault.name: [name for name, check in CHECKS.items() if kills(check, fault)]
        for fault in faults
    }


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("module", ["paged", "cpu"])
def test_without_a_fault_every_check_passes(name, module):
    CHECKS[name](module, load())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_seen(fault):
    assert any(kills(check, fault) for check in CHECKS.values()), f"{fault.name} survives"


def test_every_fault_is_one_place_of_the_source():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 50
    for fault in FAULTS:
        assert fault.source()
    with pytest.raises(LookupError, match=r"stands 0x in dense\.py"):
        Fault("no fault", "dense", "nowhere", "").source()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| fault | module | seen by |", "|---|---|---|", sep="\n")
    for fault in FAULTS:
        seen_by = ", ".join(kill_table([fault])[fault.name]) or "**nobody**"
        print(f"| {fault.name} | {fault.module} | {seen_by} |", flush=True)
