# %% [markdown]
# # 1. The contiguous cache and its waste
#
# **Question.** A language model keeps the keys and values of every token it has seen, and
# nobody knows beforehand how many tokens an answer will have. If each request is given one
# piece of memory, as long as its answer could become: how much of the memory holds tokens?
#
# Attention compares the newest token with the key of every earlier token and adds up their
# values. Keys and values never change once they are computed, so a server keeps them: the
# *K/V cache*. Room for the K and V of one token, all layers, is called a **slot**. What is in
# a slot is large, so slots are few. This is the model of the paper that introduced paged
# attention (Kwon et al., SOSP 2023), OPT-13B on a card with 40 GB:

# %%
from minipaged.claims.cost import CostModel
from minipaged.claims.generators import PAPER_MAX_LEN
from minipaged.claims.managers import PAPER_NUM_SLOTS

slot = int(CostModel().kv_bytes)  # 2 (K and V) * 40 layers * 5120 numbers * 2 bytes
print(f"a slot: {slot:,} bytes")
print(f"beside the weights: {PAPER_NUM_SLOTS:,} slots, {slot * PAPER_NUM_SLOTS / 1e9:.1f} GB")
print(f"longest sequence: {PAPER_MAX_LEN} tokens, {slot * PAPER_MAX_LEN / 1e9:.2f} GB")
print(f"such sequences that fit: {PAPER_NUM_SLOTS // PAPER_MAX_LEN}")

# %% [markdown]
# ## Picture
#
# A *contiguous* cache keeps a request's tokens one behind another, as an array. An array
# cannot grow when something lies behind it, so its whole length is taken before the first
# token. Here are 32 slots, for sequences of at most 8 tokens, and four requests. A capital
# letter is a slot that holds a token, a small one will hold one later, `-` is reserved and
# will never hold one. (`reserve` asks for the slots of so many new tokens, `commit` says that
# their K and V are written.)

# %%
from minipaged.claims.contiguous import ContiguousPool, ContiguousTable
from minipaged.learn import exercise, fails, show, source

MAX_LEN = 8
pool = ContiguousPool(num_blocks=32)  # blocks of one slot
final_len = {"A": 5, "B": 8, "C": 3, "D": 4}  # what each will need in the end; nobody knows
prompt_len = {"A": 3, "B": 2, "C": 1, "D": 2}
tables = {name: ContiguousTable(pool, 1, num_promised=MAX_LEN) for name in final_len}
for name, table in tables.items():
    table.reserve(prompt_len[name])
    table.commit([0] * prompt_len[name])


def slots() -> str:
    """What every slot does, in the order of memory."""
    cells = ["."] * pool.num_blocks
    for name, table in tables.items():
        for position, slot in enumerate(table.block_ids):
            later = name.lower() if position < final_len[name] else "-"
            cells[slot] = name if position < table.num_tokens else later
    return "".join(cells)


print("|".join(slots()[i : i + MAX_LEN] for i in range(0, 32, MAX_LEN)))
print(f"{sum(map(str.isupper, slots()))} of {len(slots())} slots hold a token")

# %%
from minipaged.view import stacked_bars

PARTS = ["tokens", "later", "never", "holes"]


def shares(cells: str) -> dict[str, float]:
    """Which part of some slots does what."""
    counts = sum(map(str.isupper, cells)), sum(map(str.islower, cells)), cells.count("-")
    return dict(zip(PARTS, (count / len(cells) for count in counts)))


show(stacked_bars({name: shares(slots()[8 * i :][:8]) for i, name in enumerate("ABCD")}, PARTS))

# %% [markdown]
# A fifth request comes. It wants room for two tokens:

# %%
from minipaged.core import OutOfBlocks

with fails(OutOfBlocks):
    ContiguousTable(pool, 1, num_promised=MAX_LEN).reserve(2)

# %% [markdown]
# This is the code that decides it. A table asks for everything at its first token, and for
# nothing afterwards:

# %%
source(ContiguousTable.num_missing_blocks)

