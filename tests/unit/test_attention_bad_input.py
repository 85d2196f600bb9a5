"""A batch that contradicts itself is refused by every form, in words that name the sizes."""

from __future__ import annotations

import pytest
import torch

from minipaged.attention import paged_attention, paged_attention_blockwise
from minipaged.attention.cpu import cpu_paged_attention, cpu_write_kv
from minipaged.core.errors import InvalidBatch

FORMS = {
    "gather": paged_attention,
    "blockwise": paged_attention_blockwise,
    "cpu": cpu_paged_attention,
}


def ints(*numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def good() -> dict:
    """Two sequences of 6 and 3 tokens, the last 2 and 1 of them new, in blocks of 4."""
    return {
        "query": torch.zeros(3, 4, 8),
        "key_cache": torch.zeros(5, 4, 2, 8),
        "value_cache": torch.zeros(5, 4, 2, 8),
        "block_tables": ints([4, 1], [2, -1]),
        "seq_lens": ints(6, 3),
        "query_start_loc": ints(0, 2, 3),
        "scale": 1.0,
    }


BAD = {
    "a flat query": ({"query": torch.zeros(3, 32)}, r"query is \(3, 32\) on cpu, not 3-dim"),
    "a flat cache": ({"key_cache": torch.zeros(20, 2, 8)}, r"key_cache is \(20, 2, 8\)"),
    "64-bit tables": (
        {"block_tables": ints([4, 1], [2, -1]).long()},
        "is torch.int64, not torch.i",
    ),
    "64-bit lengths": ({"seq_lens": torch.tensor([6, 3])}, "seq_lens is torch.int64"),
    "another device": ({"seq_lens": ints(6, 3).to("meta")}, "on meta, not 1-dimensional on cpu"),
    "head_dim": ({"query": torch.zeros(3, 4, 9)}, "query has head_dim 9, key_cache 8"),
    "heads": ({"query": torch.zeros(3, 3, 8)}, "3 query heads cannot share 2 kv heads evenly"),
    "blocks": ({"value_cache": torch.zeros(4, 4, 2, 8)}, r"\(5, 4, 2\) and \(4, 4, 2\)"),
    "one start too few": ({"query_start_loc": ints(0, 3)}, "one entry more than the others"),
    "one table too few": ({"block_tables": ints([4, 1])}, "'block_tables': 1"),
    "slopes per kv head": (
        {"alibi_slopes": torch.ones(2)},
        r"alibi_slopes is \(2,\) on cpu, not \(4,\) on cpu",
    ),
    "one sink": ({"sinks": torch.ones(1)}, r"sinks is \(1,\) on cpu, not \(4,\)"),
    "a scale per query head": ({"k_scale": torch.ones(4)}, r"k_scale is \(4,\) on cpu, not \(2,\)"),
    "a scale of shape ()": ({"v_scale": torch.tensor(1.0)}, r"v_scale is \(\) on cpu"),
    "sinks elsewhere": ({"sinks": torch.ones(4).to("meta")}, "sinks is .* on meta, not .* on cpu"),
    "an integer query": (
        {"query": torch.zeros(3, 4, 8).int()},
        "query is torch.int32, not a float",
    ),
    "window 0": ({"window": 0}, "window=0 hides every key"),
    "softcap 0": ({"softcap": 0.0}, "softcap=0.0 is not positive"),
    "starts not from 0": ({"query_start_loc": ints(1, 2, 3)}, r"\[1, 2, 3\] must rise from 0"),
    "falling starts": ({"query_start_loc": ints(0, 3, 2)}, "must rise from 0 to at most 3"),
    "too few rows": ({"query_start_loc": ints(0, 2, 4)}, "to at most 3"),
    "a negative length": ({"seq_lens": ints(6, -1)}, "seq_lens asks for -1"),
    "too long": (
        {"seq_lens": ints(6, 9)},
        r"covers 8 tokens of sequence 1, seq_lens asks for 9 \(block_size 4\)",
    ),
    "a block is missing": (
        {"seq_lens": ints(6, 5)},
        r"sequence 1 sees positions 0 to 4 in blocks \[2, -1\], but the cache has blocks 0 to 4",
    ),
    "a block that is not there": ({"block_tables": ints([4, 5], [2, -1])}, "blocks 0 to 4"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(form, name):
    change, message = BAD[name]
    with pytest.raises(InvalidBatch, match=message):
        form(**(good() | change))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_is_right_is_taken(form):
    assert form(**good()).shape == (3, 4, 8)
    unread = {"block_tables": ints([-1, 1], [2, 99]), "window": 1}
    assert form(**(good() | unread)).shape == (3, 4, 8)  # the window begins in block 1


CPU_BAD = {
    "int8": ({"key_cache": torch.zeros(5, 4, 2, 8, dtype=torch.int8)}, "not torch.int8 on cpu"),
    "two types": ({"key_cache": torch.zeros(5, 4, 2, 8).half()}, "must be of one type"),
    "scattered heads": ({"value_cache": torch.zeros(5, 4, 2, 16)[..., ::2]}, "side by side"),
}


@pytest.mark.parametrize("name", CPU_BAD)
def test_what_the_compiled_form_does_not_read(name):
    change, message = CPU_BAD[name]
    with pytest.raises(InvalidBatch, match=message):
        cpu_paged_attention(**(good() | change))


def test_the_compiled_form_runs_on_a_cpu_only():
    elsewhere = {k: x.to("meta") if torch.is_tensor(x) else x for k, x in good().items()}
    with pytest.raises(InvalidBatch, match=r"torch\.float32 on meta"):
        cpu_paged_attention(**elsewhere)


WRITE_BAD = {
    "32-bit slots": ((3, 2, 8), ints(0, 1, 2), "slot_mapping is torch.int32"),
    "too few slots": ((3, 2, 8), torch.tensor([0, 1]), r"not torch\.int64 \(3,\) on cpu"),
    "heads": ((3, 3, 8), torch.tensor([0, 1, 2]), r"key is torch\.float32 \(3, 3, 8\) on cpu, not"),
    "slots elsewhere": (
        (3, 2, 8),
        torch.tensor([0, 1, 2]).to("meta"),
        "slot_mapping is .* on meta",
    ),
    "a slot too far": ((3, 2, 8), torch.tensor([0, 20, 2]), "slot 20 is not one of 20 slots"),
    "a slot below -1": ((3, 2, 8), torch.tensor([0, 1, -2]), "slot -2"),
}


@pytest.mark.parametrize("name", WRITE_BAD)
def test_a_write_is_refused_as_a_whole(name):
    shape, slots, message = WRITE_BAD[name]
    caches = torch.zeros(2, 5, 4, 2, 8)
    with pytest.raises(InvalidBatch, match=message):
        cpu_write_kv(torch.ones(shape), torch.ones(shape), *caches, slots)
    assert not caches.any()


def test_caches_of_different_sizes_are_not_written():
    token, slots = torch.ones(1, 2, 8), torch.tensor([0])
    with pytest.raises(InvalidBatch, match=r"\(5, 4, 2\) and \(4, 4, 2\)"):
        cpu_write_kv(token, token, torch.zeros(5, 4, 2, 8), torch.zeros(4, 4, 2, 8), slots)
