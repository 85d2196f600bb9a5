"""The tests of the engine benchmark: what each asks of one engine, checks, and counts.

Takes no turns and compares nobody; one call is one round of one engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from .costs import Costs
from .work import Work
from .worker import Timing, Worker

BLOCK_SIZE = 16


class Sample(NamedTuple):
    """One number of one round."""

    test: str
    unit: str
    value: float
    share: float  # of the CPU
    limit: float | None = None
    note: str = ""
    outputs: list[list[int]] | None = None  # tokens, if every engine should give the same


Measure = Callable[[Worker, Work, Costs], list[Sample]]


def single(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """Decode speed without the prompt: the time of all tokens less that of the first."""
    prompt, count = work.single
    first = worker.call("generate", [prompt], [1])
    whole = worker.call("generate", [prompt], [count])
    _expect_counts(worker, whole.value, [count])
    speed = (count - 1) / max(whole.seconds - first.seconds, 1e-9)
    share = min(first.share, whole.share)
    best = 1 / costs.step_seconds(1, len(prompt) + count / 2)
    to_first = costs.flops_seconds(len(prompt), 1, len(prompt) / 2)
    length = f"{len(prompt)} in, {count} out"
    return [
        Sample(f"one request, {length}: decode", "tok/s", speed, share, best, "", whole.value),
        Sample(f"{len(prompt)} in: first token", "ms", first.seconds * 1e3, first.share,
               to_first * 1e3),
    ]  # fmt: skip


def mixed(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """All mixed requests, submitted at once."""
    return [_batch(worker, work, costs, f"{len(work.mixed)} mixed requests: output")]


def prefix(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """Time to first token of requests that share a prefix, computed and found."""
    prompts, shared = [work.prefix + suffix for suffix in work.suffixes], len(work.prefix)
    cold = [worker.call("first_token", prompt, shared, False) for prompt in prompts]
    worker.call("first_token", prompts[0], shared, True)  # leaves the prefix behind
    warm = [worker.call("first_token", prompt, shared, True) for prompt in prompts]
    same = sum(a.value == b.value for a, b in zip(cold, warm))
    note = f"{same} of {len(cold)} first tokens are the same warm as cold"
    cold_ms, warm_ms = (median(t.seconds for t in ts) * 1e3 for ts in (cold, warm))
    cold_share, warm_share = (min(t.share for t in ts) for ts in (cold, warm))
    long, short = len(prompts[0]), len(work.suffixes[0])
    best_cold = costs.flops_seconds(long, 1, long / 2) * 1e3
    best_warm = costs.flops_seconds(short, 1, long) * 1e3
    name = f"{shared} shared + {short}: first token"
    return [
        Sample(f"{name}, cold", "ms", cold_ms, cold_share, best_cold, "",
               [[t.value for t in cold]]),
        Sample(f"{name}, warm", "ms", warm_ms, warm_share, best_warm, note),
        Sample(f"{name}, cold / warm", "x", cold_ms / warm_ms, min(cold_share, warm_share)),
    ]  # fmt: skip


def parallel(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """Samples of one prompt, and how much of it they share."""
    prompt, n, count = work.parallel
    timing = worker.call("samples", prompt, n, count)
    name = f"{n} samples, {len(prompt)} in, {count} out"
    return _several(worker, costs, timing, name, prompt, n, count)


def beam(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """Beam search; tokens of the best hypothesis count, as that is what is asked for."""
    prompt, width, count = work.beam
    timing = worker.call("beams", prompt, width, count)
    name = f"beam width {width}, {len(prompt)} in, {count} out"
    samples = _several(worker, costs, timing, name, prompt, width, count)
    best = samples[0]._replace(outputs=timing.value["tokens"][:1])
    return [best, *(s._replace(limit=None) for s in samples[1:])]  # beams share more than prompts


def preempt(worker: Worker, work: Work, costs: Costs) -> list[Sample]:
    """The mixed requests in a pool too small for them, and what that cost."""
    worker.call("counters")  # what happened before does not count
    name = f"mixed requests, {work.small_pool:,} tokens of pool"
    sample = _batch(worker, work, costs, name)
    counters = worker.call("counters").value
    units = {"preemptions": "times", "recomputed": "tokens", "swapped": "blocks"}
    return [
        sample,
        *(Sample(f"{name}: {k}", unit, counters[k], sample.share)
          for k, unit in units.items() if k in counters),
    ]  # fmt: skip


TESTS: dict[str, Measure] = {
    "single": single,
    "mixed": mixed,
    "prefix": prefix,
    "parallel": parallel,
    "beam": beam,
    "preempt": preempt,
}


def fewest_blocks(num_prompt: int, n: int, count: int, block_size: int) -> tuple[int, int]:
    """Blocks that n samples need if the prompt's full blocks are shared, and if nothing is.

    The last token of each is never fed back, so it has no K and V.
    """
    shared = num_prompt // block_size
    each = -(-(num_prompt + count - 1) // block_size)
    return shared + n * (each - shared), n * each


def _batch(worker: Worker, work: Work, costs: Costs, name: str) -> Sample:
    prompts, counts = zip(*work.mixed)
    timing = worker.call("generate", prompts, counts)
    _expect_counts(worker, timing.value, counts)
    speed = work.num_mixed_outputs / timing.seconds
    lengths = [(len(prompt), count) for prompt, count in work.mixed]
    best = work.num_mixed_outputs / costs.requests_seconds(lengths)
    return Sample(name, "tok/s", speed, timing.share, best, "", timing.value)


def _several(
    worker: Worker, costs: Costs, timing: Timing, name: str, prompt: list[int], n: int, count: int
) -> list[Sample]:
    """Speed and K/V of several sequences of one prompt, whose own time is part of it."""
    tokens, kv_bytes = timing.value["tokens"], timing.value["kv_bytes"]
    _expect_counts(worker, tokens, [count] * n)
    seconds = costs.flops_seconds(len(prompt), 1, len(prompt) / 2)
    seconds += (count - 1) * costs.step_seconds(n, len(prompt) + count / 2)
    samples = [Sample(name, "tok/s", n * count / timing.seconds, timing.share, n * count / seconds)]
    if kv_bytes:
        fewest, most = fewest_blocks(len(prompt), n, count, BLOCK_SIZE)
        block = BLOCK_SIZE * costs.kv_bytes
        note = (
            f"{kv_bytes / (most * block):.2f} of {n} separate copies; sharing the full blocks of "
            f"the prompt makes {fewest / most:.2f} (blocks of {BLOCK_SIZE})"
        )
        limit = fewest * block / 1e6
        samples.append(Sample(f"{name}: K/V", "MB", kv_bytes / 1e6, timing.share, limit, note))
    return samples


def _expect_counts(worker: Worker, rows: Sequence[list[int]], counts: Sequence[int]) -> None:
    """Refuse a result that is not the work that was asked for."""
    got = [len(tokens) for tokens in rows]
    if got != list(counts):
        raise RuntimeError(
            f"{worker.name} did not do the work it was given: {got} tokens, not {list(counts)}"
        )
