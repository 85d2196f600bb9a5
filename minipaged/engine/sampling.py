"""One step's logits become one token per row; knows nothing of blocks, schedules or models.

What happens to a row, in this order; its parameters leave most of it idle:

 1. raw log-probabilities   taken before anything below changes the logits
 2. logit_bias              x[t] += bias[t]
 3. min_tokens              x[t] = -inf for ids that would stop, while output_index < min_tokens
 4. repetition_penalty r    x[t] / r where x[t] > 0, x[t] * r elsewhere; t in prompt or output
 5. frequency, presence     x[t] -= frequency * count(t) + presence; t in the output only
 6. temperature             0: the largest x, of a tie the lowest id, and done; else x / temperature
 7. top_k                   the k likeliest stay, and all that tie with the k-th
 8. min_p                   t stays if p[t] >= min_p * max(p)
 9. top_p                   t stays if the likelier ones, of those left, have a mass below top_p
10. draw                    the first t, in order of ids, whose cumulative mass exceeds
                            u(seed, sample index, output index) in [0, 1)

From 6 on probabilities are integers: weight[t] = round(2**40 * p[t] / max(p)); tokens of equal
weight tie. Sums of integers do not depend on the order of adding, 7-9 are a smallest weight that
stays, and a row's token is a function of that row alone: not of its batch, its place in it, or how
a device adds. The price: a token 2**41 times less likely than the likeliest is never drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from minipaged.core.errors import InvalidBatch

from .params import SamplingParams
from .rng import uniform
from .transfer import rows_of, to_device, to_host

_UNIT = 2.0**40  # the weight of the likeliest token: 2**22 such tokens still sum below 2**63
_ROWS_AT_ONCE = 16  # bounds the float64 copies; changes nothing else


@dataclass(frozen=True, slots=True)
class Row:
    """Everything the token of one row may depend on besides its logits."""

    params: SamplingParams
    seed: int
    sample_index: int
    token_ids: Sequence[int]  # prompt, then output
    num_prompt: int
    eos_token_ids: Sequence[int] = ()

    @property
    def output_index(self) -> int:
        """How many tokens were generated before this one."""
        return len(self.token_ids) - self.num_prompt


class Logprob(NamedTuple):
    """Natural log of a raw probability; rank 1 is the likeliest, ties rank by id."""

    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One step's choice, row by row.

    Attributes:
        token_ids: The tokens; -1 in a bad row.
        logprobs: Per row None, or the best `logprobs` tokens by rank and then the chosen one.
        bad_rows: Rows that hold NaN or +inf, or where no token is possible.
    """

    token_ids: list[int]
    logprobs: list[dict[int, Logprob] | None]
    bad_rows: list[int]


def sample(
    logits: Tensor,  # [num_rows, vocab_size] float32 or float64; left as it is
    rows: Sequence[Row],
) -> SampleResult:
    """Choose one token per row; each row's result is a function of that row alone, bit by bit."""
    if logits.ndim != 2 or len(logits) != len(rows):
        shape = list(logits.shape)
        raise InvalidBatch(f"logits {shape} for {len(rows)} rows: must be [num_rows, vocab_size]")
    adjusted = _adjust(logits, rows)
    chosen = adjusted.argmax(-1)  # of a tie the first; NaN counts as the largest
    peak = adjusted.gather(-1, chosen[:, None])
    good = peak.isfinite()[:, 0]
    drawn = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    for start in range(0, len(drawn), _ROWS_AT_ONCE):
        part = drawn[start : start + _ROWS_AT_ONCE]
        at = rows_of(part, logits.device)
        chosen[at] = _draw(adjusted[at], peak[at], [rows[i] for i in part])
    token_ids = to_host(chosen.masked_fill(~good, -1))  # all that a step waits for
    logprobs: list[dict[int, Logprob] | None] = [None] * len(rows)
    for i, row in enumerate(rows):
        if row.params.logprobs is not None and token_ids[i] >= 0:
            logprobs[i] = _logprobs(logits[i], token_ids[i], row.params.logprobs)
    return SampleResult(token_ids, logprobs, [i for i, token in enumerate(token_ids) if token < 0])


def prompt_logprobs(
    logits: Tensor,  # [num_tokens, vocab_size] float32 or float64
    next_tokens: Sequence[int],  # [num_tokens] what followed each of them
    k: int,
) -> list[dict[int, Logprob]]:
    """Return, per position, the k best next tokens by rank and then the one that came."""
    return [_logprobs(row, token, k) for row, token in zip(logits, next_tokens, strict=True)]


def best_tokens(
    logprobs: Tensor,  # [vocab_size] float
    k: int,
) -> list[tuple[int, float]]:
    """Return the k likeliest tokens with their log-probabilities, likeliest first, ties by id."""
    if k == 0:
        return []
    kth = logprobs.topk(min(k, len(logprobs))).values[-1]
    ids = (logprobs >= kth).nonzero()[:, 0]  # ascending, and with every tie
    ids = ids[logprobs[ids].argsort(descending=True, stable=True)][:k]
    return list(zip(to_host(ids), to_host(logprobs[ids])))


def _logprobs(logits: Tensor, token_id: int, k: int) -> dict[int, Logprob]:
    logprobs = logits.double().log_softmax(-1)
    best = enumerate(best_tokens(logprobs, k), 1)
    found = {t: Logprob(logprob, rank) for rank, (t, logprob) in best}
    own = logprobs[token_id]
    rank = 1 + int((logprobs > own).sum()) + int((logprobs[:token_id] == own).sum())
    return found | {token_id: Logprob(float(own), rank)}


