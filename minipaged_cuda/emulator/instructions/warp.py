"""What lanes of a warp do together: shuffles, votes, matches; knows no memory.

A warp instruction waits until all lanes in its mask have come: a `Gate` tells the scheduler which
of them are missing. Registers are seen as [num_warps, 32]; lanes that take no part are computed
along, and not kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minipaged_cuda.emulator import errors
from minipaged_cuda.emulator.frame import Frame, Operation, of_threads, write
from minipaged_cuda.emulator.lanes import WARP, Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.position import where

_LANE = np.arange(WARP)
_FULL = 0xFFFFFFFF
POISON = _FULL  # what a shuffle takes from a lane that gives nothing: NaN, or -1


class Gate:
    """Which lanes a warp instruction has to wait for.

    Args:
        frame: Of the function that it stands in.
        instruction: Whose last operand is the mask; an `.aligned` one without means all lanes.
    """

    def __init__(self, frame: Frame, instruction: Instruction):
        self.instruction, self.cta = instruction, frame.cta
        operand = str(_FULL) if instruction.name in ("mma", "ldmatrix") else mask_of(instruction)
        self._mask = frame.source(operand, "b32")
        name, self._negated = instruction.guard or (None, False)
        self._predicate = frame.source(name, "pred") if name else None

    def missing(self, lanes: Lanes) -> np.ndarray | None:
        """[width] bool: threads that the masks name and that are not among `lanes`, if any.

        Raises:
            WrongMask: A thread is not in its own mask.
        """
        if self._predicate is not None:
            lanes = lanes & (self._predicate != self._negated)
        if lanes.whole and (of_threads(self._mask, lanes.threads) == _FULL).all():
            return None
        mask = np.broadcast_to(self._mask, lanes.where.shape).reshape(-1, WARP)
        here = lanes.where.reshape(-1, WARP)
        named = (mask[:, :, None] >> _LANE.astype(np.uint32) & np.uint32(1)).astype(bool)
        outside = here & ~named[:, _LANE, _LANE]
        if outside.any():
            self.refuse(lanes.threads, np.flatnonzero(outside), "are not in their own mask")
        missing = (named & here[:, :, None]).any(axis=1) & ~here
        missing = missing.ravel() & self.cta.sets.everybody.where
        return missing if missing.any() else None

    def refuse(self, here: np.ndarray, threads: np.ndarray, what: str) -> None:
        """Say which threads came, and which did not, or should not have."""
        names = ", ".join(map(str, threads[:8])) + (" ..." if len(threads) > 8 else "")
        raise errors.WrongMask(
            f"{'.'.join(self.instruction.opcode)}: of threads {here[0]} to {here[-1]} "
            f"({len(here)} of them), {names} {what}" + where(self.instruction, self.cta.index, here)
        )


def mask_of(i: Instruction) -> str:
    """The operand that is the mask of participating lanes."""
    return i.operands[-1]


def warps(values: np.ndarray, width: int) -> np.ndarray:
    """[num_warps, 32] of an operand, one for all included."""
    whole = values if len(values) == width else np.broadcast_to(values, (width,))
    return whole.reshape(-1, WARP)


def _shuffle(i: Instruction, f: Frame) -> Operation:
    names = i.operands[0].split("|")
    targets = [f.target(name.strip(), type) for name, type in zip(names, ("b32", "pred"))]
    value, by, clamp = (f.source(operand, "b32") for operand in i.operands[1:4])
    mode, width = i.opcode[2], f.cta.width

    def run(lanes: Lanes) -> None:
        from_lane, inside = _source_lanes(mode, warps(by, width), warps(clamp, width))
        given = np.where(lanes.where.reshape(-1, WARP), warps(value, width), np.uint32(POISON))
        write(targets[0], np.take_along_axis(given, from_lane, 1).ravel(), lanes)
        if len(targets) > 1:
            write(targets[1], inside.ravel(), lanes)

    return run


def _source_lanes(mode: str, by: np.ndarray, clamp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lane that each reads from, and whether that is inside its segment (else its own)."""
    by, segment, last = by.astype(int) & 31, clamp.astype(int) >> 8 & 31, clamp.astype(int) & 31
    first = _LANE & segment
    last = first | last & ~segment
    lane = {"up": _LANE - by, "down": _LANE + by, "bfly": _LANE ^ by}.get(mode)
    if lane is None:
        lane = first | by & ~segment
    inside = lane >= last if mode == "up" else lane <= last
    return np.where(inside, lane, _LANE), inside


