"""Is every token's key and value stored in its slot, and nothing else anywhere?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..address_space import NoAddressSpace
from ..guard import KernelFault
from ..report import Report
from .contracts import WriterContract
from .judge import Broken, Judge, begin
from .memory import Pool, bits, laid_out
from .writer_cases import WriteCase, directed_cases, large_cases, random_cases
from .writer_compare import compare
from .writer_far import FarCase, compare_far, far_inputs
from .writer_scaled import Scale


def check_writer(
    write_kv: Callable[..., Any],
    *,
    k_scale: Scale = None,
    v_scale: Scale = None,
    contract: WriterContract | None = None,
    max_examples: int = 60,
    seed: int = 0,
    deadline_s: float = 30.0,
    call_s: float = 5.0,
    device: str = "cpu",
    name: str | None = None,
) -> Report:
    """Judge `write_kv(key, value, key_cache, value_cache, slot_mapping)`.

    The laws: token t is in slot `slot_mapping[t]`, bit for bit where the types agree and rounded to
    nearest even where not; a slot of -1 is skipped; every other bit of the memory, the gaps between
    blocks and the guards around the pool included, stays; the inputs stay; nothing is remembered
    from call to call.

    Args:
        write_kv: The subject. With scales it is called with `k_scale=` and `v_scale=` as well.
        k_scale: None, or what stored keys are multiplied with to give keys: a float or
            `[num_kv_heads]`. Then each stored number must be the nearest to `key / k_scale`.
        v_scale: The same for values; take another number, or a mix-up of the two stays unseen.
        contract: Where the subject legitimately differs.
        max_examples: Random cases after the directed ones.
        seed: Of the random cases.
        deadline_s: Seconds after which no new case is begun.
        call_s: Seconds after which one call counts as hung.
        device: Where the tensors lie.
        name: The subject's name in the report.
    """
    contract = contract or WriterContract()
    judge = begin(write_kv, "writer", name, max_examples, seed, deadline_s, call_s, contract)
    bench = _Bench(judge, write_kv, contract, k_scale, v_scale, device)
    num_heads = next((len(s) for s in (k_scale, v_scale) if isinstance(s, Tensor) and s.ndim), None)
    scaled = k_scale is not None or v_scale is not None
    judge.directed(directed_cases(contract, num_heads, scaled), bench.examine)
    judge.directed(large_cases(contract, num_heads, scaled), bench.examine, only_if_clean=True)
    if contract.address_space and device == "cpu":
        judge.directed(FarCase.all(contract.layouts), bench.examine_far, only_if_clean=True)
    else:
        judge.leave_out("offsets beyond 2^31: by the contract, or because this is no CPU")
    judge.random(random_cases(contract, num_heads, scaled), bench.examine)
    return judge.finish()


@dataclass
class _Bench:
    judge: Judge
    write_kv: Callable[..., Any]
    contract: WriterContract
    k_scale: Scale
    v_scale: Scale
    device: str

    def examine(self, case: WriteCase) -> None:
        """Write once, or twice through the same tensors, and compare all of the memory."""
        pool = Pool.build(case.layout, case.sizes, case.cache_dtype, case.seed).clone(self.device)
        tensors: tuple[Tensor, ...] | None = None
        for round_number in range(case.num_rounds):
            now = replace(
                case, seed=case.seed + 1000 * round_number, slots=case.slots_of(round_number)
            )
            new = now.inputs(self._bounds(case))
            if tensors is None:
                key, value, slots = (x.to(self.device) for x in new)
                key = laid_out(key, case.input_layout)
                value = laid_out(value, case.value_layout)
                if case.strided_slots:
                    slots = torch.stack([slots, torch.zeros_like(slots)], -1)[:, 0]
            else:  # as a captured graph does it: the same tensors, filled anew
                key, value, slots = (old.copy_(x) for old, x in zip(tensors, new))
            tensors = key, value, slots
            self._round(now, pool, key, value, slots)

    def _round(
        self, case: WriteCase, pool: Pool, key: Tensor, value: Tensor, slots: Tensor
    ) -> None:
        require, expected = self.judge.require, pool.clone()
        given = [bits(x) for x in (key, value, slots)]
        wanted = self._wanted(case)
        try:
            self._call(key, value, *pool.views(), slots)
        except Broken as broken:
            if wanted == "done" or not isinstance(broken.__cause__, KernelFault):
                raise
            clean = pool.differs(expected) == 0
            require(clean, "refuses cleanly", 0, "it raised, but had written something already")
            return
        if wanted == "refused":
            require(False, "refuses", 0, "what it must refuse was accepted")
        for title, before, x in zip(("key", "value", "slot_mapping"), given, (key, value, slots)):
            require(torch.equal(before, bits(x)), "inputs stay", 0, f"{title} was changed")
        saturates = self.contract.overflow == "saturate"
        options = (self.k_scale, self.v_scale), saturates, self.contract.nan_bits
        compare(self.judge, case, pool.clone(), expected, (key.cpu(), value.cpu()), *options)

    def _wanted(self, case: WriteCase) -> str:
        """Whether this case must be "done", "refused", or "either"."""
        if case.extra_rows:
            return self.contract.longer_keys.replace("ignored", "done")
        scaled = self.k_scale is not None or self.v_scale is not None
        converts = case.key_dtype != case.cache_dtype and not scaled
        return self.contract.conversion if converts else "done"

    def _call(self, *tensors: Tensor) -> None:
        scales = {"k_scale": self.k_scale, "v_scale": self.v_scale}
        scaled = self.k_scale is not None or self.v_scale is not None
        self.judge.call(self.write_kv, *tensors, **(scales if scaled else {}))

    def _bounds(self, case: WriteCase) -> tuple[Tensor, Tensor] | None:
        """The largest magnitudes per head that scaled caches can hold, or None."""
        if self.k_scale is None and self.v_scale is None:
            return None
        dtype = case.cache_dtype
        top = torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max
        scales = (
            torch.as_tensor(1.0 if s is None else s).cpu() for s in (self.k_scale, self.v_scale)
        )
        k, v = (s.expand(case.sizes[2]) * min(top, 1e4) for s in scales)
        return k, v

    def examine_far(self, case: FarCase) -> None:
        """Three tokens at the ends of caches of more than 2^31 elements."""
        dtype = min(self.contract.cache_dtypes, key=lambda d: d.itemsize)
        scales = self.k_scale, self.v_scale
        heads = next((len(s) for s in scales if isinstance(s, Tensor) and s.ndim), 2)
        try:
            small, caches = far_inputs(case, dtype, heads)
        except NoAddressSpace as reason:
            self.judge.leave_out(str(reason))
            return
        key, value, slots = small.inputs(self._bounds(small))
        self._call(key, value, caches[0].cache, caches[1].cache, slots)
        compare_far(self.judge, small, (key, value), scales, caches)
