"""Number formats: which values each can hold, and rounding to them; knows no tensor library.

A format is the sorted list of its values where it is small, and a number of bits where it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, or an integer one (`exponent_bits` 0).

    Attributes:
        precision: Bits of the significand, the implied one included; of an integer all its bits.
        exponent_bits: Bits of the exponent; 0 for two's complement integers.
        finite: The largest exponent holds numbers too, and there is no infinity (e4m3fn).
    """

    name: str
    precision: int
    exponent_bits: int = 0
    finite: bool = False

    @property
    def is_integer(self) -> bool:
        """True of int8 and int4."""
        return self.exponent_bits == 0

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest, for normal numbers."""
        return 2.0**-self.precision

    @property
    def tiny(self) -> float:
        """Spacing of the smallest (subnormal) numbers."""
        if self.is_integer:
            return 1.0
        return 2.0 ** (3 - 2 ** (self.exponent_bits - 1) - self.precision)

    @property
    def vanishing(self) -> float:
        """The size below which a number may be lost.

        Processors, GPUs above all, may take subnormal numbers of float32's range for zero; those of
        narrow formats are needed, and kept.
        """
        return self.tiny if self.exponent_bits < 8 else self.tiny * 2.0 ** (self.precision - 1)

    @property
    def max(self) -> float:
        """The largest number."""
        if self.is_integer:
            return 2.0 ** (self.precision - 1) - 1
        top = 2.0 ** (2 ** (self.exponent_bits - 1) - (0 if self.finite else 1))
        # An IEEE format's all-ones exponent is infinity; e4m3fn gives only its last number to NaN.
        return top * (2 - 2.0 ** (1 - self.precision) * (2 if self.finite else 1))

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Every finite number of the format, ascending; for formats of a byte or less."""
        if self.is_integer:
            return np.arange(-self.max - 1, self.max + 1)
        grid = [0.0]
        while grid[-1] < self.max:
            grid.append(grid[-1] + self._spacing(grid[-1]))
        return np.array([-x for x in grid[:0:-1]] + grid)

    def _spacing(self, x: float) -> float:
        exponent = math.frexp(x)[1] if x else -10_000
        return max(self.tiny, 2.0 ** (exponent - self.precision))

    def round(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Nearest numbers of the format, ties to even, ends clamped; float64 in and out."""
        x = np.asarray(x, dtype=np.float64)
        if self.is_integer:
            return np.clip(np.rint(x), -self.max - 1, self.max)
        exponent = np.frexp(x)[1]
        spacing = np.maximum(np.ldexp(1.0, exponent - self.precision), self.tiny)
        return np.clip(np.rint(x / spacing) * spacing, -self.max, self.max)


FORMATS = {
    f.name: f
    for f in (
        Format("float64", 53, 11),
        Format("float32", 24, 8),
        Format("tfloat32", 11, 8),
        Format("bfloat16", 8, 8),
        Format("float16", 11, 5),
        Format("float8_e5m2", 3, 5),
        Format("float8_e4m3fn", 4, 4, finite=True),
        Format("int8", 8),
        Format("int4", 4),
    )
}


def rounded(x: ArrayLike, name: str) -> NDArray[np.float64]:
    """`x` on the grid of the format `name`, as float64."""
    return FORMATS[name].round(np.asarray(x, dtype=np.float64))


def unit_roundoff(name: str) -> float:
    """Of the format: rounding a normal number x to it errs by at most this times |x|."""
    return FORMATS[name].unit_roundoff
