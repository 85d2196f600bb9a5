"""Instructions, and the loops they form, out of a disassembly; knows SASS text from sm_75 on."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
LABEL = re.compile(r"^\s*(\.L\w+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(@!?\w+\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
TARGET = re.compile(r"`\((\.L\w+)\)")
BITS = re.compile(r"^(?:[US]?(8|16)|(32|64|128|256))$")
LEAVES = {"EXIT", "RET", "BRX", "JMX", "BRA", "JMP", "KILL"}  # whatever follows is not next


@dataclass(frozen=True)
class Instruction:
    """One line: ``@P0 LDG.E.128 R4, desc[UR4][R2.64]``."""

    predicate: str  # "@P0", or empty
    opcode: str  # "LDG.E.128"
    operands: str

    @property
    def mnemonic(self) -> str:
        """The opcode without its modifiers: ``LDG``."""
        return self.opcode.partition(".")[0]

    @property
    def loaded_bytes(self) -> int:
        """How much one lane loads from global memory."""
        if self.mnemonic not in ("LDG", "LD", "LDGSTS"):
            return 0
        found = [BITS.match(part) for part in self.opcode.split(".")[1:]]
        return max((int(m[1] or m[2]) // 8 for m in found if m), default=4)


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel in order, and where its labels point."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    @cached_property
    def hot_loop(self) -> tuple[Instruction, ...]:
        """The innermost loop that loads most bytes, of equal ones the longest; () without one."""

        def weight(body: frozenset[int]) -> tuple[int, int]:
            return sum(self.instructions[i].loaded_bytes for i in body), len(body)

        innermost = [a for a in self.loops if not any(b < a for b in self.loops)]
        hottest = max(innermost, key=weight, default=frozenset())
        return tuple(self.instructions[i] for i in sorted(hottest))

    @cached_property
    def loops(self) -> list[frozenset[int]]:
        """The natural loops: a jump back to what every way to the jump has passed, and between.

        A jump back alone is none: the assembler also moves seldom used code to the end.
        """
        bodies: dict[int, set[int]] = defaultdict(set)
        reachable = self._reachable(self.successors, 0, without=-1)
        for source, targets in self.successors.items():
            for head in targets:
                jumps_back = head <= source and source in reachable
                if jumps_back and source not in self._reachable(self.successors, 0, without=head):
                    back = self._reachable(self.predecessors, source, without=head)
                    bodies[head] |= (back & reachable) | {head}
        return [frozenset(body) for body in bodies.values()]

    @cached_property
    def successors(self) -> dict[int, list[int]]:
        """Where each instruction may lead."""
        return {i: self._next(i) for i in range(len(self.instructions))}

    @cached_property
    def predecessors(self) -> dict[int, list[int]]:
        """Where each instruction may have been reached from."""
        out: dict[int, list[int]] = defaultdict(list)
        for source, targets in self.successors.items():
            for target in targets:
                out[target].append(source)
        return out

    def _next(self, i: int) -> list[int]:
        instruction = self.instructions[i]
        found = TARGET.search(instruction.operands)
        target = self.labels.get(found[1]) if found else None
        jumps = instruction.mnemonic in ("BRA", "JMP") and target is not None
        is_rare = ".DIV" in instruction.opcode  # the lanes of a warp have parted
        conditional = instruction.predicate or is_rare or _has_predicate(instruction)
        goes_on = instruction.mnemonic not in LEAVES or conditional
        out = [target] if jumps and not is_rare and target is not None else []
        return out + ([i + 1] if goes_on and i + 1 < len(self.instructions) else [])

    @staticmethod
    def _reachable(edges: dict[int, list[int]], start: int, without: int) -> set[int]:
        """Everything on a way from ``start`` that avoids one instruction."""
        seen, waiting = set(), [start]
        while waiting:
            here = waiting.pop()
            if here not in seen and here != without:
                seen.add(here)
                waiting += edges.get(here, [])
        return seen


def _has_predicate(instruction: Instruction) -> bool:
    """Newer code writes the condition of a branch among its operands: ``BRA.U UP0, `(.L_1)``."""
    return re.match(r"!?U?P\w+\s*,", instruction.operands) is not None


def parse(text: str) -> dict[str, Code]:
    """The code of every kernel in ``nvdisasm -c`` text, by name."""
    kernels: dict[str, Code] = {}
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if section := SECTION.match(line):
            instructions, labels = [], {}
            kernels[section[1]] = Code((), labels)
            name = section[1]
        elif label := LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := INSTRUCTION.search(line):
            instructions.append(Instruction((found[1] or "").strip(), found[2], found[3]))
            kernels[name] = Code(tuple(instructions), labels)
    return kernels
