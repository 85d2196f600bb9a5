"""Are whole blocks copied as if all sources were read before any destination is written?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..address_space import NoAddressSpace
from ..report import Report
from . import memory
from .contracts import CopyContract
from .copy_cases import CopyCase, Pairs, directed_cases, random_cases
from .judge import Judge, begin
from .memory import Pool, bits, random_bytes, rows_differ, same_bits
from .writer_far import FarCase


def check_copy(
    copy_blocks: Callable[..., Any],
    *,
    contract: CopyContract | None = None,
    max_examples: int = 60,
    seed: int = 0,
    deadline_s: float = 20.0,
    call_s: float = 5.0,
    device: str = "cpu",
    name: str | None = None,
) -> Report:
    """Judge `copy_blocks(cache, pairs)`, pairs being `[num_pairs, 2]` of source and destination.

    The laws: every destination holds, bit for bit, what its source held before the call, in chains
    and cycles too; no other block, gap or guard changes a bit; the pairs stay; nothing is
    remembered from call to call.

    Args:
        copy_blocks: The subject.
        contract: Where the subject legitimately differs.
        max_examples: Random cases after the directed ones.
        seed: Of the random cases.
        deadline_s: Seconds after which no new case is begun.
        call_s: Seconds after which one call counts as hung.
        device: Where the tensors lie.
        name: The subject's name in the report.
    """
    contract = contract or CopyContract()
    judge = begin(copy_blocks, "copy", name, max_examples, seed, deadline_s, call_s, contract)
    bench = _Bench(judge, copy_blocks, contract, device)
    judge.directed(directed_cases(contract), bench.examine)
    if contract.address_space and device == "cpu":
        judge.directed(FarCase.all(contract.layouts), bench.examine_far, only_if_clean=True)
    else:
        judge.leave_out("offsets beyond 2^31: by the contract, or because this is no CPU")
    judge.random(random_cases(contract), bench.examine)
    return judge.finish()


@dataclass
class _Bench:
    judge: Judge
    copy_blocks: Callable[..., Any]
    contract: CopyContract
    device: str

    def examine(self, case: CopyCase) -> None:
        """Copy once, or several times through the same tensors, and compare all of the memory."""
        pool = Pool.build(case.layout, case.sizes, case.dtype, case.seed).clone(self.device)
        tensor = case.tensor(case.pairs).to(self.device)
        for round_number in range(case.num_rounds):
            pairs, before = case.pairs_of(round_number), pool.clone()
            tensor.copy_(case.tensor(pairs))
            given = bits(tensor)
            self._call(pool.views(), pairs, tensor, case.flat)
            stay = torch.equal(given, bits(tensor))
            self.judge.require(stay, "inputs stay", 0, "the pairs were changed")
            self._compare(case, pairs, before, pool.clone())

    def _call(self, views: memory.Views, pairs: Pairs, tensor: Tensor, flat: bool) -> None:
        caches = [view.flatten(1) if flat else view for view in views][: self.contract.caches]
        as_list = self.contract.pairs_as == "list"
        self.judge.call(self.copy_blocks, *caches, list(pairs) if as_list else tensor)

    def _compare(self, case: CopyCase, pairs: Pairs, before: Pool, pool: Pool) -> None:
        require, right = self.judge.require, before.clone()
        caches = slice(self.contract.caches)
        for old, new in zip(before.views()[caches], right.views()[caches]):
            for source, destination in pairs:
                if source >= 0:
                    new[destination] = old[source]
        written = {destination for _, destination in pairs}
        chained = written & {source for source, destination in pairs if source != destination}
        for title, was, found, want in zip(
            ("key cache", "value cache"), before.views(), pool.views(), right.views()
        ):
            wrong = [int(i) for i in rows_differ(found, want, 1).nonzero()]
            where = title if self.contract.caches == 2 else "cache"

            def picture(was=was, found=found, want=want, wrong=wrong) -> str:
                return _picture(wrong, was, found, want)

            def text(what: str, some: list[int], where: str = where) -> str:
                return f"blocks {some[:8]} of the {where} {what}"

            stray = [i for i in wrong if i not in written]
            require(
                not stray,
                "other blocks stay",
                2,
                text("changed, and are no destination", stray),
                picture,
            )
            if chained:
                law = "all sources are read first"
                require(not wrong, law, 2, text("do not hold what they should", wrong), picture)
            require(
                not wrong,
                "copies each block",
                1,
                text("do not hold what they should", wrong),
                picture,
            )
        damage = pool.differs(right)
        require(
            not damage, "other memory stays", 2, f"{damage} bytes outside the cache were changed"
        )

    def examine_far(self, case: FarCase) -> None:
        """Copies between the ends of a cache of more than 2^31 elements."""
        dtype = min(self.contract.dtypes, key=lambda d: d.itemsize)
        try:
            caches = [case.cache(2, dtype) for _ in range(self.contract.caches)]
        except NoAddressSpace as reason:
            self.judge.leave_out(str(reason))
            return
        last, rows = (
            len(caches[0].cache) - 1,
            random_bytes((2, *caches[0].cache.shape[1:]), dtype, 5),
        )
        for far in caches:
            far.cache[last], far.cache[1] = rows[0], rows[1]
        pairs = (last, 0), (1, last - 1)
        tensor = torch.tensor(pairs, dtype=self.contract.pair_dtypes[0])
        self._call((caches[0].cache, caches[-1].cache), pairs, tensor, flat=False)
        for far in caches:
            holds = all(same_bits(far.cache[i], rows[j]) for i, j in ((0, 0), (last - 1, 1)))
            hit = any(far.memory[i] != 0 for i in far.wrapped(last - 1))
            text = (
                f"{last:,}→0 and 1→{last - 1:,} with blocks {far.cache.stride(0):,} elements apart "
            )
            text += "did not arrive" + (
                "; one lies where a 32-bit offset would put it" if hit else ""
            )
            self.judge.require(holds and not hit, "address space", 6, text)


def _picture(wrong: list[int], was: Tensor, found: Tensor, want: Tensor) -> str:
    """Which block holds what some block held before the call."""
    held = bits(was).flatten(1)

    def origin(block: Tensor) -> str:
        same = (held == bits(block).flatten()).all(1).nonzero()
        return f"what block {int(same[0])} held" if len(same) else "a mixture"

    lines = [f"{'block':>6}  {'holds':<24}should hold"]
    lines += [f"{i:>6}  {origin(found[i]):<24}{origin(want[i])}" for i in wrong[:12]]
    return "\n".join(lines)