# %% [markdown]
# ## Predict
#
# Now with the real sizes: 15,700 slots, 2048 for each request. Requests are drawn so that
# their mean lengths are those of a large collection of conversations: about 150 tokens of
# prompt and 320 of answer. They all wait from the beginning, so memory is what limits.
# Before you open this: which share of the slots holds a token, on average over time? And
# which share, if the length of every answer were *known*, and exactly that were reserved?
#
# <details markdown="1"><summary>A way to estimate the first</summary>
#
# Seven requests fit. Each ends with about 150 + 320 tokens, and on the way there it has
# 150 + 160 on average. That is 7 * 310 of 15,700 slots: 14 %. The real share is a little
# larger: long answers stay longer, so that at a given moment there are more of them.
# </details>
#
# <details markdown="1"><summary>And the second</summary>
#
# "Nearly all, because nothing is reserved in vain" is what most people say. But of 470 slots
# that are reserved exactly, 310 hold a token on average: 66 %. The run shows what holes make of
# it, and what this estimate forgets.
# </details>
#
# ## Run
#
# The scheduler is the engine's own; only the time of a step comes from a formula. `max`
# reserves the longest possible sequence. `pow2` knows every answer's length up to a factor
# of two. `oracle` knows it exactly, which no system can. `batch` is how many requests run at
# once, on average.

# %%
from minipaged.claims.generators import sharegpt_like
from minipaged.claims.managers import CONTIGUOUS, Manager
from minipaged.claims.outcome import Setting
from minipaged.claims.simulator import simulate
from minipaged.claims.waste import PAPER

workload = sharegpt_like(400)
at_once = Setting(at_once=True)  # everybody waits from the beginning
print(f"prompts {workload.mean_prompt_len:.0f}, answers {workload.mean_output_len:.0f} tokens")
outcomes = {name: simulate(workload, Manager(name), setting=at_once) for name in CONTIGUOUS}
percents = {name: outcome.queued.split.percent() for name, outcome in outcomes.items()}
print(f"\n{'per cent of the pool':22}{'tokens':>8}{'later':>8}{'never':>8}{'holes':>8}{'batch':>8}")
for name, percent in percents.items():
    cells = "".join(f"{value:8.1f}" for value in percent.values())
    print(f"{name:22}{cells}{outcomes[name].queued.mean_running:8.1f}")
for name in CONTIGUOUS:
    cells = "".join(f"{PAPER[name][kind]:8.1f}" for kind in percents[name])
    print(f"{'  the paper, ' + name:22}{cells}")

# %%
bars = {
    name: dict(zip(PARTS, (value / 100 for value in percent.values())))
    for name, percent in percents.items()
}
show(stacked_bars(bars, PARTS, caption="What the slots of the pool do"))

# %% [markdown]
# Read the row `oracle`. Nothing is reserved that will not be used, and still fewer than half
# of the slots hold a token. Two reasons are left:
#
# - **later**: an answer's last slot is reserved from the beginning and needed at the end;
# - **holes**: what remains is split into pieces, and none of them is long enough for the next
#   request. Here runs are powers of two (a buddy allocator, which the systems of the paper
#   used too), so that rounding is part of the holes.
#
# Even an allocator without any hole would leave a large part of an oracle's memory empty:

# %%
oracle = percents["oracle"]
held = oracle["tokens"] + oracle["reserved"]
print(f"tokens, of what is reserved for them: {100 * oracle['tokens'] / held:.0f} %")
assert oracle["never_used"] == 0
assert oracle["tokens"] < 50
assert oracle["tokens"] / held < 2 / 3

# %% [markdown]
# That is less than the estimate, and holes are not the cause, for they are left out here: an
# average over time counts long answers more, because they stay longer, and the longer an answer,
# the larger the share of its slots that waits.
#
# ## What goes wrong without it
#
# *It* is paging, the subject of the next page. Each way around it fails at another place.
#
# **Reserve less, and grow when needed.** A request that was promised 4 slots cannot have a
# fifth, even if the one behind it is free, because it may not be free the next time:

# %%
short = ContiguousTable(ContiguousPool(num_blocks=32), 1, num_promised=4)
short.reserve(4)
short.commit([0] * 4)
with fails(ValueError):
    short.reserve(1)

