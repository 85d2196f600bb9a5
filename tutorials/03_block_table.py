# %% [markdown]
# # 3. Block table and slot mapping
#
# **Question.** A sequence's blocks lie anywhere in memory. How does its seventh token find
# its own K and V again, and what must a GPU be told: a number for every block, or a number for
# every token?
#
# All slots of the pool are numbered, block after block, so that one number says where a token
# is:
#
#     slot = block_id * block_size + offset
#
# What is missing is the way from a *position* in a sequence (first token, second token, ...) to
# the block. That is the **block table**: a list with the id of the sequence's first block,
# its second block, and so on.
#
# ## Picture
#
# Two sequences grow in turns, so their blocks alternate. Blocks of 4 tokens:

# %%
from minipaged.core import BlockPool, BlockTable, Snapshot
from minipaged.learn import exercise, fails, show, source

BLOCK_SIZE, NUM_BLOCKS = 4, 8
pool = BlockPool(NUM_BLOCKS)
a, b = BlockTable(pool, BLOCK_SIZE), BlockTable(pool, BLOCK_SIZE)
for table, num_tokens in ((a, 4), (b, 4), (a, 4), (b, 3), (a, 2)):
    table.reserve(num_tokens)
    table.commit([0] * table.num_reserved)

show(Snapshot.take(pool, {"A": a, "B": b}, BLOCK_SIZE))
print("A's block table", a.block_ids)
print("B's block table", b.block_ids)

# %%
from minipaged.view import table_arrows

show(table_arrows(a.block_ids, BLOCK_SIZE, a.num_tokens, NUM_BLOCKS, caption="A's block table"))

# %% [markdown]
# Position `p` is in the sequence's block number `p // block_size`, its *logical block*, at the
# offset `p % block_size`. The table says which *physical block* that is. The whole of it is
# one line:

# %%
source(BlockTable.slots)

# %% [markdown]
# ## Predict
#
# A's table is `[0, 2, 4]`, B's is `[1, 3]`, and a block has 4 slots.
#
# <details markdown="1"><summary>In which slot is A's seventh token, position 6?</summary>
#
# 6 // 4 = 1 and 6 % 4 = 2: the third slot of A's second block. That is block 2, so the slot is
# 2 * 4 + 2 = 10.
# </details>
#
# <details markdown="1"><summary>Whose token is in slot 13, and at which position?</summary>
#
# Slot 13 is in block 13 // 4 = 3 at offset 1. Block 3 is the second of B, so it is B's position
# 1 * 4 + 1 = 5. Without the tables nobody could say: a slot does not know whose it is.
# </details>
#
# <details markdown="1"><summary>A gets three more tokens. Which slots?</summary>
#
# Block 4 has two free slots, 18 and 19. The third token needs a block, and the next free one
# is 5: slot 20.
# </details>
#
# ## Run

# %%
print("A:", a.slots(0, a.num_tokens))
print("B:", b.slots(0, b.num_tokens))
a.reserve(3)
print("A's next three tokens:", a.slots(a.num_tokens, a.num_reserved))
assert a.slots(6, 7) == [10]
assert a.slots(10, 13) == [18, 19, 20]
assert b.slots(5, 6) == [13]

# %% [markdown]
# **Two tensors, two purposes.** Now a step of the engine: A's three tokens, one token of B, and
# a new sequence C with a prompt of six. All of them are computed at once. What the GPU must know
# becomes five tensors (`seq_lens`: tokens of each sequence, the new ones included;
# `query_start_loc`: where each sequence's new tokens begin in the step):

# %%
import torch

from minipaged.cache import KVCache, PagedBatch

c = BlockTable(pool, BLOCK_SIZE)
b.reserve(1)
c.reserve(6)
batch = PagedBatch.build([a, b, c])
for name in ("block_tables", "seq_lens", "query_start_loc", "positions", "slot_mapping"):
    print(f"{name:16}{getattr(batch, name).tolist()}")

# %% [markdown]
# - `slot_mapping` has one entry for every *new token*: where its K and V are **written** in
#   this step. It is used once and thrown away.
# - `block_tables` has one row for every *sequence*, one entry for every block: where all of
#   its K and V are **read**, old ones and new ones. Rows are padded with -1, which means "no
#   block here".
#
# They are not the same thing in two forms. One says where ten tokens go, the other one where
# 27 are:

# %%
print("slots written:", len(batch.slot_mapping), "  slots read:", int(batch.seq_lens.sum()))

# %% [markdown]
# **Handles, not vectors.** A block table holds no K and no V, only numbers of four bytes. For
# the model of page 1 and its longest sequence, in blocks of 16:

# %%
from minipaged.claims.cost import CostModel

num_tokens, block_size = 2048, 16
entries = -(-num_tokens // block_size)
kv_bytes = int(num_tokens * CostModel().kv_bytes)
print(f"block table: {entries} entries, {4 * entries} bytes, for all 40 layers at once")
print(f"K and V:     {kv_bytes:,} bytes")

# %% [markdown]
# Position p of a sequence has the same slot in every layer, so one table serves them all. This
# is why everything that follows in this course (sharing, copy-on-write, prefix caching) is
# done on small lists of integers on the CPU, and K and V hardly ever move.
#
# **A table, not a linked list.** Each block could also name the next one. Then position
# 2000 could only be found by walking over 125 blocks, and it would have to be found again by
# every layer and every thread. With a table any position costs one look-up, and a kernel can
# begin in the middle:

# %%
for p in (0, 100, 2000):
    print(f"position {p:4}: a list walks over {p // block_size:3} blocks, a table looks up 1")

# %% [markdown]
# Now the tensors. `write` puts K and V into the slots, `gather` reads them back through the
# table. As K we take the position, and as V the number of the sequence:

# %%
cache = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, num_kv_heads=1, head_dim=1, sanitize=True)


