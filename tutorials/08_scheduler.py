# %% [markdown]
# # 8. The scheduler: continuous batching, chunked prefill, preemption
#
# **Question.** Sixty-four requests share one model and one pool of blocks. Nobody knows how
# long their answers will be, and the pool is too small for all of them. Before every step of
# the model a scheduler decides who computes how many tokens now. What is gained by deciding
# anew at every step, and which decisions must it never make?

# %% [markdown]
# ## Picture
#
# A **step** is one pass through the model. It computes some new tokens of some sequences:
# all tokens of a prompt, a part of them, or one token of an answer. To the model that makes
# no difference. So a scheduler needs to know one number of a sequence: how many tokens it
# has whose keys and values are missing.

# %%
from minipaged.engine.sequence import Sequence
from minipaged.learn import exercise, show, source

source(Sequence.num_remaining)

# %% [markdown]
# A prompt of 30 tokens that has just arrived: 30 remain. In the middle of its answer: one
# remains, the token that was sampled last. After it had to give its blocks back: everything
# remains, prompt and answer. One rule serves all three.
#
# The scheduler on this page is the package's own, and so are the pool and the tables. Only
# the model is missing: it would need seconds, and all we want to see is who computes when.
# The loop below does what `LLM.step` does: schedule, compute (here: nothing), commit, and
# one more token for whoever has none left to compute.

# %%
from minipaged.core import BlockPool, BlockTable, root_hash
from minipaged.engine.params import SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request
from minipaged.engine.stats import EngineStats
from minipaged.view import gantt, lines


class Rehearsal:
    """The loop of the engine without a model: how long an answer gets is known to us alone."""

    def __init__(self, scheduler, prefix_caching=False):
        self.scheduler, self.stats = scheduler, EngineStats()
        self.root = root_hash() if prefix_caching else None
        self.sequences, self.history = [], []

    def add(self, prompt_len, output_len):
        order = len(self.sequences)
        prompt = [1000 * order + p for p in range(prompt_len)]  # no two prompts are alike
        greedy, nothing = SamplingParams(temperature=0), frozenset()
        request = Request(str(order), order, None, prompt, greedy, output_len, nothing, self.root)
        table = BlockTable(self.scheduler.pool, self.scheduler.block_size, self.root)
        self.sequences.append(Sequence(request, 0, list(prompt), table))
        self.scheduler.add(self.sequences[-1])

    def step(self):
        step = self.scheduler.schedule()
        self.history.append(dict.fromkeys(self.scheduler.waiting, 0) | dict(step.work))
        self.scheduler.commit(step)
        self.stats.count(step, self.scheduler.pool.num_blocks - self.scheduler.pool.num_free)
        for sequence, _ in step.work:
            if sequence.num_remaining == 0:
                sequence.token_ids.append(-1 - int(sequence.request.request_id))
                if len(sequence.output_token_ids) == sequence.request.max_tokens:
                    self.scheduler.remove(sequence)
        return step

    def run(self):
        while self.scheduler.sequences:
            self.step()
        return self


# %% [markdown]
# Six requests, three places in the batch. A **static** batch is chosen once and kept until
# its last sequence is done. A **continuous** batch is chosen at every step. The difference
# is two lines: the first one admits nobody while anybody runs.


# %%
class Static(Scheduler):
    def _admit(self, step, budget):
        if not self.running:
            super()._admit(step, budget)


def timeline(rehearsal, kind):
    """What each did in every step; an empty place is drawn with the one who left it."""
    rows = {}
    for name, sequence in zip("ABCDEFGH", rehearsal.sequences):
        row = []
        for did in rehearsal.history:
            num_waiting = list(did.values()).count(0)
            is_full = len(did) - num_waiting == rehearsal.scheduler.max_num_seqs
            if sequence in did:
                row.append("computes" if did[sequence] else "waits")
            else:
                is_empty = num_waiting > 0 and not is_full and row[-1] != ""
                row.append("place empty" if is_empty else "")
        rows[f"{kind} {name}"] = row
    return rows


