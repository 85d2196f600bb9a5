# %% [markdown]
# # 5. Online softmax, block by block
#
# **Question.** A softmax divides by a sum over *all* keys. A kernel that walks a block table
# meets one block of keys, then the next, and keeps none of them. What must it remember from
# block to block to end with exactly the attention over all keys?
#
# Page 4 gathered every key first and then computed attention as the formula says it. That
# needs room for as many scores as there are keys. This page does it with a few numbers, the
# same few for 10 keys and for 10 million.
#
# One query meets keys; key number i gives a *score* (the scaled dot product) and owns a
# *value*. Attention is the weighted mean of the values, with weight `exp(score)`:
#
#     out = sum(exp(score[i]) * value[i]) / sum(exp(score[i]))

# %% [markdown]
# ## Picture
#
# To follow by hand, take scores that are whole multiples of ln 2: then `exp(score)` is a
# power of two. A value is a single number here; in a model it is a vector, and nothing else
# changes. Ten keys in blocks of four:

# %%
import math

import torch

from minipaged.attention import AttentionState
from minipaged.learn import exercise, show, source
from minipaged.view import Card, cards

doublings = torch.tensor([0, 1, 2, 1, 3, 0, 1, 2, 1, 2], dtype=torch.float64)
scores = doublings * math.log(2)
values = torch.tensor([8, 0, 4, 0, 0, 8, 0, 4, 1, 10], dtype=torch.float64)[:, None]

weights = torch.exp(scores)
print("weights exp(score):", [round(w) for w in weights.tolist()])
print("values:            ", [round(v) for v in values[:, 0].tolist()])
weighted = (weights @ values).item()
print(f"attention: {weighted:.0f} / {weights.sum():.0f} = {weighted / weights.sum():.0f}")

# %% [markdown]
# A block is summed up by three numbers: its largest score **m**, the sum **l** of
# `exp(score - m)`, and **acc**, the sum of `exp(score - m) * value`. Both sums are relative
# to m, so their largest term is exactly 1 and nothing can overflow. Each block by itself:

# %%
BLOCK_SIZE = 4
empty = AttentionState.empty(1, like=values)
blocks = [slice(i, min(i + BLOCK_SIZE, 10)) for i in range(0, 10, BLOCK_SIZE)]
alone = [empty.update(scores[keys], values[keys]) for keys in blocks]


def card(title: str, state: AttentionState, **more: str) -> Card:
    """Three numbers as the picture shows them, m in units of ln 2."""
    m, l, acc = state.m.item() / math.log(2), state.l.item(), state.acc.item()
    return {
        "title": title,
        "values": {**more, "m": f"{m:g} ln 2", "l": f"{l:g}", "acc": f"{acc:g}"},
    }


show(cards([card(f"block {i}", state) for i, state in enumerate(alone)], arrows=False))

# %% [markdown]
# ## Predict
#
# After block 0 the kernel holds m = 2 ln 2, l = 2.25, acc = 6. Block 1 has a larger score,
# 3 ln 2; alone it would be l = 1.875, acc = 3. What are m, l and acc of the two blocks
# together? And what changes when block 2 comes, whose largest score is smaller?
#
# <details markdown="1"><summary>Answer</summary>
#
# Both sums of block 0 were made relative to 2 ln 2 and must become relative to 3 ln 2:
# multiply them by exp(2 ln 2 - 3 ln 2) = 1/2. So l = 2.25/2 + 1.875 = 3 and
# acc = 6/2 + 3 = 6. When block 2 comes, m stays; the old sums keep their value (factor 1),
# and it is the *new* block that is halved.
# </details>
#
# ## Run
#
# The factor by which the old sums are multiplied is called the *correction factor*. Here is
# the walk over the blocks, one `update` each; only the three numbers of the last card are
# ever kept:

# %%
state, walk = empty, []
for i, keys in enumerate(blocks):
    new = state.update(scores[keys], values[keys])
    old_factor, its_factor = (math.exp(s.m - new.m) for s in (state, alone[i]))
    factors = {"old x": f"{old_factor:g}", "new x": f"{its_factor:g}"}
    walk.append(card(f"after block {i}", new, **factors))
    state = new
show(cards(walk))

out, lse = state.finish()
print(f"out = acc / l = {state.acc.item():g} / {state.l.item():g} = {out.item():g}")

