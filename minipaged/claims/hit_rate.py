"""How much of the prompts a pool of some size still knows, beside the best any pool could.

A recorded trace names its prompts' pieces by their prefixes, as the engine's hashes do; so its
names go straight into the engine's own ``BlockPool`` as prefix hashes, one block per piece.
Requests come one at a time: each finds, computes, publishes and releases, and all that decides is
the pool's order of eviction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from minipaged.core import BlockPool

from .claim import Claim, Context, Row, Tolerance
from .traces import shipped
from .workload import Arrival, Workload

POOLS = (1_000, 3_000, 10_000, 30_000, 100_000)  # blocks; the largest request has 249
QUICK_POOLS = (1_000, 10_000)
CEILING = 37.4  # per cent of the trace's prompt tokens that came before, counted by others
NEVER = float("inf")


@dataclass(frozen=True)
class Prompts:
    """A workload whose prompts consist of named pieces."""

    workload: Workload

    @cached_property
    def num_tokens(self) -> int:
        """Of all prompts."""
        return sum(arrival.prompt_len for arrival in self.workload.arrivals)

    @cached_property
    def num_endless(self) -> int:
        """Blocks of a pool that never evicts: every piece once, and room for the largest."""
        arrivals = self.workload.arrivals
        pieces = {piece for arrival in arrivals for piece in self.full(arrival)}
        return len(pieces) + max(map(self.num_blocks, arrivals))

    def full(self, arrival: Arrival) -> tuple[int, ...]:
        """The pieces that are whole: a partial last one is never published."""
        return arrival.prefix[: arrival.prompt_len // self.workload.piece_len]

    def num_usable(self, arrival: Arrival) -> int:
        """Pieces that may be found: at least one token is left to compute."""
        return (arrival.prompt_len - 1) // self.workload.piece_len

    def num_blocks(self, arrival: Arrival) -> int:
        """Blocks that the request holds when its answer is complete."""
        return -(-arrival.num_tokens // self.workload.piece_len)

    def rate(self, num_found: int) -> float:
        """Per cent of all prompt tokens that lie in ``num_found`` pieces."""
        return 100 * num_found * self.workload.piece_len / self.num_tokens


def found_by_engine(prompts: Prompts, num_blocks: int) -> int:
    """Pieces that requests find in the engine's pool; what cannot fit into it finds nothing."""
    pool, names = BlockPool(num_blocks), _Names()
    return sum(
        _serve(pool, prompts, arrival, names)
        for arrival in prompts.workload.arrivals
        if prompts.num_blocks(arrival) <= num_blocks
    )


class _Names(dict[int, bytes]):
    """A piece's name as a prefix hash."""

    def __missing__(self, piece: int) -> bytes:
        name = self[piece] = b"piece %d" % piece
        return name


def _serve(pool: BlockPool, prompts: Prompts, arrival: Arrival, names: _Names) -> int:
    """One request as a block table would serve it; the number of pieces that it finds."""
    hashes = [names[piece] for piece in prompts.full(arrival)]
    block_ids = pool.lookup_chain(hashes[: prompts.num_usable(arrival)])
    num_found = len(block_ids)
    for block_id in block_ids:
        pool.share(block_id)
    block_ids += pool.allocate(prompts.num_blocks(arrival) - num_found)
    for i in range(num_found, len(hashes)):
        holder = pool.publish(block_ids[i], hashes[i], hashes[i - 1] if i else None)
        if holder != block_ids[i]:  # its parent was evicted before it: adopt it
            pool.share(holder)
            pool.release(block_ids[i])
            block_ids[i] = holder
    for block_id in reversed(block_ids):  # so the tail is evicted before the head
        pool.release(block_id)
    return num_found


def found_at_best(prompts: Prompts, num_blocks: int) -> int:
    """Pieces that requests would find if the pool knew the future (Belady's rule).

    Whoever is needed latest is evicted, a piece that was just computed included. A piece is needed
    no later than those that follow it in a prompt, so what is kept are whole prefixes, and no
    order of eviction finds more. Unlike an engine, it needs no room for partial pieces, answers, or
    all of a request at once.
    """
    pieces, is_use = _uses(prompts)
    kept: set[int] = set()
    latest: list[tuple[float, int]] = []
    num_found = 0
    for piece, upcoming in zip(pieces, _next_uses(pieces, is_use)):
        num_found += piece in kept
        kept.discard(piece)
        if upcoming != NEVER:
            kept.add(piece)
            heappush(latest, (-upcoming, piece))
            if len(kept) > num_blocks:  # an entry whose time has come lies behind all others
                kept.remove(heappop(latest)[1])
    return num_found


def _uses(prompts: Prompts) -> tuple[list[int], list[bool]]:
    """Every appearance of a piece, and whether it may be found there."""
    pieces: list[int] = []
    is_use: list[bool] = []
    for arrival in prompts.workload.arrivals:
        full, usable = prompts.full(arrival), prompts.num_usable(arrival)
        pieces += full
        is_use += [i < usable for i in range(len(full))]
    return pieces, is_use


def _next_uses(pieces: list[int], is_use: list[bool]) -> list[float]:
    """When each is needed again; never, if it is computed anew before that."""
    upcoming, found = dict[int, float](), [NEVER] * len(pieces)
    for i in range(len(pieces) - 1, -1, -1):
        found[i] = upcoming.get(pieces[i], NEVER)
        upcoming[pieces[i]] = i if is_use[i] else NEVER
    return found


def measure(context: Context) -> Claim:
    """The shipped trace, and the user's own if it names its prefixes."""
    rows: list[Row] = []
    curves: dict[str, dict[str, list[float]]] = {}
    for workload in _workloads(context):
        prompts = Prompts(workload)
        pools = QUICK_POOLS if context.quick else POOLS
        pools = [*(n for n in pools if n < prompts.num_endless), prompts.num_endless]
        curves[workload.name] = _curve(prompts, pools, context)
        rows += _rows(prompts, curves[workload.name], context.quick)
    return Claim(
        key="hit_rate",
        title="Prefix hits by the size of the pool",
        said="Many prompts begin as others did before; a larger pool remembers more of them.",
        source="Mooncake, FAST 2025, whose trace this is",
        rows=tuple(rows),
        left_out="seven requests of eight, and three of five pools" if context.quick else "",
        notes=(
            "A block holds one piece of the trace, 512 tokens; requests come one at a time, so the "
            "whole pool is a cache. The engine evicts what was least recently used, the tail of a "
            "prompt before its head. At best is who knows the future, and evicts what is needed "
            "last.",
        ),
        series={"hit_rate": curves},
    )


def _workloads(context: Context) -> Iterable[Workload]:
    most = 1500 if context.quick else None
    yield shipped("mooncake").head(most)
    if context.trace is not None and context.trace.piece_len:
        yield context.trace.head(most)


def _curve(prompts: Prompts, pools: list[int], context: Context) -> dict[str, list[float]]:
    engine, best = [], []
    for num_blocks in pools:
        context.tell(f"{prompts.workload.name}, {num_blocks:,} blocks")
        engine.append(prompts.rate(found_by_engine(prompts, num_blocks)))
        best.append(prompts.rate(found_at_best(prompts, num_blocks)))
    return {"num_blocks": [*pools], "engine": engine, "best": best}


def _rows(prompts: Prompts, curve: dict[str, list[float]], few: bool) -> list[Row]:
    name = prompts.workload.name
    *smaller, (_, _, most) = zip(*curve.values())
    rows = [
        row
        for num_blocks, engine, best in smaller
        for row in (
            Row(f"{name}, {num_blocks:,} blocks, the engine: tokens found", "", engine, "%"),
            Row(f"{name}, {num_blocks:,} blocks, at best: tokens found", "", best, "%"),
        )
    ]
    said = name == "mooncake"
    endless = Row(
        f"{name}, a pool that never evicts: tokens found",
        f"{CEILING:g} %" if said else "",
        most,
        "%",
        Tolerance.points(CEILING, 0.5) if said else None,
        note="said by llmtrafficlens 0.6, which counts the same trace" if said else "",
        few=few,
    )
    return [*rows, endless]