rows = {}
for kind, make in ("static", Static), ("continuous", Scheduler):
    small = Rehearsal(make(BlockPool(64), block_size=4, max_num_seqs=3))
    for output_len in (9, 2, 4, 5, 8, 3):
        small.add(prompt_len=3, output_len=output_len)
    rows |= timeline(small.run(), kind)
    print(f"{kind}: {len(small.history)} steps")
show(gantt(rows))

# %% [markdown]
# B is done after two steps. In a static batch its place stays empty until A is done; in a
# continuous one D has it in the very next step, number 2 in the picture.

# %% [markdown]
# ## Predict
#
# Now 64 requests, 8 places, answers of 37 tokens on average, most of them short and a few
# long. A step takes the same time however many of the 8 places are in use. What part of the
# places is busy in a static batch? And how many times longer does it take?
#
# <details markdown="1"><summary>Think of the longest of eight</summary>
#
# A static batch takes as many steps as its longest answer has tokens. With lengths that fall
# off as those of texts do, the longest of eight is two to three times as long as the mean. So
# less than half of the places are busy, and the whole takes about twice as long. The longer
# the tail, the worse: a batch of 64 would wait for the longest of 64.
#
# </details>

# %% [markdown]
# ## Run
#
# ### One: who runs is chosen anew at every step

# %%
from math import log
from random import Random


def geometric(random, mean, most):
    return min(most, 1 + int(log(1 - random.random()) / log(1 - 1 / mean)))


random = Random(1)
output_lens = [geometric(random, mean=40, most=256) for _ in range(64)]
num_steps = {}
for kind in Static, Scheduler:
    batch = Rehearsal(kind(BlockPool(10_000), block_size=16, max_num_seqs=8))
    for output_len in output_lens:
        batch.add(1, output_len)
    num_steps[kind] = len(batch.run().history)
    busy = sum(output_lens) / (8 * num_steps[kind])
    print(f"{kind.__name__:<10}{num_steps[kind]:5,} steps, {busy:.0%} of the places busy")

ratio = num_steps[Static] / num_steps[Scheduler]
print(f"{sum(output_lens):,} tokens; continuous batching is {ratio:.1f} times faster")
assert 2 < ratio < 3

# %% [markdown]
# ### Two: a long prompt comes in pieces
#
# Three answers are being written when a prompt of 2,000 tokens arrives. To compute it in one
# step is one long step, and during it nobody gets a token. The remedy needs no new idea: a
# step has a **budget** of tokens, the running ones take from it first, and the newcomer gets
# what is left. Its prompt is then computed in chunks, beside the answers of the others. Here
# is how the budget is shared out: the oldest gets what it lacks, but leaves one token for each
# of those who need just one; then they; then the other prompts.

# %%
source(Scheduler._share_budget)

# %% [markdown]
# How long a step lasts is now the point, so we need a clock. The package has a cost model of
# one machine, a model of 13 billion parameters on an A100: a step takes as long as it takes
# to read all weights, or to multiply its tokens with them, whichever is longer. To that it
# adds the reading of K and V, 3 ms for the step, and 0.33 ms for each of its sequences.
#
# Predict before you go on: is a smaller budget always better?

# %%
from minipaged.claims.cost import CostModel, Load

clock = CostModel()
assert (clock.per_step, clock.per_seq) == (3e-3, 0.33e-3)


def long_prompt(budget):
    """Longest pause between two tokens of a running answer, and the newcomer's first token."""
    pool = BlockPool(1000)
    batch = Rehearsal(Scheduler(pool, block_size=16, max_num_batched_tokens=budget))
    for _ in range(3):
        batch.add(16, 1000)
    for _ in range(5):
        batch.step()
    batch.add(2000, 1)
    pauses = []
    while not batch.sequences[3].output_token_ids:
        work = batch.step().work
        held = sum(s.table.num_tokens for s, _ in work)
        pauses.append(clock.seconds(Load(sum(n for _, n in work), held, len(work))))
        assert all(s.num_remaining == 1 for s in batch.sequences[:3]), "somebody got no token"
    return 1000 * max(pauses), 1000 * sum(pauses), len(pauses)


print("budget   longest pause   first token of the newcomer")
found = {budget: long_prompt(budget) for budget in (2560, 512, 256, 128, 64)}
for budget, (pause, first, steps) in found.items():
    print(f"{budget:6,} {pause:10.0f} ms {first:15.0f} ms, {steps} steps")
