# %% [markdown]
# # 9. Parallel sampling and beam search
#
# **Question.** A beam search keeps the four best continuations of a prompt. After every token
# it chooses again: one beam may go on twice, another not at all. In a contiguous cache the keys
# and values of the survivors are copied into new places, at every step. How much has to be
# copied when they live in blocks, and in what order must blocks change hands?

# %% [markdown]
# ## Picture
#
# **Parallel sampling** draws several answers to one prompt. Each is a fork (page 6) of the
# sequence that computed the prompt; from then on they go their own ways. A fork happens once.
#
# **Beam search** looks for the likeliest continuation. Each beam has a score, the sum of the
# log-probabilities of its tokens. At every step all next tokens of all beams are compared, and
# the best *k* of them are the beams of the next step. A beam that has two of the best tokens
# gets two children; a beam that has none ends. So there is a fork at every step.
#
# Three beams over a prompt of five words. The list `memory` stands for the keys and values:
# at every slot it has the word that was written there.

# %%
from minipaged.core import BlockPool, BlockTable, Snapshot, reserve
from minipaged.learn import exercise, fails, show, source
from minipaged.view import drawing, tree

memory = [""] * 32  # 8 blocks of 4 slots


def write(beams, words):
    """One more word for each beam: slots, copies, then the words; returns the copies."""
    copies = reserve(beams, [1] * len(beams))
    for source_block, copy in copies:
        memory[4 * copy : 4 * copy + 4] = memory[4 * source_block : 4 * source_block + 4]
    for beam, word in zip(beams, words):
        (slot,) = beam.slots(beam.num_tokens, beam.num_tokens + 1)
        memory[slot] = word
        beam.commit([0] * beam.num_reserved)  # the token ids do not matter: nothing is published
    return copies


def read(beam):
    return " ".join(memory[slot] for slot in beam.slots(0, beam.num_tokens))


def three_beams():
    beams = [BlockTable(BlockPool(num_blocks=8), block_size=4)]
    for word in ("the", "cat", "sat", "on", "the"):
        write(beams, [word])
    beams += [beams[0].fork(), beams[0].fork()]
    copies = write(beams, ["mat", "hat", "roof"])
    assert copies == [(1, 2), (1, 3)]  # source and destination
    return beams


def picture(beams, *names):
    return Snapshot.take(beams[0].pool, dict(zip(names, beams)), block_size=4)


beams = three_beams()
now = picture(beams, "mat", "hat", "roof")
show(drawing(now, caption="Three beams, one word after the prompt"))

# %% [markdown]
# Block 0 is held by all three, and nobody will ever write into it again. Of block 1, the last
# one of the prompt, two copies were made, blocks 2 and 3: the last to write finds itself alone
# and writes in place (page 6).

# %% [markdown]
# ## Predict
#
# The next step finds that the best three end in *mat and*, *mat while* and *roof of*. So beam 0
# goes on twice, beam 2 once, beam 1 not at all; in short, the **parents** of the new beams are
# `[0, 0, 2]`. How many blocks are copied in this step? How many are free afterwards?
#
# <details markdown="1"><summary>Count the holders of each last block</summary>
#
# One block is copied. Block 2, the tail of beam 0, has two holders now, and both want to write:
# one copy. The tail of beam 2 has one holder, which writes in place. The tail of beam 1 has none
# left: it is free again, and the copy takes it. So four blocks are held and four are free, as
# before.
#
# </details>

# %% [markdown]
# ## Run
#
# This is how the engine does it: all survivors are forks of their parents; then all beams of the
# step before are removed, which releases their blocks.

# %%
from minipaged.engine import advance

source(advance._offspring)
source(advance.Advancer._advance_beams, "search = search.advance", "self.scheduler.join")

# %%
children = [beams[parent].fork() for parent in (0, 0, 2)]
for beam in beams:
    beam.release()
beams = children
copies = write(beams, ["and", "while", "of"])
print("copied:", copies)
for beam in beams:
    print(read(beam))
now = picture(beams, "mat and", "mat while", "roof of")
show(drawing(now, caption="One step later"))
assert len(copies) == 1
assert beams[0].pool.num_free == 4

# %% [markdown]
# Between the two halves every block of a survivor has one holder more than it needs, and no block
# of a survivor is ever free. Nothing is allocated and no number in the cache moves; forking and
# releasing touch only reference counts. The one copy is made when somebody wants to write.
#
# ### A whole search
#
# Now four beams, a prompt of 20 tokens, 24 steps, blocks of 4. The search is the package's own;
# the probabilities are drawn. We count what is copied, and draw a tree: a node is a block from
# the moment it is taken until it is free again, its parent is the block before it in the table.

