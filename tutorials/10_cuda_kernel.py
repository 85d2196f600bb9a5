# %% [markdown]
# # 10. A CUDA kernel, v0 to v4, in the simulator
#
# **Question.** Paged attention on a GPU, written as one would write it on a CPU, is right. A
# second version reads exactly the same numbers and moves an eighth of the bytes. What does
# a GPU count, if not numbers?
#
# You need no GPU, and you need not have written CUDA. Kernels run in this package's
# *simulator*, on a CPU, thread by thread: it gives the right result, it counts what a card
# would move, and it stops at what a card would silently get wrong. It needs one small package
# more, greenlet: `pip install 'minipaged[learn]'`.
#
# Four words first. A **kernel** is a function that a GPU runs many times at once. One such
# run is a **thread**, and it knows its number. Threads come in groups of 32, called a
# **warp**, that as a rule execute the same line together. And memory does not come in
# numbers: a request of a warp moves whole **sectors** of 32 bytes, which is 8 numbers of
# float32, whether the warp asked for one of them or for all eight.
#
# ## Picture
#
# Two small kernels add up a table `x`, 4 rows of 8 numbers: one with a thread for each row, the
# other with a thread for each column. A row is one sector. Each kernel reads each number once.

# %%
from dataclasses import replace

import numpy as np
from numba import cuda, float32

from minipaged.learn import exercise, fails, show, source
from minipaged.learn.exercises._edited import Instead, edited, who_reads
from minipaged.learn.exercises._kernels import Problem
from minipaged_cuda.simulator import Simulator


def add_rows(x, out):  # x is [4, 8], out is [4]
    i = cuda.threadIdx.x  # which of the 4 threads am I?
    total = float32(0)
    for j in range(8):
        total += x[i, j]
    out[i] = total


def add_columns(x, out):  # x is [4, 8], out is [8]
    j = cuda.threadIdx.x  # which of the 8 threads am I?
    total = float32(0)
    for i in range(4):
        total += x[i, j]
    out[j] = total


x = np.arange(32, dtype=np.float32).reshape(4, 8)
for kernel, num_threads in ((add_rows, 4), (add_columns, 8)):
    out = np.zeros(num_threads, np.float32)
    show(who_reads(kernel, num_threads, (x, out), "x"))

# %% [markdown]
# A row of the picture is a thread, a column is a number of `x`, a heavy line begins a sector, and
# the number in a cell says in which request of the warp that thread read it. Look for the 1s,
# the first request. In `add_rows` four threads ask for four numbers in four sectors; in
# `add_columns` eight threads for eight numbers in one sector.
#
# ## Predict
#
# Both kernels read 32 numbers. A sector that a request touches is moved whole for it. How many
# sectors does each kernel move, and what share of the moved bytes had anybody asked for?
#
# <details markdown="1"><summary>Answer</summary>
#
# `add_rows`: 8 requests of 4 sectors, so 32 sectors, and of the 32 bytes of each only 4 were
# asked for, an eighth. `add_columns`: 4 requests of one sector, all of it asked for.
# </details>

# %%
for kernel, num_threads in ((add_rows, 4), (add_columns, 8)):
    out = np.zeros(num_threads, np.float32)
    trace = Simulator().launch(kernel, grid=1, num_threads=num_threads, arguments=(x, out))
    print(kernel.__name__, trace.table(), sep="\n", end="\n\n")

# %% [markdown]
# The last two columns: *useful* is the share of the moved bytes that was asked for. *extra
# cycles* is about shared memory, which comes with v1, and is empty for arguments: the cycles
# that requests waited because several threads wanted different words of one **bank**, which
# gives one word a cycle.
#
# **The same number of reads is not the same cost.** On a CPU `add_rows` is the good one: one
# worker, one line of cache after the other. On a GPU neighbouring *threads* must read
# neighbouring *numbers*; that is called a coalesced access. (A card has caches too, and may
# find a sector there that it moved a moment ago. The count is what the request asks of them.)
#
# ## Run
#
# The package decodes with a ladder of five kernels, `decode_v0` to `decode_v3` and
# `attention`, the one that is used. All compute the same attention, of one new token per
# sequence over the keys and values in its blocks. Here is a batch as pages 3 and 4 had it:
# blocks in scrambled order, -1 where a table has no more, NaN in every slot without a token.

# %%
import torch