assert found[2560][0] > 10 * found[128][0]
assert found[64][1] > 2 * found[128][1]

# %% [markdown]
# Down to 128 tokens the pause shrinks with the budget, and the newcomer pays little for it.
# Below that nothing is gained: a step that small takes as long as reading the weights, however
# little it computes, and the newcomer needs twice as many of them.

# %% [markdown]
# ### Three: somebody has to leave
#
# Answers grow, and nobody knows how far. So a pool is filled with more sequences than it could
# hold to their ends; often some end before it is full. If not, a running sequence finds no free
# block. Then one is **preempted**: its blocks are released, it waits at the head of the queue,
# and when there is room again it computes everything once more, its own answer included, as
# if that were a prompt. Nothing it said is lost, only time. (`_units` puts together who comes
# and goes together: one sequence, or all beams of a request, page 9. With a `host_pool`, blocks
# are moved to the host's memory instead, and nothing is computed again; there is none here.)

# %%
source(Scheduler._reserve, "for unit")
source(Scheduler._preempt)

# %%
random = Random(2)
jobs = [(20 + int(random.random() * 180), geometric(random, 80, 300)) for _ in range(60)]


def under_pressure(num_blocks, prefix_caching):
    pool = BlockPool(num_blocks)
    batch = Rehearsal(Scheduler(pool, block_size=16, max_num_seqs=16), prefix_caching)
    for job in jobs:
        batch.add(*job)
    return batch.run()


recomputed = {"without prefix cache": [], "with prefix cache": []}
print("pool          steps   preempted   computed again   with prefix cache")
for num_blocks in (48, 80, 120, 160, 200, 240):
    plain, found = (under_pressure(num_blocks, caching) for caching in (False, True))
    for points, batch in zip(recomputed.values(), (plain, found)):
        points.append((num_blocks, batch.stats.tokens_recomputed))
    assert 0.4 < found.stats.tokens_recomputed / plain.stats.tokens_recomputed < 0.6
    print(
        f"{num_blocks:4} blocks {len(plain.history):8,} {plain.scheduler.num_preemptions:11}"
        f" {plain.stats.tokens_recomputed:16,} {found.stats.tokens_recomputed:19,}"
    )
print(f"all prompts together: {sum(p for p, _ in jobs):,} tokens")

# %%
show(lines(recomputed, "blocks in the pool", "tokens computed again"))

# %% [markdown]
# Two things to read here. In the smallest pool hardly more is computed again than in the second
# smallest, yet it takes far more steps: so few run at once that few can be sent away. What a
# small pool costs is above all a small batch. And about half of what was taken away comes back
# for nothing: a preempted sequence leaves its full blocks *published* (page 7), and what has not
# been overwritten when it returns is found again by its hash.

# %% [markdown]
# ## What goes wrong without it
#
# **Prompts first.** It sounds polite: who has just arrived shall not wait for those who already
# get tokens. So while somebody waits, nobody decodes. One request runs, and at every step a
# short one arrives:


# %%
class PromptsFirst(Scheduler):
    """While somebody waits, nobody decodes."""

    def schedule(self):
        held_up = [s for s in self.running if s.num_remaining == 1] if self.waiting else []
        self.running = [s for s in self.running if s not in held_up]
        step = super().schedule()
        self.running = sorted([*held_up, *self.running], key=lambda s: s.order)
        return step


for kind in Scheduler, PromptsFirst:
    batch = Rehearsal(kind(BlockPool(1000), block_size=16))
    batch.add(4, 1000)
    for _ in range(500):
        batch.step()
        batch.add(8, 1)
    first = batch.sequences[0]
    print(f"{kind.__name__:<13}: tokens of the first in 500 steps: {len(first.output_token_ids)}")
assert len(first.output_token_ids) == 1

# %% [markdown]
# One token, and no second one as long as they keep coming. Nothing crashes, no block is lost,
# the machine is busy, and one user waits for ever. That is why the budget goes first to those
# who run, and only then to those who wait.
#
# **The oldest leaves.** It holds the most blocks, so sending it away helps most. The running ones
# stand in a list in order of age, so this is `running.pop(0)` where it should be `running.pop()`:


