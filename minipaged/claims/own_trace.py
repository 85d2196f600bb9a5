"""The user's own trace, cut to what a claim can look at, and what to say of it."""

from __future__ import annotations

from itertools import accumulate, takewhile

from .claim import Context
from .generators import PAPER_MAX_LEN
from .managers import PAPER_NUM_SLOTS, Manager
from .verdicts import counted
from .workload import Workload

MOST_REQUESTS = 1000
MOST_TOKENS = 131_072  # of one request
MOST_ANSWERED = 500_000  # tokens of all answers: what takes the time


def own_trace(context: Context, most_requests: int = MOST_REQUESTS) -> tuple[Workload, ...]:
    """The trace, or nothing; its ``source`` says what was left out.

    Args:
        context: may have a trace.
        most_requests: of its beginning.
    """
    trace = context.trace
    if trace is None:
        return ()
    fitting = trace.only(lambda arrival: arrival.num_tokens <= MOST_TOKENS)
    answered = accumulate(arrival.output_len for arrival in fitting.arrivals)
    num_short = sum(1 for _ in takewhile(lambda total: total <= MOST_ANSWERED, answered))
    kept = fitting.head(min(most_requests, max(1, num_short)))
    said = [trace.source]
    if len(fitting) < len(trace):
        left_out = len(trace) - len(fitting)
        few = counted(left_out, "request")
        said.append(f"without {few} of more than {MOST_TOKENS:,} tokens")
    if len(kept) < len(fitting):
        said.append(f"the first {len(kept):,} of {len(fitting):,}")
    return (Workload(kept.name, "; ".join(said), kept.arrivals, kept.piece_len),)


def pool_for(max_len: int, block_size: int = 16) -> int:
    """Blocks of a pool that is to its longest sequence what the paper's is to 2048.

    Examples:
        >>> pool_for(2048), pool_for(8192)
        (981, 3925)
    """
    return PAPER_NUM_SLOTS * max_len // PAPER_MAX_LEN // block_size


def manager_for(workload: Workload, name: str, block_size: int = 16) -> Manager:
    """A way to keep K/V with the paper's memory, or more if a request is longer than 2048."""
    longest = max((arrival.num_tokens for arrival in workload.arrivals), default=1)
    max_len = max(PAPER_MAX_LEN, 1 << (longest - 1).bit_length())
    return Manager(name, pool_for(max_len, block_size), block_size, max_len)
