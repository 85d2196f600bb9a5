"""What each opcode does: an instruction becomes a function of the lanes that execute it."""

from __future__ import annotations

from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation
from minipaged_cuda.emulator.instructions.atomics import ATOMICS
from minipaged_cuda.emulator.instructions.bits import BITS
from minipaged_cuda.emulator.instructions.conversion import convert
from minipaged_cuda.emulator.instructions.floating import FLOATING, TYPES
from minipaged_cuda.emulator.instructions.integer import INTEGER
from minipaged_cuda.emulator.instructions.matrix import MATRIX
from minipaged_cuda.emulator.instructions.movement import MOVEMENT
from minipaged_cuda.emulator.instructions.selection import SELECTION
from minipaged_cuda.emulator.instructions.warp import WARPWIDE
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_OTHERS = INTEGER | BITS | SELECTION | MOVEMENT | ATOMICS | WARPWIDE | MATRIX | {"cvt": convert}

# Any other word in an opcode might change what it means, so none is passed over in silence.
_WORDS = """
    rn rz rm rp rni rzi rmi rpi rna ftz noftz sat satfinite relu approx full NaN
    lo hi wide cc wrap clamp l r shiftamt f4e b4e rc8 ecl ecr rc16
    eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num nan
    finite infinite number notanumber normal subnormal
    sync aligned warp up down bfly idx ballot any all uni
    add min max inc dec and or xor cas exch
    global shared local const param to v2 v4 nc ca cg cs lu cv wb wt
    weak volatile relaxed acquire release acq_rel sc mmio cta cluster gpu gl sys proxy async alias
    commit_group wait_group wait_all fractional L1 L2
    m8n8k4 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m8n8 row col x1 x2 x4 trans
"""
_MODIFIERS = DTYPES.keys() | _WORDS.split()
_HINTS = ("L1::", "L2::", "shared::cta", "level::")


def decode(instruction: Instruction, frame: Frame) -> Operation:
    """The instruction as a function of the lanes that execute it, its guard included.

    Raises:
        UnknownInstruction: The emulator does not know the opcode, or not in this form.
    """
    operation = _bare(instruction, frame)
    if instruction.guard is None:
        return operation
    name, negated = instruction.guard
    predicate = frame.source(name, "pred")

    def guarded(lanes: Lanes) -> None:
        part = lanes & (~predicate if negated else predicate)
        if len(part):
            operation(part)

    return guarded


def _bare(instruction: Instruction, frame: Frame) -> Operation:
    if instruction.name in FLOATING or instruction.name in _OTHERS:
        _check_modifiers(instruction)
    if instruction.type in TYPES and instruction.name in FLOATING:
        return FLOATING[instruction.name](instruction, frame)
    if instruction.name in _OTHERS:
        return _OTHERS[instruction.name](instruction, frame)
    raise _unknown(repr(instruction.name), instruction)


def _check_modifiers(instruction: Instruction) -> None:
    for part in instruction.opcode[1:]:
        if part not in _MODIFIERS and not part.startswith(_HINTS):
            raise _unknown(f"'.{part}'", instruction)


def _unknown(what: str, instruction: Instruction) -> UnknownInstruction:
    known = sorted(FLOATING.keys() | _OTHERS.keys())
    return UnknownInstruction(
        f"the emulator does not know {what} of {'.'.join(instruction.opcode)!r}\n  PTX line "
        f"{instruction.line}: {instruction.text}\n  it knows " + " ".join(known)
    )
