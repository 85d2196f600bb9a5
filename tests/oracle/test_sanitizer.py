"""Each law of the shadow, by the smallest story that breaks it; and the message is the evidence."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from minipaged.core import MinipagedError
from minipaged.sanitizer import SanitizerError, Shadow, sanitize

SIZE = 4  # tokens in a block


@pytest.fixture
def shadow() -> Shadow:
    """At step 2; "a" has written positions 0 to 5 into blocks 3 and 1 at step 1."""
    shadow = Shadow(num_blocks=8, block_size=SIZE)
    shadow.begin_step()
    shadow.allocated("a", [3, 1])
    shadow.write("a", range(6), [12, 13, 14, 15, 4, 5])
    shadow.begin_step()
    return shadow


@contextmanager
def says(kind: str, message: str):
    """An error of one kind, with this in its message."""
    with pytest.raises(SanitizerError, match=re.escape(message)) as info:
        yield info
    assert info.value.kind == kind


# --- reads -------------------------------------------------------------------------------------


def test_what_was_written_may_be_read(shadow):
    shadow.read("a", [3, 1], 6)
    shadow.read("a", [3, 1], 6, num_queries=6)


def test_an_unwritten_slot_may_not_be_read(shadow):
    with says("unwritten-read", 'step 2, sequence "a": reads position 6 from slot 6 (block 1, off'):
        shadow.read("a", [3, 1], 7)


def test_a_freed_slot_may_not_be_read(shadow):
    shadow.free("a", [3, 1])
    shadow.begin_step()
    message = (
        "reads position 0 from slot 12 (block 3, offset 0), which was freed at step 2 and never"
    )
    with says("freed-read", message) as info:
        shadow.read("a", [3, 1], 6)
    error = info.value
    assert (error.sequence, error.step, error.slot, error.position) == ("a", 3, 12, 0)
    assert isinstance(error, MinipagedError)


def test_a_block_that_is_handed_out_again_is_blank(shadow):
    shadow.free("a", [3, 1])
    shadow.allocated("b", [3])
    with says("unwritten-read", "was not written since block 3 was allocated at step 2"):
        shadow.read("b", [3], 1)
    assert shadow.generation[3] == 2


def test_another_sequences_block_may_not_be_read(shadow):
    shadow.allocated("b", [0])
    message = (
        'is in a block of sequence "a", not of the reader; it holds position 0 of sequence "a"'
    )
    with says("foreign-read", message):
        shadow.read("b", [3], 1)


def test_a_slot_holds_the_position_that_is_read(shadow):
    with says(
        "wrong-position", "reads position 0 from slot 4 (block 1, offset 0), which holds pos"
    ):
        shadow.read("a", [1, 3], 6)


def test_a_slot_holds_the_history_that_is_read():
    shadow = Shadow(8, SIZE)
    shadow.begin_step()
    shadow.tokens("a", [7, 8])
    shadow.allocated("a", [3])
    shadow.write("a", range(2), [12, 13])
    shadow.tokens("b", [7, 9])
    shadow.share("b", [3])
    shadow.read("b", [3], 1)
    with says(
        "wrong-content", 'holds position 1 of sequence "a", written at step 1, after other to'
    ):
        shadow.read("b", [3], 2)


def test_equal_tokens_of_another_salt_are_another_history():
    shadow = Shadow(8, SIZE)
    shadow.begin_step()
    shadow.tokens("a", [7], salt="mine")
    shadow.allocated("a", [3])
    shadow.write("a", [0], [12])
    shadow.tokens("b", [7], salt="yours")
    shadow.share("b", [3])
    with says("wrong-content", "after other tokens"):
        shadow.read("b", [3], 1)


def test_a_window_excuses_what_it_hides(shadow):
    shadow.free("a", [3])
    shadow.read("a", [-1, 1], 6, window=2)
    with says("out-of-pool", "reads position 3 through entry 0 of its block table, which is -1"):
        shadow.read("a", [-1, 1], 6, window=3)
    with says("out-of-pool", "reads position 3 through entry 0"):
        shadow.read("a", [-1, 1], 6, num_queries=2, window=2)


def test_a_table_covers_what_is_read_and_lies_in_the_pool(shadow):
    with says("short-table", "reads position 4; its block table covers 4 tokens (block_size 4)"):
        shadow.read("a", [3], 6)
    with says("out-of-pool", "which is 8; the pool has blocks 0 to 7"):
        shadow.read("a", [3, 8], 6)


# --- writes ------------------------------------------------------------------------------------


def test_a_shared_block_may_not_be_written(shadow):
    shadow.fork("a", "b")
    with says("shared-write", 'which sequences "a", "b" hold: it must be copied first'):
        shadow.write("b", [6], [6])
    shadow.free("b", [3, 1])
    shadow.write("a", [6], [6])


def test_a_published_block_may_not_be_written(shadow):
    shadow.publish([3], [b"hash"])
    shadow.begin_step()
    with says(
        "published-write", "writes position 3 to slot 15 (block 3, offset 3), which is publis"
    ):
        shadow.write("a", [3], [15])


def test_only_an_own_block_may_be_written(shadow):
    shadow.allocated("b", [0])
    with says("unowned-write", 'which sequence "a" holds, not the writer'):
        shadow.write("b", [0], [12])
    with says("unowned-write", "which was never allocated"):
        shadow.write("b", [0], [28])
    with says("out-of-pool", "to slot 32; the pool has slots 0 to 31"):
        shadow.write("b", [0], [32])


def test_a_slot_is_written_once_in_a_step(shadow):
    with says("double-write", "to slot 6 (block 1, offset 2), which is written already in this st"):
        shadow.write("a", [6, 7], [6, 6])
    shadow.write("a", [6], [6])
    with says("double-write", "in this step"):
        shadow.write("a", [6], [6])
    shadow.begin_step()
    shadow.write("a", [6], [6])


# --- copies ------------------------------------------------------------------------------------


def test_a_copy_brings_content_positions_and_all(shadow):
    shadow.allocated("b", [0])
    shadow.share("b", [3])
    shadow.copy([(1, 0)])
    shadow.read("b", [3, 0], 6)
    shadow.write("b", [6], [2])


def test_copies_do_not_chain(shadow):
    shadow.allocated("b", [0, 2])
    with says("chained-copy", "block 0 is source and destination of copies of one step"):
        shadow.copy([(1, 0), (0, 2)])


def test_a_copy_reads_what_was_written_and_goes_where_one_may_write(shadow):
    shadow.allocated("b", [0, 2])
    with says("unwritten-copy", 'sequence "b": copies from block 2, which was not written since'):
        shadow.copy([(2, 0)])
    with says("unwritten-copy", "copies from block 7, which was never allocated"):
        shadow.copy([(7, 0)])
    with says("unowned-write", "copies into block 5, which is held by nobody"):
        shadow.copy([(1, 5)])
    with says("double-write", "the destination of another copy of this step"):
        shadow.copy([(1, 0), (3, 0)])
    with says("out-of-pool", "copies into block 8; the pool has blocks 0 to 7"):
        shadow.copy([(1, 8)])
    shadow.publish([3])
    with says("published-write", "copies into block 3, which is published"):
        shadow.copy([(1, 3)])
    shadow.fork("a", "c")
    with says("shared-write", 'copies into block 1, which is held by sequences "a", "c"'):
        shadow.copy([(3, 1)])


def test_a_swap_and_a_return_keep_everything(shadow):
    host = Shadow(4, SIZE)
    host.begin_step()
    host.allocated("a", [2, 0])
    shadow.swap(host, [(3, 2), (1, 0)])
    shadow.free("a", [3, 1])
    shadow.allocated("a", [5, 6])
    host.swap(shadow, [(2, 5), (0, 6)])
    shadow.read("a", [5, 6], 6)
    with says("wrong-position", "reads position 0"):
        shadow.read("a", [6, 5], 6)


def test_what_was_saved_can_be_restored_elsewhere(shadow):
    saved = shadow.save([3, 1])
    shadow.free("a", [3, 1])
    shadow.allocated("a", [0, 2])
    shadow.restore(saved, [0, 2])
    shadow.read("a", [0, 2], 6)


# --- blocks ------------------------------------------------------------------------------------


def test_a_block_is_published_when_it_is_written_whole(shadow):
    shadow.publish([3], [b"one"])
    with says("early-publish", "publishes block 1, but slot 6 (block 1, offset 2) was not written"):
        shadow.publish([1], [b"two"])


def test_a_hash_stands_for_the_block_that_was_published_with_it(shadow):
    shadow.publish([3], [b"one"])
    shadow.free("a", [3])
    shadow.share("b", [3], [b"one"])
    shadow.read("b", [3], 4)
    with says("stale-hash", "finds block 3 by hash 74776f, but it is published as 6f6e65"):
        shadow.share("c", [3], [b"two"])
    shadow.free("b", [3])
    shadow.allocated("d", [3])
    with says("stale-hash", 'sequence "c": finds block 3 by hash 6f6e65, but it is not published'):
        shadow.share("c", [3], [b"one"])


def test_one_hash_has_one_content():
    shadow = Shadow(8, SIZE)
    shadow.begin_step()
    for owner, block_id, token in (("a", 0, 5), ("b", 1, 6)):
        shadow.tokens(owner, [token] * SIZE)
        shadow.allocated(owner, [block_id])
        shadow.write(owner, range(SIZE), range(block_id * SIZE, (block_id + 1) * SIZE))
    shadow.publish([0], [b"x"])
    with says(
        "stale-hash", "publishes block 1 under hash 78, under which block 0 has other conten"
    ):
        shadow.publish([1], [b"x"])


def test_a_block_has_its_holders_and_no_others(shadow):
    with says("double-allocation", 'is given block 3, but sequence "a" holds it'):
        shadow.allocated("b", [3])
    with says("double-free", 'frees block 3, but only sequence "a" holds it'):
        shadow.free("b", [3])
    shadow.free("a", [3])
    with says("double-free", "frees block 3, but it was freed at step 2"):
        shadow.free("a", [3])
    with says("freed-share", "shares block 3, which was freed at step 2 and never written since"):
        shadow.share("b", [3])


def test_blocks_that_stay_held_can_be_asked_for():
    with sanitize(4, SIZE) as shadow:
        shadow.allocated("a", [1])
    with says("leak", 'sequence "a": still holds block 1'), sanitize(4, SIZE, leaks=True) as shadow:
        shadow.allocated("a", [1])


# --- batches in the native convention ----------------------------------------------------------

BATCH = {  # "a" decodes position 6; "b" computes a prompt of 3
    "block_tables": [[3, 1], [0, -1]],
    "seq_lens": [7, 3],
    "query_start_loc": [0, 1, 4],
    "slot_mapping": [6, 0, 1, 2],
}
WRONG_BATCHES = {
    "wrong-slot": ({"slot_mapping": [7, 0, 1, 2]}, 'sequence "a": writes position 6 to slot 7'),
    "unowned-write": (
        {"slot_mapping": [6, 0, 1, 13]},
        'sequence "b": writes position 2 to slot 13',
    ),
    "double-write": (
        {"slot_mapping": [6, 0, 1, 1]},
        "to slot 1 (block 0, offset 1), which is writ",
    ),
    "out-of-pool": ({"slot_mapping": [6, 0, 1, 99]}, "to slot 99; the pool has slots 0 to 31"),
    "unwritten-read": ({"slot_mapping": [6, 0, -1, 2]}, 'sequence "b": reads position 1'),
    "short-table": ({"seq_lens": [9, 3]}, "seq_lens is 9, 1 of them new; its block table covers 8"),
    "bad-sizes": ({"query_start_loc": [0, 2, 1]}, "query_start_loc [0, 2, 1] must rise from 0"),
}


def as_lists(values):
    return values


def as_int32(values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("form", [as_lists, np.asarray, as_int32])
def test_a_batch_is_its_writes_and_then_its_reads(shadow, form):
    shadow.allocated("b", [0])
    shadow.batch(["a", "b"], *map(form, BATCH.values()))
    shadow.begin_step()
    shadow.read("a", [3, 1], 7)


@pytest.mark.parametrize("kind", WRONG_BATCHES)
def test_a_wrong_batch_is_refused(shadow, kind):
    shadow.allocated("b", [0])
    change, message = WRONG_BATCHES[kind]
    with says(kind, message):
        shadow.batch(["a", "b"], **(BATCH | change))


def test_a_row_that_leads_to_another_sequence_is_refused(shadow):
    shadow.allocated("b", [0])
    swapped = {"block_tables": [[3, 1], [3, -1]], "slot_mapping": [6, -1, -1, -1]}
    with says("foreign-read", 'sequence "b": reads position 0 from slot 12'):
        shadow.batch(["a", "b"], **(BATCH | swapped))


def test_padding_is_no_read_and_no_write(shadow):
    shadow.batch(["a", "pad"], [[3, 1], [-1, -1]], [7, 0], [0, 1, 1], [6, -1, -1])
    shadow.begin_step()
    with says(
        "unowned-write", "behind the last sequence writes slot 0 (block 0, offset 0); it must"
    ):
        shadow.batch(["a"], [[3, 1]], [8], [0, 1], [7, 0])
    with says("out-of-pool", "writes position 7 to slot -2; the pool has slots 0 to 31"):
        shadow.batch(["a"], [[3, 1]], [8], [0, 1], [-2])


def test_a_step_may_have_a_name(shadow):
    shadow.begin_step("prefill")
    with says("unwritten-read", 'step 3 (prefill), sequence "a": reads position 6'):
        shadow.read("a", [3, 1], 7)


def test_the_shadow_needs_no_torch():
    code = "import sys, minipaged.sanitizer as s; s.Shadow(1, 1); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
