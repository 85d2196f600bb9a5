"""What kernels see as `math` and as Python's own functions: results have the types of Numba's."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from .numbers import INT32, INT64, KNOWN, Int8, Int16, Int32, UInt64, number, truth
from .operators import absolute
from .scalars import cast

_FLOATS = (np.float16, np.float32, np.float64)
_INT64 = np.dtype(np.int64)


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


# -- math ------------------------------------------------------------------------------------------


def _of_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        return function(x if x.__class__ in _FLOATS else np.float64(x))

    return call


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(x: Any, y: Any) -> Any:
        kind = _common_float(x, y)
        return function(kind(x), kind(y))

    return call


def _common_float(x: Any, y: Any) -> type:
    """The type in which a function of two numbers is computed."""
    kind = (number(x) * number(y)).dtype.type
    return {np.float16: np.float32, np.float32: np.float32}.get(kind, np.float64)


def _exact(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function that NumPy lacks, in float64; what has no value is inf or NaN."""

    def call(x: Any) -> Any:
        kind = x.dtype.type if x.__class__ in _FLOATS else np.float64
        try:
            return kind(function(float(x)))
        except OverflowError:
            return kind(math.inf)
        except ValueError:
            return kind(math.nan)

    return call


def _ldexp(x: Any, n: Any) -> Any:
    return np.ldexp(_float(x), np.int32(n))


def _asks(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: truth(function(x))


_ONE = {name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10")}
_ONE |= {name: getattr(np, name) for name in ("log1p", "sqrt", "sin", "cos", "tan", "sinh")}
_ONE |= {name: getattr(np, name) for name in ("cosh", "tanh", "floor", "ceil", "trunc", "fabs")}
_ONE |= {f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan")}
_ONE |= {f"a{name}h": getattr(np, f"arc{name}h") for name in ("sin", "cos", "tan")}
_ONE |= {"degrees": np.degrees, "radians": np.radians}
_TWO = {name: getattr(np, name) for name in ("fmod", "hypot", "copysign", "nextafter")}
_TWO |= {"atan2": np.arctan2, "pow": np.power}

MATH = SimpleNamespace(
    **{
        **vars(math),
        **{name: number(x) for name, x in vars(math).items() if isinstance(x, float)},
        **{name: _of_one(function) for name, function in _ONE.items()},
        **{name: _of_two(function) for name, function in _TWO.items()},
        **{name: _exact(getattr(math, name)) for name in ("erf", "erfc", "gamma", "lgamma")},
        "ldexp": _ldexp,
        **{name: _asks(getattr(np, name)) for name in ("isnan", "isinf", "isfinite")},
    }
)

# -- powers ----------------------------------------------------------------------------------------


_MANY = 0x10000  # factors that Numba multiplies at most


def power(a: Any, b: Any) -> Any:
    """`a ** b`: for a whole `b` by multiplying, in the type of `a`, or of the sum of whole ones."""
    a, b = number(a), number(b)
    if _is_float(b):
        return MATH.pow(a, b)
    if not _is_float(a):
        return _whole_power(int(a), int(b), (a + b).dtype)
    kind = np.float64 if a.__class__ is np.float64 else np.float32
    if abs(int(b)) > _MANY:
        return kind(np.power(np.float64(a), np.float64(b)))
    product, factor, times = kind(1), kind(a), abs(int(b))
    while times:
        product = product * factor if times & 1 else product
        factor, times = factor * factor, times >> 1
    return kind(1) / product if int(b) < 0 else product


def _whole_power(a: int, b: int, dtype: np.dtype) -> Any:
    """Numba's has float64 for one of its results, and so for all: 53 bits are right."""
    if b > _MANY:
        return cast(np.power(np.float64(a), np.float64(b)), dtype)
    if b >= 0:
        return cast(np.float64(cast(pow(a, b, 1 << 64), dtype)), dtype)
    return cast(a ** (b & 1) if abs(a) == 1 else 0 if a else -(2**63), dtype)


# -- Python's own functions ------------------------------------------------------------------------


class _Range:
    """A range of numbers of a type: int32 if all its bounds are, uint64 or int64."""

    def __init__(self, *bounds: Any) -> None:
        self.whole = builtins.range(*bounds)
        kinds = {number(x).__class__ for x in bounds}
        self.numbers = INT32 if kinds <= {Int8, Int16, Int32} else INT64
        if not any(np.issubdtype(kind, np.signedinteger) for kind in kinds):
            self.numbers = KNOWN[UInt64]

    def __iter__(self) -> Iterator[Any]:
        return map(self.numbers.__getitem__, self.whole)

    def __len__(self) -> int:
        return len(self.whole)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    """`min` or `max`: of numbers in the type that NumPy has for all of them."""

    def call(*values: Any) -> Any:
        if len(values) == 2 and values[0].__class__ is values[1].__class__:
            return pick(*values)
        values = tuple(values[0]) if len(values) == 1 else values
        if len({x.__class__ for x in values}) == 1:
            return number(pick(values))
        dtype = np.result_type(*(number(x).dtype for x in values))
        return pick(cast(x, dtype) for x in values)

    return call


def _int(value: Any) -> Any:
    """A whole number as it is, a float as the nearest int64 towards 0."""
    value = number(value)
    return cast(value, _INT64) if _is_float(value) else +value if value.dtype == bool else value


def _float(value: Any) -> Any:
    """A float as it is, a whole number as float64."""
    return value if value.__class__ in _FLOATS else np.float64(value)


def _round(value: Any, digits: Any = None) -> Any:
    """The nearest int64, or the nearest float of so many digits."""
    if digits is None:
        return cast(np.rint(_float(value)), _INT64)
    return _float(value).__class__(builtins.round(float(value), int(digits)))


BUILTINS: dict[str, Any] = {
    "abs": absolute,
    "bool": truth,
    "enumerate": lambda values: ((INT64[i], x) for i, x in builtins.enumerate(values)),
    "float": _float,
    "int": _int,
    "len": lambda values: INT64[len(values)],
    "max": _extreme(max),
    "min": _extreme(min),
    "pow": power,
    "range": _Range,
    "round": _round,
}
