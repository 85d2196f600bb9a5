# %% [markdown]
# # 7. Prefix hashing, hits, eviction
#
# **Question.** A thousand chats begin with the same instructions. Nobody forks one from the
# other: they come at different times, from different people. How does a request find keys
# and values that already lie in the pool, and how can it be sure that they are the right
# ones?
#
# Page 6 shared blocks between sequences that knew each other. Here they do not, so blocks
# need *names* under which a stranger can find them. What is a good name? The keys and values
# of a token depend on the token, on its position, and (from the second layer on) on every
# token before it. They do not depend on anything after it.
#
# Do not believe it: here are two texts that differ in their second word, and how far K and V
# of their *last* word are apart, layer by layer, in the model that comes with the package.
# (How the cell does it is not this page's subject; look at what it prints.)

# %% tags=["approx"]
import torch

from minipaged.attention import paged_attention
from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockPool, BlockTable, Snapshot, prefix_hashes, root_hash
from minipaged.models import load_model

model = load_model("bundled")


def last_token(text: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """K and V of a text's last token, of every layer."""
    ids, table, sizes = model.tokenizer.encode(text), BlockTable(BlockPool(8), 4), model.config
    table.reserve(len(ids))
    cache = KVCache(sizes.num_layers, 8, 4, sizes.num_kv_heads, sizes.head_dim)
    batch = PagedBatch.build([table])
    model.decoder.forward(torch.tensor(ids), batch, cache, paged_attention)
    kv = (cache.gather(i, table.block_ids, len(ids)) for i in range(sizes.num_layers))
    return [(key[-1], value[-1]) for key, value in kv]


he = last_token("And he did not fear the LORD God of his fathers")
she = last_token("And she did not fear the LORD God of his fathers")
for layer, (mine, its) in enumerate(zip(he, she)):
    apart = [float((a - b).norm() / a.norm()) for a, b in zip(mine, its)]
    print(f"layer {layer}: K {apart[0]:5.1%} apart, V {apart[1]:5.1%}")
    assert (max(apart) < 1e-6) == (layer == 0)

# %% [markdown]
# So the name of a block must stand for its tokens **and everything before them**.
#
# ## Picture
#
# A name is a hash of the name of the block before, the *parent*, and of the block's own
# tokens. The parent's name holds its parent's, and so on: the last one stands for the whole
# prefix.
#
#     name of block 0 = hash(root,            tokens 0..3)
#     name of block 1 = hash(name of block 0, tokens 4..7)
#     name of block 2 = hash(name of block 1, tokens 8..11)

# %%
from minipaged.core.hashing import block_hash
from minipaged.learn import exercise, show, source
from minipaged.view import series

source(block_hash)

# %%
BLOCK_SIZE = 4
vocabulary: dict[str, int] = {}


def tokens(text: str) -> list[int]:
    """A number for every word."""
    return [vocabulary.setdefault(word, len(vocabulary)) for word in text.split()]


for text in (
    "you are kind and brief . hello",
    "you are rude and brief . hello there",
    "and brief . hello",
):
    names = prefix_hashes(tokens(text), BLOCK_SIZE, root_hash())
    print(f"{text:38}", *(name.hex()[:6] for name in names))

# %% [markdown]
# The first text has seven words: one full block, and a rest without a name. What a partial
# block holds will be something else in the next step, so only full blocks are named. The
# second text differs in one word, in block 0, and so every name after it is another. The
# third begins with the tokens of a block that stood in the middle: another name, too.
#
# A block whose keys and values are written is *published*: its name goes into an index. When
# its last holder goes, it is free, but it keeps its name and its content until somebody
# needs the room. It is *cached*. Seven moments in the life of a pool of six blocks:

# %%
pool = BlockPool(num_blocks=6)
tables: dict[str, BlockTable] = {}
texts: dict[str, str] = {}
shots: list[Snapshot] = []
captions: list[str] = []


def add(name: str, words: str) -> int:
    """A request comes, or goes on: returns how many tokens it did not have to compute."""
    found = 0
    if name not in tables:
        tables[name], texts[name] = BlockTable(pool, BLOCK_SIZE, root_hash()), ""
        found = tables[name].match_prefix(tokens(words))
    texts[name] = f"{texts[name]} {words}".strip()
    new = tokens(texts[name])
    tables[name].reserve(len(new) - tables[name].num_tokens)
    tables[name].commit(new)
    return found


def end(name: str) -> None:
    """A request is done."""
    tables.pop(name).release()


def picture(caption: str) -> None:
    """Remember this moment."""
    shots.append(Snapshot.take(pool, tables, BLOCK_SIZE))
    captions.append(caption)


SYSTEM = "you are kind and brief . the user says"  # nine words
add("A", SYSTEM + " hello")
picture("A is computed; two full blocks are published")
found = add("B", SYSTEM + " what now")
picture(f"B begins like A and finds {found} tokens")
add("A", "yes hello")
picture("A goes on; its third block is full and published")
end("A")
picture("A ends; block 2 is free and keeps its name")
end("B")
picture("B ends; its full blocks are cached, its rest is blank")
add("C", "one two three four five six seven eight nine ten eleven twelve thirteen")
picture("C takes three blank blocks, and one that loses its name")
end("C")
found = add("A again", texts["A"] + " and now ?")
picture(f"C has ended, A comes again and finds {found} of 12 tokens")
show(series(shots, captions))

# %% [markdown]
# Under each picture stands in which order free blocks will be taken: *free, next first*.
# Blank ones come first, because taking them forgets nothing. Then come the cached ones, the
# least recently used first, and of one sequence **the tail before the head**. That is why
# A's third block was forgotten and its first two were not. The other way round, block 0
# would have gone, and 1 and 2 could not be reached any more: a lookup walks from the
# beginning and stops at the first name it does not find.
#
# ## Predict
#
# A prompt of exactly 12 tokens has been computed, so all its three blocks are published. The
# same prompt comes again. How many tokens must be computed: 0, 1 or 4?
#
# <details markdown="1"><summary>Answer</summary>
#
# Four. The first new token is drawn from what the model says at the *last* token of the
# prompt, so that one must be computed even if its keys and values are known. And the hit
# consists of whole blocks: (12 - 1) // 4 = 2 blocks. The third block is computed afresh, in
# a block of its own, so nobody writes into a shared one.
# </details>
#
# ## Run

# %%
pool = BlockPool(num_blocks=8)
prompt = list(range(100, 112))
first = BlockTable(pool, BLOCK_SIZE, root_hash())
first.reserve(12)
first.commit(prompt)
second = BlockTable(pool, BLOCK_SIZE, root_hash())
print("found:", second.match_prefix(prompt), "tokens")
second.reserve(12 - second.num_tokens)
print("tables while computing:", first.block_ids, second.block_ids)
second.commit(prompt)
print("tables afterwards:     ", first.block_ids, second.block_ids)

# %% [markdown]
# At `commit` the third block turned out to have the name of one that is already there. So
# the table adopts the older one and gives its own back: the pool never holds a prefix twice.
# Finding and publishing, as the package does them:

# %%
source(BlockTable.find_prefix)

# %%
source(BlockTable.match_prefix)

# %%
source(BlockTable._publish_next_block)

# %% [markdown]
# Now 200 chats, one after another, five alive at a time. All begin with the same 96 tokens,
# then come 20 to 60 of their own. Blocks of 16. How much of the work is saved, and how much
# memory must one give for it?

# %%
import random


def chats(num_blocks: int, root: bytes | None) -> tuple[int, int, int]:
    """(prompt tokens, those computed, evictions) of 200 chats; without a root: no cache."""
    pool, draw, alive = BlockPool(num_blocks), random.Random(0), []
    total = computed = 0
    system = list(range(96))
    for _ in range(200):
        own = [draw.randrange(1000, 50_000) for _ in range(draw.randint(20, 60))]
        table = BlockTable(pool, 16, root)
        found = table.match_prefix(system + own)
        table.reserve(len(system + own) - found)
        table.commit(system + own)
        total, computed = total + len(system + own), computed + len(system + own) - found
        alive.append(table)
        if len(alive) == 5:
            alive.pop(0).release()
    return total, computed, pool.num_evictions


assert chats(26, root_hash())[1] == chats(1024, root_hash())[1]
print(f"{'':22}{'prompt tokens':>14}{'computed':>10}{'share':>7}{'evictions':>11}")
for label, num_blocks, root in (
    ("no cache, 64 blocks", 64, None),
    ("26 blocks", 26, root_hash()),
    ("64 blocks", 64, root_hash()),
    ("1024 blocks", 1024, root_hash()),
):
    total, computed, evicted = chats(num_blocks, root)
    print(f"{label:22}{total:14,}{computed:10,}{computed / total:7.0%}{evicted:11}")

# %% [markdown]
# 200 * 96 tokens are the same, and all but the first 96 of them are found. For that no memory
# had to be given: 26 blocks are just what five such chats need, 6 for the common beginning
# and 4 for each. Cached blocks are free blocks, which give way when somebody needs them. What
# is evicted are the chats' own tails, which nobody asks for again. The system prompt stays:
# some chat alive holds it at any moment.
#
# ## What goes wrong without it
#
# To see it, let every slot hold a *fingerprint*: in place of K and V, the words of the whole
# prefix that they were computed from. That is what K and V really depend on. `wrong_slots`
# compares what a request reads with what it would have computed itself:


# %%
def run(pool: BlockPool, memory: dict[int, str], text: str) -> BlockTable:
    """Serve one request: find, reserve, compute into ``memory``, commit."""
    words, table = text.split(), BlockTable(pool, BLOCK_SIZE, root_hash())
    found = table.match_prefix(tokens(text))
    table.reserve(len(words) - found)
    for position, slot in enumerate(table.slots(found, len(words)), start=found):
        memory[slot] = " ".join(words[: position + 1])
    table.commit(tokens(text))
    return table


def wrong_slots(table: BlockTable, memory: dict[int, str], text: str) -> list[str]:
    """Positions whose fingerprint is of another prefix; and does the token itself agree?"""
    words, told = text.split(), []
    for position, slot in enumerate(table.slots(0, len(words))):
        wanted, got = " ".join(words[: position + 1]), memory[slot]
        same_token = got.split()[-1] == words[position]
        if got != wanted:
            told.append(f"position {position}: K/V of '{got}', token equal: {same_token}")
    return told


# %% [markdown]
# **Without the parent.** The name is made of the block's own tokens alone. The package's own
# code, one function replaced:

# %%
from unittest.mock import patch


def own_tokens_only(parent: bytes, token_ids) -> bytes:
    """A name that forgets what comes before."""
    return block_hash(b"", token_ids)


ASKED = "red apples today please or tomorrow"
for label, name in (("own tokens only", own_tokens_only), ("with the parent", block_hash)):
    pool, memory = BlockPool(num_blocks=8), {}
    with (
        patch("minipaged.core.hashing.block_hash", name),
        patch("minipaged.core.block_table.block_hash", name),
    ):
        run(pool, memory, "I do not like red apples today please")
        table = run(pool, memory, ASKED)
    told = wrong_slots(table, memory, ASKED)
    print(f"{label}: {len(told)} wrong slots", *told, sep="\n  ")
    assert bool(told) == (name is own_tokens_only)

# %% [markdown]
# The request is answered with what "red apples" means after "I do not like", at positions
# 4 to 7 in place of 0 to 3. Every token agrees. A test that compares tokens, or block tables,
# finds nothing here: only something that depends on the whole prefix does.
#
# What does a user see of it? The engine with the bundled model, blocks of four, always the
# likeliest token. Somebody else's request has just been served; ours begins with the words
# that stood in the middle of theirs:

# %% tags=["approx"]
from minipaged import LLM, SamplingParams

encode, greedy = model.tokenizer.encode, SamplingParams(temperature=0, max_tokens=9)
ours = encode("the king of Israel said unto him,")
theirs = encode("In the beginning") + ours
assert (len(theirs) - len(ours)) % 4 == 0
answers = {}
for label, name in (("own tokens only", own_tokens_only), ("with the parent", block_hash)):
    with (
        patch("minipaged.core.hashing.block_hash", name),
        patch("minipaged.core.block_table.block_hash", name),
    ):
        llm = LLM(model, block_size=4, num_blocks=64)
        llm.generate(theirs, greedy)
        answers[label] = llm.generate(ours, greedy)[0].outputs[0].text.splitlines()[0]
    print(f"{label}: the king of Israel said unto him,{answers[label]}")
assert len(set(answers.values())) == 2

# %% [markdown]
# Both are fluent, and the first is not this model's answer. Whoever reads it alone cannot
# tell.
#
# **With a name that outlives its block.** When a block is taken for something new, its old
# name must leave the index. Let us forget that line:


# %%
class Stale(BlockPool):
    """Takes the name from the block, and leaves it in the index."""

    def _unpublish(self, block_id: int) -> None:
        self.prefix_hash[block_id] = None


RED, GREEN = "red apples today please with cream on top", "green pears at noon with cream on top"
for kind in (Stale, BlockPool):
    pool, memory = kind(num_blocks=3), {}
    run(pool, memory, RED).release()
    run(pool, memory, GREEN).release()
    table = run(pool, memory, RED + " again")
    told = wrong_slots(table, memory, RED + " again")
    print(f"{kind.__name__}: {len(told)} wrong slots", *told, sep="\n  ")
    assert bool(told) == (kind is Stale)

# %% [markdown]
# Block 0 was still right. Block 1 had been taken by the second request, for the same four
# tokens after another beginning, and the old name led to it. Three requests and three blocks
# are enough, but blocks must be taken again: a test with a large pool cannot see this.
#
# ## What must hold
#
# - **A name says everything that K and V depend on:** parent, tokens, and whatever else
#   changes them for the same tokens, such as the model or an adapter. The last are in the
#   root. A salt there keeps tenants apart who must not find each other's prompts.
# - **Publish after writing.** A block is published when it is full and its K and V are
#   written; not when it is reserved, and never for tokens that may yet be rejected.
# - **A hit has no gap and leaves a token.** It is made of the first blocks of the sequence, at
#   most (num_tokens - 1) // block_size of them.
# - **The index tells the truth.** A name is in the index if and only if a block holds that
#   prefix. Taking a block and deleting its name is one action.
# - **Freed is not forgotten.** Blank blocks go first, then the least recently used, the tail
#   before the head. A hit takes the block out of the free ones before anybody else can.
#
# ## Your turn
#
# First the names, and the lookup:

# %%
exercise("names")

# %% [markdown]
# Then what becomes of a block when nobody holds it:

# %%
exercise("evict")

# %% [markdown]
# ## In the wild
#
# - vLLM: `hash_block_tokens` in `vllm/v1/core/kv_cache_utils.py` makes the chained name,
#   `BlockPool.cache_full_blocks` in `vllm/v1/core/block_pool.py` publishes, and
#   `BlockPool._maybe_evict_cached_block` deletes a name when its block is taken.
# - nano-vllm: `BlockManager.compute_hash` and `allocate` in
#   `nanovllm/engine/block_manager.py`. Reusing a block left its old name in
#   `hash_to_block_id`: our `Stale`, in real life
#   ([GeeeekExplorer/nano-vllm #163](https://github.com/GeeeekExplorer/nano-vllm/issues/163)).
#   It compared the tokens of a found block as well. As you have seen, they may be equal.
# - In vLLM's earlier prefix cache an evicted block stayed in the table of cached ones
#   ([vllm-project/vllm #4761](https://github.com/vllm-project/vllm/pull/4761)), and the
#   hashing of blocks that are not full had to be mended
#   ([#5188](https://github.com/vllm-project/vllm/pull/5188)).
# - Text Generation Inference undid an allocation when a batch was too small, but left its
#   blocks in the prefix cache; nobody had computed them, and the next such prompt read them
#   ([huggingface/text-generation-inference #2489](https://github.com/huggingface/text-generation-inference/pull/2489)).
# - A prompt found completely leaves nothing to compute
#   ([vllm-project/vllm #11186](https://github.com/vllm-project/vllm/pull/11186) computes
#   the last block again, as here).
# - vLLM keeps two blocks of one name where two requests computed them side by side, so that a
#   table never changes an entry. minipaged adopts the older one.
#
# ## You can now
#
# - name a prefix so that equal names mean equal keys and values;
# - say what is found, what is forgotten first, and why one token is always computed;
# - see with fingerprints what comparing tokens cannot show.
#
# Next: many sequences at once. Who may go on in this step, and who must wait?
#
# ```console
# $ minipaged learn 7
# $ minipaged learn 8 --read
# ```
