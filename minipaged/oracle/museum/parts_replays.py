"""Plan and run with one fault each; every pair is wrong on purpose."""

from __future__ import annotations

import torch

from minipaged.attention import paged_attention

from .exhibit import Exhibit, hang

REPLAYS: list[Exhibit] = []


def _like(like="", fault_class="frozen"):
    return hang(REPLAYS, "replay", fault_class, like, makes=True)


def _attend(query, keys, values, tables, lens, starts):
    scale = query.shape[-1] ** -0.5
    out = paged_attention(query, keys, values, tables, lens, starts, scale=scale)
    assert isinstance(out, torch.Tensor)
    return out


def _held(metadata):
    return [x.clone() for x in metadata]


@_like("sglang #26521")
def lengths_of_the_first_plan():
    """Keeps the lengths of the first plan of a batch of this size."""
    plans, first = [], {}

    def plan(tables, lens, starts):
        kept = first.setdefault((len(lens), int(starts[-1])), lens.clone())
        plans[:] = _held((tables, kept, starts))

    return plan, lambda q, k, v: _attend(q, k, v, *plans)


@_like()
def tables_of_the_first_plan():
    """Plans again only when a length changes."""
    plans = []

    def plan(tables, lens, starts):
        if not plans or plans[1].shape != lens.shape or not torch.equal(plans[1], lens):
            plans[:] = _held((tables, lens, starts))
        plans[2] = starts.clone()

    return plan, lambda q, k, v: _attend(q, k, v, *plans)


@_like()
def plan_kept_while_the_sum_stays():
    """Finds plans again by the number of tokens."""
    plans = {}
    now = []

    def plan(tables, lens, starts):
        key = int(lens.sum()), len(lens), int(starts[-1])
        now[:] = plans.setdefault(key, _held((tables, lens, starts)))

    return plan, lambda q, k, v: _attend(q, k, v, *now)


@_like("flash-attention 1a58058a", "scratch")
def second_run_skips_its_work():
    """Counts finished tiles and does not clear the counter, so only the first run works."""
    plans, outs = [], []

    def plan(tables, lens, starts):
        plans[:], outs[:] = _held((tables, lens, starts)), []

    def run(query, keys, values):
        fresh = torch.zeros_like(query) if outs else _attend(query, keys, values, *plans)
        outs.append(1)
        return fresh

    return plan, run


@_like("", "scratch")
def second_run_returns_the_first():
    """Runs once per plan and hands the same result out again."""
    plans, outs = [], []

    def plan(tables, lens, starts):
        plans[:], outs[:] = _held((tables, lens, starts)), []

    def run(query, keys, values):
        outs[:] = outs or [_attend(query, keys, values, *plans)]
        return outs[0].clone()

    return plan, run


@_like("aiter #3641, sglang #2465", "scratch")
def scratch_of_a_longer_run():
    """Adds what the last chunk of an earlier, longer run left in the scratch."""
    plans, scratch = [], {}

    def plan(tables, lens, starts):
        plans[:] = _held((tables, lens, starts))

    def run(query, keys, values):
        out = _attend(query, keys, values, *plans)
        for s, length in enumerate(plans[1].tolist()):
            longest, left = scratch.get(s, (0, None))
            if length < longest - 8:
                out[int(plans[2][s])] += left
            if length > longest:
                scratch[s] = length, out[int(plans[2][s])].clone() * 0.1
        return out

    return plan, run


@_like()
def longest_of_the_first_plan():
    """Sizes its loop by the longest sequence of the first plan; later ones are cut there."""
    plans, longest = [], []

    def plan(tables, lens, starts):
        longest[:] = longest or [max(1, int(lens.max()))]
        plans[:] = _held((tables, lens.clamp(max=longest[0]), starts))

    def run(query, keys, values):
        return _attend(query, keys, values, *plans)

    return plan, run


@_like("xllm #1939", "padding")
def padded_rows_are_nan():
    """Divides by the weights of a sequence that has no keys."""
    plans = []

    def plan(tables, lens, starts):
        plans[:] = _held((tables, lens, starts))

    def run(query, keys, values):
        out = _attend(query, keys, values, *plans)
        rows = torch.repeat_interleave(plans[1] == 0, plans[2].diff().long())
        return out.masked_fill(rows[:, None, None], torch.nan)

    return plan, run


@_like("flashinfer #4975", "padding")
def padded_rows_keep_the_last_output():
    """Writes into one buffer, and not the rows of sequences without keys."""
    plans, buffers = [], {}

    def plan(tables, lens, starts):
        plans[:] = _held((tables, lens, starts))

    def run(query, keys, values):
        out = _attend(query, keys, values, *plans)
        old = buffers.get(out.shape, torch.zeros_like(out))
        rows = torch.repeat_interleave(plans[1] == 0, plans[2].diff().long())
        buffers[out.shape] = torch.where(rows[:, None, None], old, out)
        return buffers[out.shape].clone()

    return plan, run


@_like("", "inputs")
def plan_sorts_the_lengths():
    """Sorts the caller's lengths in place, to begin with the longest sequence."""
    plans = []

    def plan(tables, lens, starts):
        plans[:] = _held((tables, lens, starts))
        lens.copy_(lens.sort(descending=True).values)

    return plan, lambda q, k, v: _attend(q, k, v, *plans)


@_like()
def captured_with_the_first_query():
    """Keeps the first query of a plan and attends with it again."""
    plans, queries = [], []

    def plan(tables, lens, starts):
        plans[:], queries[:] = _held((tables, lens, starts)), []

    def run(query, keys, values):
        queries[:] = queries or [query.clone()]
        return _attend(queries[0], keys, values, *plans)

    return plan, run
