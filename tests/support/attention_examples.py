"""Attention small enough to do by hand, and pictures of who sees what; knows no implementation."""

from __future__ import annotations

from math import isclose, log, tanh

import torch


def ints(*numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def two_keys(form, **options):
    """One query of 1; keys of score 0 and ln 3, so that they weigh 1 and 3; values 0 and 4."""
    key = torch.tensor([0.0, log(3)]).reshape(1, 2, 1, 1)
    value = torch.tensor([0.0, 4.0]).reshape(1, 2, 1, 1)
    query = torch.ones(1, 1, 1)
    batch = (ints([0]), ints(2), ints(0, 1))
    per_head = {k: torch.tensor([options[k]]) for k in ("alibi_slopes", "sinks") if k in options}
    options = {"scale": 1.0} | options | per_head
    out, lse = form(query, key, value, *batch, **options, return_lse=True)
    return out.item(), lse.item()


HAND = {  # what the query then weighs the two keys (and the sink)
    "nothing else": ({}, 1, 3, 0),
    "the scale": ({"scale": 2.0}, 1, 9, 0),
    "a window of one": ({"window": 1}, 0, 3, 0),
    "a window of two": ({"window": 2}, 1, 3, 0),
    "a softcap": ({"softcap": 0.5}, 1, 3 ** (0.5 * tanh(log(3) / 0.5) / log(3)), 0),
    "alibi halves with each step back": ({"alibi_slopes": log(2)}, 1 / 2, 3, 0),
    "a sink that weighs four": ({"sinks": log(4)}, 1, 3, 4),
    "a key scale": ({"k_scale": 2.0}, 1, 9, 0),
    "alibi after the cap": (
        {"softcap": 0.5, "alibi_slopes": log(2)},
        1 / 2,
        3 ** (0.5 * tanh(log(3) / 0.5) / log(3)),
        0,
    ),
}


def picture(form, *lengths, block_size=2, **options) -> str:
    """Who sees what: with a query of 0 and value p = one-hot of p, the output shows the mask."""
    longest = max(seq_len for _, seq_len in lengths)
    blocks_per_seq = -(-longest // block_size)
    shape = (len(lengths) * blocks_per_seq, block_size, 1)
    value = torch.full((*shape, longest), torch.nan)
    tables = torch.full((len(lengths), blocks_per_seq), -1, dtype=torch.int32)
    starts = [0]
    for s, (query_len, seq_len) in enumerate(lengths):
        starts.append(starts[-1] + query_len)
        for p in range(seq_len):
            block = (s + 1) * blocks_per_seq - 1 - p // block_size
            tables[s, p // block_size] = block
            value[block, p % block_size, 0] = torch.eye(longest)[p]
    query = torch.zeros(starts[-1], 1, 1)
    key = torch.zeros(*shape, 1)
    batch = (tables, ints(*(n for _, n in lengths)), ints(*starts))
    out = form(query, key, value, *batch, scale=1.0, **options)[:, 0]
    rows = ["".join("#" if x else "." for x in row) for row in out]
    seen = (out > 0).sum(dim=1, keepdim=True).clamp(min=1)
    assert torch.allclose(out, (out > 0) / seen), "all that is seen weighs the same"
    return " ".join(rows)


PICTURES = (  # (query_len, seq_len) of each sequence, options, a row of keys for each query
    ([(3, 3)], {}, "#.. ##. ###"),
    ([(2, 5)], {}, "####. #####"),
    ([(4, 4)], {"window": 2}, "#... ##.. .##. ..##"),
    ([(4, 4)], {"window": 1}, "#... .#.. ..#. ...#"),
    ([(1, 5)], {"window": 3}, "..###"),
    ([(3, 3)], {"causal": False}, "### ### ###"),
    ([(3, 3)], {"causal": False, "window": 1}, "### .## ..#"),
    ([(4, 2)], {}, ".. .. #. ##"),
    ([(4, 2)], {"causal": False}, "## ## ## ##"),
    ([(1, 3), (2, 2), (0, 1), (2, 0)], {}, "### #.. ##. ... ..."),
)


def by_hand(form) -> None:
    """Every example of `HAND`, as a check."""
    for name, (options, first, second, sink) in HAND.items():
        out, lse = two_keys(form, **options)
        total = first + second + sink
        assert isclose(out, 4 * second / total, rel_tol=1e-6), (name, out)
        assert isclose(lse, log(total), rel_tol=1e-6), (name, lse)


def pictures(form) -> None:
    """Every picture, as a check."""
    for lengths, options, expected in PICTURES:
        drawn = picture(form, *lengths, **options)
        assert drawn == expected, f"{lengths} {options}: {drawn}, not {expected}"
