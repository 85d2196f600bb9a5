"""Loads, stores and moves: between registers, parameters and memory; knows no arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minipaged_cuda.emulator.access import Access
from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import (
    Frame,
    Operation,
    assign,
    copy,
    elements,
    of_threads,
    write,
)
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.memory import LOCAL, MODULE, SHARED, SLOT, base
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_SPACES = ("global", "shared", "local", "const", "param")


def space_of(i: Instruction) -> str:
    """The state space that the opcode names; empty for a generic address."""
    parts = (part.partition("::")[0] for part in i.opcode)
    return next((part for part in parts if part in _SPACES), "")


def vector_length(i: Instruction) -> int:
    """2 for `.v2`, 1 without."""
    return next((int(part[1:]) for part in i.opcode if part in ("v2", "v4", "v8")), 1)


def _load(i: Instruction, f: Frame) -> Operation:
    targets = f.targets(i.operands[0], i.type)
    if space_of(i) == "param":
        sources = f.parameter(i.operands[1], i.type, len(targets))
        return _in_turn([assign(copy, [s], t) for s, t in zip(sources, targets)])
    dtype, count = DTYPES[i.type], vector_length(i)
    size = dtype.itemsize * count
    address = f.address(i.operands[1], space_of(i))
    access = Access(f.cta, i, "load", size)

    def run(lanes: Lanes) -> None:
        for buffer, places, part in access(address(lanes), lanes):
            values = buffer.view(dtype, count)[places // size]
            for n, target in enumerate(targets):
                if target is not None:
                    target[part.pick] = values[:, n]

    return run


def _store(i: Instruction, f: Frame) -> Operation:
    sources = f.sources(i.operands[1], i.type)
    if space_of(i) == "param":
        targets = f.parameter(i.operands[0], i.type, len(sources))
        return _in_turn([assign(copy, [s], t) for s, t in zip(sources, targets)])
    dtype, count = DTYPES[i.type], vector_length(i)
    size = dtype.itemsize * count
    address = f.address(i.operands[0], space_of(i))
    access = Access(f.cta, i, "store", size)

    def run(lanes: Lanes) -> None:
        for buffer, places, part in access(address(lanes), lanes):
            view, rows = buffer.view(dtype, count), places // size
            for n, source in enumerate(sources):
                view[rows, n] = source[part.pick] if len(source) > 1 else source

    return run


def _in_turn(operations: list[Operation]) -> Operation:
    def run(lanes: Lanes) -> None:
        for operation in operations:
            operation(lanes)

    return run


def _move(i: Instruction, f: Frame) -> Operation:
    to, source = i.operands
    if source.startswith("{"):
        return _pack(i, f)
    if to.startswith("{"):
        return _unpack(i, f)
    if source.startswith(("%clock", "%globaltimer")):
        target, dtype = f.target(to, i.type), DTYPES[i.type]
        return lambda lanes: write(target, np.array([f.cta.steps], dtype), lanes)
    return f.elementwise(i, copy, [i.type], i.type)


def _parts(operand: str, i: Instruction) -> tuple[int, np.dtype, str]:
    """How many parts there are, and their type."""
    whole = DTYPES[i.type].itemsize
    number = len(elements(operand))
    type = f"b{8 * whole // number}"
    return number, DTYPES[type], type


def _pack(i: Instruction, f: Frame) -> Operation:
    number, dtype, type = _parts(i.operands[1], i)
    sources = f.sources(i.operands[1], type)
    target = f.target(i.operands[0], "b" + i.type[1:])
    if target is None:
        return lambda lanes: None
    parts = target.reshape(-1, 1).view(dtype)

    def run(lanes: Lanes) -> None:
        columns = [np.array(s) for s in sources]  # one may be a part of the target
        for n in range(number):
            write(parts[:, n], columns[n], lanes)

    return run


def _unpack(i: Instruction, f: Frame) -> Operation:
    _, dtype, type = _parts(i.operands[0], i)
    targets = f.targets(i.operands[0], type)
    source = f.source(i.operands[1], "b" + i.type[1:])

    def run(lanes: Lanes) -> None:
        parts = np.array(source).reshape(-1, 1).view(dtype)
        for n, target in enumerate(targets):
            write(target, parts[:, n], lanes)

    return run


def _convert_address(i: Instruction, f: Frame) -> Operation:
    """`cvta`: addresses of shared and local memory have a place among all others."""
    shift = {"shared": base(SHARED), "local": base(LOCAL)}.get(space_of(i), 0)
    dtype = DTYPES[i.type]
    by = np.array([(-shift if i.has("to") else shift) % (1 << 8 * dtype.itemsize)], dtype)
    return f.elementwise(i, (lambda a: a + by) if shift else copy, [i.type], i.type)


def _is_in_space(i: Instruction, f: Frame) -> Operation:
    slot = {"shared": SHARED, "local": LOCAL}.get(space_of(i))

    def compute(address: np.ndarray) -> np.ndarray:
        slots = address >> np.uint64(SLOT)
        if space_of(i) == "const":
            return slots >= MODULE
        return slots == slot if slot else slots > LOCAL

    return f.elementwise(i, compute, ["u64"], "pred")


def _copy_async(i: Instruction, f: Frame) -> Operation:
    """`cp.async`: the bytes are read now, and seen by nobody before they are waited for."""
    copies = f.cta.copies
    if i.has("commit_group"):
        return copies.commit
    if i.has("wait_all"):
        return lambda lanes: copies.wait(lanes, None)
    if i.has("wait_group"):
        number = int(f.source(i.operands[0], "u32")[0])
        return lambda lanes: copies.wait(lanes, number)
    if not (i.has("ca") or i.has("cg")):
        raise UnknownInstruction(f"PTX line {i.line}: {i.text} is no copy of single threads")
    return _copy(i, f)


def _copy(i: Instruction, f: Frame) -> Operation:
    to, source = f.address(i.operands[0], "shared"), f.address(i.operands[1], "global")
    sizes = [f.source(operand, "u32") for operand in i.operands[2:4]]
    size, read = int(sizes[0][0]), sizes[0 if i.has("L2::cache_hint") else -1]
    storing, loading = Access(f.cta, i, "store", size), Access(f.cta, i, "load", size)

    def run(lanes: Lanes) -> None:
        given = of_threads(read, lanes.threads)
        data = np.zeros((len(lanes), size), np.uint8)
        where_to, where_from = to(lanes), source(lanes)
        some = lanes.part(given > 0)  # a copy of no bytes reads nothing, and writes zeros
        if len(some):
            for buffer, places, part in loading(where_from[given > 0], some):
                rows = np.searchsorted(lanes.threads, part.threads)
                data[rows] = buffer.view(np.dtype(np.uint8), size)[places // size]
        data[np.arange(size) >= given[:, None]] = 0
        for _, places, part in storing(where_to, lanes):
            f.cta.copies.issue(part, places, data, storing.number)

    return run


def _fence(i: Instruction, f: Frame) -> Operation:
    if {"cta", "proxy"} & set(i.opcode):
        return _nothing(i, f)
    return lambda lanes: f.cta.order.fence()


def _nothing(i: Instruction, f: Frame) -> Operation:
    return lambda lanes: None


MOVEMENT: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "mov": _move,
    "cvta": _convert_address,
    "isspacep": _is_in_space,
    "cp": _copy_async,
    "membar": _fence,
    "fence": _fence,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "applypriority": _nothing,
    "discard": _nothing,
    "createpolicy": _nothing,
    "nanosleep": _nothing,
    "pragma": _nothing,
}
