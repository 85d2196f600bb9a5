"""C7: what it costs attention to follow a block table, against K and V in one piece.

The same compiled loops read both: contiguous is one block per sequence, as long as the sequence, so
nothing but the table differs. Torch's own attention over the same contiguous tensors stands
beside it, to show that the baseline is not a slow one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.attention.cpu import cpu_paged_attention, warm_up
from minipaged.cache import KVCache

from .claim import Claim, Context, Row, Tolerance

BLOCK_SIZE = 16
NUM_HEADS = 8  # of OPT-13B's 40, which would only take five times as long
HEAD_DIM = 128
PAPER_OVERHEAD = Tolerance.between(20.0, 26.0)  # per cent


class Shape(NamedTuple):
    """One decode step: every sequence has ``context`` keys and one query."""

    num_seqs: int
    context: int


SHAPES = tuple(Shape(n, context) for n in (8, 32) for context in (64, 128, 256))  # figure 18a
QUICK_SHAPES = (Shape(8, 256), Shape(32, 64))
WAYS = ("contiguous", "identity", "permuted", "torch")


@dataclass(frozen=True)
class Step:
    """One decode step, with its K and V as a contiguous cache keeps them."""

    shape: Shape
    query: Tensor  # [num_seqs, NUM_HEADS, HEAD_DIM] float32
    keys: Tensor  # [num_seqs, NUM_HEADS, context, HEAD_DIM] float32
    values: Tensor  # [num_seqs, NUM_HEADS, context, HEAD_DIM] float32

    @classmethod
    def draw(cls, shape: Shape, seed: int) -> Step:
        """Normal numbers from a seed."""
        generator = torch.Generator().manual_seed(seed)
        size = shape.num_seqs, NUM_HEADS, shape.context, HEAD_DIM
        draw = lambda *dims: torch.randn(dims, generator=generator)  # noqa: E731
        return cls(shape, draw(shape.num_seqs, NUM_HEADS, HEAD_DIM), draw(*size), draw(*size))

    def ways(self, seed: int) -> dict[str, Callable[[], Tensor]]:
        """The same attention over one piece per sequence, over blocks in and out of order."""
        num_blocks = self.shape.num_seqs * self.shape.context // BLOCK_SIZE
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
        return {
            "contiguous": self._over(self.shape.context, torch.arange(self.shape.num_seqs)),
            "identity": self._over(BLOCK_SIZE, torch.arange(num_blocks)),
            "permuted": self._over(BLOCK_SIZE, order),
            "torch": self._by_torch,
        }

    def _over(self, block_size: int, place: Tensor) -> Callable[[], Tensor]:
        """Attention over blocks of which the i-th lies at ``place[i]``."""
        keys, values = self._in_blocks(block_size, place)
        num_seqs, context = self.shape
        tables = place.view(num_seqs, -1).int()
        lens = torch.full((num_seqs,), context, dtype=torch.int32)
        starts = torch.arange(num_seqs + 1, dtype=torch.int32)
        arguments: tuple[Any, ...] = (self.query, keys, values, tables, lens, starts)
        return lambda: cpu_paged_attention(*arguments, scale=HEAD_DIM**-0.5)  # type: ignore[return-value]

    def _in_blocks(self, block_size: int, place: Tensor) -> tuple[Tensor, Tensor]:
        """K and V in a cache of the engine's: a head's tokens of one block lie together."""
        cache = KVCache(1, len(place), block_size, NUM_HEADS, HEAD_DIM)
        for whole, stored in ((self.keys, cache.key[0]), (self.values, cache.value[0])):
            pieces = whole.unflatten(2, (-1, block_size)).transpose(1, 2).flatten(0, 1)
            stored[place] = pieces.transpose(1, 2)
        return cache.key[0], cache.value[0]

    def _by_torch(self) -> Tensor:
        query = self.query.unsqueeze(2)
        return F.scaled_dot_product_attention(query, self.keys, self.values).squeeze(2)


def measure(context: Context) -> Claim:
    """Every shape, all ways in turns."""
    warm_up()
    times: dict[Shape, dict[str, float]] = {}
    with one_thread():
        for shape in QUICK_SHAPES if context.quick else SHAPES:
            context.tell(f"{shape.num_seqs} sequences of {shape.context}")
            ways = Step.draw(shape, context.seed).ways(context.seed)
            times[shape] = in_turns(ways, _num_rounds(shape, context.quick), context.seed)
    return Claim(
        key="kernel",
        title="C7 What paging costs the attention kernel",
        said="Following a block table makes the attention kernel 20 to 26 % slower.",
        source="Kwon et al., SOSP 2023, section 7.1 and figure 18a, against FasterTransformer",
        rows=tuple(_rows(times, context.quick)),
        left_out="four of six shapes, and most rounds" if context.quick else "",
        notes=(
            "Contiguous K and V are read by the same loops, as one block per sequence; permuted "
            "blocks lie in a random order.",
            f"Decode attention, float32, {NUM_HEADS} heads of {HEAD_DIM}, blocks of {BLOCK_SIZE}, "
            "compiled for the CPU, on one thread; the best of rounds that take turns. The "
            "block table of a GPU kernel is measured by `minipaged bench gpu`.",
            "The rest of a step costs the same either way, so a whole step slows down less.",
        ),
        series={"wall": {"kernel": _series(times)}},
    )


def _num_rounds(shape: Shape, quick: bool) -> int:
    """The more, the less a step has to do: what is short is disturbed more easily."""
    most = 32 * 256 * 16
    return min(300, most // (shape.num_seqs * shape.context)) // (4 if quick else 1)


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int, seed: int) -> dict[str, float]:
    """The best seconds of every way; every round takes them in another order.

    What disturbs a round only ever adds to it, so the best is what the work itself takes.
    """
    best, names, random = dict.fromkeys(ways, float("inf")), list(ways), Random(seed)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            begin = time.perf_counter()
            ways[name]()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


@contextmanager
def one_thread() -> Iterator[None]:
    """Nobody waits for another thread, and the machine may do something else beside it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _rows(times: dict[Shape, dict[str, float]], few: bool) -> list[Row]:
    excess = {
        way: [_excess(each, way) for each in times.values()]
        for way in ("permuted", "identity", "torch")
    }
    shapes = [f"{s.num_seqs} sequences of {s.context} keys, permuted: more time" for s in times]
    rows = [Row(what, "", e, "%", wall=True) for what, e in zip(shapes, excess["permuted"])]
    permuted, identity, torchs = (median(each) for each in excess.values())
    return [
        *rows,
        Row(
            "permuted, median of all: more time than contiguous",
            f"{PAPER_OVERHEAD} %",
            permuted,
            "%",
            PAPER_OVERHEAD,
            wall=True,
            note=_beside_the_range(permuted),
            few=few,
        ),
        Row("blocks in order, median of all: more time", "", identity, "%", wall=True),
        Row(
            "torch on contiguous K and V, median: more time",
            "",
            torchs,
            "%",
            wall=True,
            note="than our loops on the same K and V, which are the baseline above; if it is below "
            "0 %, a faster baseline exists, and following a table costs more beside that one",
        ),
    ]


def _beside_the_range(excess: float) -> str:
    if PAPER_OVERHEAD.admits(excess):
        return ""
    if excess > PAPER_OVERHEAD.high:
        return "a table costs more here than is said"
    return (
        "less than is said: there two kernels are compared on a GPU, and the contiguous one is "
        "another program; here nothing but the table differs"
    )


def _excess(times: dict[str, float], way: str) -> float:
    """Per cent of time more than contiguous."""
    return 100 * (times[way] / times["contiguous"] - 1)


def _series(times: dict[Shape, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {**shape._asdict(), "ms": {way: 1e3 * each[way] for way in WAYS}}
        for shape, each in times.items()
    ]