# %% [markdown]
# **Reserve exactly.** Requests come and go, and memory becomes a row of holes. Four requests
# of four slots fill a pool of 16. Two of them leave. Eight slots are free, and a request of
# eight cannot have them:

# %%
from minipaged.claims.contiguous import Buddy

buddy = Buddy(16)
starts = [buddy.allocate(4) for _ in range(4)]
assert starts == [0, 4, 8, 12]
buddy.release(starts[1], 4)
buddy.release(starts[3], 4)
print("free: slots 4 to 7 and 12 to 15")
with fails(OutOfBlocks):
    buddy.allocate(8)

# %% [markdown]
# **Move what is in the way.** Then 4 slots of OPT-13B are 3.3 MB to be copied, between two
# steps, and every pointer to them must be found and changed. "In the wild" tells how that
# went.
#
# ## What must hold
#
# In a contiguous cache:
#
# 1. The slots of a request lie one behind another, so all of them are taken before its first
#    token. *If not*, it cannot grow later.
# 2. Every slot does exactly one thing: it holds a token; it will later; it is promised and
#    never will; it was given out because a run was *rounded* up; or it is free. The five add
#    up to the pool. (Rounding and free together are the holes above.) *If not*, somebody's
#    figure of waste leaves something out.
# 3. Nobody else can use a reserved slot, whether it holds a token or not. *If not*, two
#    requests write into one place.

# %%
print(f"{'slots':8}{'tokens':>8}{'later':>8}{'never':>8}{'rounding':>10}{'free':>8}{'sum':>8}")
for name, outcome in outcomes.items():
    split = outcome.queued.split
    assert outcome.num_slots == 15_700 // 16 * 16
    assert abs(sum(split) - outcome.num_slots) < 1e-6
    tokens, later, never, rounding, free = split
    print(
        f"{name:8}{tokens:8.0f}{later:8.0f}{never:8.0f}{rounding:10.0f}{free:8.0f}{sum(split):8.0f}"
    )

# %% [markdown]
# The sum is 15,696 and not 15,700, because the allocator gives out units of 16 slots, and
# 981 of them fit.
#
# The first rule is the cause of the whole table above. To break it, memory must be given
# out in pieces small enough that a request takes one when it needs one, and the pieces of a
# request must be allowed to lie anywhere.
#
# ## Your turn

# %%
exercise("utilisation")

# %% [markdown]
# ## In the wild
#
# - **Hugging Face transformers**, `StaticCache` in `src/transformers/cache_utils.py`: one
#   tensor per layer with room for `max_cache_len` positions, filled or not. For a prompt of 32
#   tokens and 16 new ones `generate` makes it 47 long, not 48
#   ([huggingface/transformers #46424](https://github.com/huggingface/transformers/issues/46424)):
#   the last token of an answer is never fed back, so it needs no slot. `oracle` above counts
#   the same way.
# - **nano-vllm**, `ModelRunner.allocate_kv_cache` in `nanovllm/engine/model_runner.py`: one
#   tensor for the whole server, cut into blocks. **vLLM**, `KVCacheManager.allocate_slots` in
#   `vllm/v1/core/kv_cache_manager.py`: gives a request blocks as it grows. Neither promises a
#   request a length.
# - **A real story of holes.** llama.cpp looked for one free run of cells for each batch, and
#   long use left only short ones
#   ([ggml-org/llama.cpp #3380](https://github.com/ggml-org/llama.cpp/issues/3380)). The remedy
#   was to move cells together, which brought a bug of its own: garbage after the move, on CPUs
#   ([#12253](https://github.com/ggml-org/llama.cpp/issues/12253)). Two years later all of it
#   was removed, because K and V could now be written to places that do not lie side by side
#   ([#15473](https://github.com/ggml-org/llama.cpp/pull/15473)). That is the step from this
#   page to the next.
#
# ## You can now
#
# say where the memory of a contiguous cache goes, and why knowing every length would not save
# it. The same measurement for other workloads, beside the paper's numbers:
# `minipaged reproduce waste`.
#
# Next: `minipaged learn 2 --read`, where a request takes a block at a time.