def _adjust(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Apply 2-5 to a float64 copy; the logits themselves if no row asks for any of it."""
    asked = [(row, row.params) for row in rows]
    biased = [p.logit_bias or {} for _, p in asked]
    masked = [
        p.stop_ids(row.eos_token_ids) if row.output_index < p.min_tokens else () for row, p in asked
    ]
    repeated = [row.token_ids if p.repetition_penalty != 1 else () for row, p in asked]
    counted = [
        row.token_ids[row.num_prompt :] if p.frequency_penalty or p.presence_penalty else ()
        for row, p in asked
    ]
    if not any((*biased, *masked, *repeated, *counted)):
        return logits
    x = logits.to(torch.float64, copy=True)

    def of_row(name: str, row: Tensor) -> Tensor:
        return _floats([getattr(p, name) for _, p in asked], x.device)[row]

    at, _ = _places(biased, x.device)
    x[at] += _floats([bias[t] for bias in biased for t in sorted(bias)], x.device)
    at, _ = _places(masked, x.device)
    x.index_put_(at, x.new_full((), -torch.inf))  # a Python number would be waited for
    at, _ = _places(repeated, x.device)
    penalty, value = of_row("repetition_penalty", at[0]), x[at]
    x[at] = torch.where(value > 0, value / penalty, value * penalty)
    at, counts = _places(counted, x.device)
    x[at] -= of_row("frequency_penalty", at[0]) * counts + of_row("presence_penalty", at[0])
    return x


def _places(ids_of_rows: Sequence[Iterable[int]], device: torch.device) -> tuple[Any, Tensor]:
    """Index [row], [id] of the different pairs, in order, and how often each occurs."""
    keys = [(i << 32) + np.array([*ids], np.int64) for i, ids in enumerate(ids_of_rows)]
    pairs, counts = np.unique(np.concatenate(keys), return_counts=True)
    row, token_id = (to_device(half, device) for half in np.divmod(pairs, 1 << 32))
    return (row, token_id), to_device(counts, device)


def _floats(numbers: Sequence[float], device: torch.device) -> Tensor:  # [num_numbers] float64
    return to_device(np.array(numbers, np.float64), device)


def _draw(
    x: Tensor,  # [num_rows, vocab_size] float
    peak: Tensor,  # [num_rows, 1] float, the largest of each row
    rows: Sequence[Row],
) -> Tensor:  # [num_rows] int64
    """Steps 6-10. Subtracting first keeps the smallest temperature from overflowing.

    A bad row draws something too, which nobody looks at: to know that it is bad is to wait.
    """
    temperature = _floats([row.params.temperature for row in rows], x.device)[:, None]
    x = (x.double() - peak.double()).div_(temperature)
    weights = x.nan_to_num_(0, neginf=-math.inf).exp_().mul_(_UNIT).round_().long()
    _truncate(weights, [row.params for row in rows])
    mass = weights.cumsum(-1)
    total = mass[:, -1]
    u = uniform([(row.seed, row.sample_index, row.output_index) for row in rows])
    below = (to_device(u, x.device) * total).long().minimum(total - 1)
    return torch.searchsorted(mass, below[:, None], right=True)[:, 0]


def _truncate(weights: Tensor, params: Sequence[SamplingParams]) -> None:
    """Steps 7-9: zero what does not stay, in place."""
    device, vocab_size = weights.device, weights.shape[1]
    least = [math.ceil(p.min_p * _UNIT) for p in params]
    smallest = to_device(least, device)
    some = [i for i, p in enumerate(params) if 0 < p.top_k < vocab_size]
    if some:
        at, counts = rows_of(some, device), [params[i].top_k for i in some]
        best, k = weights[at].topk(max(counts)).values, to_device(counts, device)[:, None]
        smallest[at] = smallest[at].maximum(best.gather(-1, k - 1)[:, 0])
    if some or any(least):
        weights *= weights >= smallest[:, None]
    some = [i for i, p in enumerate(params) if p.top_p < 1]
    if some:
        at = rows_of(some, device)
        top_p = _floats([params[i].top_p for i in some], device)[:, None]
        smallest.zero_()
        smallest[at] = _smallest_in_nucleus(weights[at], top_p)
        weights *= weights >= smallest[:, None]


def _smallest_in_nucleus(
    weights: Tensor,  # [num_rows, vocab_size] int64
    top_p: Tensor,  # [num_rows, 1] float64, below 1
) -> Tensor:  # [num_rows] int64
    """Weight of the last token that top_p keeps."""
    goal = weights.sum(-1, keepdim=True) * top_p
    ranked = _ranked(weights, top_p, goal)
    likelier = ranked.cumsum(-1) - ranked
    last = (likelier < goal).sum(-1, keepdim=True) - 1
    return ranked.gather(-1, last)[:, 0]


def _ranked(weights: Tensor, top_p: Tensor, goal: Tensor) -> Tensor:  # [num_rows, some] int64
    """The largest weights, as many as can matter; where asking means waiting, all of them."""
    if weights.device.type != "cpu":
        return weights.sort(descending=True).values
    ranked = weights.topk(min(256, weights.shape[1])).values
    if (ranked.sum(-1, keepdim=True) < goal).any():
        # All tokens below the mean of what top_p leaves out weigh less than that together, so one
        # that is kept lies above. Half the mean, to be safe from rounding.
        bound = weights.sum(-1, keepdim=True) * (1 - top_p) / (2 * weights.shape[1])
        ranked = weights.topk(int((weights >= bound).sum(-1).max())).values
    return ranked
