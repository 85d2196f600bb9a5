"""What a launch did, in exact numbers; knows nothing of how it was found out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Accesses of one kind to one buffer.

    Attributes:
        requests: Warp instructions.
        bytes: That the threads asked for.
        sectors: Of 32 bytes, distinct within each warp instruction; 0 in shared and local memory.
    """

    requests: int = 0
    bytes: int = 0
    sectors: int = 0

    def add(self, requests: int, num_bytes: int, sectors: int) -> None:
        """One more instruction of some warps."""
        self.requests += requests
        self.bytes += num_bytes
        self.sectors += sectors


@dataclass
class Counts:
    """All CTAs of one launch.

    Attributes:
        opcodes: Warp instructions, for each opcode.
        loads: From each buffer, by name; `shared memory` and `local memory` are buffers too.
        stores: To each buffer.
        atomics: On each buffer.
        barriers: Of the CTA that were passed.
    """

    opcodes: Counter[str] = field(default_factory=Counter)
    loads: dict[str, Traffic] = field(default_factory=dict)
    stores: dict[str, Traffic] = field(default_factory=dict)
    atomics: dict[str, Traffic] = field(default_factory=dict)
    barriers: int = 0

    @property
    def warp_instructions(self) -> int:
        """Instructions that warps issued."""
        return self.opcodes.total()

    def table(self) -> str:
        """Lines of text: one for each kind of access to each buffer, then the commonest opcodes."""
        rows: list[tuple[str, ...]] = [("buffer", "access", "requests", "bytes", "sectors")]
        for kind in ("loads", "stores", "atomics"):
            for name, traffic in sorted(getattr(self, kind).items()):
                numbers = (traffic.requests, traffic.bytes, traffic.sectors)
                rows.append((name, kind, *(f"{n:,}" for n in numbers)))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}"
            + "".join(f"  {cell:>{width}}" for cell, width in zip(row[2:], widths[2:]))
            for row in rows
        ]
        lines.append(f"{self.warp_instructions:,} warp instructions, {self.barriers} barriers")
        lines += [f"{number:>9,}  {opcode}" for opcode, number in self.opcodes.most_common(8)]
        return "\n".join(lines)
