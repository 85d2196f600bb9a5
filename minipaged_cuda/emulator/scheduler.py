"""Who runs next: of all threads of a CTA, those that are furthest behind in the text.

Threads that took different ways meet again that way, as on a card. A warp instruction waits for the
lanes of its mask, a barrier for all threads; when all that is left waits, something is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minipaged_cuda.emulator import errors
from minipaged_cuda.emulator.frame import write
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.position import where
from minipaged_cuda.emulator.program import Block, Code, Program, callee, is_barrier


@dataclass
class _Arrival:
    """Threads that wait at a barrier, and the block behind it."""

    instruction: Instruction
    lanes: Lanes
    next: int


class Execution:
    """One run of a function by some threads, to its end.

    Args:
        program: Whose CTA has been prepared.
        code: The function.
        max_steps: Instructions of one CTA after which it is taken not to end.
    """

    def __init__(self, program: Program, code: Code, max_steps: int):
        self.program, self.code, self.max_steps = program, code, max_steps
        self.cta = program.cta
        self.ready: dict[int, Lanes] = {}  # by block
        self.parked: dict[int, Lanes] = {}  # those at a gate
        self.arrived: dict[int, list[_Arrival]] = {}  # by number of the barrier

    def run(self, lanes: Lanes) -> None:
        """Until all of these threads have returned."""
        self.ready[0] = lanes
        while self.ready:
            number = min(self.ready)
            lanes = self.ready.pop(number)
            if number < len(self.code.blocks):
                self._run_block(number, self.code.blocks[number], lanes)
        if self.parked or self.arrived:
            self._explain()

    def _run_block(self, number: int, block: Block, lanes: Lanes) -> None:
        if block.gate is not None and block.gate.missing(lanes) is not None:
            self.parked[number] = lanes
            return
        block.executed += lanes.num_warps
        self.cta.steps += len(block.instructions)
        if self.cta.steps > self.max_steps:
            message = f"CTA {self.cta.index} has executed {self.max_steps} instructions; "
            message += "if it does end, allow more by max_steps"
            raise errors.StepLimit(message + where(block.instructions[0], self.cta.index))
        for operation in block.operations:
            operation(lanes)
        if block.ending is None:
            self._go(number + 1, lanes)
        else:
            self._end(block.ending, number + 1, lanes)

    def _go(self, block: int, lanes: Lanes) -> None:
        """Threads come to a block, where others may be already."""
        for others in (self.ready.pop(block, None), self.parked.pop(block, None)):
            if others is not None:
                lanes = lanes | others
        self.ready[block] = lanes

    def _end(self, i: Instruction, behind: int, lanes: Lanes) -> None:
        if i.guard is not None:
            name, negated = i.guard
            predicate = self.code.frame.source(name, "pred")
            chosen = lanes & (~predicate if negated else predicate)
            if chosen is not lanes:
                self._go(behind, lanes.minus(chosen))
            lanes = chosen
            if not len(lanes):
                return
        if i.name == "bra":
            self._go(self.code.targets[i.operands[0]], lanes)
        elif is_barrier(i):
            self._arrive(i, behind, lanes)
        elif i.name == "call":
            self._call(i, lanes)
            self._go(behind, lanes)
        elif i.name == "brx":
            self._branch_indexed(i, lanes)
        elif i.name in ("trap", "brkpt"):
            message = "the program stopped itself"
            raise errors.Trap(message + where(i, self.cta.index, lanes.threads))

    def _branch_indexed(self, i: Instruction, lanes: Lanes) -> None:
        index = self.code.frame.source(i.operands[0], "u32")
        for number, label in enumerate(self.code.frame.function.tables[i.operands[1]]):
            part = lanes & (index == number)
            if len(part):
                self._go(self.code.targets[label], part)

    def _call(self, i: Instruction, lanes: Lanes) -> None:
        results, name, arguments = callee(i)
        code = self.program.codes.get(name)
        if code is None or code is self.code:
            why = "has no body in this module" if code is None else "calls itself"
            message = f"cannot call {name}, which {why}"
            raise errors.UnknownInstruction(message + where(i, self.cta.index))
        mine, its, function = self.code.frame.parameters, code.frame.parameters, code.frame.function
        for argument, parameter in zip(arguments, function.parameters):
            its[parameter.name][lanes.pick] = mine[argument][lanes.pick]
        Execution(self.program, code, self.max_steps).run(lanes)
        for result, parameter in zip(results, function.results):
            mine[result][lanes.pick] = its[parameter.name][lanes.pick]

    def _arrive(self, i: Instruction, behind: int, lanes: Lanes) -> None:
        """`bar.sync number, count`: all threads, or that many, go on together."""
        operands = list(i.operands[1:-1] if i.has("red") else i.operands)
        if i.has("arrive"):
            message = "a barrier that threads do not wait at"
            raise errors.UnknownInstruction(message + where(i, self.cta.index))
        first = int(lanes.threads[0])
        values = [self.code.frame.source(o, "u32") for o in operands]
        number, *counts = (int(v[first] if len(v) > 1 else v[0]) for v in values)
        arrived = self.arrived.setdefault(number, [])
        arrived.append(_Arrival(i, lanes, behind))
        expected = counts[0] if counts else self.cta.num_threads
        if sum(len(arrival.lanes) for arrival in arrived) < expected:
            return
        del self.arrived[number]
        if not counts and len({arrival.instruction.line for arrival in arrived}) > 1:
            self._diverged(arrived)
        self._release(arrived)

    def _release(self, arrived: list[_Arrival]) -> None:
        self.cta.order.meet()
        self.cta.barriers += 1
        everybody = arrived[0].lanes
        for arrival in arrived[1:]:
            everybody = everybody | arrival.lanes
        for arrival in arrived:
            if arrival.instruction.has("red"):
                self._combine(arrival.instruction, everybody)
            self._go(arrival.next, arrival.lanes)

    def _combine(self, i: Instruction, lanes: Lanes) -> None:
        """`bar.red`: what all threads say about a predicate."""
        frame, operand = self.code.frame, i.operands[-1]
        said = frame.source(operand.lstrip("!"), "pred") != operand.startswith("!")
        said = np.broadcast_to(said, lanes.where.shape)[lanes.threads]
        if i.has("popc"):
            write(frame.target(i.operands[0], "u32"), np.array([said.sum()], np.uint32), lanes)
        else:
            value = said.all() if i.has("and") else said.any()
            write(frame.target(i.operands[0], "pred"), np.array([value]), lanes)

    def _explain(self) -> None:
        """Nobody can go on: raise for those that wait."""
        for number, lanes in self.parked.items():
            gate = self.code.blocks[number].gate
            missing = gate.missing(lanes) if gate else None
            if gate is not None and missing is not None:
                what = "are in the mask and do not come"
                gate.refuse(lanes.threads, np.flatnonzero(missing), what)
        self._diverged(next(iter(self.arrived.values())))

    def _diverged(self, arrived: list[_Arrival]) -> None:
        lines = sorted({arrival.instruction.line for arrival in arrived})
        waiting = sum(len(arrival.lanes) for arrival in arrived)
        gone = self.cta.num_threads - waiting
        places = "different barriers, lines " + ", ".join(map(str, lines))
        what = places if len(lines) > 1 else f"a barrier that {gone} others never reach"
        raise errors.BarrierDivergence(
            f"{waiting} of {self.cta.num_threads} threads wait at {what}"
            + where(arrived[0].instruction, self.cta.index, arrived[0].lanes.threads)
        )
