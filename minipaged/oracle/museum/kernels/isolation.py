"""Faults between calls and between sequences: state, garbage, chance, memory of others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "isolation")


def _kept(name):
    """The argument of the first call of a shape is kept for all later ones."""

    def arguments(self, a):
        value = getattr(a, name)
        kept = self.scratch.setdefault((name, value.shape), value.clone())
        return replace(a, **{name: kept})

    return arguments


def _second_call_skips(self, a, s):
    """A semaphore that is not cleared: the same lengths again, and the work counts as done."""
    done = self.scratch.setdefault("done", {})
    lengths = tuple(a.seq_lens.tolist())
    done[lengths, s] = done.get((lengths, s), 0) + 1
    return Right.work(self, a, s) if done[lengths, s] % 2 else []


def _leaking_scratch(self, rows, heads, dim):
    """New states begin as the last one of this size ended."""
    last = [x for key, x in self.scratch.items() if key[1:] == (rows, heads, dim)]
    nothing = Right.empty(self, rows, heads, dim)
    return (nothing[0], nothing[1], last[-1][2] * 1e-3) if last else nothing


def _noise(self, a, acc_and_total):
    out, lse = Right.finish(self, a, acc_and_total)
    return out * (1 + torch.randn(out.shape) * 1e-7), lse


def _random_merge(self, a, w, states):
    order = torch.randperm(len(states)).tolist()
    return Right.merge(self, a, w, [states[i] for i in order])


def _scaled_in_place(self, a):
    a.query.mul_(a.scale)
    return replace(a, scale=1.0)


def _padding_in_place(self, a):
    a.block_tables.clamp_(min=0)
    return a


def _tail_cleared(self, a, s):
    """The tail of the last block is cleared, so that it does no harm."""
    length, size = int(a.seq_lens[s]), a.key_cache.shape[1]
    if length % size:
        block = int(a.block_tables[s, length // size])
        a.value_cache[block, length % size :] = 0
    return Right.work(self, a, s)


def _output_in_query(self, a):
    _, lse = Right.allocate(self, a)
    same = a.query.shape[2] == a.value_cache.shape[3]
    return (a.query if same else Right.allocate(self, a)[0]), lse


def _output_kept(self, a):
    """The same memory for every output of a shape."""
    fresh = Right.allocate(self, a)
    return self.scratch.setdefault((fresh[0].shape, fresh[0].dtype), fresh)


def _a_row_too_many(self, a, w, out, lse, o, e):
    Right.store(self, a, w, out, lse, o, e)
    if w.s and int(w.rows[-1]) + 1 < len(out):
        out[w.rows[-1] + 1] = o[:, -1].to(out.dtype)


def _skips_second_of_long_batch(self, a, w, out, lse, o, e):
    if not (w.s == 2 and len(a.seq_lens) > 2):
        Right.store(self, a, w, out, lse, o, e)


def _few_splits(self, a, w):
    """Splits of the first sequence's size; what they do not reach is not seen."""
    length = int(a.seq_lens[0])
    return max(-(-length // (self.num_splits * self.tile)), 1) * self.tile


def _float_output(self, a, out, lse):
    return Right.returned(self, a, out.float(), lse)


def _lse_by_head(self, a, out, lse):
    return (out, lse.T) if a.return_lse else out


def _refuses_single_block(self, a):
    if a.block_tables.shape[1] < 2:
        raise RuntimeError("block tables of one column are not supported")
    return a


ISOLATION = (
    _plant(
        "lengths_of_first_call",
        "sglang #26521",
        "A replay keeps the lengths of the first call.",
        arguments=_kept("seq_lens"),
    ),
    _plant(
        "tables_of_first_call",
        "sglang #26521",
        "A replay keeps the block tables of the first call.",
        arguments=_kept("block_tables"),
    ),
    _plant(
        "second_call_skips",
        "flash-attention 1a58058a",
        "A semaphore is not cleared, so the second call with the same lengths does nothing.",
        work=_second_call_skips,
    ),
    _plant(
        "accumulator_not_cleared",
        UNKNOWN,
        "The sum of values begins with a trace of the call before.",
        empty=_leaking_scratch,
    ),
    _plant("noise", UNKNOWN, "Every output is a little different.", finish=_noise),
    _plant(
        "splits_at_random",
        UNKNOWN,
        "Splits are merged in the order in which they happen to end.",
        merge=_random_merge,
    ),
    _plant(
        "query_scaled_in_place",
        "vllm ref_paged_attn",
        "The query is multiplied by the scale where it lies.",
        arguments=_scaled_in_place,
    ),
    _plant(
        "padding_cleared_in_place",
        UNKNOWN,
        "-1 in the block table becomes 0 where it lies.",
        arguments=_padding_in_place,
    ),
    _plant(
        "tail_cleared_in_place",
        "vllm #43990",
        "The tail of the last block is cleared in the cache.",
        work=_tail_cleared,
    ),
    _plant(
        "output_in_query",
        UNKNOWN,
        "The output is written over the query where the dims are equal.",
        allocate=_output_in_query,
    ),
    _plant(
        "output_of_earlier_call_changes",
        "mini-sglang #103",
        "All calls of a shape return the same memory.",
        allocate=_output_kept,
    ),
    _plant(
        "a_row_too_many",
        UNKNOWN,
        "A sequence writes one row behind its own, and sequences run from last to first.",
        work=lambda self, a, s: Right.work(self, a, len(a.seq_lens) - 1 - s),
        store=_a_row_too_many,
    ),
    _plant(
        "third_sequence_unwritten",
        "vllm #27547",
        "The third sequence of a batch is never written.",
        store=_skips_second_of_long_batch,
    ),
    _plant(
        "splits_of_first_sequence",
        "flash-attention #2550",
        "All sequences have as many splits, of the length that suits the first.",
        split_len=_few_splits,
    ),
    _plant("output_in_float32", UNKNOWN, "The output is always float32.", returned=_float_output),
    _plant(
        "lse_by_head",
        "flashinfer #1654",
        "The lse is [num_heads, num_tokens].",
        returned=_lse_by_head,
    ),
    _plant(
        "one_column_refused",
        UNKNOWN,
        "A block table of one column raises.",
        arguments=_refuses_single_block,
    ),
)
