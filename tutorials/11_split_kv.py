# %% [markdown]
# # 11. Split-KV and merge
#
# **Question.** One user has one very long conversation, of 32,768 tokens. The card is a big
# one, and for this user it is almost idle. Who is doing nothing, and what would it take to
# put them to work?
#
# A card consists of **multiprocessors** (SMs), which work side by side; an H200 has 132. A CTA
# (page 10) runs on one of them from beginning to end. So a launch with fewer CTAs than SMs
# leaves SMs without work, however much there is to do. (Like page 10, this one needs
# `pip install 'minipaged[learn]'`, and no GPU.)
#
# ## Picture
#
# In decode, a natural CTA is one sequence and one head of keys and values. How many is that? The
# package's launch plan answers, for the sizes of a model with 8 kv heads and 32 query heads:

# %%
import math

import numpy as np
import torch

from minipaged.attention import merge_states
from minipaged.learn import exercise, show, source
from minipaged.learn.exercises._edited import Instead, edited
from minipaged.learn.exercises._kernels import Problem
from minipaged.view import stacked_bars
from minipaged_cuda import paged_attention
from minipaged_cuda.kernels.common import share
from minipaged_cuda.kernels.merge import merge
from minipaged_cuda.launch.simulated import SimulatedLauncher
from minipaged_cuda.plan import H200, AttentionSizes, choose_num_splits, plan_attention


def plan(num_seqs, seq_len, num_splits=None):
    """How attention is launched for so many sequences of one length."""
    sizes = AttentionSizes(
        num_tokens=num_seqs,
        num_seqs=num_seqs,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        block_size=16,
        max_blocks=seq_len // 16,
        query_type="bfloat16",
        cache_type="bfloat16",
        one_query=True,
    )
    return plan_attention(sizes, H200, num_splits=num_splits)


bars = {}
for num_seqs in (1, 4, 16, 64):
    num_ctas = math.prod(plan(num_seqs, 32768, num_splits=1).attend.grid)
    busy = min(1.0, num_ctas / H200.num_sms)
    label = f"batch of {num_seqs}: {num_ctas} CTAs"
    bars[label] = {"busy": busy, "idle": 1 - busy}
show(stacked_bars(bars, ["busy", "idle"], caption="Multiprocessors of an H200 that have a CTA"))

# %% [markdown]
# ## Predict
#
# **Split-KV** cuts the keys of a sequence into runs, the *splits*, and gives each to a CTA of
# its own. Nothing but the keys is cut: each split meets the same query. Suppose we want two
# CTAs per SM, 264. Into how many splits should the one sequence be cut? And each of 64?
#
# <details markdown="1"><summary>Answer</summary>
#
# 264 / 8 = 33 splits for one sequence. With 64 sequences there are 512 CTAs without any split,
# more than were wanted: one split, that is, none.
# </details>

# %%
for num_seqs in (1, 4, 16, 64):
    chosen = plan(num_seqs, 32768)
    grid = chosen.attend.grid  # splits, kv heads, sequences
    after = "a merge" if chosen.merge else "nothing"
    print(f"{num_seqs:>2} of 32,768 tokens: grid {grid}, {math.prod(grid)} CTAs, then {after}")
assert plan(1, 32768).num_splits == 33

# %% [markdown]
# ## Run
#
# Which keys are whose? All whole tiles of 16 keys, cut as evenly as they go, and the last run
# ends where the sequence ends:

# %%
source(share)

# %%
for num_splits in (2, 4):
    runs = [share(0, 40, part, num_splits) for part in range(num_splits)]
    told = (f"{begin} to {end - 1}" if begin < end else "none" for begin, end in runs)
    print(f"40 keys in {num_splits} splits:", ", ".join(told))

# %% [markdown]
# Remember the second line: three tiles, four splits, and one split gets nothing.
#
# No split can finish the softmax, because none sees all keys. But page 5 showed what is
# enough: a finished output over *some* keys, and its lse, the logarithm of how much these keys
# weigh. In `decode_v3` a CTA writes its output, divided by its own sum, and its lse. A second
# kernel merges them. Here is the heart of it. `NEG` is -1e30, which stands for -inf because
# `NEG - NEG` is 0 and not NaN; the three lines about a sink are an option of some models.

# %%
source(merge, "largest, total = NEG", "store_out")

# %% [markdown]
# Let us run it in the simulator: one sequence of 128 tokens, four query heads that share
# one head of keys and values. A split adds work: its output and lse are written to memory by one
# kernel, and read by the next.