# %% [markdown]
# That is the right answer, and this is the whole of the code. An `update` makes a state of
# the new block and merges two states:

# %%
source(AttentionState.update)

# %%
source(AttentionState.merge)

# %% [markdown]
# Nothing in `merge` says that one side is old and the other new, or that a side is one
# block. So any two workers may each take some of the keys and merge at the end:

# %%
worker_a = alone[2].merge(alone[0])  # in any order
worker_b = alone[1]
merged = worker_b.merge(worker_a)
print(f"out = {merged.finish()[0].item():g}, the same")
assert torch.allclose(merged.finish()[0], out)

# %% [markdown]
# A finished output still knows enough to be merged, if its **lse** is kept beside it: the
# *log-sum-exp*, `m + log(l)`, the logarithm of the full sum of `exp(score)`. It stands for
# how much weight the whole part has. This is what kernels hand to each other, `(out, lse)`:

# %%
from minipaged.attention import merge_states

parts = [state.finish() for state in alone]
for i, (part_out, part_lse) in enumerate(parts):
    print(f"block {i}: out {part_out.item():.4f}  exp(lse) {math.exp(part_lse):.0f}")
total = merge_states(*merge_states(*parts[0], *parts[1]), *parts[2])
print(f"merged:  out {total[0].item():.4f}  exp(lse) {math.exp(total[1]):.0f}")

# %% [markdown]
# 9 + 15 + 6 = 30: exp(lse) is the sum of the weights we began with.
#
# Now with real sizes: 4 heads, values of 64 numbers, 1,000 keys in blocks of 16 that lie
# scattered in a cache. `paged_attention_blockwise` is the loop from above over a block
# table; `paged_attention`, the formula over gathered keys, is the judge.

# %%
from minipaged.attention import paged_attention, paged_attention_blockwise

