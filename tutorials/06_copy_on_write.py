# %% [markdown]
# # 6. Reference counts, fork, copy-on-write
#
# **Question.** Eight answers to one prompt are wanted. Their keys and values are the same up
# to the end of the prompt. Must they be stored eight times? And if not: who may write into
# the last block, where the prompt ends and the answers begin?
#
# A block table is a list of numbers. Copying the list is cheap; copying what the numbers
# stand for is not. So a *fork* copies the list, and counts for each block how many tables
# name it: its **reference count**. From then on there is a rule to keep, because a block
# with two readers must not be written by one of them.

# %% [markdown]
# ## Picture
#
# Blocks of four slots. In place of keys and values, `memory` holds words, so that we can
# read what a sequence would attend to. `write` does what an engine does in each step:
# reserve slots, do the copies that `reserve` asks for, write, commit.

# %%
from minipaged.core import BlockPool, BlockTable, Snapshot
from minipaged.learn import exercise, show, source
from minipaged.view import drawing

BLOCK_SIZE = 4
vocabulary: dict[str, int] = {}


def tokens(text: str) -> list[int]:
    """A number for every word."""
    return [vocabulary.setdefault(word, len(vocabulary)) for word in text.split()]


class Sequence:
    """A block table, and words where the keys and values would be."""

    def __init__(self, table: BlockTable, memory: dict[int, str], text: str = ""):
        self.table, self.memory, self.text = table, memory, text

    def write(self, words: str) -> None:
        """The steps of an engine, for some more tokens."""
        self.text = f"{self.text} {words}".strip()
        start, count = self.table.num_tokens, len(words.split())
        for source_block, destination in self.table.reserve(count):
            print(f"  copy block {source_block} to {destination}")
            for offset in range(BLOCK_SIZE):
                word = self.memory.get(source_block * BLOCK_SIZE + offset, "")
                self.memory[destination * BLOCK_SIZE + offset] = word
        for slot, word in zip(self.table.slots(start, start + count), words.split()):
            self.memory[slot] = word
        self.table.commit(tokens(self.text))

    def read(self) -> str:
        """What attention would see."""
        return " ".join(self.memory[slot] for slot in self.table.slots(0, self.table.num_tokens))

    def fork(self) -> "Sequence":
        """The same past, a future of its own."""
        return Sequence(self.table.fork(), self.memory, self.text)


pool = BlockPool(num_blocks=4)
a = Sequence(BlockTable(pool, BLOCK_SIZE), memory={})
a.write("the cat sat on the")
b = a.fork()


def snapshot() -> Snapshot:
    """The pool as it is now."""
    return Snapshot.take(pool, {"A": a.table, "B": b.table}, BLOCK_SIZE)


forked = snapshot()
show(forked, caption="after the fork: two tables, two blocks, each counted twice")

# %% [markdown]
# Nothing was allocated and nothing was copied. This is the whole fork (`num_dropped` is for
# sliding windows, and `_hashes` belongs to page 7):

# %%
source(BlockTable.fork)

# %% [markdown]
# ## Predict
#
# Now B writes "sofa", and then A writes "mat", each at its position 5, in block 1. How many
# blocks are copied in all: none, one, or two? And who does it?
#
# <details markdown="1"><summary>Answer</summary>
#
# One. Whoever comes first finds two holders, takes a new block, copies the old one into it,
# and gives back its share of the old one. By then the other is the only holder, and writes
# in place. Block 0 is full: nobody writes into it again, so it is never copied.
# </details>
#
# ## Run

# %%
print("B writes")
b.write("sofa")
print("A writes")
a.write("mat")
print("A reads:", a.read())
print("B reads:", b.read())
show(drawing(snapshot(), before=forked, caption="after both have written"))

# %% [markdown]
# The decision is made where a table grows. `writable` is the rule of this page; its second
# half is explained below:

# %%
source(BlockTable._grow)

# %%
source(BlockTable._writes_shared_tail)

# %%
source(BlockPool.writable)

# %% [markdown]
# What is it worth? Eight samples of a prompt of 100 tokens, 50 new tokens each, blocks of
# 16, all of them advancing one token a step. Before you run it: how many blocks are copied?
#
# <details markdown="1"><summary>Answer</summary>
#
# 100 = 6 * 16 + 4: six full blocks and one with four tokens. Only that one is ever written
# while shared. Seven of the eight copy it, the last one keeps it: seven copies, all of them
# in the first step. With a prompt of 96 tokens there would be none.
# </details>

# %%
from minipaged.core import reserve


