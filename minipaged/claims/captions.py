"""The title of each figure, and what it shows for who cannot see it; draws nothing."""

from __future__ import annotations

from typing import NamedTuple


class Caption(NamedTuple):
    """Of one figure."""

    title: str
    alt: str


CAPTIONS = {
    "waste": Caption(
        "What the slots of the pool hold",
        "Stacked bars, per workload and way to keep K and V: the shares of the pool that hold "
        "tokens, are reserved and used later, are reserved and never used, and are free or "
        "rounded. The bars of max hold the fewest tokens, those of paged nearly nothing else.",
    ),
    "throughput": Caption(
        "Sequences that the same memory holds",
        "Lines, per way to keep K and V: sequences in a step over simulated seconds. max stays at "
        "seven, pow2 and oracle lie above it, paged is the highest.",
    ),
    "sharing": Caption(
        "Blocks that samples and beams need not have",
        "Bars of the blocks saved by parallel sampling and by beam search, for two, four and six "
        "sequences per request, the paper's values as marks. Beams save several times as much.",
    ),
    "chat": Caption(
        "What a turn computes",
        "Lines over the turns of a conversation: prompt tokens computed. They grow with every turn "
        "if the history is computed again, stay small if it is found, and jump to all that is kept "
        "once it is cut at its front.",
    ),
    "block_size": Caption(
        "What the size of blocks changes",
        "Three panels over the tokens per block from 1 to 256: the share of held slots that are "
        "empty, which rises; the sequences in a step, which fall; and the kernel's milliseconds.",
    ),
    "kernel": Caption(
        "Attention over K and V, contiguous and in blocks",
        "Bars, per number of sequences and of keys: milliseconds of one attention step over "
        "contiguous K and V, over blocks in order, over permuted blocks, and of torch.",
    ),
    "hit_rate": Caption(
        "Prompt tokens found, by the size of the pool",
        "Two lines per workload, rising with the blocks of the pool: prompt tokens found by the "
        "engine, and at best. They lie apart in small pools and meet in large ones.",
    ),
    "preemption": Caption(
        "A preempted sequence comes back",
        "Two lines over the tokens per block: seconds to recompute, which are level, and to swap, "
        "which fall as blocks grow.",
    ),
}
