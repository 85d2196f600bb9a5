# %% [markdown]
# # 2. Blocks and the free list
#
# **Question.** Memory is handed out in blocks of equal size, and a request takes one only when
# it needs one. What is left to waste, and what does that cost?
#
# [Page 1](01_contiguous_cache.md) ended with two wishes: small pieces, taken one at a time, and
# pieces of a request that may lie anywhere. A **block** is such a piece: room for the K and V
# of `block_size` tokens. All blocks have the same size, so any free block is as good as any
# other, and there can be no hole that is too small. Who keeps them is called the **pool**, and
# all it needs to know is which blocks are free: the **free list**.
#
# ## Picture
#
# Eight blocks of four tokens, three requests of 6, 3 and 8 tokens:

# %%
from minipaged.core import BlockPool, BlockTable, Snapshot
from minipaged.learn import exercise, fails, show, source

BLOCK_SIZE = 4
pool = BlockPool(num_blocks=8)
tables = {name: BlockTable(pool, BLOCK_SIZE) for name in "ABC"}


def grow(name: str, num_tokens: int) -> None:
    """So many tokens more: slots for them, and then they are written."""
    table = tables[name]
    table.reserve(num_tokens)
    table.commit([0] * table.num_reserved)


grow("A", 6)
grow("B", 3)
grow("C", 8)
show(Snapshot.take(pool, tables, BLOCK_SIZE), caption="A has 6 tokens, B 3, C 8")

# %% [markdown]
# A goes on for 5 tokens, B ends, C goes on for one. The block that was given back last is
# handed out first:

# %%
grow("A", 5)
tables.pop("B").release()
grow("C", 1)
show(Snapshot.take(pool, tables, BLOCK_SIZE), caption="A has 11 tokens, C 9, B is gone")
for name, table in tables.items():
    print(f"{name}: {table.num_tokens} tokens in blocks {table.block_ids}")

# %% [markdown]
# A's third block does not lie behind its second one, and C's third block lies before its
# first. Nothing was moved, and nobody reserved anything for later. How a token finds its
# place now is the subject of page 3. This is the pool's side (a block that is *cached* is free
# as well; page 7 tells why it is kept apart):

# %%
source(BlockPool.allocate)
source(BlockPool.release)
source(BlockPool._take, "def _take", "_blank.pop")
source(BlockPool._recycle_if_unused)

# %% [markdown]
# ## Predict
#
# The same kind of requests as on page 1, in the same memory: 15,700 slots, now in blocks of
# 16. There, reserving the longest possible output gave a batch of 7 requests and 17 % of
# the slots with tokens, and the oracle 40 %.
#
# <details markdown="1"><summary>Which share of the blocks' slots is empty?</summary>
#
# Only a last block can have empty slots, between none and 15 of them: 7.5 on average, if ends
# are equally likely everywhere. A request that has 310 tokens on average loses 7.5 of 317.5
# slots, 2.4 %.
# </details>
#
# <details markdown="1"><summary>Which block size wastes least, 1, 8, 16, 32 or 128?</summary>
#
# One token a block: then nothing is ever empty. Before you run the cell, think of a reason
# why nobody does that.
# </details>
#
# <details markdown="1"><summary>What if all blocks are taken and a request needs one?</summary>
#
# Nobody reserved, so this happens. Somebody must give up blocks: the newest request is
# **preempted**. It loses all of them and goes back to the queue, and later its tokens are
# computed again.
# </details>
#
# ## Run

# %%
from minipaged.claims.generators import sharegpt_like
from minipaged.claims.managers import PAPER_NUM_SLOTS, Manager
from minipaged.claims.outcome import Setting
from minipaged.claims.simulator import simulate
from minipaged.claims.waste import law

