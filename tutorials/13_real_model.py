# %% [markdown]
# # 13. A real model
#
# **Question.** All pages before this one moved words about, or random numbers. Now the same pool,
# tables and scheduler carry a language model. Where does its memory go while it writes? What
# decides how fast it writes? And how do you know that an attention function of your own computes
# the same?

# %% [markdown]
# ## Picture
#
# The package brings a small model along: a Llama with 3.8 million weights that has read one book.
# We give it a tiny pool, 16 blocks of 4 tokens, so that every block can be drawn. Requests A and
# B come at once, C comes two steps later. `step()` is one pass through the model.

# %%
from minipaged import LLM, SamplingParams
from minipaged.learn import exercise, show
from minipaged.view import drawing, stacked_bars


def greedy(max_tokens):
    return SamplingParams(temperature=0, max_tokens=max_tokens)


llm = LLM("bundled", device="cpu", num_blocks=16, block_size=4)
config, compile_seconds = llm.config, llm.stats.compile_seconds
print(
    f"{config.num_layers} layers, {config.num_heads} query heads on {config.num_kv_heads} K/V heads"
)

llm.add("In the beginning God created the heaven", greedy(8), request_id="A")
llm.add("In the beginning was the Word", greedy(12), request_id="B")
ledgers = []
while llm.has_unfinished:
    if len(ledgers) == 2:
        c = llm.add(
            "In the beginning God created the heaven and the earth", greedy(8), request_id="C"
        )
    deltas = llm.step()
    ledgers.append(llm.ledger())
    print(f"step {len(ledgers) - 1:2}:", "  ".join(f"{d.request_id}{d.text}" for d in deltas))
    if len(ledgers) == 4:
        now = llm.snapshot()
show(drawing(now, caption="After step 3"))

# %% [markdown]
# Look for three things you have met before. Block 0 has three holders, because all prompts begin
# alike (page 7). B got no token in step 0: the scheduler saw that A was computing just what B
# needed first, and let it wait one step. And every sequence wastes slots in its last block only
# (page 2).
#
# The ledger says what every slot of the pool does. Over time:

# %%
classes = ("live", "shared", "tail_waste", "cached", "free")
rows = {
    f"step {i}": {name: getattr(ledgers[i], name) / ledgers[i].num_slots for name in classes}
    for i in range(0, len(ledgers), 3)
}
show(stacked_bars(rows, classes))

# %% [markdown]
# What a finished request leaves behind is not gone but *cached*: free for anybody who needs room,
# and found by whoever begins in the same way.

# %% [markdown]
# ## Predict
#
# C's prompt has 13 tokens. When C came, A had 11 tokens in the cache: ten that are C's first ten,
# too, and a comma. Blocks hold 4. How many of C's 13 tokens did the model have to compute?
#
# <details markdown="1"><summary>Count full blocks</summary>
#
# Two full blocks of A hold what C begins with, 8 tokens. Only full blocks have a name by which they
# are found. So 13 - 8 = 5 tokens are computed.
#
# </details>

# %%
print(f"{len(c.prompt_token_ids)} tokens of prompt, {c.num_cached_tokens} found")
assert (len(c.prompt_token_ids), c.num_cached_tokens) == (13, 8)

# %% [markdown]
# ## Run
#
# ### A prefix that is found comes sooner
#
# A long instruction, then a question: the ordinary case of a chat. The second request computes
# only its question. What can be promised is the number of tokens; what it saves in time depends
# on the machine, and is shown below as an example.

# %%
llm = LLM(llm.model, device="cpu", num_blocks=256, block_size=16)
instruction = "And God said, Let there be light: and there was light. " * 24
first, second = (
    llm.generate(instruction + question, greedy(1))[0]
    for question in ("And God saw the", "And the evening and the")
)
for name, output in ("first", first), ("second", second):
    num_tokens, num_found = len(output.prompt_token_ids), output.num_cached_tokens
    print(f"{name:<6} {num_tokens} tokens: {num_found} found, {num_tokens - num_found} computed")
assert second.num_cached_tokens > 0.9 * len(second.prompt_token_ids)

# %% tags=["approx"]
from time import perf_counter


def seconds_to_first_token(question):
    begin = perf_counter()
    next(llm.stream(instruction + question, greedy(1)))
    return perf_counter() - begin


llm.pool.forget_prefixes()
cold = seconds_to_first_token("And God saw the")
warm = seconds_to_first_token("And the evening and the")
print(f"first token after {1000 * cold:.0f} ms; with the prefix found, {1000 * warm:.0f} ms")

# %% [markdown]
# ### What decides how fast it writes
#
# To compute one token, every weight is needed once, and every key and value of the context. They
# have to come from memory, and hardly anything else is done with them: one product and one sum
# for each. So the fastest possible step takes as long as reading these bytes.
#
# ```text
# tokens per second  <=  bytes read per second / (weights + K and V of the context)
# ```
#
# In a batch the weights are read once for all. How many times fewer bytes does a token cost in a
# batch of 16? Of 64?
#
# <details markdown="1"><summary>Not 16, and by far not 64</summary>
#
# The share of the weights shrinks as the batch grows, that of K and V does not: every sequence has
# its own. So the gain begins at nearly 16 for short contexts, and ends where K and V are all that
# is left. The cell below says 11 and 21 times for the bundled model with 200 tokens of context.
#
# </details>