def _bits(truth: np.ndarray) -> np.ndarray:
    """[..., 32] bool as uint32: lane n is bit n."""
    return np.bitwise_or.reduce(np.where(truth, np.uint32(1) << _LANE.astype(np.uint32), 0), -1)


def _vote(i: Instruction, f: Frame) -> Operation:
    kind, width = i.opcode[2], f.cta.width
    target = f.target(i.operands[0], "b32" if kind == "ballot" else "pred")
    predicate = f.source(i.operands[1].lstrip("!"), "pred")
    negated, mask = i.operands[1].startswith("!"), f.source(mask_of(i), "b32")

    def run(lanes: Lanes) -> None:
        here = lanes.where.reshape(-1, WARP)
        members = warps(mask, width) & _bits(here)[:, None]
        yes = members & _bits(here & (warps(predicate, width) != negated))[:, None]
        result = {
            "ballot": yes,
            "any": yes != 0,
            "all": yes == members,
            "uni": (yes == members) | (yes == 0),
        }[kind]
        write(target, result.ravel().astype(np.uint32 if kind == "ballot" else bool), lanes)

    return run


def _match(i: Instruction, f: Frame) -> Operation:
    names = i.operands[0].split("|")
    targets = [f.target(name.strip(), type) for name, type in zip(names, ("b32", "pred"))]
    value, mask, width = (
        f.source(i.operands[1], i.type),
        f.source(i.operands[2], "b32"),
        f.cta.width,
    )

    def run(lanes: Lanes) -> None:
        each = warps(value, width)
        members = warps(mask, width) & _bits(lanes.where.reshape(-1, WARP))[:, None]
        equal = members & _bits(each[:, :, None] == each[:, None, :])
        if i.has("all"):
            agree = equal == members
            equal = np.where(agree, members, np.uint32(0))
            write(targets[1] if len(targets) > 1 else None, agree.ravel(), lanes)
        write(targets[0], equal.ravel(), lanes)

    return run


_REDUCE = {
    "add": (np.add, 0),
    "min": (np.minimum, None),
    "max": (np.maximum, None),
    "and": (np.bitwise_and, _FULL),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


def _reduce(i: Instruction, f: Frame) -> Operation:
    """`redux`: one number from those of all lanes in the mask."""
    function, neutral = _REDUCE[i.opcode[2]]
    value, mask = f.source(i.operands[1], i.type), f.source(i.operands[2], "b32")
    target, width = f.target(i.operands[0], i.type), f.cta.width
    limits = np.iinfo(value.dtype)
    if neutral is None:
        neutral = limits.max if function is np.minimum else limits.min

    def run(lanes: Lanes) -> None:
        named = (warps(mask, width)[:, :, None] >> _LANE.astype(np.uint32) & np.uint32(1)) != 0
        members = named & lanes.where.reshape(-1, 1, WARP)
        each = np.where(members, warps(value, width)[:, None, :], value.dtype.type(neutral))
        write(target, function.reduce(each, axis=2, dtype=value.dtype).ravel(), lanes)

    return run


def _active_mask(i: Instruction, f: Frame) -> Operation:
    target = f.target(i.operands[0], "b32")
    return lambda lanes: write(target, np.repeat(lanes.ballot, WARP), lanes)


def _elect(i: Instruction, f: Frame) -> Operation:
    """`elect`: the lowest lane of the mask leads."""
    names = [name.strip() for name in i.operands[0].split("|")]
    leader, chosen = f.target(names[0], "b32"), f.target(names[1], "pred")
    mask, width = f.source(i.operands[1], "b32"), f.cta.width

    def run(lanes: Lanes) -> None:
        each = warps(mask, width)
        first = np.frexp((each & (~each + np.uint32(1))).astype(float))[1] - 1
        write(leader, first.ravel().astype(np.uint32), lanes)
        write(chosen, (first == _LANE).ravel(), lanes)

    return run


def _meet(i: Instruction, f: Frame) -> Operation:
    """`bar.warp.sync`: what the lanes did before, they see after."""
    return lambda lanes: f.cta.order.meet_warps(lanes.warps)


WARPWIDE: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _reduce,
    "elect": _elect,
    "activemask": _active_mask,
    "bar": _meet,
}
