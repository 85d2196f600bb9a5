"""Tensor cores: `mma.sync` and `ldmatrix`; where a lane's registers lie in the matrices.

The sum of a tile is computed in float64 and rounded once; a card rounds in between.

    lane = 4 * group + column        registers of A (16 x 16), each two neighbours of a row
                                          k 0..7    k 8..15
                                     row group       a0        a2
                                     row group + 8   a1        a3
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minipaged_cuda.emulator import rounding
from minipaged_cuda.emulator.access import Access
from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation, write
from minipaged_cuda.emulator.lanes import WARP, Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_SHAPES = {"m16n8k16": 16, "m16n8k8": 8}


def _multiply(i: Instruction, f: Frame) -> Operation:
    """`mma.sync`: D [16, 8] = A [16, k] B [k, 8] + C, one product for each warp."""
    depth = next((_SHAPES[part] for part in i.opcode if part in _SHAPES), None)
    to, left, right, added = i.opcode[-4:]
    if depth is None or left not in ("f16", "bf16") or left != right or to != added:
        raise UnknownInstruction(
            f"PTX line {i.line}: {i.text}\n  supported: m16n8k16 and m16n8k8 of f16 or bf16, "
            "with D and C of one type"
        )
    width, type = f.cta.width, "f32" if to == "f32" else "b32"
    a, b = (f.sources(operand, "b32") for operand in i.operands[1:3])
    c, d = f.sources(i.operands[3], type), f.targets(i.operands[0], type)
    in_a, in_b, in_c = _places_a(depth, width), _places_b(depth, width), _places_c(to, width)

    def run(lanes: Lanes) -> None:
        x = _numbers(a, left, width)[in_a].reshape(-1, 16, depth)
        y = _numbers(b, left, width)[in_b].reshape(-1, depth, 8)
        sums = np.matmul(x, y, dtype=np.float64) + _numbers(c, to, width)[in_c].reshape(-1, 16, 8)
        result = np.empty(sums.size, np.float32 if to == "f32" else np.float16)
        result[in_c] = sums.reshape(in_c.shape)
        for target, values in zip(d, result.view(DTYPES[type]).reshape(len(d), width)):
            write(target, values, lanes)

    return run


def _numbers(registers: list[np.ndarray], type: str, width: int) -> np.ndarray:
    """All numbers in some registers, in the order [register, lane of the CTA, half]."""
    words = np.empty((len(registers), width), registers[0].dtype)
    for word, register in zip(words, registers):
        word[:] = register
    if type == "f32":
        return words.ravel()
    halves = words.view(np.uint16).ravel()
    return rounding.from_bf16(halves) if type == "bf16" else halves.view(np.float16)


def _places_a(depth: int, width: int) -> np.ndarray:
    """[num_warps, 16 * depth] where each element of A is among the numbers in its registers."""
    row, column = np.divmod(np.arange(16 * depth), depth)
    register = row // 8 + column // 8 * 2
    return _halves(register, row % 8 * 4 + column % 8 // 2, column % 2, width)


def _places_b(depth: int, width: int) -> np.ndarray:
    """The same for B [depth, 8], whose pairs go down a column."""
    row, column = np.divmod(np.arange(8 * depth), 8)
    return _halves(row // 8, column * 4 + row % 8 // 2, row % 2, width)


def _places_c(type: str, width: int) -> np.ndarray:
    """The same for C and D [16, 8]; a float32 has a register of its own."""
    row, column = np.divmod(np.arange(16 * 8), 8)
    lane = row % 8 * 4 + column // 2
    if type == "f32":
        return _of_warps(row // 8 * 2 + column % 2, lane, width)
    return _halves(row // 8, lane, column % 2, width)


def _halves(register: np.ndarray, lane: np.ndarray, half: np.ndarray, width: int) -> np.ndarray:
    return 2 * _of_warps(register, lane, width) + half


def _of_warps(register: np.ndarray, lane: np.ndarray, width: int) -> np.ndarray:
    return register * width + lane + np.arange(0, width, WARP)[:, None]


def _load_matrices(i: Instruction, f: Frame) -> Operation:
    """`ldmatrix`: lanes 8n to 8n + 7 give the rows of matrix n, of which all lanes get a part."""
    number = next((int(part[1]) for part in i.opcode if part in ("x1", "x2", "x4")), None)
    if number is None or not i.has("m8n8"):
        raise UnknownInstruction(f"PTX line {i.line}: {i.text} has no shape m8n8 .x1, .x2 or .x4")
    targets = f.targets(i.operands[0], "b32")
    address, access = f.address(i.operands[1], "shared"), Access(f.cta, i, "load", 16)
    gives_row = np.tile(np.arange(WARP) // 8 < number, f.cta.num_warps)

    def run(lanes: Lanes) -> None:
        rows = np.zeros((f.cta.width, 8), np.uint16)
        givers = lanes & gives_row
        for buffer, places, part in access(address(givers), givers):
            rows[part.threads] = buffer.view(np.dtype(np.uint16), 8)[places // 16]
        matrices = rows.reshape(-1, 4, 8, 8)
        if i.has("trans"):
            matrices = matrices.swapaxes(2, 3)
        for n, target in enumerate(targets):
            pairs = np.ascontiguousarray(matrices[:, n]).view(np.uint32)  # [num_warps, 8, 4]
            write(target, pairs.reshape(-1), lanes)

    return run


MATRIX: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "mma": _multiply,
    "ldmatrix": _load_matrices,
}