# %%
from math import exp, log
from random import Random

from minipaged.engine.beam import BeamSearch
from minipaged.engine.params import BeamSearchParams


class Family:
    """Remembers who came after whom, though block ids are used again and again."""

    def __init__(self, pool):
        self.pool, self.alive, self.nodes = pool, {}, []

    def look(self, beams):
        for block_id in [b for b in self.alive if self.pool.is_free(b)]:
            self.nodes[self.alive.pop(block_id)][3] = True
        for beam in beams:
            parent = None
            for block_id in beam.block_ids:
                if block_id not in self.alive:
                    self.alive[block_id] = len(self.nodes)
                    self.nodes.append([len(self.nodes), parent, str(block_id), False])
                parent = self.alive[block_id]


def best_tokens(random, count):
    logits = [random.random() * 8 for _ in range(30)]
    total = log(sum(map(exp, logits)))
    return sorted(((t, x - total) for t, x in enumerate(logits)), key=lambda c: -c[1])[:count]


def search(width, prompt_len, num_steps, block_size, seed):
    random, pool = Random(seed), BlockPool(200)
    params = BeamSearchParams(beam_width=width, max_tokens=num_steps + 1, ignore_eos=True)
    state, family = BeamSearch.start(params, (), num_steps + 1), Family(pool)
    beams, zeros = [BlockTable(pool, block_size)], [0] * (prompt_len + num_steps)
    beams[0].reserve(prompt_len)
    beams[0].commit(zeros)
    count = {"blocks copied": 0, "most blocks held": 0, "tokens moved if copied whole": 0}
    for _ in range(num_steps):
        state = state.advance([best_tokens(random, state.num_candidates) for _ in beams])
        children = [beams[beam.parent].fork() for beam in state.beams]
        for beam in beams:
            beam.release()
        beams = children
        family.look(beams)
        count["tokens moved if copied whole"] += sum(beam.num_tokens for beam in beams)
        count["blocks copied"] += len(reserve(beams, [1] * width))
        for beam in beams:
            beam.commit(zeros)
        held = pool.num_blocks - pool.num_free
        count["most blocks held"] = max(count["most blocks held"], held)
        family.look(beams)
    count["blocks held at the end"] = held
    count["blocks of separate copies"] = sum(len(beam.block_ids) for beam in beams)
    return count, family


def samples(width, prompt_len, num_steps, block_size):
    """Blocks of samples at their end: they are forked once, and never reordered."""
    pool, zeros = BlockPool(200), [0] * (prompt_len + num_steps)
    tables = [BlockTable(pool, block_size)]
    tables[0].reserve(prompt_len)
    tables[0].commit(zeros)
    tables += [tables[0].fork() for _ in range(width - 1)]
    for _ in range(num_steps):
        reserve(tables, [1] * width)
        for table in tables:
            table.commit(zeros)
    return pool.num_blocks - pool.num_free


count, _ = search(width=4, prompt_len=20, num_steps=24, block_size=4, seed=0)
for name, number in count.items():
    print(f"{number:6,} {name}")
print(f"{samples(4, 20, 24, 4):6,} blocks of four samples of the same length")
assert count["blocks held at the end"] < count["blocks of separate copies"] / 3
assert 4 * count["blocks copied"] < count["tokens moved if copied whole"] / 25

# %%
_, family = search(width=3, prompt_len=6, num_steps=7, block_size=2, seed=2)
show(tree(family.nodes, caption="Blocks of 2, three beams over a prompt of 6, after 7 steps"))

# %% [markdown]
# Read the numbers first. Four sequences of 44 tokens need 44 blocks if each keeps its own. Four
# samples hold 29: they share the prompt, and nothing after it. Four beams hold 14. A cache that
# copies whole beams when they are reordered moves the keys and values of 3,024 tokens in these
# 24 steps; here 27 blocks are copied, of at most 3 tokens each.
#
# The tree says why. Beams that are alive now mostly have a young common ancestor, so they share a
# long trunk and differ in a few last blocks. Nobody looks for equal beginnings: sharing is what
# remains when nothing was copied. And a branch whose beams all lost is free at once; the numbers
# in dead nodes come back in living ones.

# %% [markdown]
# ## What goes wrong without it
#
# **Release first, then fork.** It seems thrifty: give back what the old beams hold, then build the
# new ones from the block ids that were noted down.