torch.manual_seed(0)
HEADS, DIM, LENGTH, SIZE = 4, 64, 1000, 16
num_blocks = -(-LENGTH // SIZE)
key_cache, value_cache = torch.randn(2, num_blocks, SIZE, HEADS, DIM)
batch = (
    torch.randperm(num_blocks, dtype=torch.int32)[None],  # the block table
    torch.tensor([LENGTH], dtype=torch.int32),
    torch.tensor([0, 1], dtype=torch.int32),  # one query
)
query = torch.randn(1, HEADS, DIM)
gathered = paged_attention(query, key_cache, value_cache, *batch, scale=DIM**-0.5)
walked = paged_attention_blockwise(query, key_cache, value_cache, *batch, scale=DIM**-0.5)
difference = torch.dist(gathered, walked, p=torch.inf).item()
assert difference < 1e-6
print(f"{num_blocks} blocks, largest difference below 1e-6")
print(f"scores kept by the formula: {HEADS * LENGTH}, numbers in the state: {HEADS * (DIM + 2)}")

# %% [markdown]
# Its loop over one sequence's blocks. All that it carries from block to block is `state`:

# %%
source(paged_attention_blockwise, "state = AttentionState.empty", "state = state.update")

# %% [markdown]
# ## What goes wrong without it
#
# **Without m.** Why not add up `exp(score)` itself, as the formula says? Because scores
# grow, and a 32-bit float cannot hold exp(89):

# %%
for factor in (1, 100):
    large = factor * torch.tensor([0.9, 1.0, 0.5])
    naive = torch.exp(large) / torch.exp(large).sum()
    print("scores", [round(x, 4) for x in large.tolist()])
    print(f"  naive   {[round(x, 4) for x in naive.tolist()]}")
    print(f"  shifted {[round(x, 4) for x in torch.softmax(large, 0).tolist()]}")
assert naive.isnan().any()

# %% [markdown]
# **Without the factor.** A tempting shortcut: each block does its own softmax, and the
# results are averaged. Each block's result is a correct attention over that block. The mean
# of them is not attention over all:

# %%
mean = sum(part_out.item() for part_out, _ in parts) / len(parts)
print(f"mean of the three blocks {mean:.4f}, attention over all keys {out.item():.4f}")
assert abs(mean - out.item()) > 0.5

# %% [markdown]
# Block 2 holds 6/30 of the weight and got 1/3 of the say. A test whose blocks all weigh the
# same cannot see this.
#
# **Without a guard for nothing.** A part may have no key that the query may see: a worker
# that got no block, or a block behind a sliding window. There m is -inf, l and acc are 0.
# The same law, written without a second thought, subtracts -inf from -inf:


# %%
def careless_merge(a: AttentionState, b: AttentionState) -> AttentionState:
    """Exactly the law, and nothing else."""
    m = torch.maximum(a.m, b.m)
    mine, its = torch.exp(a.m - m), torch.exp(b.m - m)
    return AttentionState(m, mine * a.l + its * b.l, mine * a.acc + its * b.acc)


nothing = careless_merge(empty, empty)
print(f"nothing and nothing: l = {nothing.l.item()}")
print(f"and then a real block: l = {careless_merge(nothing, alone[0]).l.item()}")
print(f"the package's merge: l = {empty.merge(empty).merge(alone[0]).l.item()}")
assert nothing.l.isnan()

# %% [markdown]
# Once there, NaN stays: every later merge multiplies by it. It takes *two* empty parts,
# so a test must ask for them: lengths drawn at random hardly ever leave two parts empty.
# The remedy is to subtract 0 in place of -inf:

# %%
from minipaged.attention import online_softmax

source(online_softmax._finite)

# %% [markdown]
# ## What must hold
#
# - **Any split, any order.** Merging is associative and commutative, up to rounding. If it
#   were not, the answer would depend on the block size and on how many workers there are.
# - **Nothing is the identity.** `(m, l, acc) = (-inf, 0, 0)`, or `(out, lse) = (0, -inf)`,
#   changes nothing, and merged with itself stays what it is.
# - **m is for safety, not for truth.** Any other shift gives the same `acc / l`; the
#   largest score is the one with which nothing overflows.
# - **Every state that meets another uses the same logarithm.** lse in base 2 merged as if it
#   were in base e gives finite, plausible, wrong numbers.

# %%
shifted = AttentionState(state.m + 5, state.l * math.exp(-5), state.acc * math.exp(-5))
print(f"another m, the same out: {shifted.finish()[0].item():g}")
for a, b, c in [(0, 1, 2), (2, 0, 1), (1, 2, 0)]:
    left = alone[a].merge(alone[b]).merge(alone[c]).finish()
    right = alone[a].merge(alone[b].merge(alone[c])).finish()
    assert torch.allclose(left[0], out)
    assert torch.allclose(right[0], out)
assert empty.merge(state) == state == state.merge(empty)

# %% [markdown]
# ## Your turn
#
# Write the merge of two finished parts. You get `(out, lse)` of each and never see a key.

# %%
exercise("merge")

# %% [markdown]
# ## In the wild
#
# - FlashInfer keeps the same three numbers in `include/flashinfer/attention/state.cuh`: its
#   `d` is our l, its `o` our acc, and `state_t::merge` is our `merge`, with powers of 2.
# - vLLM merges `(out, lse)` of a cached prefix and of the new tokens in
#   `csrc/attention/merge_attn_states.cu`. Merging two empty parts gave NaN there
#   ([vllm-project/vllm #28181](https://github.com/vllm-project/vllm/pull/28181)). Five
#   months later the Triton twin of that kernel was found with the same mistake
#   ([#39148](https://github.com/vllm-project/vllm/pull/39148)).
# - FlashInfer had it as well, and so had the Python reference that was meant to judge the
#   kernel ([flashinfer-ai/flashinfer #4051](https://github.com/flashinfer-ai/flashinfer/issues/4051)):
#   a reference needs tests of its own.
# - FlashInfer returns lse in base 2, vLLM's merge expects base e. Passing one to the other
#   changed the weights of cached and new tokens, so that a prefix found in the cache gave
#   other logits than one computed afresh
#   ([vllm-project/vllm #52796](https://github.com/vllm-project/vllm/pull/52796)).
#
# ## You can now
#
# - say what (m, l, acc) are, and why the old sums are multiplied when m grows;
# - split attention among blocks, workers or machines, and put it together again;
# - tell a merge that is right from one that only looks right.
#
# The blocks of this page belonged to one sequence. Next: what if two sequences share them?
#
# ```console
# $ minipaged learn 5
# $ minipaged learn 6 --read
# ```