workload = sharegpt_like(200)
at_once = Setting(at_once=True)
head = f"{'block size':>10}{'tokens':>9}{'empty':>8}{'the law':>9}{'batch':>8}{'blocks each':>13}"
print(head + f"{'preempted':>11}{'seconds':>9}")
paged = {}
for size in (1, 8, 16, 32, 128):
    outcome = simulate(workload, Manager("paged", PAPER_NUM_SLOTS // size, size), setting=at_once)
    queued = outcome.queued
    mean_len = queued.split.tokens / queued.mean_running
    paged[size] = {"empty": queued.split.waste, "law": law(size, mean_len)}
    print(
        f"{size:10}{queued.split.percent()['tokens']:8.1f}%{queued.split.waste:7.1f}%"
        f"{law(size, mean_len):8.1f}%{queued.mean_running:8.1f}{mean_len / size:13.1f}"
        f"{outcome.num_preemptions:11}{outcome.seconds:9.0f}"
    )
for name in ("max", "oracle"):
    outcome = simulate(workload, Manager(name), setting=at_once)
    queued = outcome.queued
    print(
        f"{name:>10}{queued.split.percent()['tokens']:8.1f}%{'':24}{queued.mean_running:8.1f}"
        f"{'':5}{outcome.num_preemptions:11}{outcome.seconds:9.0f}"
    )

# %%
from minipaged.view import lines

show(
    lines(
        {
            "measured": [(size, row["empty"]) for size, row in paged.items()],
            "the law": [(size, row["law"]) for size, row in paged.items()],
        },
        "block size",
        "empty slots in taken blocks, per cent",
        log_x=True,
    )
)

# %% [markdown]
# - `tokens` is the share of the whole pool, `empty` the share of the slots in taken blocks
#   that hold nothing. `the law` is the estimate from above, `(B-1)/2 / (L + (B-1)/2)` for
#   blocks of B and requests that hold L tokens on average. It fits without any tuning, so
#   there is nothing else to waste.
# - Blocks of 128 lose every seventh slot. "Paging wastes less than 4 %" is a statement about
#   these lengths and blocks of 16, not about paging: short answers in large blocks waste more.
# - A block of 1 wastes nothing, but a request then consists of hundreds of blocks, each with
#   an entry that somebody has to keep and a kernel has to look up, and K and V that a kernel
#   can read in one piece are one token long. The paper takes 16, where both costs are small.

# %%
assert all(abs(row["empty"] - row["law"]) < 0.2 for row in paged.values())

# %% [markdown]
# **What it costs.** Paging is not free. Look at `preempted`: two hundred requests were thrown
# out more than two hundred times. What they had computed was lost, and is computed again:

# %%
outcome = simulate(workload, Manager("paged"), setting=at_once)
needed = sum(arrival.num_tokens - 1 for arrival in workload.arrivals)
print(f"tokens that had to be computed: {needed:,}")
print(f"tokens computed again:          {outcome.num_computed - needed:,}")
assert outcome.num_preemptions > len(workload)

# %% [markdown]
# The contiguous managers never preempt, because everything is reserved: their requests wait
# outside instead. Paging takes the risk, and with a batch several times as large it is done
# much earlier all the same (`seconds`, by a formula for the paper's card). No single request is
# computed faster than before: more of them share every step. Page 8 is about taking the risk
# well.
#
# ## What goes wrong without it
#
# *It* is the free list's discipline: a block is free or held, never both. Here is a free list
# without it. Its methods are one line long, and it works as long as nobody makes a mistake:


# %%
class Careless:
    """A free list that believes everything."""

    def __init__(self, num_blocks: int):
        self.free = list(range(num_blocks))

    def take(self) -> int:
        return self.free.pop()

    def give_back(self, block_id: int) -> None:
        self.free.append(block_id)


blocks = Careless(num_blocks=4)
memory = [""] * 4  # what is written in every block
mine = blocks.take()
blocks.give_back(mine)  # the request is cancelled ...
blocks.give_back(mine)  # ... and finishes in the same step, so it is cleaned up twice

anna, ben = blocks.take(), blocks.take()
memory[anna] = "Anna's medical history"
memory[ben] = "Ben's shopping list"
print(f"Anna writes into block {anna}, Ben into block {ben}")
print(f"Anna reads: {memory[anna]}")
assert memory[anna] == "Ben's shopping list"

# %% [markdown]
# No error, no crash: Anna's answer is about Ben's shopping list, and the mistake was made by
# a third request, which is gone. The pool refuses at the place where the mistake is:

# %%
careful = BlockPool(num_blocks=4)
(block,) = careful.allocate()
careful.release(block)
with fails(ValueError):
    careful.release(block)

# %% [markdown]
# ## What must hold
#
# 1. Every block is free or held, exactly one of them, and stands on the free list once. *If
#    not*, two requests write into one block, or a block is lost until the server restarts.
# 2. `allocate(n)` gives n blocks or none. *If not*, a request that failed half-way keeps blocks
#    that it cannot use, and two such requests may wait for each other for ever.
# 3. Only the last block of a request has empty slots, so a request wastes fewer than
#    `block_size` of them, however long it is. *If not*, a block was taken too early.
# 4. When nobody runs, everything is free.
#
# The package can check all of them at any time, and does so in its tests after every step:

# %%
from minipaged.core import Ledger, OutOfBlocks

before = pool.free_order()
with fails(OutOfBlocks):
    pool.allocate(pool.num_free + 1)
assert pool.free_order() == before

pool.check()
ledger = Ledger.measure(list(tables.values()), pool, BLOCK_SIZE)
print(f"{ledger.live} slots hold a token, {ledger.tail_waste} are empty in last blocks,")
print(f"{ledger.free} are free, {ledger.num_slots} in all")
for table in tables.values():
    assert len(table.block_ids) * BLOCK_SIZE - table.num_tokens < BLOCK_SIZE
    table.release()
assert pool.num_free == pool.num_blocks

# %% [markdown]
# ## Your turn

# %%
exercise("free_list")

# %% [markdown]
# ## In the wild
#
# - **vLLM**, `BlockPool.get_new_blocks` and `BlockPool.free_blocks` in
#   `vllm/v1/core/block_pool.py`. Its free list, `FreeKVCacheBlockQueue` in
#   `vllm/v1/core/kv_cache_utils.py`, is a linked list, so that a block can leave it from the
#   middle (page 7 needs that).
# - **nano-vllm**, `BlockManager._allocate_block` and `_deallocate_block` in
#   `nanovllm/engine/block_manager.py`: a deque of free ids and a set of used ones. Its
#   `can_append` asks for a block when `len(seq) % block_size == 1`, which is when a block has
#   just become full and one token more has come.
# - **Real double frees.**
#   [vllm-project/vllm #1556](https://github.com/vllm-project/vllm/issues/1556), "Double free!":
#   with a sliding window a table may name a block twice, and a fork counted it twice
#   ([#3347](https://github.com/vllm-project/vllm/pull/3347) counts each block once). In a
#   duplicate of the report ([#1584](https://github.com/vllm-project/vllm/issues/1584)) somebody
#   replaces the error by `return 0`, and it works again: the mistake is still there, and now
#   nobody is told. What it can lead to stands in
#   [NVIDIA/TensorRT-LLM #14937](https://github.com/NVIDIA/TensorRT-LLM/pull/14937): a block
#   stood in the free queue twice, was given to a second sequence while the first still used
#   it, and the process ended in a corrupted heap, far away from the cause.
#
# ## You can now
#
# say what a block size costs before you measure it, and why a pool has to be strict. Other
# lengths and sizes: `minipaged reproduce block_size`, and preemption by itself:
# `minipaged reproduce preemption`.
#
# Next: `minipaged learn 3 --read`, how a token finds its slot when the blocks lie anywhere.
