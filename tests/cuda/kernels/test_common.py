"""What the attention kernels share, called as the plain Python that it is."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.kernels import common
from minipaged_cuda.kernels.common import NEG, find_sequence, meet, share, visible_keys

f32 = np.float32


@pytest.mark.parametrize("starts", [[0, 3, 3, 7], [0, 0, 1], [0, 2, 2, 2], [0], [0, 0]])
def test_a_token_is_found_in_the_sequence_whose_rows_include_it(starts):
    num_seqs = len(starts) - 1
    for token in range(starts[-1] + 2):
        owners = [s for s in range(num_seqs) if starts[s] <= token < starts[s + 1]]
        assert [find_sequence(starts, num_seqs, token)] == (owners or [-1])


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize("one_query", [0, 1])
def test_a_row_sees_what_the_semantics_say(monkeypatch, causal, window, one_query):
    for name, x in (("CAUSAL", causal), ("WINDOW", window > 0), ("ONE_QUERY", one_query)):
        monkeypatch.setattr(common, name, x)
    for query_len in range(1, 2 if one_query else 5):
        for length in range(6):
            for row in range(query_len):
                found = visible_keys(row, 1, [length], [0, query_len], window)
                sequence, position, first, end = (int(x) for x in found)
                assert (sequence, position) == (0, length - query_len + row)
                assert list(range(first, end)) == [
                    key
                    for key in range(length)
                    if not (causal and key > position) and not (window and position - key >= window)
                ]
            assert visible_keys(query_len, 1, [length], [0, query_len], window)[0] == -1


def test_shares_are_whole_tiles_that_cover_each_key_once_and_evenly():
    for first, end in ((0, 0), (0, 1), (0, 16), (5, 100), (21, 75), (16, 17), (40, 30)):
        for num_parts in (1, 2, 3, 7):
            parts = [share(first, end, part, num_parts) for part in range(num_parts)]
            keys = [key for begin, stop in parts for key in range(begin, stop)]
            assert keys == list(range(first, end))
            assert all(begin % 16 == 0 or begin == first for begin, _ in parts)
            tiles = [-(-stop // 16) - begin // 16 for begin, stop in parts if stop > begin]
            assert max(tiles, default=0) - min(tiles, default=0) <= 1 or len(tiles) < num_parts


def test_tanh_is_right_to_5e_7_of_its_value_near_0_as_elsewhere():
    x = np.concatenate([np.geomspace(1e-30, 100, 3000), [0.5999, 0.6, 0.6001]]).astype(f32)
    found = np.array([common.tanh(y) for y in np.concatenate([x, -x])], np.float64)
    right = np.tanh(np.concatenate([x, -x]).astype(np.float64))
    assert np.abs(found / right - 1).max() < 5e-7
    assert common.tanh(f32(0)) == 0


def test_keys_that_meet_one_after_the_other_make_a_softmax():
    scores = np.array([-3.0, NEG, 5.0, 4.5, NEG, -100.0], f32)
    largest, total, weighted = NEG, f32(0), 0.0
    for i, score in enumerate(scores):
        largest, total, rescale, weight = meet(largest, total, score)
        weighted = weighted * rescale + weight * i
    weights = np.where(scores > NEG, np.exp2(scores.astype(float) - 5), 0)
    assert (largest, total) == (5.0, pytest.approx(weights.sum(), rel=1e-6))
    assert weighted / total == pytest.approx((weights @ np.arange(6)) / weights.sum(), rel=1e-6)


def test_no_key_is_an_lse_of_minus_infinity():
    assert common.natural_lse(NEG, f32(0)) == -np.inf
    assert meet(NEG, f32(0), NEG) == (NEG, 0, 1, 0)
