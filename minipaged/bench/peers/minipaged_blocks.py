"""Our block pool and tables alone, on a recorded trace."""

from __future__ import annotations

from typing import Any


class Manager:
    """A block manager. Options: num_blocks, block_size; and for some, checkout."""

    def __init__(self, options: dict[str, Any]):
        import minipaged
        from minipaged.core import BlockPool, BlockTable, reserve, root_hash

        self.pool, self.table, self.root = BlockPool, BlockTable, root_hash()
        self.reserve = reserve
        self.num_blocks, self.block_size = options["num_blocks"], options["block_size"]
        self.version = f"minipaged {minipaged.__version__}, sha256"

    def replay(self, trace: list[list[Any]]) -> dict[str, int]:
        """Every operation of the trace, on an empty pool.

        A step of ours reserves for all sequences at once, as the scheduler does, so tokens that are
        appended one after the other, at most one to each sequence, are one step.

        Returns:
            hits: prompt tokens that were found instead of allocated.
        """
        pool, running, hits = self.pool(self.num_blocks), {}, 0
        step: dict[int, int] = {}  # number of a request: the token that it gets
        for what, number, *rest in trace:
            if step and (what != "append" or number in step):
                self._grow(running, step)
                step.clear()
            if what == "append":
                step[number] = rest[0]
            elif what == "add":
                table, token_ids = self.table(pool, self.block_size, self.root), list(rest[0])
                running[number] = table, token_ids
                found = table.match_prefix(token_ids)
                table.reserve(len(token_ids) - found)
                table.commit(token_ids)
                hits += found
            else:
                running.pop(number)[0].release()
        return {"hits": hits}

    def _grow(self, running: dict[int, Any], step: dict[int, int]) -> None:
        self.reserve([running[number][0] for number in step], [1] * len(step))
        for number, token in step.items():
            table, token_ids = running[number]
            token_ids.append(token)
            table.commit(token_ids)
