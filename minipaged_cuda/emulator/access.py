"""From addresses to checked places in a buffer; knows why an access is wrong, not what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from minipaged_cuda.emulator import errors
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.memory import HIDDEN, READABLE, SHARED, SLOT, UNWRITTEN, Buffer, base
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.position import where
from minipaged_cuda.emulator.shadow import stamp_number, stamp_thread

if TYPE_CHECKING:
    from minipaged_cuda.emulator.cta import Cta

Kind = Literal["load", "store", "atomic"]
_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}


class Access:
    """The memory side of one instruction, made once and called for every execution.

    Args:
        cta: Whose memory it is.
        instruction: What the messages quote.
        kind: What it does with the bytes.
        size: Bytes of each access, a power of two; also the alignment that it needs.
    """

    def __init__(self, cta: Cta, instruction: Instruction, kind: Kind, size: int):
        self.cta, self.instruction, self.kind, self.size = cta, instruction, kind, size
        self.number = len(cta.accessing)
        cta.accessing.append(instruction)
        self.strong = kind == "atomic" or not _STRONG.isdisjoint(instruction.opcode)

    def __call__(
        self,
        addresses: np.ndarray,  # [num_threads] int64, generic
        lanes: Lanes,
    ) -> Iterator[tuple[Buffer, np.ndarray, Lanes]]:
        """`(buffer, places, threads)`: once, or once for each buffer that the addresses lie in.

        Places are offsets in `buffer.data`, in bytes.
        """
        slot = int(addresses[0]) >> SLOT
        buffer = self.cta.buffers.get(slot)
        if buffer is not None:
            offsets = addresses - buffer.base
            reach = int(offsets.view(np.uint64).max()) + self.size
            if reach <= buffer.size:
                yield self._checked(buffer, offsets, lanes)
                return
        slots = addresses >> SLOT
        if (slots == slot).all():
            raise self._out_of_bounds(buffer, addresses, lanes)
        for each in np.unique(slots):
            chosen = slots == each
            yield from self(addresses[chosen], lanes.part(chosen))

    def _checked(
        self, buffer: Buffer, offsets: np.ndarray, lanes: Lanes
    ) -> tuple[Buffer, np.ndarray, Lanes]:
        if int(np.bitwise_or.reduce(offsets)) & (self.size - 1):
            raise self._misaligned(buffer, offsets, lanes)
        traffic = getattr(buffer, self.kind + "s")
        sectors = lanes.sectors(offsets) if buffer.in_sectors else 0
        traffic.add(lanes.num_warps, len(lanes) * self.size, sectors)
        if self.kind != "load" and not buffer.writable:
            message = f"a {self.kind} to {buffer.describe(int(offsets[0]))}, which is read-only"
            raise errors.ReadOnly(message + self._where(lanes.threads))
        if buffer.flags is not None:
            self._check_flags(buffer, buffer.flags, offsets, lanes)
        if buffer.shadow is not None:
            self._check_shadow(buffer, offsets, lanes)
        return buffer, buffer.place(offsets, lanes), lanes

    def _check_flags(
        self, buffer: Buffer, flags: np.ndarray, offsets: np.ndarray, lanes: Lanes
    ) -> None:
        touched = offsets[:, None] + np.arange(self.size)
        if self.kind == "store":
            flags[touched] = READABLE
            return
        found = flags[touched]
        if found.any():
            thread, byte = (int(i[0]) for i in np.nonzero(found))
            self._refuse(buffer, int(touched[thread, byte]), found[thread, byte], lanes, thread)

    def _refuse(self, buffer: Buffer, offset: int, flag: int, lanes: Lanes, index: int) -> None:
        place = buffer.describe(offset)
        at = self._where(lanes.threads[[index]])
        if flag == HIDDEN:
            raise errors.NotReadable(f"a {self.kind} of {place}, which must not be read{at}")
        raise errors.Uninitialised(f"a {self.kind} of {place}, which nobody has written{at}")

    def _check_shadow(self, buffer: Buffer, offsets: np.ndarray, lanes: Lanes) -> None:
        shadow, order = buffer.shadow, self.cta.order
        assert shadow is not None
        granules = shadow.granules(offsets, self.size)
        if buffer.base == base(SHARED):
            self._check_shared(buffer, granules, offsets, lanes)
        stamps = order.stamps(lanes, self.number, self.strong)
        enter = shadow.read if self.kind == "load" else shadow.write
        race = enter(granules, stamps, order)
        if race is not None:
            raise self._race(buffer, offsets, race, lanes)

    def _check_shared(
        self, buffer: Buffer, granules: np.ndarray, offsets: np.ndarray, lanes: Lanes
    ) -> None:
        """Copies that are under way may not be touched; what nobody wrote may not be read."""
        copying = self.cta.copies.under_way(offsets, self.size)
        if copying is not None:
            index, number = copying
            place, line = buffer.describe(int(offsets[index])), self.cta.accessing[number].line
            raise errors.Race(
                f"a {self.kind} of {place} before the cp.async of line {line} has been waited for"
                + self._where(lanes.threads[[index]])
            )
        if self.kind != "store":
            assert buffer.shadow is not None
            missing = buffer.shadow.never_written(granules, self.cta.order)
            if missing is not None:
                self._refuse(buffer, int(offsets[missing]), UNWRITTEN, lanes, missing)

    def _misaligned(self, buffer: Buffer, offsets: np.ndarray, lanes: Lanes) -> Exception:
        wrong = np.flatnonzero(offsets & (self.size - 1))
        place = buffer.describe(int(offsets[wrong[0]]))
        return errors.Misaligned(
            f"a {self.kind} of {self.size} bytes at {place}: the offset must be a multiple of "
            f"{self.size}{self._where(lanes.threads[wrong])}"
        )

    def _out_of_bounds(
        self, buffer: Buffer | None, addresses: np.ndarray, lanes: Lanes
    ) -> Exception:
        what = f"a {self.kind} of {self.size} bytes"
        if buffer is None:
            address = f"{int(addresses[0]) & (1 << 64) - 1:#x}"
            at = self._where(lanes.threads)
            return errors.OutOfBounds(f"{what} at address {address}, where no buffer is{at}")
        offsets = addresses - buffer.base
        wrong = np.flatnonzero((offsets < 0) | (offsets + self.size > buffer.size))
        first = int(offsets[wrong[0]])
        side = f"{-first} before its first" if first < 0 else f"{buffer.size} is how many it has"
        return errors.OutOfBounds(
            f"{what} at byte {first} of '{buffer.name}' ({side}); all threads: bytes "
            f"{offsets.min()} to {offsets.max() + self.size - 1}{self._where(lanes.threads[wrong])}"
        )

    def _race(
        self, buffer: Buffer, offsets: np.ndarray, race: np.ndarray, lanes: Lanes
    ) -> Exception:
        index = int(np.flatnonzero(race)[0])
        old, thread = int(race[index]), int(lanes.threads[index])
        earlier = self.cta.accessing[stamp_number(old)]
        other = f"thread {stamp_thread(old)}"
        if old >> 32 < self.cta.order.start:
            other += " of another CTA"
        return errors.Race(
            f"thread {thread} and {other} access {buffer.describe(int(offsets[index]))}, and "
            f"nothing orders them\n  PTX line {earlier.line}: {earlier.text} (thread "
            f"{stamp_thread(old)}, earlier){self._where([thread])}"
        )

    def _where(self, threads: np.ndarray | list[int]) -> str:
        return where(self.instruction, self.cta.index, threads)
