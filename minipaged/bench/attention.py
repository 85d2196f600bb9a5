"""Our compiled paged attention beside torch's own on contiguous K and V of the same numbers.

Paging must pay for its block tables; what is left of the machine's read bandwidth says whether it
does. Every call starts with K and V out of the caches, as a decode step finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from minipaged.attention.cpu import cpu_paged_attention

from .attention_inputs import Inputs, Shape, torch_ways
from .limits import Limits
from .share import cpu_share
from .stats import Figure

TORCH = "torch SDPA"
TOLERANCE = 1e-4  # float32, both of them
FLUSH_BYTES = 2**27
Say = Callable[[str], None]


GROUPS = (1, 3, 4, 8)
SHAPES = (
    *(
        Shape(num_seqs, context, group, ragged)
        for context in (512, 4096)
        for num_seqs in (1, 16, 64)
        for ragged in ((False, True) if num_seqs > 1 else (False,))
        for group in GROUPS
    ),
    *(Shape(1, 512, group, num_queries=512) for group in GROUPS),
)
TRIAL = (Shape(2, 32, 3), Shape(3, 40, 1, ragged=True), Shape(1, 32, 3, num_queries=32))


def measure_attention(
    shapes: Sequence[Shape], limits: Limits, rounds: int, say: Say, flush: bool = True
) -> list[Figure]:
    """Both on every shape, in turns; GB/s of K and V for decoding, GFLOP/s for prompts.

    Of torch's ways (ragged lengths one by one, or padded with a mask; query heads folded into the
    rows of their kv head, or not) the fastest counts.

    Raises:
        AssertionError: the two do not agree.
    """
    figures = []
    buffer = torch.zeros(FLUSH_BYTES // 4 if flush else 1)
    for shape in shapes:
        say(str(shape))
        figures += _compare(shape, limits, rounds, buffer)
    return figures


def _compare(shape: Shape, limits: Limits, rounds: int, buffer: Tensor) -> list[Figure]:
    inputs = Inputs.draw(shape)
    contestants = {
        "minipaged": [lambda: cpu_paged_attention(*inputs.paged, scale=inputs.scale)],
        TORCH: torch_ways(inputs),
    }
    results = [way() for ways in contestants.values() for way in ways]
    worst = max(float((r - results[0]).abs().max()) for r in results)
    assert worst < TOLERANCE, f"{shape}: they differ by {worst:.2g}"
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    shares = dict.fromkeys(contestants, 1.0)
    for i in range(rounds + 1):
        for name, ways in contestants.items():
            with cpu_share() as share:
                fastest = min(_seconds(way, buffer) for way in ways)
            if i:
                seconds[name].append(fastest)
                shares[name] = min(shares[name], share())
    unit, amount, limit = "GB/s", shape.kv_bytes / 1e9, limits.read / 1e9
    if shape.num_queries > 1:
        unit, amount, limit = "GFLOP/s", shape.flops / 1e9, limits.matrix / 1e9
    return [
        Figure(str(shape), name, unit, tuple(amount / s for s in values), shares[name], limit)
        for name, values in seconds.items()
    ]


def _seconds(way: Callable[[], Tensor], buffer: Tensor) -> float:
    """Of one call that finds the caches full of something else."""
    buffer.add_(1)
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin
