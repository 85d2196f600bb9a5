"""Every block of a snapshot with what a picture says about it; draws nothing."""

from __future__ import annotations

from typing import Literal, NamedTuple

from minipaged.core import Snapshot

State = Literal["held", "cached", "blank", "pinned"]


class BlockView(NamedTuple):
    """One block as it was.

    ``held`` by sequences; ``cached``: free, but a prefix lookup still finds it; ``blank``: free;
    ``pinned``: held by nobody, but the source of a copy that has not run.
    """

    block_id: int
    state: State
    owners: tuple[str, ...]  # in the order of the tables
    ref_count: int
    num_written: int  # slots that hold a token; all of them, if it is cached
    num_promised: int  # slots of an open reservation behind them
    prefix: str | None  # the short name under which it is published

    @property
    def is_shared(self) -> bool:
        """More than one sequence holds it."""
        return self.ref_count > 1


def block_views(snapshot: Snapshot) -> list[BlockView]:
    """All blocks by id, in one pass over the tables.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=2)
        >>> table = BlockTable(pool, block_size=4)
        >>> table.reserve(3)
        []
        >>> block_views(Snapshot.take(pool, {"A": table}, block_size=4))[0]
        BlockView(block_id=0, state='held', owners=('A',), ref_count=1, num_written=0,
                  num_promised=3, prefix=None)
    """
    size, free = snapshot.block_size, set(snapshot.free_order)
    owners: list[list[str]] = [[] for _ in snapshot.ref_counts]
    written, reserved = [0] * snapshot.num_blocks, [0] * snapshot.num_blocks
    for table in snapshot.tables:
        for i, block_id in enumerate(table.block_ids):
            if block_id < 0:
                continue
            owners[block_id].append(table.name)
            end = min(table.num_reserved - i * size, size)
            reserved[block_id] = max(reserved[block_id], end)
            end = min(table.num_tokens - i * size, size)
            written[block_id] = max(written[block_id], end)
    return [
        BlockView(
            block_id=b,
            state=(state := _state(count, prefix, b in free)),
            owners=tuple(owners[b]),
            ref_count=count,
            num_written=size if state == "cached" else written[b],
            num_promised=reserved[b] - written[b],
            prefix=prefix,
        )
        for b, (count, prefix) in enumerate(zip(snapshot.ref_counts, snapshot.prefixes))
    ]


def _state(ref_count: int, prefix: str | None, is_free: bool) -> State:
    if ref_count:
        return "held"
    if not is_free:
        return "pinned"
    return "cached" if prefix else "blank"
