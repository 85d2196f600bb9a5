"""What a program may do wrong; every message names the PTX line, the CTA and the threads."""

from __future__ import annotations


class EmulationError(Exception):
    """Base of all that ends an emulated launch."""


class InvalidProgram(EmulationError, ValueError):
    """PTX text that is not well formed, or arguments that do not fit its parameters."""


class UnknownInstruction(EmulationError, NotImplementedError):
    """An instruction that may be right on a card, but that the emulator cannot run."""


class OutOfBounds(EmulationError):
    """An access outside every buffer."""


class Misaligned(EmulationError):
    """An access at an address that is no multiple of its size."""


class ReadOnly(EmulationError):
    """A store to a buffer that may only be read."""


class NotReadable(EmulationError):
    """A load of an element that holds nothing this launch may look at."""


class Uninitialised(NotReadable):
    """A load of an element that nobody has written."""


class Race(EmulationError):
    """Two threads access the same bytes, one of them writes, and nothing orders them."""


class BarrierDivergence(EmulationError):
    """Threads wait at a barrier that the others of their CTA will not reach."""


class WrongMask(EmulationError):
    """A warp instruction whose mask names lanes that do not execute it."""


class Trap(EmulationError):
    """The program stopped itself."""


class StepLimit(EmulationError):
    """The program ran for so long that it probably never ends."""
