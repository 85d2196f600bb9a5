"""What a run must give, in float64, and which frozen thing explains what it gave instead."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .contracts import ReplayContract
from .merge_truth import Array, attention
from .replay_cases import Batch, ReplayCase
from .writer_scaled import as_float64


def attend(batch: Batch, contract: ReplayContract) -> tuple[Array, Array]:
    """`(out, lse)` in float64: one query after the other, keys fetched by the definition."""
    query, keys, values = (as_float64(x) for x in batch.data)
    out, lse = np.zeros(query.shape), np.full(query.shape[:2], -np.inf)
    group = contract.num_heads // contract.num_kv_heads
    starts, lens = batch.query_start_loc.tolist(), batch.seq_lens.tolist()
    for s, length in enumerate(lens):
        for i, t in enumerate(range(starts[s], starts[s + 1])):
            positions = np.arange(max(0, length - (starts[s + 1] - starts[s]) + i + 1))
            blocks = batch.block_tables[s].cpu().numpy()[positions // contract.block_size]
            if not len(positions):
                continue
            mine = np.repeat(keys[blocks, positions % contract.block_size], group, axis=1)
            its = np.repeat(values[blocks, positions % contract.block_size], group, axis=1)
            scores = np.einsum("hd,khd->hk", query[t], mine) * contract.head_dim**-0.5
            out[t], lse[t] = attention(scores, its.swapaxes(0, 1))
    return out, lse


def explained_by(
    out: Tensor, batch: Batch, case: ReplayCase, number: int, contract: ReplayContract
) -> str:
    """The earlier step whose lengths, tables or data would give this output, if one would."""
    found = as_float64(out)
    for earlier in range(number):
        old = Batch.build(case.steps[earlier], contract)
        if old.query.shape != batch.query.shape or len(old.seq_lens) != len(batch.seq_lens):
            continue
        lens, tables = {"seq_lens": old.seq_lens}, {"block_tables": old.block_tables}
        guesses = {
            "lengths": batch._replace(**lens),
            "block tables": batch._replace(**tables),
            "lengths and tables": batch._replace(**lens, **tables),
            "inputs": old,
        }
        for title, guess in guesses.items():
            if np.allclose(found, attend(guess, contract)[0], atol=1e-2, equal_nan=True):
                return f"; it would be right for the {title} of step {earlier + 1}"
    return ""
