"""What can go wrong in a kernel; every message names line, CTA, threads and buffer."""


class SimulationError(RuntimeError):
    """A kernel did something that a GPU does not define, or that is surely not meant."""


class Race(SimulationError):
    """Two threads use one element, one of them writes, and nothing says who comes first."""


class BarrierDivergence(SimulationError):
    """Not every thread of the CTA came to the same barrier."""


class WrongMask(SimulationError):
    """A warp collective whose mask is not the set of lanes that execute it."""


class ShuffleFromInactive(SimulationError):
    """A lane asks for the value of a lane that takes no part in the shuffle."""


class Deadlock(SimulationError):
    """Threads wait for each other in a circle, or spin on a value that nobody changes."""


class OutOfBounds(SimulationError, IndexError):
    """An index below zero or behind the end; -1 does not mean the last element on a GPU."""


class NotAnIndex(SimulationError, TypeError):
    """An index that is no integer: nothing rounds it on a GPU."""


class ReadOnly(SimulationError, ValueError):
    """A write into an array that NumPy, or `cuda.const.array_like`, has closed for writing."""


class Misaligned(SimulationError):
    """The address of an access is not a multiple of its size."""


class Uninitialised(SimulationError):
    """A read of memory that nobody has written."""


class NotReadable(SimulationError):
    """A read of an element that `Simulator.readable` has put out of bounds."""


class SharedMemoryLimit(SimulationError):
    """A CTA asks for more shared memory than there is."""
