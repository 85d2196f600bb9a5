"""One kernel launch, and what a card allows; knows no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minipaged_cuda.errors import Unsupported

MAX_GRID = (2**31 - 1, 65535, 65535)

Grid = tuple[int, int, int]
Constants = tuple[tuple[str, int | str], ...]


class Card(NamedTuple):
    """What a plan asks of a GPU: compute capability and number of multiprocessors."""

    capability: tuple[int, int]
    num_sms: int


H200 = Card((9, 0), 132)


class ElementType(NamedTuple):
    """How kernels hold a tensor's elements: the type behind the pointer, and who converts.

    ``half`` is the 16-bit type that primitives of two numbers in a word are named after; e4m3 ones
    become float16 before anything else happens to them.
    """

    element: str
    num_bytes: int
    load: str
    store: str | None = None
    half: str = "f16"


TYPES = {
    "float32": ElementType("float32", 4, "load_float32", "store_float32"),
    "float16": ElementType("uint16", 2, "load_float16", "store_float16"),
    "bfloat16": ElementType("uint16", 2, "load_bfloat16", "store_bfloat16", "bf16"),
    "float8_e4m3fn": ElementType("uint8", 1, "load_float8_e4m3"),
}
# The oldest card that has the instruction which converts to and from a type.
OLDEST = {"bfloat16": (8, 0), "float8_e4m3fn": (8, 9)}


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the kernel's name, its constants, grid and threads per CTA.

    ``max_registers`` a thread may have, so that as many CTAs fit on a multiprocessor as are meant
    to; None leaves it to the compiler.
    """

    kernel: str
    constants: Constants
    grid: Grid
    num_threads: int
    max_registers: int | None = None

    @classmethod
    def of(
        cls,
        kernel: str,
        constants: Mapping[str, int | str],
        grid: Grid,
        num_threads: int,
        max_registers: int | None = None,
    ) -> Launch:
        """Make one.

        Raises:
            Unsupported: The grid has more CTAs in some direction than CUDA can launch.
        """
        for axis, count, limit in zip("xyz", grid, MAX_GRID):
            if count > limit:
                raise Unsupported(
                    f"{kernel} would need {count} CTAs along grid.{axis}, CUDA has {limit}: "
                    "give it the batch in parts"
                )
        return cls(kernel, tuple(sorted(constants.items())), grid, num_threads, max_registers)


def threads_for(num_items: int, most: int = 256) -> int:
    """Whole warps for so many items of work, up to ``most`` threads."""
    return min(most, max(1, ceil_div(num_items, 32)) * 32)


def ceil_div(a: int, b: int) -> int:
    """How many of size b hold a."""
    return -(-a // b)
