"""A CTA's shared memory: its arrays, by the call that made them, and how much there is of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arrays import DeviceArray, new_array
from .errors import SharedMemoryLimit
from .launch import Launch
from .memory import Label, Memory, fresh
from .places import Place, assigned_name

DYNAMIC_ALIGNMENT = 16  # bytes
STATIC_LIMIT = 48 * 1024  # bytes that ptxas lets a kernel declare, on every GPU


class SharedMemory:
    """The shared arrays of one CTA.

    A call of `cuda.shared.array` is one array, however many threads execute it and how often. All
    calls with shape 0 are the same memory: what the launch gave as `dynamic_shared`.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.static: dict[Place, DeviceArray] = {}
        self.dynamic: Memory | None = None

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, alignment: int | None, place: Place
    ) -> DeviceArray:
        """The array of a call at `place`.

        Raises:
            SharedMemoryLimit: The CTA has more than there is.
        """
        if shape == (0,):
            return self._dynamic(dtype, place)
        if place not in self.static:
            size = math.prod(shape) * dtype.itemsize
            memory = fresh("shared", size, alignment or dtype.itemsize, self.launch.check_races)
            self.static[place] = self._array(memory, shape, dtype, place)
            self._check_limit(place)
        return self.static[place]

    def _dynamic(self, dtype: np.dtype, place: Place) -> DeviceArray:
        size = self.launch.dynamic_shared
        if self.dynamic is None:
            self.dynamic = fresh("shared", size, DYNAMIC_ALIGNMENT, self.launch.check_races)
            self._check_limit(place)
        return self._array(self.dynamic, (size // dtype.itemsize,), dtype, place)

    def _array(self, memory: Memory, shape: Any, dtype: np.dtype, place: Place) -> DeviceArray:
        name = assigned_name(place) or "shared array"
        buffer = self.launch.trace.buffer(name, dtype.itemsize, shared=True)
        return new_array(Label(name, buffer), memory, shape, dtype)

    def _check_limit(self, place: Place) -> None:
        trace, limit = self.launch.trace, self.launch.shared_limit
        static = sum(array.memory.data.size for array in self.static.values())
        total = static + self.launch.dynamic_shared
        trace.shared_bytes = max(trace.shared_bytes, total)
        if static > STATIC_LIMIT:
            raise SharedMemoryLimit(
                f"{static} bytes of shared arrays; a kernel may declare {STATIC_LIMIT}: let the "
                f"launch give more, `dynamic_shared=`, to an array of shape 0, at {place}"
            )
        if total > limit:
            raise SharedMemoryLimit(
                f"{static} bytes of shared arrays and {self.launch.dynamic_shared} dynamic ones "
                f"are {total}, a CTA may have {limit}, at {place}"
            )