# %%
batch = Problem.of([128], num_heads=4, num_kv_heads=1, head_dim=32, block_size=16)


def attend(launcher, num_splits, batch=batch):
    """Attention by decode_v3; returns the largest error of its output."""
    *floats, tables, lens, scale = batch.arguments
    starts = np.arange(len(lens) + 1, dtype=np.int32)
    tensors = [torch.from_numpy(x) for x in (*floats, tables, lens, starts)]
    options = {"scale": float(scale), "max_query_len": 1, "kernel": "decode_v3"}
    out = paged_attention(*tensors, **options, num_splits=num_splits, launcher=launcher)
    return (out.double() - torch.from_numpy(batch.attention()[0])).abs().max().item()


print("splits  CTAs  most reads  sectors: K and V  of parts  all   error")
for num_splits in (1, 2, 4, 8):
    launcher = SimulatedLauncher()
    error = attend(launcher, num_splits)
    first, *second = launcher.history
    caches = [first.buffers[name].reads for name in ("key_cache", "value_cache")]
    cost = sum(reads.sectors for reads in caches)
    parts = 0
    for trace in second:
        parts += sum(first.buffers[name].writes.sectors for name in ("out", "lse"))
        parts += sum(trace.buffers[f"partial_{name}"].reads.sectors for name in ("out", "lse"))
    most = sum(reads.max_per_thread for reads in caches)
    cells = f"{num_splits:>6}{first.num_ctas:>6}{most:>12}{cost:>18}{parts:>10}{cost + parts:>5}"
    print(f"{cells}   {error:.0e}")

# %% [markdown]
# The busiest thread reads an eighth, with eight splits, and that is what makes one long
# sequence quick where SMs are idle. K and V cost the same however they are cut. What grows is
# the price of the parts, in proportion to the number of splits: with 16 keys in each, the last
# row pays more than half as much for the parts as for the keys and values themselves.
#
# ### When splitting does not pay
#
# The parts of a split have a fixed size: for each query head, `head_dim` numbers and the lse,
# written once and read once. Its keys and values grow with its length. So a split must be
# long enough. The package wants at least 64 tokens in each:

# %%
HEAD_DIM, HEADS_PER_KV = 128, 4
part = HEADS_PER_KV * (HEAD_DIM + 1) * 4 * 2  # float32, written and read
for tokens in (16, 64, 256, 1024):
    kv = tokens * 2 * HEAD_DIM * 2  # K and V in bfloat16
    print(f"{tokens:>5} tokens a split: parts cost {part / kv:4.0%} of its keys and values")

print()
for num_ctas, seq_len in ((8, 32768), (8, 500), (8, 100), (512, 32768)):
    splits = choose_num_splits(num_ctas, seq_len, H200)
    print(f"{num_ctas:>4} CTAs of {seq_len:>6,} tokens: {splits} split{'s' * (splits > 1)}")

# %% [markdown]
# A short sequence is not split, because the parts would cost too much; a large batch is not
# split, because nobody is idle. And a second launch takes time of its own, which no count
# on this page shows.
#
# ## What goes wrong without it
#
# ### Parts merged as if they weighed the same
#
# Two parts, 3,072 old keys and 64 new ones, all with the same score. Say the values of the old
# keys are 0 and those of the new ones 1; then the output is the share of the new keys.

# %%
old, new = torch.zeros(1), torch.ones(1)
lse_old, lse_new = torch.tensor(math.log(3072.0)), torch.tensor(math.log(64.0))

out, lse = merge_states(old, lse_old, new, lse_new)
print(f"merged by lse:              {out.item():.2%}  (64 of {math.exp(lse):.0f} keys)")
print(f"the mean of the two:        {((old + new) / 2).item():.2%}")

# %% [markdown]
# ### An lse of the wrong base
#
# A card has an instruction for 2 to the power of x, and so kernels like to keep the lse as a
# logarithm of base 2. That is fine, as long as whoever merges knows it.

# %%
out, _ = merge_states(old, lse_old / math.log(2), new, lse_new / math.log(2))
print(f"base 2 taken for base e:    {out.item():.2%}")
assert round(out.item(), 4) == 0.0037

# %% [markdown]
# The newest tokens have lost most of their weight. Nothing is NaN, every output is a weighted mean
# of values, and the text that a model makes of it looks almost right.
#
# ### An empty split
#
# A split without keys has an lse of -inf. In a merge written without that in mind, two of
# them meet like this:

