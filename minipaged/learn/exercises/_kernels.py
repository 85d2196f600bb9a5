"""Paged decode as small NumPy problems, and a judge that runs kernels in the simulator.

Nothing here knows an exercise. The simulator needs greenlet and no GPU; Numba's names in a kernel
become the simulator's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minipaged.learn.exercise import reject, trying

try:
    from minipaged_cuda import simulator
except ImportError as error:
    need = "the CUDA simulator needs greenlet: pip install 'minipaged[learn]'"
    raise ImportError(need, name="greenlet") from error

Array = NDArray[Any]

UNWRITTEN = np.uint32(0x7FC0DEAD)  # bits of a NaN that no arithmetic makes: an output as it began
STORIES = {  # what the simulator's errors mean to somebody who meets them for the first time
    "Race": "a race: two threads use one element, and nothing says who comes first",
    "NotReadable": "reads an element that holds no token of this sequence",
    "OutOfBounds": "an index outside of its array: a card reads there all the same",
    "Uninitialised": "reads memory before anybody wrote it",
    "BarrierDivergence": "not all threads of the CTA come to the same barrier",
    "WrongMask": "a warp instruction whose mask is not the lanes that execute it",
    "ShuffleFromInactive": "a lane asks for the value of a lane that takes no part",
}


@dataclass(frozen=True)
class Problem:
    """One decode step: the newest token of each sequence attends to all its keys.

    Blocks lie in any order, a table ends in -1, and a slot without a token holds NaN.
    """

    query: Array  # [num_seqs, num_heads, head_dim] float32
    key_cache: Array  # [num_blocks, block_size, num_kv_heads, head_dim] float32
    value_cache: Array  # as key_cache
    block_tables: Array  # [num_seqs, max_blocks_per_seq] int32
    seq_lens: Array  # [num_seqs] int32
    scale: np.float32
    written: Array  # [num_blocks, block_size] bool

    @classmethod
    def of(
        cls,
        lens: Sequence[int],
        num_heads: int,
        head_dim: int,
        *,
        num_kv_heads: int = 0,
        block_size: int = 4,
        seed: int = 0,
    ) -> Problem:
        """Sequences of these lengths; every query head has its own keys unless told otherwise."""
        dice = np.random.default_rng(seed)
        counts = [-(-n // block_size) for n in lens]
        num_blocks = sum(counts) + 1
        free = dice.permutation(num_blocks).astype(np.int32)
        tables = np.full((len(lens), max(counts) + 1), -1, np.int32)
        written = np.zeros((num_blocks, block_size), bool)
        for table, count, n in zip(tables, counts, lens):
            table[:count], free = free[:count], free[count:]
            slots = np.arange(n)
            written[table[slots // block_size], slots % block_size] = True
        shape = (num_blocks, block_size, num_kv_heads or num_heads, head_dim)
        keys, values = (dice.standard_normal(shape).astype(np.float32) for _ in range(2))
        keys[~written] = values[~written] = np.nan
        query = 2 * dice.standard_normal((len(lens), num_heads, head_dim)).astype(np.float32)
        scale = np.float32(head_dim**-0.5)
        return cls(query, keys, values, tables, np.array(lens, np.int32), scale, written)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What kernels take after their outputs."""
        caches = self.key_cache, self.value_cache
        return self.query, *caches, self.block_tables, self.seq_lens, self.scale

    def rows(self, cache: Array, sequence: int, head: int) -> Array:
        """One head's keys or values of a sequence, in order: [seq_len, head_dim] float64."""
        block_size, positions = cache.shape[1], np.arange(self.seq_lens[sequence])
        blocks = self.block_tables[sequence, positions // block_size]
        kv_head = head * cache.shape[2] // self.query.shape[1]
        return cache[blocks, positions % block_size, kv_head].astype(float)

    def attention(self) -> tuple[Array, Array]:
        """What is right: ``(out, lse)`` in float64; 0 and -inf for a sequence without keys."""
        out, lse = np.zeros(self.query.shape), np.full(self.query.shape[:2], -np.inf)
        for sequence, head in np.ndindex(*lse.shape):
            keys = self.rows(self.key_cache, sequence, head)
            if len(keys):
                scores = keys @ self.query[sequence, head] * float(self.scale)
                weights = np.exp(scores - scores.max())
                lse[sequence, head] = scores.max() + np.log(weights.sum())
                values = self.rows(self.value_cache, sequence, head)
                out[sequence, head] = weights / weights.sum() @ values
        return out, lse

    def story(self, what: str) -> None:
        """Tell the judge what comes next."""
        heads, kv_heads = self.query.shape[1], self.key_cache.shape[2]
        shared = f" over {many(kv_heads, 'kv head')}" if kv_heads != heads else ""
        trying(
            f"{what}: seq_lens {self.seq_lens.tolist()}, {many(heads, 'head')}{shared}, "
            f"blocks of {self.key_cache.shape[1]} tokens",
            f"block_tables {self.block_tables.tolist()}",
        )


def many(count: int, thing: str) -> str:
    """``1 CTA``, ``2 CTAs``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def output(*shape: int) -> Array:
    """A float32 output that nobody has written."""
    return np.full(shape, UNWRITTEN, np.uint32).view(np.float32)


def launch(
    kernel: Callable[..., None],
    grid: Any,
    num_threads: Any,
    arguments: Sequence[Any],
    problem: Problem | None = None,
) -> simulator.Trace:
    """Run a kernel and return what it moved; of the caches only slots with a token may be read.

    What the simulator finds, and whatever else the kernel raises, is a rejection.
    """
    runs = simulator.Simulator()
    if problem is not None:
        mask = problem.written[:, :, None, None]
        runs.readable(problem.key_cache, mask)
        runs.readable(problem.value_cache, mask)
    try:
        return runs.launch(kernel, grid, num_threads, arguments)
    except simulator.SimulationError as error:
        headline = STORIES.get(type(error).__name__, type(error).__name__)
        reject(headline, *told(error))
    except (TypeError, ValueError) as error:
        notes = getattr(error, "__notes__", [])
        reject("the launch, or a line of the kernel, makes no sense", str(error), *notes)


def told(error: Exception) -> list[str]:
    """A message of the simulator, in lines that fit on a page; text of the kernel has its own.

    Examples:
        >>> told(RuntimeError("thread 1 writes it at k.py:7 `x[0] = 1`; nothing orders the two"))
        ['thread 1 writes it at k.py:7', '    x[0] = 1', 'nothing orders the two']
    """
    text = re.sub(r", at (\S+:\d+ `)", r"; at \1", str(error))
    text = re.sub(r" `([^`]*)`", r";     \1", text)
    return text.split("; ")


def compare(got: Array, expected: Array, name: str) -> None:
    """Reject unless all elements are right to float32; the first wrong one is named."""
    unwritten = got.view(np.uint32) == UNWRITTEN
    close = np.isclose(got, expected, rtol=1e-4, atol=1e-5)
    if close.all():
        return
    first = tuple(int(i) for i in np.argwhere(~close)[0])
    element = f"{name}[{', '.join(map(str, first))}]"
    if unwritten[first]:
        reject(f"{element} was never written")
    reject(
        f"{element} is wrong",
        f"got      {got[first]:.6g}",
        f"expected {expected[first]:.6g}",
        f"{np.count_nonzero(~close)} of {close.size} elements are wrong",
    )


def reads(trace: simulator.Trace, *names: str) -> int:
    """Numbers that all threads together read from these buffers."""
    return sum(trace.buffers[name].reads.elements for name in names)
