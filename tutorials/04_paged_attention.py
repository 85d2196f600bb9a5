# %% [markdown]
# # 4. Paged attention by gather
#
# **Question.** Attention wants all keys and values of a sequence in one tensor. Now they lie in
# blocks anywhere, between the tokens of others and slots that hold nothing. What changes in the
# computation, and how would a test notice that it is done wrong?
#
# The first half of the answer is short. Attention is
#
#     weights = softmax(scale * query . key)    over all keys that the query may see
#     output  = weights . values
#
# and nothing in it says where a key is stored. So read the rows through the block table, in the
# order of positions, and then do what you always did. This is called *gather*. The second half
# takes the rest of this page, because a wrong gather often gives a plausible result.
#
# (Two things have similar names. The paged *cache* is where K and V are kept: pages 2 and 3.
# Paged *attention* is any attention that reads them there, without a contiguous copy that stays.)
#
# ## Picture
#
# One sequence of ten tokens in blocks 5, 2 and 7 of a pool; block size 4. The arrows are what
# has to be read:

# %%
import torch

from minipaged.attention import dense_attention, paged_attention
from minipaged.cache import KVCache
from minipaged.learn import exercise, show, source
from minipaged.view import table_arrows

BLOCK_SIZE, NUM_BLOCKS, NUM_TOKENS = 4, 8, 10
block_ids = [5, 2, 7]
show(table_arrows(block_ids, BLOCK_SIZE, NUM_TOKENS, NUM_BLOCKS))

# %% [markdown]
# The K and V of this sequence are random numbers, 2 heads of 8. We keep a contiguous copy, to
# have the truth, and write them into the cache through the slots. Every slot that nobody has
# written holds NaN: a *poison* that shows in everything that touches it.

# %%
NUM_HEADS, HEAD_DIM = 2, 8
SCALE = HEAD_DIM**-0.5
generator = torch.Generator().manual_seed(4)


def random(num_tokens: int) -> torch.Tensor:
    return torch.randn(num_tokens, NUM_HEADS, HEAD_DIM, generator=generator)


key, value = random(NUM_TOKENS), random(NUM_TOKENS)
queries = random(NUM_TOKENS)  # one for every position
right = [block_ids[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(NUM_TOKENS)]
slots = torch.tensor(right)
cache = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, sanitize=True)
cache.write(0, key, value, slots)
print("slots, in the order of positions:", right)
print(f"NaN in the cache: {cache.key.isnan().sum()} of {cache.key.numel()} numbers of K")

# %% [markdown]
# ## Predict
#
# The newest token, position 9, is decoded: one query that sees all ten keys. Somebody's gather
# has one of these faults. Does the output become NaN, wrong, or does it stay right?
#
# <details markdown="1"><summary>a. It reads two slots too many, and they hold NaN.</summary>
#
# NaN. A NaN score makes the sum below the softmax NaN, and with it every weight.
# </details>
#
# <details markdown="1"><summary>b. The same, but they hold zeros, "which do no harm".</summary>
#
# Wrong, and it looks right. A key of zeros has the score 0, and exp(0) is 1: it takes part like
# any other key, and drags the output towards its value, 0.
# </details>
#
# <details markdown="1"><summary>c. It ignores the table: the slot of position p is p.</summary>
#
# It reads somebody else's tokens: wrong, or NaN if nobody's are there.
# </details>
#
# <details markdown="1"><summary>d. It swaps the first two blocks of the table.</summary>
#
# This is the one to think about. The next section has the answer.
# </details>
#
# ## Run
#
# First the right one. This is all that the package's reference does with a batch. For each
# sequence `walk` gives its rows of the query, its block ids, and the positions that are seen.
# Their blocks and offsets follow, and then `dense_attention` of what lies there.

# %%
source(paged_attention, "for rows, block_ids, seen", "return (out, lse)")

# %%
newest = queries[-1:]
truth = dense_attention(newest, key, value, scale=SCALE)
block_tables = torch.tensor([block_ids], dtype=torch.int32)
seq_lens = torch.tensor([NUM_TOKENS], dtype=torch.int32)
query_start_loc = torch.tensor([0, 1], dtype=torch.int32)
batch = block_tables, seq_lens, query_start_loc
paged = paged_attention(newest, cache.key[0], cache.value[0], *batch, scale=SCALE)
print("largest difference to dense:", (paged - truth).abs().max().item())
assert torch.equal(paged, truth)

# %% [markdown]
# Not a bit differs, and no NaN was touched, although most of the cache is NaN.
#
# ## What goes wrong without it
#
# Now the four faults. `attend` reads any slots you like, in any order:


# %%
def attend(slots: list[int], query: torch.Tensor, cache: KVCache, **options) -> torch.Tensor:
    """Attention over whatever lies in these slots."""
    k, v = (c[0].flatten(0, 1)[slots] for c in (cache.key, cache.value))
    return dense_attention(query, k, v, scale=SCALE, **options)


def off(output: torch.Tensor, expected: torch.Tensor) -> float:
    return (output - expected).abs().max().item()


def told(difference: float) -> str:
    return "right, up to rounding" if difference < 1e-5 else f"off by {difference:.2f}"


zeros = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM)
zeros.key.zero_()
zeros.value.zero_()
zeros.write(0, key, value, slots)
others = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM)
others.write(0, random(32), random(32), torch.arange(32))  # every slot is somebody's
others.write(0, key, value, slots)

whole = [b * BLOCK_SIZE + i for b in block_ids for i in range(BLOCK_SIZE)]
swapped = right[4:8] + right[:4] + right[8:]
faults = {
    "a  whole last block, NaN in it": attend(whole, newest, cache),
    "b  whole last block, zeros in it": attend(whole, newest, zeros),
    "c  table ignored": attend(list(range(NUM_TOKENS)), newest, others),
    "d  two full blocks swapped": attend(swapped, newest, others),
}
print(f"the truth has numbers like {truth.abs().mean():.2f}")
for name, output in faults.items():
    print(f"{name:34} {told(off(output, truth))}")
nan, zero, ignored, swap = (off(output, truth) for output in faults.values())
assert nan != nan
assert 0.01 < zero < 1
assert ignored > 0.01
assert swap < 1e-5

# %% [markdown]
# **b** is why the package poisons memory and never zeroes it in tests. The output is off, but
# by an amount that a generous tolerance lets through. How large it is depends on how sure the
# softmax was. Watch the weights of the two slots that hold nothing:

# %%
scores = SCALE * torch.einsum("qhd,khd->hqk", newest, zeros.key[0].flatten(0, 1)[whole])
for head, weights in enumerate(scores.softmax(-1)[:, 0]):
    print(f"head {head}: {100 * weights[NUM_TOKENS:].sum():.1f} % of the weight is on nothing")

# %% [markdown]
# **d is invisible.** The two blocks were swapped in K and in V together. The softmax adds up
# `exp(score) * value` over all keys, and a sum does not depend on the order of what is added. The
# rest is rounding. So a test that decodes one token cannot tell whether a kernel reads full
# blocks in the right order. Does it matter then? Yes, as soon as different queries see
# different keys, or the place in the table is used as a position:

# %%
slopes = torch.tensor([0.5, 0.25])
kinds = {
    "one query": (newest, {}),
    "all ten queries, causal": (queries, {}),
    "the newest four, causal": (queries[-4:], {}),
    "one query, window of 3": (newest, {"window": 3}),
    "one query, window of 6": (newest, {"window": 6}),
    "one query, ALiBi": (newest, {"alibi_slopes": slopes}),
}
print("two full blocks swapped")
for name, (query, options) in kinds.items():
    difference = off(
        attend(swapped, query, cache, **options),
        dense_attention(query, key, value, scale=SCALE, **options),
    )
    print(f"  {name:26} {told(difference)}")
    assert (difference < 1e-5) == (name == "one query")

# %% [markdown]
# A *causal* query sees only what is not after it. Of all ten queries, position 0 sees one key,
# and it is the wrong one. The newest four are positions 6 to 9; the view of 6 ends inside of
# a swapped block. A window of 3 begins inside of one. A window of 6 begins where a block does,
# but finds tokens 0 to 3 in the place of 4 to 7. ALiBi lowers a score by the distance to the
# key, which it takes from the place in the table.
#
# Rotary embeddings (RoPE) do *not* help. They turn a key by its position before it is stored,
# and the turned key travels with its block:

# %%
from minipaged.models.rope import rotary_angles, rotate

frequencies = 10_000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)


def turn(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return rotate(x, *rotary_angles(positions, frequencies, x.dtype))


turned = turn(key, torch.arange(NUM_TOKENS))
newest_turned = turn(newest, torch.tensor([NUM_TOKENS - 1]))
rope = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, sanitize=True)
rope.write(0, turned, value, slots)
difference = off(
    attend(swapped, newest_turned, rope),
    dense_attention(newest_turned, turned, value, scale=SCALE),
)
print("two full blocks swapped, RoPE, one query:", told(difference))
assert difference < 1e-5