# %%
empty_out, empty_lse = torch.zeros(1), torch.tensor(-math.inf)


def naive_merge(out_a, lse_a, out_b, lse_b):
    largest = torch.maximum(lse_a, lse_b)
    a, b = torch.exp(lse_a - largest), torch.exp(lse_b - largest)
    return (a * out_a + b * out_b) / (a + b)


print("naive, -inf minus -inf:", naive_merge(empty_out, empty_lse, empty_out, empty_lse).item())
out, lse = merge_states(empty_out, empty_lse, empty_out, empty_lse)
print("merge_states:          ", out.item(), "with lse", lse.item())

# %% [markdown]
# And what lies *beside* an lse of -inf? Nobody computed that output. The package's merge
# does not look at it. Take that line out of its text, and let the part of an empty split
# hold NaN, as memory may that somebody else has used: 40 keys, four splits.

# %%
GUARD = "            if not here <= NEG:\n                found += ex2"
without_guard = edited(merge, GUARD, "            if True:\n                found += ex2")


class Poisoned:
    """Launches on a simulator; between the launches, outputs of empty splits become NaN."""

    card = H200

    def __init__(self, kernel=None):
        plain = SimulatedLauncher()
        self.launchers = {"decode_v3": plain, "merge": Instead(plain, kernel) if kernel else plain}

    def __call__(self, specialisation, grid, num_threads, arguments, **more):
        name = specialisation.kernel.__name__
        if name == "merge":
            partial_out, partial_lse = arguments["partial_out"], arguments["partial_lse"]
            partial_out[partial_lse < -1e29] = math.nan  # the package's -inf
        self.launchers[name](specialisation, grid, num_threads, arguments, **more)


short = Problem.of([40], num_heads=4, num_kv_heads=1, head_dim=32, block_size=16)
print(f"with the line:    wrong by {attend(Poisoned(), 4, short):.0e}")
print(f"without the line: wrong by {attend(Poisoned(without_guard), 4, short)}")

# %% [markdown]
# ## What must hold
#
# - Each visible key is in exactly one split, and the last split ends where the sequence does.
# - A part is an output divided by its own sum, and the lse that says how much it weighs. (Or
#   the sum and its divisor, undivided. Never one taken for the other.)
# - Both sides of the boundary mean the same logarithm.
# - A split without keys weighs nothing, whatever its output holds; if all are empty the
#   output is 0 and the lse -inf.
# - The order of the parts does not matter, nor where the sequence is cut.
#
# ## Your turn

# %%
exercise("split")

# %% [markdown]
# ## In the wild
#
# - **vLLM** had `paged_attention_v2` in `csrc/attention/attention_kernels.cuh`: a CTA for each
#   partition of 512 tokens, then `paged_attention_v2_reduce_kernel`. **FlashInfer** merges with
#   `PersistentVariableLengthMergeStatesKernel` in `include/flashinfer/attention/cascade.cuh`,
#   **FlashAttention** with `combine_attn_seqk_parallel` in
#   `csrc/flash_attn/src/flash_fwd_kernel.h`.
# - **An empty split**, [ROCm/aiter #3641](https://github.com/ROCm/aiter/pull/3641): with more
#   splits than the sequence had work for, results became inaccurate. The fix is in both
#   kernels: an empty split returns early, and an lse of -inf gets the weight 0.
# - **The wrong base**, [vllm-project/vllm #52796](https://github.com/vllm-project/vllm/pull/52796):
#   FlashInfer's lse is of base 2, and vLLM's merge took it for base e. It showed as answers that
#   became repetitive after a prefix-cache hit, because only then is there something to merge.
#
# **Spot the error.** vLLM's design page on this kernel, which calls itself historical, says of a
# template parameter: "`PARTITION_SIZE` represents the number of tensor parallel GPUs". You have
# seen what it is.
#
# <details markdown="1"><summary>What is it?</summary>
#
# The number of tokens in a split. The kernel's own comment reads "Zero means no partitioning",
# its grid has a third dimension for the partitions, and a CTA returns at once if its first
# token, `partition_idx * PARTITION_SIZE`, is at or past `seq_len`. No other GPU is involved:
# tensor parallelism deals out heads, split-KV deals out keys.
# </details>
#
# ## You can now
#
# - say how many CTAs a decode step has, and when a card is idle for all its work;
# - cut a sequence into splits and merge them, empty ones included;
# - compute when that does not pay.
#
# Next: you become the judge of other people's kernels: `minipaged learn 12 --read`.