def write(cache: KVCache, sequence: int, positions: range, slots: list[int]) -> None:
    """K is the position, V is the number of the sequence."""
    key = torch.tensor(positions, dtype=torch.float32).view(-1, 1, 1)
    value = torch.full_like(key, sequence)
    cache.write(0, key, value, torch.tensor(slots))


tables = {1: a, 2: b, 3: c}
for number, table in tables.items():
    write(cache, number, range(table.num_reserved), table.slots(0, table.num_reserved))
    table.commit([0] * table.num_reserved)
for number, table in tables.items():
    key, value = cache.gather(0, table.block_ids, table.num_tokens)
    assert key.flatten().tolist() == list(range(table.num_tokens))
    assert set(value.flatten().tolist()) == {number}
    print(f"sequence {number} reads positions 0 to {table.num_tokens - 1}, all its own")

# %% [markdown]
# ## What goes wrong without it
#
# **Without the table.** Somebody tests with one sequence in an empty pool. Its table is
# `[0, 1, 2]`, so the slot *is* the position, and the table may as well be left out. The second
# sequence then does this:

# %%
careless = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, num_kv_heads=1, head_dim=1)
for number, table in tables.items():
    write(careless, number, range(table.num_tokens), list(range(table.num_tokens)))
_, value = careless.gather(0, [0, 1, 2, 3], a.num_tokens)
print("whose V sequence 1 reads:", [int(v) for v in value.flatten()])
assert set(value.flatten().tolist()) == {1, 2, 3}

# %% [markdown]
# **With -1 taken for a slot.** The number of tokens in a step is often rounded up, because a
# GPU likes fixed sizes, and the rows that are too many get the slot -1: not to be written. But
# -1 is a valid index in Python and in torch. `-1 // 4` is -1, the last block, and `-1 % 4` is 3,
# its last slot:

# %%
slot_mapping = torch.tensor([8, 9, -1, -1])
key = torch.tensor([1.0, 2.0, 77.0, 77.0]).view(-1, 1, 1)
last = NUM_BLOCKS - 1, BLOCK_SIZE - 1  # somebody's token is here

naive = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, 1, 1)
naive[slot_mapping // BLOCK_SIZE, slot_mapping % BLOCK_SIZE] = key
print("last slot of the pool, written naively:", naive[last].item())

right = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, 1, 1)
right.key.zero_()
right.write(0, key, key, slot_mapping)
print("last slot of the pool, -1 skipped:     ", right.key[0][last].item())
assert naive[last].item() == 77
assert right.key[0][last].item() == 0

# %% [markdown]
# As long as the pool is not full, nobody notices: the last block is the last to be handed out.
# The line that makes the difference:

# %%
from minipaged.cache import write_kv

source(write_kv, "keep = ", "value_cache[")

# %% [markdown]
# ## What must hold
#
# 1. `slot(p) = table[p // block_size] * block_size + p % block_size`, for every position that
#    has a slot, for writing and for reading. *If not*, a token reads what another one wrote.
# 2. A table has `ceil(num_tokens / block_size)` entries. *If not*, either the last position has
#    no slot, or a block is held in vain.
# 3. No two tokens of one step write one slot. *If not*, the result depends on who is last.
# 4. -1 is never an address. *If not*, padding overwrites the end of the pool.
#
# `PagedBatch.validate` checks them for a step. Here are two tokens that write one slot:

# %%
from dataclasses import replace

from minipaged.core import InvalidBatch

batch.validate(NUM_BLOCKS, BLOCK_SIZE)
twice = batch.slot_mapping.clone()
twice[1] = twice[0]
with fails(InvalidBatch):
    replace(batch, slot_mapping=twice).validate(NUM_BLOCKS, BLOCK_SIZE)

# %% [markdown]
# ## Your turn

# %%
exercise("slots")

# %% [markdown]
# ## In the wild
#
# - **vLLM**, `BlockTable.compute_slot_mapping` in `vllm/v1/worker/block_table.py`: the formula
#   above in a Triton kernel. The table is int32, the slot mapping int64, and the padding behind
#   the last token gets the slot -1.
# - **nano-vllm**, `ModelRunner.prepare_decode` in `nanovllm/engine/model_runner.py`: the slot of
#   the newest token is `block_table[-1] * block_size + last_block_num_tokens - 1`. Its
#   `store_kvcache_kernel` returns at once if the slot is -1.
# - **FlashInfer**, `append_paged_kv_cache` in `flashinfer/page.py`, takes no slot mapping: it is
#   told the sequence and the position of every token and computes the slot itself. **SGLang**
#   goes the other way: its `req_to_token` holds a slot for every token, also for reading.
# - **A real -1.**
#   [vllm-project/vllm #43810](https://github.com/vllm-project/vllm/issues/43810): a cache for
#   hidden states was written with plain torch indexing, and the padding of CUDA graphs went
#   to the last slot of the last block. The kernels beside it had always skipped negative slots.
# - **A real table.** [ROCm/aiter #4825](https://github.com/ROCm/aiter/pull/4825): a kernel
#   looked into the table by token instead of by block, which is right for a block size of 1
#   and for no other. Test with a block size above 1, and not only with powers of two.
#
# ## You can now
#
# read the metadata of any paged kernel, whatever it is called there, and say where a token
# lies. `minipaged demo` shows tables grow and shrink in a running engine.
#
# Next: `minipaged learn 4 --read`, attention over K and V that lie in blocks.