from minipaged_cuda import paged_attention
from minipaged_cuda.kernels.decode_v0 import decode_v0
from minipaged_cuda.kernels.decode_v1 import decode_v1
from minipaged_cuda.kernels.decode_v2 import decode_v2
from minipaged_cuda.launch.simulated import SimulatedLauncher

batch = Problem.of([20, 17, 4], num_heads=2, head_dim=32, block_size=16)
print("seq_lens    ", batch.seq_lens.tolist())
print("block_tables", batch.block_tables.tolist())
print("key_cache   ", batch.key_cache.shape, "[num_blocks, block_size, num_heads, head_dim]")


def attend(kernel, launcher, batch=batch, dtype=torch.float32):
    """Run one rung of the ladder, and return the largest error of its output."""
    *floats, tables, lens, scale = batch.arguments
    query, keys, values = (torch.from_numpy(x).to(dtype) for x in floats)
    starts = torch.arange(len(lens) + 1, dtype=torch.int32)  # one new token per sequence
    integers = torch.from_numpy(tables), torch.from_numpy(lens), starts
    options = {"scale": float(scale), "max_query_len": 1, "num_splits": 1}
    out = paged_attention(
        query, keys, values, *integers, **options, kernel=kernel, launcher=launcher
    )
    return (out.double() - torch.from_numpy(batch.attention()[0])).abs().max().item()


def counted(kernel, **options):
    """What one rung did."""
    launcher = SimulatedLauncher()
    attend(kernel, launcher, **options)
    return launcher.last


print(f"decode_v0 is wrong by at most {attend('decode_v0', SimulatedLauncher()):.0e}")

# %% [markdown]
# ### v0: a thread per head
#
# Thread number `row` takes one head of one sequence, walks over its keys with the online
# softmax of page 5, and finds each key through the block table. This is its loop. `key` is
# where a key begins in `key_cache`, counted in numbers; `D` is `head_dim`, `BS` the block size
# and `G` the number of query heads that share a key, here 1. `ex2(x)` is 2 to the power of
# x, which a card has an instruction for (hence the `LOG2E`), and `i64`, `f32` give types.

# %%
source(decode_v0, "for position in range", "largest = larger")

# %% [markdown]
# Line by line this is right, and it is `add_rows`: at any moment thread 0 reads number `d` of
# its key, thread 1 number `d` of *its* key, 32 numbers further on.

# %%
v0 = counted("decode_v0")
print(v0.table())
assert 8 * v0.buffers["key_cache"].reads.useful == 1

# %% [markdown]
# ### v1: a thread per dimension
#
# Now a whole group of threads works on one head, and thread `d` owns dimension `d`: it reads
# number `d` of every key and value, as in `add_columns`. Such a group is a **CTA**
# (cooperative thread array; CUDA also says "thread block", which here would be one block too
# many). Threads of a CTA can do two things that others cannot. They share a small, fast
# piece of memory, **shared memory**, and they can wait for each other: a **barrier**,
# `cuda.syncthreads()`, lets nobody pass before all threads of the CTA have come to it.
#
# They need both. A score is a sum over all dimensions, so over all threads: each puts its
# product into shared memory, and the upper half is added to the lower until one is left.

# %%
source(decode_v1, "products[d] = mine", "largest = larger")

# %%
v1 = counted("decode_v1")
print(v1.table())
for name in ("key_cache", "value_cache"):
    before, after = v0.buffers[name].reads, v1.buffers[name].reads
    assert before.elements == after.elements
    assert before.sectors == 8 * after.sectors

# %% [markdown]
# Same reads of K and V, an eighth of the sectors. (And fewer reads of the query, because one
# number of it fits into a variable of the thread; v0 reads all 32 again for each key.) The
# price is the line `products` and the number of barriers: at each one, all wait for the
# slowest.
#
# ### v2: a warp per head
#
# The 32 threads of a warp, its **lanes**, have something faster. In a **shuffle** they meet, and
# each lane gets the value of a variable of another lane, without any memory between them:
# `shfl_xor_sync(mask, x, 16)` gives lane `i` the `x` of lane `i ^ 16`, and `mask` says which
# lanes take part. Add what you get, go on with 8, 4, 2 and 1, and after five shuffles *every*
# lane has the sum of all 32. No shared memory, no barrier.

# %%
source(decode_v2, "score = f32(0)", "shfl_xor_sync")

# %% [markdown]
# ### v3: a key is loaded once for all heads that share it
#
# In most models several query heads share one head of keys and values (grouped heads). v2
# gives each query head its own warp, and every warp loads the key again. v3 holds the
# queries of all heads of the group in registers, and each key that it loads meets all of them.
# Below, four query heads share one kv head. (v3 also cuts a long sequence into splits, which
# is page 11.)

