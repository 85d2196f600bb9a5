"""What a kernel costs before it has run: registers, memory, instructions by kind, its hot loop."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from minipaged_cuda.errors import KernelError
from minipaged_cuda.machine_code import sass
from minipaged_cuda.machine_code.tools import assemble, disassemble, resource_usage

FLOAT64 = {"DADD", "DMUL", "DFMA", "DSETP", "DMNMX"}


@dataclass(frozen=True)
class Report:
    """The machine code of one kernel for one architecture.

    Attributes:
        name: The kernel's.
        registers: Of one thread.
        stack_bytes: Local memory of one thread: in DRAM, however local it sounds.
        spill_bytes: Stored and loaded because registers ran out; None where only a cubin is known.
        shared_bytes: Static shared memory of a CTA.
        code: The instructions.
    """

    name: str
    registers: int
    stack_bytes: int
    spill_bytes: int | None
    shared_bytes: int
    code: sass.Code

    @property
    def opcodes(self) -> Counter[str]:
        """How often each opcode occurs, modifiers included."""
        return Counter(instruction.opcode for instruction in self.code.instructions)

    def count(self, mnemonic: str, modifier: str = "") -> int:
        """How many instructions are of this kind: ``count("LDG", "128")``."""
        parts = [opcode.split(".") for opcode in self.opcodes.elements()]
        return sum(p[0] == mnemonic and (not modifier or modifier in p[1:]) for p in parts)

    @property
    def num_instructions(self) -> int:
        """All of them, but for what only fills up the last line of the instruction cache."""
        return len(self.code.instructions) - self.count("NOP")

    @property
    def num_float64(self) -> int:
        """Instructions that compute in, or convert, float64: a card has few units for them."""
        parts = [opcode.split(".") for opcode in self.opcodes.elements()]
        return sum(p[0] in FLOAT64 or any("64H" in x or x == "F64" for x in p) for p in parts)

    @property
    def num_local(self) -> int:
        """Loads and stores of local memory."""
        return self.count("LDL") + self.count("STL")

    @property
    def hot_loop_len(self) -> int:
        """Instructions of the innermost loop that loads most."""
        return len(self.code.hot_loop)

    def table(self) -> str:
        """All of it, a line each."""
        spilled = "unknown" if self.spill_bytes is None else f"{self.spill_bytes} bytes"
        lines = {
            "registers of a thread": self.registers,
            "spilled": spilled,
            "stack of a thread": f"{self.stack_bytes} bytes",
            "static shared memory of a CTA": f"{self.shared_bytes} bytes",
            "instructions": self.num_instructions,
            "instructions of the hot loop": self.hot_loop_len,
            "float64 instructions": self.num_float64,
            **{text: self.count(*text.split(".")) for text in KINDS},
        }
        return "\n".join([self.name, *(f"  {text:<32}{value}" for text, value in lines.items())])


KINDS = (
    *("LDG", "LDG.128", "STG", "STG.128", "LDGSTS", "LDS", "STS", "LDL", "STL"),
    *("HMMA", "FFMA", "MUFU", "SHFL", "BAR"),
)


def report(code: str | bytes, capability: tuple[int, int], name: str | None = None) -> Report:
    """The report of one kernel; ``name`` is needed where there are several.

    Raises:
        KernelError: The code does not assemble, or has no such kernel.
        DeviceError: ptxas, nvdisasm or cuobjdump is not installed.
    """
    found = reports(code, capability)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise KernelError(f"which kernel? {name!r} is none of {sorted(found)}")
    return found[name]


def reports(code: str | bytes, capability: tuple[int, int], suffix: str = "") -> dict[str, Report]:
    """The reports of all kernels of PTX text or of a cubin, by name.

    As `assemble`; a cubin has its architecture already, and they do not matter.
    """
    if isinstance(code, bytes):
        cubin, usage = code, _usage_of_cubin(resource_usage(code))
    else:
        cubin, log = assemble(code, capability, suffix)
        usage = _usage_of_ptxas(log)
    kernels = sass.parse(disassemble(cubin))
    return {name: Report(name, *usage[name], kernels[name]) for name in usage if name in kernels}


Usage = tuple[int, int, int | None, int]  # registers, stack, spilled, shared bytes


def _usage_of_ptxas(log: str) -> dict[str, Usage]:
    """What ``ptxas -v`` said about each kernel."""
    out = {}
    for part in log.split("Compiling entry function '")[1:]:
        stack = _number(r"(\d+) bytes stack frame", part)
        spilled = _number(r"(\d+) bytes spill stores", part) + _number(
            r"(\d+) bytes spill loads", part
        )
        registers, shared = _number(r"Used (\d+) reg", part), _number(r"(\d+) bytes smem", part)
        out[part.partition("'")[0]] = (registers, stack, spilled, shared)
    return out


def _usage_of_cubin(text: str) -> dict[str, Usage]:
    """What ``cuobjdump -res-usage`` said about each kernel."""
    pattern = r"Function (\S+):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)"
    return {
        name: (int(registers), int(stack), None, int(shared))
        for name, registers, stack, shared in re.findall(pattern, text)
    }


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