def sample(num_samples: int, prompt_len: int, new_tokens: int, block_size: int = 16) -> dict:
    """Blocks held after the fork and at the end, and copies; unshared for comparison."""
    pool = BlockPool(num_blocks=10_000)
    first = BlockTable(pool, block_size)
    first.reserve(prompt_len)
    first.commit([0] * prompt_len)
    tables = [first, *(first.fork() for _ in range(num_samples - 1))]
    after_fork, copied = pool.num_blocks - pool.num_free, 0
    for step in range(new_tokens):
        copied += len(reserve(tables, [1] * num_samples))
        for table in tables:
            table.commit([0] * (prompt_len + step + 1))
    held = pool.num_blocks - pool.num_free
    unshared = num_samples * -(-(prompt_len + new_tokens) // block_size)
    return {"forked": after_fork, "end": held, "unshared": unshared, "copied": copied}


rows = {prompt_len: sample(8, prompt_len, 50) for prompt_len in (96, 100, 1000, 4000)}
print(f"{'prompt':>8}" + "".join(f"{name:>10}" for name in rows[100]) + f"{'saved':>10}")
for prompt_len, row in rows.items():
    saved = 1 - row["end"] / row["unshared"]
    print(f"{prompt_len:8}" + "".join(f"{n:10}" for n in row.values()) + f"{saved:10.0%}")
assert rows[100]["copied"] == 7
assert rows[96]["copied"] == 0

# %% [markdown]
# Those are blocks: held after the fork, held at the end, what eight separate sequences would
# hold, and copied. The longer the prompt, the more is saved, and the price does not grow
# with it: at most one block for each sample but one. 96 and 4000 are multiples of 16, so
# their last block is full and nothing is copied at all.
#
# ## What goes wrong without it
#
# **Without a copy.** The same package, one rule changed: every block may be written.


# %%
class Careless(BlockPool):
    """Lets everybody write everywhere."""

    def writable(self, block_id: int) -> bool:
        return True


a = Sequence(BlockTable(Careless(num_blocks=8), BLOCK_SIZE), memory={})
a.write("the cat sat on the")
b = a.fork()
b.write("sofa")
a.write("mat")
print("A reads:", a.read())
print("B reads:", b.read())
assert b.read() != b.text

# %% [markdown]
# B wrote "sofa" and reads "mat". No exception, no NaN: an answer that is fluent and wrong.
#
# **With the count alone.** The usual telling of copy-on-write is: copy if the reference
# count is larger than one. That is not enough as soon as two more things exist. Blocks are
# *published*: when a block is full, later requests with the same beginning may find it and
# use it (page 7). And sequences are *truncated*: a draft is rejected, or somebody asks for
# the last answer once more. Let us change the rule to the count alone:


# %%
class CountAlone(BlockPool):
    """Asks how many hold a block, and not who may come later."""

    def writable(self, block_id: int) -> bool:
        return self.ref_count[block_id] == 1


from minipaged.core import root_hash

TEXT = "the cat sat on the mat and slept"  # eight words: two full blocks


def rewritten(pool: BlockPool) -> str:
    """A sequence goes back two tokens and writes others; what does a later request read?"""
    memory: dict[int, str] = {}  # a table that has a root publishes what it fills
    first = Sequence(BlockTable(pool, BLOCK_SIZE, root_hash()), memory)
    first.write(TEXT)
    first.table.truncate(6)
    first.text = "the cat sat on the mat"
    first.write("then left")
    later = Sequence(BlockTable(pool, BLOCK_SIZE, root_hash()), memory)
    later.table.match_prefix(tokens(TEXT + " again"))  # adopts what it finds
    return later.read()


for kind in (CountAlone, BlockPool):
    print(kind.__name__)
    got = rewritten(kind(num_blocks=8))
    print("  a later request finds:", got)
    assert (got == TEXT) == (kind is BlockPool)

# %% [markdown]
# The request asked for "... mat and slept" and was given the keys and values of "... mat
# then left". The block had one holder, so the count was right, and it was still promised to
# whoever might look for its content. So the rule has two halves: **one holder, and
# unpublished**. Here a copy is made though nobody shares the block.
#
# ## What must hold
#
# - A block may be written only if its reference count is 1 *and* it is unpublished.
# - The reference count of a block is the number of tables that name it; it is free at 0.
# - A fork allocates nothing, so it cannot fail for lack of memory. Of n sequences that share
#   a partial last block, n - 1 copy it if it is unpublished, and all n if it is published. A
#   sequence whose last block is full copies nothing: it writes into the next one.
# - The copies of a step are done before anything of that step is written, and a source
#   stays what it is until then: `_grow` *pins* it before it gives it back.
#
# ## Your turn
#
# Write the growth of a table by one token, with all of these cases. Your copies are counted.

# %%
exercise("fork")

# %% [markdown]
# ## In the wild
#
# - vLLM's first block manager had this rule in `vllm/core/block_manager.py`,
#   `BlockSpaceManager.append_slot`: look at the last block's `ref_count`, write in place if
#   it is 1, else allocate, free the old one, and return the pair to copy.
# - There, sequences were forked again in later steps, although they already owned separate
#   blocks: wrong results
#   ([vllm-project/vllm #417](https://github.com/vllm-project/vllm/issues/417)).
# - With a sliding window a block table named one block several times, and `fork` counted
#   every place instead of every table, which ended in "Double free!"
#   ([#1556](https://github.com/vllm-project/vllm/issues/1556), mended in
#   [#3347](https://github.com/vllm-project/vllm/pull/3347)).
# - vLLM v1 has no copy-on-write for samples: it runs n samples as n requests, which find
#   each other's full blocks by their prefix
#   ([#10980](https://github.com/vllm-project/vllm/pull/10980)). nano-vllm has no fork.
#
# ## You can now
#
# - fork a sequence without copying anything, and say how many blocks that will cost later;
# - name the two conditions under which a block may be written, and a program that breaks
#   each.
#
# Next: how does a request find blocks that nobody forked for it?
#
# ```console
# $ minipaged learn 6
# $ minipaged learn 7 --read
# ```