# %%
class OldestLeaves(Scheduler):
    """The victim is the one that runs longest."""

    def _preempt(self, step):
        self.running.append(self.running.pop(0))  # who stands last is taken
        super()._preempt(step)


for kind in Scheduler, OldestLeaves:
    pool = BlockPool(20)
    batch = Rehearsal(kind(pool, block_size=4, max_num_batched_tokens=16, watermark=0))
    batch.add(40, 40)
    first, computed = batch.sequences[0], 0
    while len(first.output_token_ids) < 40 and len(batch.history) < 2000:
        if len(batch.history) % 5 == 0:
            batch.add(4, 13)
        computed += dict(batch.step().work).get(first, 0)
    overtaken = sum(len(s.output_token_ids) == 13 for s in batch.sequences)
    print(
        f"{kind.__name__:<13}: {len(batch.history):3} steps for an answer of 40 tokens, "
        f"{computed:5,} computed for it,\n{'':15}{first.request.num_preemptions} times preempted,"
        f" overtaken by {overtaken}"
    )
    assert kind is OldestLeaves or computed == 79
assert len(batch.history) > 300

# %% [markdown]
# Both are given the same requests. In the right order of victims the oldest is never touched:
# 79 tokens are computed for its 79 positions. In the wrong one it is sent away again and again,
# each time with more to compute when it returns, and those who came later are served before it.
# The same holds for every sequence once it is the oldest, so all of them get there late.

# %% [markdown]
# ## What must hold
#
# - **No step computes more than its budget**, of tokens and of blocks, and nobody stands in it
#   twice. *Else:* out of memory, or one step for which all have to wait.
# - **The oldest unfinished request gets at least one token in every step.** When it is done,
#   the next one is the oldest. *Else:* somebody waits for ever.
# - **Who runs is computed before anybody new is let in.** *Else:* arrivals stop the answers.
# - **Only the newest leaves, and only if there is no room**, and it returns before anybody new
#   comes in. *Else:* the same tokens are computed again and again.
# - **Nobody is let in unless all its present tokens fit.** *Else:* it computes a part of them
#   and is thrown out with nothing to show for it.
# - **What could never fit an empty pool is refused when it comes**, with the numbers. *Else:*
#   it waits for ever, and all others behind it.
#
# A bigger batch is not always better: beyond what the pool holds it only adds preemptions.

# %% [markdown]
# ## Your turn

# %%
exercise("schedule")

# %% [markdown]
# ## In the wild
#
# - **vLLM**, `vllm/v1/core/sched/scheduler.py`, `Scheduler.schedule`: no prefill phase and no
#   decode phase either. First those who run, each `num_tokens - num_computed_tokens` out of one
#   `token_budget`, then those who wait. If `allocate_slots` finds no room for somebody:
#   `self.running.pop()`.
# - **nano-vllm**, `nanovllm/engine/scheduler.py`, `Scheduler.schedule`: as long as a waiting
#   prompt fits, a step is prompts only.
#   [nano-vllm #73](https://github.com/GeeeekExplorer/nano-vllm/issues/73) asks for chunks beside
#   decodes, [#276](https://github.com/GeeeekExplorer/nano-vllm/pull/276) proposes them.
# - **FlashInfer** has no scheduler: it is given the finished plan of a step.
# - *Prompts first, in production:*
#   [sglang #32549](https://github.com/sgl-project/sglang/issues/32549) reports that under a stream
#   of long prompts the running requests got about one decode step in 24 seconds.
# - *The oldest leaves:* [lmdeploy #4127](https://github.com/InternLM/lmdeploy/pull/4127). The queue
#   happened to be in order of arrival, and victims were taken from its front.

# %% [markdown]
# ## You can now
#
# say what a step is made of, why a batch is chosen anew at every step, what a chunk is for, who
# has to leave and what that costs. Write the step yourself, see the package's scheduler at work,
# then go on to several continuations of one prompt:
#
# ```console
# $ minipaged learn 8
# $ minipaged demo
# $ minipaged learn 9 --read
# ```