# %%
import torch

from minipaged.bench.random_model import SMOLLM2_135M, weight_bytes

CONTEXT = 200  # tokens that a sequence has on average


def megabytes_per_token(config, num_seqs):
    """What one step reads, in float32, shared out among the tokens that it gives."""
    per_position = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
    step = weight_bytes(config, torch.float32) + num_seqs * CONTEXT * per_position
    return step / num_seqs / 1e6


kv_bytes = llm.cache.bytes_per_block // llm.block_size
print(f"bundled model: {kv_bytes:,} bytes of K and V for each position of a sequence")
print("MB read per token     batch of 1      16      64")
for name, model_config in ("bundled", config), ("SmolLM2-135M", SMOLLM2_135M):
    costs = [megabytes_per_token(model_config, n) for n in (1, 16, 64)]
    print(f"{name:<16} {costs[0]:15.1f} {costs[1]:7.2f} {costs[2]:7.2f}")
    gains = [round(costs[0] / cost) for cost in costs]
    assert name != "bundled" or gains == [1, 11, 21]

# %% [markdown]
# That is why a batch is worth so much, why memory for K and V is what limits the batch, and why
# all this trouble with blocks pays.
#
# **A batch raises the total, never the speed of one sequence.** The steps are the same; each of
# them gives more tokens.

# %% tags=["approx"]
from minipaged.bench.limits import limits_of, measure_limits

limits = limits_of(measure_limits(rounds=2, num_bytes=2**27, size=256))
print(f"this machine reads {limits.read / 1e9:.1f} GB/s on the threads it may use")
for name, model_config in ("bundled", config), ("SmolLM2-135M", SMOLLM2_135M):
    possible = limits.read / 1e6 / megabytes_per_token(model_config, 1)
    print(f"{name}: at most {possible:,.0f} tok/s for one sequence")

print(f"compiled, or found compiled, in {compile_seconds:.1f} s; that is in none of these:")
for num_seqs in 1, 4, 16:
    prompts = [[5 + i, 9, 13, 17] for i in range(num_seqs)]
    llm.generate(prompts, greedy(8))  # warms up
    begin = perf_counter()
    outputs = llm.generate(prompts, greedy(33))
    total = sum(len(o.outputs[0].token_ids) for o in outputs) / (perf_counter() - begin)
    print(f"batch of {num_seqs:2}: {total / num_seqs:5.0f} tok/s per sequence, {total:5.0f} in all")

# %% [markdown]
# These are numbers of one thread of the machine that built this page; yours will differ. Read them
# with the limit beside them. The bundled model is so small that most of a step is spent on other
# things than reading, and where its 15 MB stay in the processor's caches, memory is no limit at
# all. For SmolLM2 the limit is real: with weights of 32 bits no program gets more out of this
# machine. And on a single thread the products of a large batch soon take longer than the reading,
# so every sequence slows down while the total grows. `minipaged bench engine` prints what was
# reached, and what part of the limit that is.

# %% [markdown]
# ### On a GPU
#
# The package has CUDA kernels for all of this, written in Python (page 10), and the engine takes
# them where it finds a card. **No card has run them yet.** They are compiled to machine code for
# real cards, judged lane by lane in a simulator, and what the compiler generated is executed by
# an emulator, address by address. That shows that they compute the right numbers there. It shows
# neither that they are fast nor that a driver agrees. So there is no figure of a GPU on this page.
# These commands will make them, in this order, in a checkout on a machine with a card:
#
# ```console
# $ pip install -e '.[dev]'
# $ minipaged doctor
# $ pytest -m gpu
# $ minipaged check minipaged_cuda:paged_attention --device cuda
# $ minipaged generate "In the beginning" --device cuda
# $ minipaged bench gpu --markdown gpu.md
# ```
#
# The first that fails says what is missing. The last one writes a report with the name of the
# card, its driver, the date and all versions, and beside every rate the rate at which the card
# copies.

# %% [markdown]
# ## What goes wrong without it
#
# **A rate of tokens that nobody computed.** Somebody measures how fast prompts are read: tokens of
# the prompt, divided by the time. With a prefix cache that is a wrong number, and a flattering one:

# %%
num_tokens, num_found = len(second.prompt_token_ids), second.num_cached_tokens
flattery = num_tokens / (num_tokens - num_found)
print(f"{num_tokens} tokens, {num_tokens - num_found} computed: {flattery:.0f} times too fast")
assert flattery > 10

# %% [markdown]
# So the package says `computed + cached`, and divides by what was computed. The other classic is
# to count the compiler's seconds in the first answer.
#
# **A kernel that passes its test.** `LLM` takes any attention function with the signature of
# page 4. Here is one, and it has been tested: eight sequences of lengths around a block's edge,
# blocks in disorder, NaN wherever nothing may be read; one new token each, as in decoding.

# %%
from minipaged.attention import paged_attention


def my_attention(*arguments, causal=True, **options):
    return paged_attention(*arguments, causal=False, **options)


