"""Adapters for minipaged's own pool with block tables, and for its own scheduler."""

# ruff: noqa: D102 - what each method means is said in ``protocol``

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .contract import ALIKE, ManagerContract, Size
from .protocol import Plan

KEYS = ("", "salt=x", "adapter=x", "adapter=xsalty", "salt=y,adapter=x", "sal=tx")
KEYS += tuple(f"{domain}={value}" for domain in ("salt", "adapter") for value in ALIKE[1:])

CORE = ManagerContract(opt_out=True, cache_off=True, keys=KEYS)
"""What ``BlockPool`` and ``BlockTable`` promise: everything."""

SCHEDULER = ManagerContract(
    keys=KEYS,
    cache_off=True,
    samples=True,
    windows=True,
    headroom=True,
    waits_for_prefix=True,
    max_decode_wait=0,
)
"""What ``engine.Scheduler`` promises: everything."""


def extra_keys(key: str) -> dict[str, str]:
    """What "salt=a,adapter=b" means."""
    return dict(part.split("=") for part in key.split(",") if part)  # type: ignore[misc]


class CoreAdapter:
    """``BlockPool``, ``BlockTable``, ``reserve`` and ``relocate``."""

    def __init__(self, size: Size):
        from minipaged import core

        self.core, self.size = core, size
        self.pool = core.BlockPool(size.num_blocks)
        self.host = core.BlockPool(max(1, size.num_host_blocks))
        self.by_name: dict[str, Any] = {}

    def _root(self, key: str | None) -> bytes | None:
        if key is None or not self.size.cache:
            return None
        return self.core.root_hash(extra_keys(key))

    def add(self, name: str, tokens: list[int], key: str | None, num_new: int) -> int | None:
        table = self.core.BlockTable(self.pool, self.size.block_size, self._root(key))
        hit = table.match_prefix(tokens)
        try:
            table.reserve(min(num_new, len(tokens) - hit))
        except self.core.OutOfBlocks:
            table.release()
            return None
        self.by_name[name] = table
        return hit

    def reserve(self, work: list[tuple[str, list[int], int]]) -> list | None:
        tables = [self.by_name[name] for name, _, _ in work]
        try:
            return self.core.reserve(tables, [num_new for _, _, num_new in work])
        except self.core.OutOfBlocks:
            return None

    def commit(self, name: str, tokens: list[int], num_computed: int) -> None:
        self.by_name[name].commit(tokens, num_computed)

    def slots(self, name: str, start: int, stop: int) -> list[int]:
        return self.by_name[name].slots(start, stop)

    def free(self, name: str) -> None:
        self.by_name[name].release()

    def tables(self) -> dict[str, list[int]]:
        return self._tables_in(self.pool)

    def host_tables(self) -> dict[str, list[int]]:
        return self._tables_in(self.host)

    def _tables_in(self, pool: Any) -> dict[str, list[int]]:
        return {n: list(t.block_ids) for n, t in self.by_name.items() if t.pool is pool}

    def num_free(self) -> int:
        return self.pool.num_free

    def num_host_free(self) -> int:
        return self.host.num_free

    def check(self) -> None:
        for pool in (self.pool, self.host):
            pool.check()
        for table in self.by_name.values():
            table.check()

    def find(self, tokens: list[int], key: str | None) -> int:
        table = self.core.BlockTable(self.pool, self.size.block_size, self._root(key))
        return len(table.find_prefix(tokens)) * self.size.block_size

    def fork(self, name: str, child: str) -> None:
        self.by_name[child] = self.by_name[name].fork()

    def truncate(self, name: str, num_tokens: int) -> None:
        self.by_name[name].truncate(num_tokens)

    def cancel(self, name: str) -> None:
        self.by_name[name].cancel()

    def slide(self, name: str, position: int) -> None:
        self.by_name[name].drop_before(position)

    def reset(self) -> None:
        self.pool.forget_prefixes()
        self.host.forget_prefixes()

    def swap_out(self, names: list[str]) -> list | None:
        return self._move(names, self.host)

    def swap_in(self, names: list[str]) -> list | None:
        return self._move(names, self.pool)

    def _move(self, names: list[str], pool: Any) -> list | None:
        try:
            return self.core.relocate([self.by_name[name] for name in names], pool)
        except self.core.OutOfBlocks:
            return None


