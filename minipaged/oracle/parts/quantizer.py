"""Does quantising lose no more than half a step, whatever the row holds?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..report import Report
from ..truth.formats import FORMATS
from .contracts import QuantizerContract
from .judge import Judge, begin
from .memory import bits, same_bits
from .quantizer_cases import QuantizerCase, directed_cases, random_cases
from .quantizer_laws import Groups, RoundTrip, first_place
from .writer_scaled import as_float64


def check_quantizer(
    quantize: Callable[..., Any],
    dequantize: Callable[..., Any],
    *,
    contract: QuantizerContract | None = None,
    max_examples: int = 100,
    seed: int = 0,
    deadline_s: float = 20.0,
    call_s: float = 5.0,
    device: str = "cpu",
    name: str | None = None,
) -> Report:
    """Judge `quantize(x) -> (codes, scale[, zero_point])` with `dequantize(codes, scale[, zero])`.

    The laws: every number comes back within half a step, a step being the range of its group by
    the number of codes; rows of zeros come back as zeros, constant ones as they were; signs never
    flip; larger numbers never come back smaller; what came back is quantised to itself; an outlier
    is felt in its own group only; nothing is ever NaN; the inputs stay.

    Args:
        quantize: Takes `[num_tokens, num_heads, head_dim]`; codes may be packed in any way.
        dequantize: Takes what `quantize` returned, gives the same shape.
        contract: What is quantised, and where the subject legitimately differs.
        max_examples: Random cases after the directed ones.
        seed: Of the random cases.
        deadline_s: Seconds after which no new case is begun.
        call_s: Seconds after which one call counts as hung.
        device: Where the tensors lie.
        name: The subject's name in the report.
    """
    contract = contract or QuantizerContract()
    judge = begin(quantize, "quantizer", name, max_examples, seed, deadline_s, call_s, contract)
    bench = _Bench(judge, quantize, dequantize, contract, device)
    judge.directed(directed_cases(contract), bench.examine)
    judge.random(random_cases(contract), bench.examine)
    judge.report.figures["error budget used"] = round(bench.used, 3)
    judge.leave_out("NaN and infinite inputs: no law says what becomes of them")
    return judge.finish()


@dataclass
class _Bench:
    judge: Judge
    quantize: Callable[..., Any]
    dequantize: Callable[..., Any]
    contract: QuantizerContract
    device: str
    used: float = 0.0

    def examine(self, case: QuantizerCase) -> None:
        """All laws on one tensor, and on a second of its shape where nothing may be remembered."""
        for round_number in range(2 if case.twice else 1):
            x = replace(case, seed=case.seed + round_number).numbers(self.contract)
            packed, back = self._round_trip(case.laid_out(x).to(self.device))
            self._finite(x, packed, back)
            numbers, found = as_float64(x), as_float64(back)
            unit = FORMATS[str(back.dtype).removeprefix("torch.")].unit_roundoff
            groups = Groups.of(numbers, self.contract)
            laws = RoundTrip(self.judge, self.contract, numbers, found, groups, unit)
            laws.zeros_and_signs()
            self.used = max(self.used, laws.half_a_step())
            if self.contract.symmetric:
                laws.nearest_on_its_grid(as_float64(packed[1]))
            laws.monotone()
            if self.contract.idempotent and x.dtype == back.dtype == torch.float32:
                laws.idempotent(as_float64(self._round_trip(back.to(self.device))[1]))
            self._isolated(x, back, groups)

    def _round_trip(self, x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        require, before = self.judge.require, bits(x)
        packed = self.judge.call(self.quantize, x)
        require(torch.equal(before, bits(x)), "inputs stay", 0, "x was changed by quantize")
        wanted = (2,) if self.contract.symmetric else (2, 3)
        right = isinstance(packed, tuple | list) and len(packed) in wanted
        right = right and all(isinstance(part, Tensor | float) for part in packed)
        require(right, "codes and scale", 0, lambda: f"quantize returned {_kind(packed)}")
        packed = tuple(torch.as_tensor(part) for part in packed)
        held = [bits(part) for part in packed]
        back = self.judge.call(self.dequantize, *packed)
        again = self.judge.call(self.dequantize, *packed)
        stay = all(torch.equal(a, bits(b)) for a, b in zip(held, packed))
        require(stay, "inputs stay", 0, "codes or scale were changed by dequantize")
        shaped = isinstance(back, Tensor) and back.shape == x.shape
        shaped = shaped and back.dtype.is_floating_point
        text = f"dequantize returned {_kind(back)} for {_kind(x)}"
        require(shaped, "shape and type", 0, text)
        same = same_bits(back, again)
        require(same, "repeats", 2, "dequantize gives something else the second time")
        return tuple(p.detach().cpu() for p in packed), back.detach().cpu().clone()

    def _finite(self, x: Tensor, packed: tuple[Tensor, ...], back: Tensor) -> None:
        lost = ~back.double().isfinite().numpy()
        self.judge.require(
            not lost.any(),
            "never NaN",
            1,
            lambda: first_place(as_float64(x), as_float64(back), lost),
        )
        finite = all(bool(part.float().isfinite().all()) for part in packed[1:])
        self.judge.require(finite, "never NaN", 1, "the scale or zero point is not finite")

    def _isolated(self, x: Tensor, back: Tensor, groups: Groups) -> None:
        """An outlier in the last group: the others keep every bit."""
        if groups.count < 2:
            return
        mine = torch.from_numpy(groups.ids == groups.count - 1)
        loud = torch.where(mine, torch.full_like(x, min(self.contract.largest, 6e4)), x)
        second = self._round_trip(loud.to(self.device))[1]
        moved = ((bits(second) != bits(back)).any(-1) & ~mine).numpy()

        def text() -> str:
            place = first_place(as_float64(back), as_float64(second), moved)
            return f"an outlier in another group changed what comes back: {place}"

        self.judge.require(not moved.any(), "outliers stay at home", 2, text)


def _kind(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"{x.dtype} {tuple(x.shape)}"
    return f"{type(x).__name__} of {len(x)}" if isinstance(x, tuple | list) else type(x).__name__