def inputs(seq_lens, query_lens, block_size=4):
    """Random queries, keys and values for sequences of these lengths; the last queries are new."""
    generator = torch.Generator().manual_seed(0)
    num_blocks = [-(-length // block_size) for length in seq_lens]
    ids = torch.randperm(sum(num_blocks) + 2, generator=generator).tolist()
    cache = torch.full((2, len(ids), block_size, 2, 8), torch.nan)
    tables = torch.full((len(seq_lens), max(num_blocks)), -1, dtype=torch.int32)
    for s, length in enumerate(seq_lens):
        for p in range(length):
            if p % block_size == 0:
                tables[s, p // block_size] = ids.pop()
            slot = tables[s, p // block_size], p % block_size
            cache[0][slot], cache[1][slot] = torch.randn(2, 2, 8, generator=generator)
    starts = [sum(query_lens[:s]) for s in range(len(seq_lens) + 1)]
    query = torch.randn(starts[-1], 4, 8, generator=generator)
    lens, starts = torch.tensor(seq_lens).int(), torch.tensor(starts).int()
    return query, cache[0], cache[1], tables, lens, starts


def error(seq_lens, query_lens):
    batch = inputs(seq_lens, query_lens)
    mine, right = (f(*batch, scale=0.5) for f in (my_attention, paged_attention))
    return float((mine - right).abs().max())


lengths = [1, 3, 4, 5, 7, 8, 9, 12]
print(f"one new token each:  largest error {error(lengths, [1] * 8):.4f}")
assert error(lengths, [1] * 8) < 1e-5

# %% [markdown]
# Now let the model write with it.

# %%
texts = {}
for prompt in "In the beginning", "Blessed are the":
    for name, attention in ("the package's", paged_attention), ("mine", my_attention):
        engine = LLM(llm.model, attention=attention, num_blocks=16, block_size=4)
        texts[prompt, name] = engine.generate(prompt, greedy(8))[0].text
        print(f"{name:>13}: {prompt}{texts[prompt, name]}")
print(f"three new tokens:    largest error {error([9], [3]):.4f}")
assert texts["In the beginning", "mine"] == texts["In the beginning", "the package's"]
assert texts["Blessed are the", "mine"] != texts["Blessed are the", "the package's"]
assert error([9], [3]) > 0.1

# %% [markdown]
# The first text is the same to the letter. The second is fluent, and wrong. This function never
# hides the future: in decoding the newest token has none, in a prompt all tokens but the last one
# do. A test with one query for each sequence cannot see that, whatever its lengths are; nor can it
# see a row in the wrong place. And one text that agrees proves nothing at all.

# %% [markdown]
# ## What must hold
#
# - **One function for prompts, chunks and answers:** query i of n, in a sequence of length L, is at
#   position L - n + i and sees everything up to itself. *Else:* prompts are read with the future.
# - **The same tokens whatever else happens:** batch mates, chunks, hits, preemption may change how
#   much is computed, never what is said. *Else:* a bug in the bookkeeping looks like a mood.
# - **A rate says what it counts:** tokens computed, one sequence or all, without loading and
#   compiling. *Else:* it cannot be compared with anything.
# - **A speed stands beside its limit.** *Else:* nobody knows whether 100 tokens per second are
#   much.

# %% [markdown]
# ## Your turn

# %%
exercise("plug")

# %% [markdown]
# ## In the wild
#
# - **vLLM**, `vllm/v1/worker/gpu_model_runner.py`, `GPUModelRunner.execute_model`: the same step,
#   from block tables to logits. **nano-vllm**, `nanovllm/engine/model_runner.py`, has it in two
#   forms, `prepare_prefill` and `prepare_decode`. **FlashInfer** has no model; it is what such a
#   runner calls, after `plan` was given the tables.
# - *Hits that nobody read:* [MinivLLM #98](https://github.com/Wenyueh/MinivLLM/pull/98). The block
#   manager found prefixes, but prompts attended to their fresh keys only, at positions that began
#   at 0. The demonstration's blocks were longer than its longest sequence, so none was ever full.
# - *Cold and warm differ:* [vllm #52701](https://github.com/vllm-project/vllm/pull/52701). After a
#   hit fewer rows are multiplied at once, which rounds differently, and where two tokens are nearly
#   tied the other one is taken. With few bits expect that, and compare numbers, not only tokens.
# - *Which speed?* In [gpt-fast #27](https://github.com/meta-pytorch/gpt-fast/issues/27) somebody
#   reaches 65 tokens per second where another program gave 150. The answer: 65 is one sequence,
#   and 65 times the weights' 14 GB is 910 GB/s, nearly all that the card can read; a larger batch
#   gives more tokens.

# %% [markdown]
# ## You can now
#
# follow a prompt from text through blocks to text, say what limits its speed, and put a function
# of your own in the middle. This was the last page. Next comes a kernel of your own, judged by
# more than equal text:
#
# ```console
# $ minipaged learn 13
# $ minipaged check my_module:my_attention
# $ minipaged pull smollm2-135m
# $ minipaged bench engine -m smollm2-135m --test single
# ```
