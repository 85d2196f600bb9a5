"""Does a kernel that plans once and runs often follow what changes between its runs?

The protocol is the native signature cut in two:

    plan(block_tables, seq_lens, query_start_loc)   whatever depends on lengths
    run(query, key_cache, value_cache) -> out       or (out, lse); uses the last plan

In the mode "plan, run" (FlashInfer's wrappers, FlashAttention's scheduler metadata) `plan` is
called whenever a length or a table changes, and `run` as often as there are layers. In the mode
"capture" (CUDA graphs) `plan` is called once with tensors that live on; from then on they are
changed in place, and every `run` must follow them. In both modes a batch may be padded to a bucket
with sequences of length 0, whose block table is empty and whose query row is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..report import Report
from .contracts import ReplayContract
from .judge import Judge, begin
from .memory import bits, same_bits
from .replay_cases import Batch, ReplayCase, Step, directed_cases, random_cases
from .replay_truth import attend, explained_by
from .writer_scaled import as_float64

Halves = tuple[Callable[..., Any], Callable[..., Any]]
TOLERANCE = {torch.float32: 2.0**-13, torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8}


def check_replay(
    plan: Callable[..., Any],
    run: Callable[..., Any],
    *,
    fresh: Callable[[], Halves] | None = None,
    contract: ReplayContract | None = None,
    max_examples: int = 60,
    seed: int = 0,
    deadline_s: float = 30.0,
    call_s: float = 5.0,
    device: str = "cpu",
    name: str | None = None,
) -> Report:
    """Judge `plan(block_tables, seq_lens, query_start_loc)` and `run(query, keys, values)`.

    The laws: every run is attention under the lengths and tables that hold at that time; the second
    run is the first, bit for bit; going back to earlier lengths gives the earlier result; padded
    rows change nothing; the inputs stay.

    Args:
        plan: The first half of the subject.
        run: The second half; the module says which protocol the two follow.
        fresh: Gives a new `(plan, run)` for every session, so that a failing session is small and
            nothing of earlier ones is in it. None to go on with the same two.
        contract: Sizes, the mode, and where the subject legitimately differs.
        max_examples: Random sessions after the directed ones.
        seed: Of the random sessions.
        deadline_s: Seconds after which no new session is begun.
        call_s: Seconds after which one call counts as hung.
        device: Where the tensors lie.
        name: The subject's name in the report.
    """
    contract = contract or ReplayContract()
    judge = begin(run, "replay", name, max_examples, seed, deadline_s, call_s, contract)
    bench = _Bench(judge, fresh or (lambda: (plan, run)), contract, device)
    judge.directed(directed_cases(contract), bench.examine)
    judge.random(random_cases(contract), bench.examine)
    return judge.finish()


@dataclass
class _Bench:
    judge: Judge
    fresh: Callable[[], Halves]
    contract: ReplayContract
    device: str

    def examine(self, case: ReplayCase) -> None:
        """One session: its steps in order, each compared with the truth and with its like."""
        plan, run = self.fresh()
        live: Batch | None = None
        seen: dict[Step, Tensor] = {}
        for number, step in enumerate(case.steps):
            new = Batch.build(step, self.contract).to(self.device)
            live = live.follow(new) if live is not None and case.in_place else new
            if number == 0 or (
                self.contract.mode == "plan, run" and step.is_planned_after(case.steps[number - 1])
            ):
                held = [bits(x) for x in live.metadata]
                self.judge.call(plan, *live.metadata)
                stay = all(torch.equal(a, bits(b)) for a, b in zip(held, live.metadata))
                self.judge.require(stay, "inputs stay", 0, "plan changed its inputs")
            for repeat in range(step.runs):
                out = self._run(run, live, case, number, repeat)
                earlier = seen.setdefault(step, out)
                if self.contract.same_bits:
                    mine = live.real_rows() if self.contract.padding == "anything" else slice(None)
                    same = same_bits(earlier[mine], out[mine])
                    text = (
                        f"step {number + 1}, run {repeat + 1}: other bits than the first such run"
                    )
                    self.judge.require(same, "second replay is the first", 2, text)

    def _run(
        self, run: Callable[..., Any], batch: Batch, case: ReplayCase, number: int, repeat: int
    ) -> Tensor:
        """Run once and compare with attention in float64."""
        require, held = self.judge.require, [bits(x) for x in batch]
        result = self.judge.call(run, *batch.data)
        stay = all(torch.equal(a, bits(b)) for a, b in zip(held, batch))
        require(stay, "inputs stay", 0, "run changed its inputs")
        out, lse = (
            result if isinstance(result, tuple | list) and len(result) == 2 else (result, None)
        )
        right = isinstance(out, Tensor) and out.shape == batch.query.shape
        found = f"{out.dtype} {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        require(
            right,
            "shape and type",
            0,
            f"run returned {found} for queries {tuple(batch.query.shape)}",
        )
        assert isinstance(out, Tensor)
        out = out.detach().cpu().clone()
        rows = batch.rows(self.contract)
        wanted, wanted_lse = attend(batch, self.contract)
        where = f"step {number + 1}, run {repeat + 1}"
        tolerance = TOLERANCE[self.contract.dtype] * 4
        error = np.abs(as_float64(out) - wanted).max((1, 2))
        wrong = [t for t in rows if not error[t] <= tolerance]
        padded = [t for t in wrong if not batch.is_real(t)]
        require(
            not padded, "padding gives 0", 3, f"{where}: rows {padded} of empty sequences are not 0"
        )
        self._follows(wrong, where, out, wanted, batch, case, number)
        if isinstance(lse, Tensor) and self.contract.lse != "not judged":
            base = np.log(2) if self.contract.lse == "2" else 1.0
            mine = as_float64(lse) * base
            with np.errstate(invalid="ignore"):
                close = (mine == wanted_lse) | (np.abs(mine - wanted_lse) <= tolerance)
            bad = [t for t in rows if not close[t].all()]
            require(not bad, "lse follows", 1, f"{where}: lse of rows {bad} is wrong")
        return out

    def _follows(
        self,
        wrong: list[int],
        where: str,
        out: Tensor,
        wanted: np.ndarray,
        batch: Batch,
        case: ReplayCase,
        number: int,
    ) -> None:
        def text() -> str:
            t = wrong[0]
            s = batch.sequence_of(t)
            numbers = f"{as_float64(out)[t, 0, 0]:.5g} instead of {wanted[t, 0, 0]:.5g}"
            frozen = explained_by(out, batch, case, number, self.contract)
            return (
                f"{where}: rows {wrong} are wrong, the first of sequence {s} of length "
                f"{int(batch.seq_lens[s])}: {numbers}{frozen}"
            )

        self.judge.require(not wrong, "follows the lengths", 1, text, lambda: case.picture(number))
