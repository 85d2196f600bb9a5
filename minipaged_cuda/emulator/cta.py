"""One CTA: its threads, memory and special registers; knows no program."""

from __future__ import annotations

import re

import numpy as np

from minipaged_cuda.emulator.copies import Copies, Copy
from minipaged_cuda.emulator.counts import Traffic
from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.lanes import WARP, LaneSets
from minipaged_cuda.emulator.memory import (
    FIRST,
    LOCAL,
    MODULE,
    SHARED,
    Buffer,
    LocalBuffer,
    base,
    initial_bytes,
)
from minipaged_cuda.emulator.parser import Function, Instruction, Module, Variable
from minipaged_cuda.emulator.shadow import Order

Shape = tuple[int, int, int]

STATIC_LIMIT = 48 * 1024  # bytes of shared memory that ptxas lets a kernel declare, on every card


class Cta:
    """What the instructions of a CTA work on; one object serves the CTAs of a launch in turn.

    Attributes:
        width: Threads, rounded up to whole warps.
        buffers: By slot of the address space.
        special: Registers such as `%tid.x`: one element for each thread, or one for all.
        steps: Instructions executed so far, by whichever threads.
        accessing: Those that access memory, by the number that they leave in stamps.
    """

    def __init__(self, module: Module, entry: Function, threads: Shape, dynamic_shared: int):
        self.module, self.entry, self.threads = module, entry, threads
        self.num_threads = threads[0] * threads[1] * threads[2]
        self.num_warps = -(-self.num_threads // WARP)
        self.width = self.num_warps * WARP
        self.sets = LaneSets(self.num_threads)
        self.order = Order(self.num_warps)
        self.index: Shape = (0, 0, 0)
        self.steps = 0
        self.barriers = 0
        self.accessing: list[Instruction] = []
        self._symbols: dict[tuple[str, str], int] = {}
        self._globals: dict[int, Variable] = {}
        self.buffers: dict[int, Buffer] = {}
        self.shared = self._place_shared(dynamic_shared)
        self.local = self._place_local()
        self._place_globals()
        self.copies = Copies(self.width, self._arrive)
        self.special = self._special()

    def begin_launch(self, tensors: dict[int, Buffer]) -> None:
        """Another launch: its arrays, and the module's variables as they are at first."""
        for buffer in self.buffers.values():
            buffer.loads, buffer.stores, buffer.atomics = Traffic(), Traffic(), Traffic()
        for slot, variable in self._globals.items():
            self.buffers[slot].data[:] = initial_bytes(variable)
        self.buffers |= tensors
        self.order, self.barriers = Order(self.num_warps), 0

    def end_launch(self) -> None:
        """Let go of the launch's arrays, and of what was kept about all accesses."""
        self.buffers = {s: b for s, b in self.buffers.items() if not FIRST <= s < MODULE}
        for buffer in self.buffers.values():
            buffer.shadow = None

    def begin(self, index: Shape, grid: Shape) -> None:
        """The next CTA: its own index, memory that holds nothing it may rely on."""
        self.index, self.steps = index, 0
        for axis, letter in enumerate("xyz"):
            self.special[f"%ctaid.{letter}"][:] = index[axis]
            self.special[f"%nctaid.{letter}"][:] = grid[axis]
        self.order.begin()
        self.copies.begin()
        self.shared.data[:] = self.local.data[:] = 0xFF  # NaN in every format

    def symbol(self, text: str, function: Function) -> int | None:
        """The address of a variable, in its own space; `name+4` is four bytes behind it."""
        name, _, offset = text.partition("+")
        for owner in (function.name, ""):
            if (owner, name) in self._symbols:
                return self._symbols[owner, name] + int(offset or 0)
        return None

    def _arrive(self, copy: Copy) -> None:
        """An asynchronous copy lands: writes of its threads, which a barrier must order."""
        shared = self.shared
        shared.data[copy.places] = copy.data
        if shared.shadow is not None and len(copy.threads):
            where = np.zeros(self.width, bool)
            where[copy.threads] = True
            stamps = self.order.stamps(self.sets.of(where), copy.number, False)
            granules = shared.shadow.granules(copy.places[:, 0], copy.places.shape[1])
            shared.shadow.write(granules, stamps, self.order)

    def _owned(self, space: str) -> list[tuple[str, Variable]]:
        functions = [self.entry, *self.module.functions.values()]
        variables = [("", v) for v in self.module.variables]
        variables += [(f.name, v) for f in functions for v in f.variables]
        return [(owner, v) for owner, v in variables if v.space == space]

    def _lay_out(self, space: str) -> int:
        """Give variables their places one behind the other, those of unknown length last."""
        end = 0
        for owner, variable in sorted(self._owned(space), key=lambda pair: not pair[1].bytes):
            end = -(-end // variable.alignment) * variable.alignment
            self._symbols[owner, variable.name] = end
            end += variable.bytes
        return end

    def _place_shared(self, dynamic: int) -> Buffer:
        self._check_static()
        size = self._lay_out("shared") + dynamic
        data = np.zeros(-(-size // 16) * 16, np.uint8)
        self.buffers[SHARED] = Buffer("shared memory", base(SHARED), data, size)
        return self.buffers[SHARED]

    def _check_static(self) -> None:
        functions = [self.entry, *self.module.functions.values()]
        operands = " ".join(o for f in functions for i in f.instructions for o in i.operands)
        used = set(re.findall(r"[%$#\w]+", operands))
        num_bytes = sum(v.bytes for _, v in self._owned("shared") if v.name in used)
        if num_bytes > STATIC_LIMIT:
            raise InvalidProgram(
                f"{self.entry.name} declares {num_bytes} bytes of shared memory, {STATIC_LIMIT} "
                "are the most; an array without a length, `[]`, takes `dynamic_shared` bytes"
            )

    def _place_local(self) -> Buffer:
        size = -(-self._lay_out("local") // 16) * 16
        data = np.zeros(size * self.width, np.uint8)
        self.buffers[LOCAL] = LocalBuffer("local memory", base(LOCAL), data, size)
        return self.buffers[LOCAL]

    def _place_globals(self) -> None:
        both = self._owned("global") + self._owned("const")
        for slot, (owner, variable) in enumerate(both, MODULE):
            self._symbols[owner, variable.name] = base(slot)
            data = initial_bytes(variable)
            writable = variable.space == "global"
            self.buffers[slot] = Buffer(variable.name, base(slot), data, len(data), writable)
            self._globals[slot] = variable

    def _special(self) -> dict[str, np.ndarray]:
        thread = np.arange(self.width, dtype=np.uint32)
        x, y, _ = self.threads
        lane = thread % np.uint32(WARP)
        bit = np.uint32(1) << lane
        special = {
            "%tid.x": thread % x,
            "%tid.y": thread // x % y,
            "%tid.z": thread // (x * y),
            "%laneid": lane,
            "%warpid": thread // WARP,
            "%lanemask_eq": bit,
            "%lanemask_lt": bit - 1,
            "%lanemask_le": bit | (bit - 1),
            "%lanemask_ge": ~(bit - 1),
            "%lanemask_gt": ~(bit | (bit - 1)),
        }
        ones = {"%nwarpid": self.num_warps, "%smid": 0, "%nsmid": 1, "%gridid": 0, "WARP_SZ": WARP}
        ones |= {f"%ntid.{letter}": n for letter, n in zip("xyz", self.threads)}
        ones |= {"%dynamic_smem_size": self.shared.size, "%total_smem_size": self.shared.size}
        ones |= {f"%{kind}.{letter}": 0 for kind in ("ctaid", "nctaid") for letter in "xyz"}
        special |= {name: np.array([value]) for name, value in ones.items()}
        return {name: values.astype(np.uint32) for name, values in special.items()}