class SchedulerAdapter:
    """``engine.Scheduler``, with sequences that a plain loop feeds."""

    def __init__(self, size: Size):
        from minipaged import core
        from minipaged.engine import scheduler, sequence

        self.core, self.sequence, self.size = core, sequence, size
        self.pool = core.BlockPool(size.num_blocks)
        self.host = core.BlockPool(size.num_host_blocks) if size.num_host_blocks else None
        self.scheduler = scheduler.Scheduler(
            self.pool,
            size.block_size,
            max_num_seqs=size.max_seqs,
            max_num_batched_tokens=size.budget,
            host_pool=self.host,
            window=size.window,
            watermark=0.0,
        )
        self.scheduler.headroom = size.headroom
        self.by_name: dict[str, Any] = {}
        self.planned: Any = None
        self.num_taken = 0

    def add(
        self, name: str, tokens: list[int], max_tokens: int, key: str | None, num_samples: int
    ) -> None:
        longest = len(tokens) + max_tokens - 1
        needed = -(-longest // self.size.block_size)
        if not tokens or max_tokens < 1 or needed > self.pool.num_blocks:
            raise ValueError(f"{needed} blocks needed, {self.pool.num_blocks} exist")
        cached = key is not None and self.size.cache
        root = self.core.root_hash(extra_keys(key or "")) if cached else None
        request = self.sequence.Request(
            request_id=name,
            order=self.num_taken,
            prompt=None,
            prompt_token_ids=list(tokens),
            params=SimpleNamespace(n=num_samples, prompt_logprobs=None),  # type: ignore[arg-type]
            max_tokens=max_tokens,
            stop_ids=frozenset(),
            root=root,
        )
        self.num_taken += 1
        table = self.core.BlockTable(self.pool, self.size.block_size, root)
        first = self.sequence.Sequence(request, 0, list(tokens), table)
        request.sequences.append(first)
        self.by_name[name] = first
        self.scheduler.add(first)

    def step(self) -> Plan:
        step = self.planned = self.scheduler.schedule()
        names = {id(s): n for n, s in self.by_name.items()}
        work = [
            (names[id(s)], s.table.num_tokens, s.table.num_tokens + count) for s, count in step.work
        ]
        return Plan(work, step.copies, step.swaps_out, step.swaps_in)

    def feed(self, tokens: dict[str, list[int]]) -> list[str]:
        self.scheduler.commit(self.planned)
        for name, new in tokens.items():
            first = self.by_name[name]
            family = [first] + [first.fork(i) for i in range(1, len(new))]
            for i, (sequence, token) in enumerate(zip(family, new)):
                sequence.token_ids.append(token)
                if i:
                    self.by_name[f"{name}/{i}"] = sequence
                    first.request.sequences.append(sequence)
                    self.scheduler.join(sequence)
        ended = [
            name
            for name, s in self.by_name.items()
            if len(s.output_token_ids) >= s.request.max_tokens
        ]
        for name in ended:
            self.scheduler.remove(self.by_name.pop(name))
        return ended

    def check(self) -> None:
        self.scheduler.check()

    def abort(self, name: str) -> None:
        self.scheduler.remove(self.by_name.pop(name))

    def retry(self) -> None:
        self.scheduler.retry()

    def rollback(self) -> None:
        self.scheduler.rollback(self.planned)

    def tables(self) -> dict[str, list[int]]:
        here = self.by_name.items()
        return {n: list(s.table.block_ids) for n, s in here if s.table.pool is self.pool}

    def host_tables(self) -> dict[str, list[int]]:
        here = self.by_name.items()
        return {n: list(s.table.block_ids) for n, s in here if s.table.pool is self.host}

    def num_free(self) -> int:
        return self.pool.num_free

    def num_host_free(self) -> int:
        return self.host.num_free if self.host else 0

    def reset(self) -> None:
        for pool in filter(None, (self.pool, self.host)):
            pool.forget_prefixes()