# %%
grouped = Problem.of([20, 17, 4], num_heads=4, num_kv_heads=1, head_dim=32, block_size=16)
for kernel in ("decode_v2", "decode_v3"):
    trace = counted(kernel, batch=grouped)
    sectors = trace.buffers["key_cache"].reads.sectors
    print(f"{kernel}: {sectors} sectors of keys, for {int(grouped.seq_lens.sum())} keys")

# %% [markdown]
# ### v4: tensor cores
#
# The last rung, `attention`, uses units that multiply two small matrices in one instruction of a
# warp (`mma`), so 16 rows of query meet 16 keys at once. It takes 16-bit caches only, so it runs
# here in bfloat16: half the bytes of the others, and a coarser result.
#
# ### All five
#
# Here is the ladder on the first batch, where every head has its own keys and values.

# %%
columns = "rung", "threads", "reads", "most", "sectors", "useful", "shared", "barriers", "shuffles"
print(("{:<10}" + "{:>9}" * 8).format(*columns))
for kernel in ("decode_v0", "decode_v1", "decode_v2", "decode_v3", "attention"):
    dtype = torch.bfloat16 if kernel == "attention" else torch.float32
    seen = counted(kernel, dtype=dtype)
    caches = [seen.buffers[name].reads for name in ("key_cache", "value_cache")]
    sectors = sum(reads.sectors for reads in caches)
    shared = sum(x.reads.elements + x.writes.elements for x in seen.shared.values())
    cells = (
        seen.num_ctas * seen.num_threads,
        sum(reads.elements for reads in caches),
        sum(reads.max_per_thread for reads in caches),
        sectors,
        f"{sum(reads.useful_bytes for reads in caches) / (32 * sectors):.0%}",
        shared,
        seen.barriers,
        seen.collectives["shfl_xor_sync"],
    )
    print(f"{kernel:<10}" + "".join(f"{cell:>9}" for cell in cells))

# %% [markdown]
# *reads* are numbers of K and V that all threads read, *most* is that of the busiest thread,
# *sectors* and *useful* are what those reads moved, *shared* are reads and writes of shared
# memory. Three remarks: v3 reads a little more than v2, because lanes without a key of their own
# repeat the last one, whose sectors are moved anyway; v4's loads are words of two numbers; and
# v1 uses shared memory for every key, while v3 and v4 use most of theirs once, at the end, to
# put the warps of a CTA together.
#
# Going down the table, each rung pays less of something that the one above wasted: v1 bytes,
# v2 waiting, v3 loading twice, v4 arithmetic. What none of these columns says is time: no
# count here was measured on a card.
#
# ## What goes wrong without it
#
# ### One barrier less
#
# In v1, the last barrier of the loop looks idle: `score = products[0]`, then wait. Let us take
# it out of the package's text, and leave everything else as it is.

# %%
LAST_BARRIER = (
    "        cuda.syncthreads()  # everyone has read it before the next key's products come\n"
)
broken = edited(decode_v1, LAST_BARRIER, "")

for schedule in ("reverse", "forward"):
    blind = SimulatedLauncher(schedule=schedule, check_races=False, strict=False)
    wrong_by = attend("decode_v1", Instead(blind, broken))
    print(f"threads take their turns in {schedule} order: wrong by {wrong_by:.0e}")

# %% [markdown]
# Right or wrong, by who happens to come first. On a card that changes with the load, the
# card and the compiler, so such a kernel can pass every test for a year. This is a **race**: two
# threads use the same element, one of them writes, and nothing orders the two. The simulator
# needs no luck to find it. It looks for the missing order, not for the wrong number:

# %%
from minipaged_cuda.simulator import NotReadable, OutOfBounds, Race

with fails(Race):
    attend("decode_v1", Instead(SimulatedLauncher(), broken))

# %% [markdown]
# Both lines, both threads. Thread 0 has its score and writes the product of the *next* key
# into `products[0]` while thread 1 may have yet to read the score of *this* one. (The two are
# even in one warp. That its lanes execute a line together is a habit of cards, not a promise.
# Within a warp, `syncwarp()` would order them too; in a larger CTA only the barrier does.)
#
# ### The whole last block
#
# A sequence of 20 tokens has two blocks of 16, and the second holds 4. What if a kernel reads
# blocks to their end? First with zeros in the empty slots, as in a cache fresh from the
# allocator; then with NaN, as a freed block may have them.