# %%
beams = three_beams()
noted = beams[0].block_ids.copy()
for beam in beams:
    beam.release()
with fails(ValueError):
    for block_id in noted:
        beams[0].pool.share(block_id)

# %% [markdown]
# For a moment nobody held these blocks, and a free block is anybody's. This pool refuses. One
# that only counts would let it pass, and it would even work, as long as nobody else takes a
# block at that moment. Let somebody:

# %%
newcomer = BlockTable(beams[0].pool, block_size=4)
for word in ("who", "is", "there", "now"):
    write([newcomer], [word])
print("beam 0 reads:", " ".join(memory[4 * b + i] for b in noted for i in range(4)))
assert set(newcomer.block_ids) <= set(noted)

# %% [markdown]
# **One after the other.** Each beam takes its parent's table, then the next one does. Every child
# is forked before something is released, so no block gets lost. The parents are `[0, 0, 2]` as
# before, then `[2, 0, 0]`: the same three children, in another order.


# %%
def one_after_the_other(beams, parents):
    for i, parent in enumerate(parents):
        child = beams[parent].fork()
        beams[i].release()
        beams[i] = child


for parents in [0, 0, 2], [2, 0, 0]:
    beams = three_beams()
    one_after_the_other(beams, parents)
    beams[0].pool.check()
    print(f"parents {parents}: {[read(beam).split()[-1] for beam in beams]}")
assert [read(beam).split()[-1] for beam in beams] != ["roof", "mat", "mat"]

# %% [markdown]
# In the second case the beams should end in *roof, mat, mat*. They all end in *roof*: when beams
# 1 and 2 ask for beam 0, its table has been replaced. The best hypothesis is gone, three beams
# say the same, and yet all books balance: `pool.check()` has nothing to complain about. A test
# whose parents never go down does not see it.

# %% [markdown]
# ## What must hold
#
# - **Fork all, then release all.** Between the two, every block of a survivor has a holder.
#   *Else:* a block that is still needed is handed to somebody else.
# - **Parents are those before the step.** No child may be the parent of another. *Else:* beams
#   silently become copies of each other.
# - **Reordering allocates nothing and copies nothing.** It cannot fail for want of memory. Only
#   writing copies: of k writers of one partial block, k - 1.
# - **Every old beam is released exactly once**, whether it has three children or none. *Else:*
#   blocks leak, and each later write copies what nobody shares.
# - **Beams of a request come and go together.** They are compared at every step, so none may be
#   ahead; preempt them all or none (page 8).

# %% [markdown]
# ## Your turn

# %%
exercise("reorder")

# %% [markdown]
# ## In the wild
#
# - **vLLM** began with this: the paper (section 6.3) reports that beams save from 37.6 to
#   66.3 % of the blocks. It has since moved beam search out of its core
#   ([RFC #8306](https://github.com/vllm-project/vllm/issues/8306)): now every step sends each beam
#   as a new prompt, and the beginning is shared if prefix caching finds it (page 7). In
#   [#8726](https://github.com/vllm-project/vllm/pull/8726) one benchmark gave 0.61 requests per
#   second before, 0.10 after, and 1.08 after with prefix caching.
# - **transformers** copies: `reorder_cache` in `src/transformers/cache_utils.py` selects rows of
#   the whole cache at every step. In
#   [#46612](https://github.com/huggingface/transformers/issues/46612) it silently did so only for
#   caches of one name, and beams of other models read each other's past.
# - **FlashInfer** and **nano-vllm** have no fork. A kernel needs none: it is nothing special to it
#   that two rows of `block_tables` name the same block.
# - *Released, taken by somebody else, then forked:*
#   [vllm #20512](https://github.com/vllm-project/vllm/pull/20512) describes that for blocks which a
#   sliding window had passed: a fork took them up again after they had been given away.
# - *A fork that counts places instead of holders:*
#   [vllm #1556](https://github.com/vllm-project/vllm/issues/1556). With a sliding window one block
#   stood in a table twice; after a fork it was freed twice.

# %% [markdown]
# ## You can now
#
# say what beams share and why, read a tree of blocks, and reorder beams without moving a number.
# Write it, watch beams of a real model, then look at the kernel that reads all these tables:
#
# ```console
# $ minipaged learn 9
# $ minipaged generate "In the beginning" --beam 4 --max-tokens 24 --map
# $ minipaged learn 10 --read
# ```
