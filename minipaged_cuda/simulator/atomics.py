"""What kernels see as `cuda.atomic`: updates that nobody can come between.

Each returns the old value, and says what the new one is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .meetings import current
from .scalars import cast


def _update(array: Any, index: Any, combine: Callable[[Any, Any], Any], value: Any) -> Any:
    """Who changes nothing may be waiting for somebody else to: let the others run then."""
    value = cast(value, array.dtype)
    old, new = array.update(index, lambda old: combine(old, value))
    if new == old:
        current().pause()
    else:
        current().cta.idle = 0
    return old


def add(array: Any, index: Any, value: Any) -> Any:
    """The sum."""
    return _update(array, index, operator.add, value)


def sub(array: Any, index: Any, value: Any) -> Any:
    """The difference."""
    return _update(array, index, operator.sub, value)


def and_(array: Any, index: Any, value: Any) -> Any:
    """The bits of both."""
    return _update(array, index, operator.and_, value)


def or_(array: Any, index: Any, value: Any) -> Any:
    """The bits of either."""
    return _update(array, index, operator.or_, value)


def xor(array: Any, index: Any, value: Any) -> Any:
    """The bits of one alone."""
    return _update(array, index, operator.xor, value)


def inc(array: Any, index: Any, value: Any) -> Any:
    """One more, and 0 after `value`."""
    return _update(array, index, lambda old, top: 0 if old >= top else old + 1, value)


def dec(array: Any, index: Any, value: Any) -> Any:
    """One less, and `value` after 0."""
    return _update(array, index, lambda old, top: top if old == 0 or old > top else old - 1, value)


def exch(array: Any, index: Any, value: Any) -> Any:
    """The value."""
    return _update(array, index, lambda old, new: new, value)


def max(array: Any, index: Any, value: Any) -> Any:
    """The larger one; NaN where either is."""
    return _update(array, index, np.maximum, value)


def min(array: Any, index: Any, value: Any) -> Any:
    """The smaller one; NaN where either is."""
    return _update(array, index, np.minimum, value)


def nanmax(array: Any, index: Any, value: Any) -> Any:
    """The larger one; a number rather than NaN."""
    return _update(array, index, np.fmax, value)


def nanmin(array: Any, index: Any, value: Any) -> Any:
    """The smaller one; a number rather than NaN."""
    return _update(array, index, np.fmin, value)


def cas(array: Any, index: Any, old: Any, value: Any) -> Any:
    """The value, if the element is `old`."""
    return _update(array, index, lambda now, new: new if now == old else now, value)


def compare_and_swap(array: Any, old: Any, value: Any) -> Any:
    """`cas` of the first element."""
    return cas(array, 0, old, value)
