"""Which keys a kernel really attended to, asked with values that name their positions."""

from __future__ import annotations

import time

import numpy as np

from . import edits
from .cases import Case
from .guard import KernelFault
from .subject import Subject
from .trial import Trial
from .truth import Truth, reference
from .truth.problem import Array

COLUMNS, ROWS, MOST_KEYS = 64, 16, 512
LEGEND = {
    "█": "█ right",
    "x": "x missing",
    "!": "! must not be seen",
    "▒": "▒ another weight",
    "?": "? not a number",
    "·": "· rightly unseen",
}


def attention_map(
    subject: Subject, case: Case, sequence: int, head: int, seconds: float = 3.0
) -> str:
    """A picture of the keys that each query of a sequence and head attends to.

    Rows are queries, columns are keys. A weight counts as right also if it is right but for a
    factor that it shares with its row: the row's sum then says so. "" if the kernel cannot be
    asked: its values are part of its keys, or it fails, or there are too many keys.
    """
    kv_len = case.problem.kv_lens[sequence]
    if case.problem.latent or not 0 < kv_len <= MOST_KEYS or not case.problem.query_lens[sequence]:
        return ""
    try:
        got = attended(subject, case, sequence, head, seconds)
    except KernelFault:
        return ""
    if got is None:
        return ""
    truth = right_weights(subject, case, sequence, head)
    seen = case.problem.visible(sequence)
    marks = _marks(got, truth.out[0][:, 0], truth.out_bound[0][:, 0], seen)
    return _picture(marks, got, truth.out[0][:, 0], case, sequence, head)


def attended(
    subject: Subject, case: Case, sequence: int, head: int, seconds: float = 3.0
) -> Array | None:
    """`[query_len, kv_len]`: the weight of every key, in as many calls as it takes; None if late.

    The values of the sequence are rows of the identity, all others and all poison are 0.
    """
    end, dim = time.process_time() + seconds, case.problem.value_head_dim
    kv_len, weights = case.problem.kv_lens[sequence], []
    for first in range(0, kv_len, dim):
        if time.process_time() > end:
            return None
        probe = _probe(case, sequence, first).placed(poison="zero")
        out = subject.run(probe).out[sequence][:, head]
        weights.append(out / _unit(case, head))
    return np.concatenate(weights, axis=1)[:, :kv_len]


def _probe(case: Case, sequence: int, first: int) -> Case:
    """Values that are 1 at element p - first of position p, in every head."""
    position = {int(slot): p for p, slot in enumerate(case.slots(sequence))}

    def one_hot(s: int, value: Array) -> Array:
        coded = np.zeros_like(value)
        for i, slot in enumerate(case.slots(s)):
            element = position.get(int(slot), -1) - first
            if 0 <= element < value.shape[-1]:
                coded[i, :, element] = 1
        return coded

    return edits.replace_tokens(case, "value", one_hot)


def _unit(case: Case, head: int) -> float:
    """What a stored 1 stands for in this head."""
    codes, problem = case.problem.value_codes, case.problem
    if codes is None or isinstance(codes.scale, tuple):
        return 1.0
    kv_head = head // (problem.num_heads // problem.num_kv_heads)
    return float(codes.scale[kv_head] if np.ndim(codes.scale) else codes.scale)


def right_weights(subject: Subject, case: Case, sequence: int, head: int) -> Truth:
    """The truth for this sequence and head alone, with an identity of values: the weights."""
    one = edits.take_head(edits.take_sequences(case, [sequence]).problem, head)
    identity = np.eye(one.kv_lens[0])[:, None]
    trial = Trial(subject, case)
    numeric = trial.subject.contract.numeric_for(case.problem.dtype)
    return reference(edits.with_values(one, (identity,)), numeric)


def _marks(got: Array, right: Array, bound: Array, seen: np.ndarray) -> np.ndarray:
    """A character for every query and key."""
    slack = 2 * bound + 1e-6
    common = _common_factor(got, right, slack)
    close = slack * (1 + np.abs(common)) + 1e-2 * np.abs(got)  # a picture is not for roundings
    fits = (np.abs(got - right) <= close) | (np.abs(got - common * right) <= close)
    marks = np.full(got.shape, "▒")
    marks[fits] = "█"
    marks[(np.abs(got) <= slack) & (right > 2 * slack)] = "x"
    marks[~seen] = np.where(np.abs(got) > slack, "!", "·")[~seen]
    marks[~np.isfinite(got)] = "?"
    return marks


def _common_factor(got: Array, right: Array, slack: Array) -> Array:
    """`[query_len, 1]`: by how much most weights of a row are too large; 1 if it has none."""
    factors = np.ones((len(got), 1))
    for i, row in enumerate(got):
        there = (right[i] > 4 * slack[i]) & (np.abs(row) > slack[i]) & np.isfinite(row)
        if there.sum() > 1:  # one alone would always fit
            factors[i] = np.median(row[there] / right[i][there])
    return factors


def _picture(
    marks: np.ndarray, got: Array, right: Array, case: Case, sequence: int, head: int
) -> str:
    wrong = ~np.isin(marks, ("█", "·"))
    off = np.abs(got.sum(1) - right.sum(1)) > 1e-2
    if not wrong.any() and not off.any():
        return f"sequence {sequence}, head {head}: the right keys with the right weights"
    rows = _around(np.asarray(wrong.any(1) | off), ROWS)
    columns = _around(np.asarray(wrong.any(0)), COLUMNS)
    positions = case.problem.positions(sequence)
    present = [text for mark, text in LEGEND.items() if mark in marks[rows, columns]]
    lines = [
        f"sequence {sequence}, head {head}; rows: queries at {positions[rows][0]}.."
        f"{positions[rows][-1]}, columns: keys {columns.start}..{columns.stop - 1}; "
        + ", ".join(present)
    ]
    for i in range(rows.start, rows.stop):
        total = f"  weights sum to {got[i].sum():.3g}, not {right[i].sum():.3g}" if off[i] else ""
        lines.append("".join(marks[i, columns]) + total)
    return "\n".join(lines)


def _around(wrong: np.ndarray, most: int) -> slice:
    """At most so many places, the first wrong one among them."""
    first = int(np.argmax(wrong)) if wrong.any() else 0
    start = max(0, min(first - most // 4, len(wrong) - most))
    return slice(start, min(len(wrong), start + most))