# %% [markdown]
# **Masking is not enough.** A kernel that works on whole blocks does not cut the slots off, it
# gives them the weight 0. But zero times NaN is NaN:

# %%
k, v = (c[0].flatten(0, 1)[whole] for c in (cache.key, cache.value))
scores = SCALE * torch.einsum("qhd,khd->hqk", newest, k)
scores[..., NUM_TOKENS:] = -torch.inf  # so that exp(score) is 0
weights = scores.softmax(-1)
masked = torch.einsum("hqk,khd->qhd", weights, v)
cleaned = torch.einsum("hqk,khd->qhd", weights, v.nan_to_num())
print("weights of the empty slots:", weights[0, 0, NUM_TOKENS:].tolist())
print("scores masked:             ", masked[0, 0, :3].tolist())
print("values cleaned as well:    ", told(off(cleaned, truth)))
assert masked.isnan().all()
assert off(cleaned, truth) < 1e-5

# %% [markdown]
# ## What must hold
#
# 1. Paged equals dense, wherever the blocks lie. *If not*, the output of a request depends on
#    what others did before. Move all blocks to other places and rename them in the table, and
#    not a bit may change.
# 2. A slot that holds no token the query may see has no influence, whatever is in it. *If not*,
#    one request's garbage is another one's answer, or NaN.
# 3. Rows are read in the order of positions. *If not*, it shows only where queries see
#    different keys: test more than one query at a time.
# 4. A position that has no block is an error, not a read.

# %%
from textwrap import fill

from minipaged.core import InvalidBatch

moved = KVCache(1, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, sanitize=True)
new_ids = (3 * torch.arange(NUM_BLOCKS) + 1) % NUM_BLOCKS  # every block goes elsewhere
cache.swap_blocks(moved, enumerate(new_ids.tolist()))
renamed = new_ids[block_tables.long()].int()
arguments = moved.key[0], moved.value[0], renamed, *batch[1:]
print("the blocks lie at", renamed.tolist()[0], "now")
assert torch.equal(paged_attention(newest, *arguments, scale=SCALE), truth)

too_long = torch.tensor([13], dtype=torch.int32)
try:
    paged_attention(newest, *arguments[:3], too_long, query_start_loc, scale=SCALE)
except InvalidBatch as error:
    print(fill(f"refused: {error}", 80))
else:
    raise AssertionError("position 12 has no block, and was read")

# %% [markdown]
# ## Your turn

# %%
exercise("gather")

# %% [markdown]
# ## In the wild
#
# - **vLLM** tests its kernels against a gather like yours: `ref_paged_attn` in
#   `kernels/attention/test_flash_attn.py` among its tests takes the rows of each sequence out
#   of the blocks and multiplies them as one tensor. **nano-vllm** hands the table to a kernel:
#   `flash_attn_with_kvcache(..., block_table=...)` in `nanovllm/layers/attention.py`.
#   **FlashInfer**, `BatchDecodeWithPagedKVCacheWrapper` in `flashinfer/decode.py`, takes tables
#   of different lengths one behind another: `kv_indptr`, `kv_indices`, `kv_last_page_len`.
# - **skyzh/tiny-llm** says it in its chapter on paged attention
#   (`book/src/week3-04-paged-attention-part2.md`): decoding one token over complete pages does
#   not depend on their order.
# - **Real NaN.** [vllm-project/vllm #641](https://github.com/vllm-project/vllm/issues/641): now
#   and then sampling failed, because probabilities were NaN. The first kernel multiplied weight 0
#   with whatever a freed block had left behind the last token.
#   [#936](https://github.com/vllm-project/vllm/pull/936) clears these values inside the kernel.
#   The fault comes back: [#53856](https://github.com/vllm-project/vllm/pull/53856) fixed it in
#   a kernel for AMD cards three years later, and
#   [NVIDIA/TensorRT-LLM #18925](https://github.com/NVIDIA/TensorRT-LLM/pull/18925) in another one.
# - **A placement that shows.**
#   [pytorch #182593](https://github.com/pytorch/pytorch/issues/182593): the same tokens in other
#   physical blocks gave another result. Rule 1 is a test that needs no reference.
#
# ## You can now
#
# write the reference that any paged kernel is compared with, and you know which tests can see a
# wrong one. To compare a kernel of your own with the package's judge: `minipaged check --help`.
#
# Gather copies the whole K and V of a sequence for every query. A kernel cannot afford that: it
# reads a block, uses it and forgets it. Next: `minipaged learn 5 --read`, how a softmax is computed
# without ever seeing all of it.
