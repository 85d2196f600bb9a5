"""Block managers on one recorded trace, each in a process of its own, in turns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from .roster import MANAGERS, python_of
from .stats import Figure
from .trace import Trace
from .worker import Declined, Failed, Worker

BLOCK_SIZE = 16
OURS = "minipaged"
Say = Callable[[str], None]


def replay(
    peers: list[str],
    pythons: dict[str, str],
    nano_vllm: Path | None,
    num_requests: int,
    rounds: int,
    say: Say,
) -> tuple[list[Figure], list[str]]:
    """Operations per second: a prompt allocated, a token appended, a request freed.

    The pool is large enough that nothing is evicted, so every right manager finds the same
    prefix tokens; whoever does not did other work, and gets no ratio.

    Returns:
        The figures, and whom they are without.
    """
    trace = Trace(num_requests)
    options = {
        "num_blocks": trace.num_blocks(BLOCK_SIZE),
        "block_size": BLOCK_SIZE,
        "checkout": str(nano_vllm.resolve()) if nano_vllm else "",
    }
    notes, samples = [], {}
    with ExitStack() as stack:
        workers = []
        for name in [OURS, *peers]:
            say(f"loading {name} ...")
            peer = MANAGERS[name]
            try:
                python = python_of(name, pythons)
                worker = Worker(name, peer.adapter, options, python, peer.surroundings(python))
            except (Declined, Failed) as error:
                notes.append(f"without {name}: {str(error).strip().splitlines()[-1]}")
                continue
            stack.callback(worker.close)
            workers.append(worker)
        for i in range(rounds + 1):
            for worker in workers:
                say(f"trace: {worker.name}, " + (f"round {i} of {rounds}" if i else "warm-up"))
                timing = worker.call("replay", trace.operations)
                if i:
                    samples.setdefault(worker, []).append(timing)
    name = f"trace of {num_requests} requests, {len(trace.operations):,} operations"
    figures = [
        Figure(
            name,
            worker.name,
            "ops/s",
            tuple(len(trace.operations) / t.seconds for t in timings),
            min(t.share for t in timings),
            note=f"{worker.version}: {timings[-1].value['hits']:,} prompt tokens found",
        )
        for worker, timings in samples.items()
    ]
    return same_hits(figures, [t[-1].value["hits"] for t in samples.values()]), notes


def same_hits(figures: list[Figure], hits: list[int]) -> list[Figure]:
    """Ours come first; a peer that found another number of tokens is not comparable."""
    return [
        replace(f, other_work=f"{n:,} tokens found, ours found {hits[0]:,}") if n != hits[0] else f
        for f, n in zip(figures, hits, strict=True)
    ]