# %%
VISIBLE, BLOCKS = "range(first, end)", "range(first, (end + BS - 1) // BS * BS)"
whole_block = edited(decode_v0, VISIBLE, BLOCKS)
blind = Instead(SimulatedLauncher(strict=False), whole_block)

zeros = [np.nan_to_num(cache) for cache in (batch.key_cache, batch.value_cache)]
fresh = replace(batch, key_cache=zeros[0], value_cache=zeros[1])
print(f"zeros in the empty slots: wrong by {attend('decode_v0', blind, fresh):.2f}")
print(f"NaN in the empty slots:   wrong by {attend('decode_v0', blind):.2f}")

# %% [markdown]
# Zeros are no harmless padding: a key of zeros has the score 0, and exp(0) is 1. The first
# result is plausible, and wrong. The simulator knows which slots hold a token, and stops at
# the read, whatever lies there. The index is that of a single number; 64 of them (2 heads of
# 32) make a slot.

# %%
with fails(NotReadable) as stopped:
    attend("decode_v0", Instead(SimulatedLauncher(), whole_block))

number = int(str(stopped.error).split("key_cache[")[1].split("]")[0])
block, slot = divmod(number // 64, 16)
owner = batch.block_tables.tolist()[0]
print(f"number {number} is in slot {slot} of block {block}; sequence 0 has the blocks {owner}")

# %% [markdown]
# ### And past the end of the table
#
# The table of every sequence ends in -1. In Python, `cache[-1]` is the last block, somebody
# else's; on a card it is whatever lies in front of the cache. A kernel that walks over the
# whole row of the table meets it:

# %%
with fails(OutOfBounds):
    far = edited(decode_v0, VISIBLE, "range(first, table_stride * BS)")
    attend("decode_v0", Instead(SimulatedLauncher(strict=False), far))

# %% [markdown]
# ## What must hold
#
# - Every thread of the grid either has a row, or returns before it touches memory.
# - Neighbouring threads read neighbouring numbers.
# - Between a write to shared memory and another thread's use of it lies a barrier, and also
#   between that use and the *next* write.
# - All threads of a CTA come to a barrier, and all lanes that a mask names to a shuffle.
# - No slot at or past `seq_lens` is read, and no entry of the block table behind the last
#   block: not "read and then masked", not read.
# - A key is loaded once for all query heads that share it.
#
# ## Your turn
#
# Five small kernels. The judge runs them in the simulator with scrambled tables and NaN in
# every slot that holds no token; where cost is the lesson, there is a budget.

# %%
exercise("guard")

# %%
exercise("coalesce")

# %%
exercise("barrier")

# %%
exercise("shuffle")

# %%
exercise("grouped")

# %% [markdown]
# ## In the wild
#
# - **The same kernel in vLLM** is `paged_attention_kernel` in
#   `csrc/attention/attention_kernels.cuh`. Find `block_sum` at its top: first shuffles within
#   each warp, then one number per warp through shared memory with a `__syncthreads()` between,
#   then shuffles again. That is v2 inside, v1 outside. In FlashInfer it is
#   `BatchDecodeWithPagedKVCacheDevice` in `include/flashinfer/attention/decode.cuh`, where a CTA
#   has one row of threads for each query head of the group: v3's idea.
# - **The missing barrier**,
#   [modular/mojo-gpu-puzzles #26](https://github.com/modular/mojo-gpu-puzzles/issues/26): the
#   *reference solution* of a puzzle, a prefix sum in shared memory, added a neighbour's element
#   to its own in the same step in which that neighbour overwrote it.
# - **The whole last block**,
#   [vllm-project/vllm #641](https://github.com/vllm-project/vllm/issues/641): now and then a
#   request failed because its probabilities were NaN. The kernel multiplied the empty slots
#   of the last block by weight 0, and 0 times a leftover NaN is NaN
#   ([#936](https://github.com/vllm-project/vllm/pull/936) fixed it).
#
# ## You can now
#
# - read a paged-attention kernel, and say which thread reads which number;
# - count what it moves, and see a bad access pattern before a card does;
# - recognise a race, and know that a right result does not exclude one.
#
# Your own Numba kernel [runs in the same simulator](../how-to/simulate-a-cuda-kernel.md), and
# [more is told about the five](../explanation/kernels.md) elsewhere.
#
# Next: one very long sequence, and a card that is almost idle: `minipaged learn 11 --read`.
