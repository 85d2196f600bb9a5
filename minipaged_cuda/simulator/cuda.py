"""What kernels see as `cuda`: the functions of `numba.cuda` that run on a device.

A kernel is run with this module wherever it names Numba's. Results have Numba's types: warp masks
are int32, so that of a full warp is -1.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import atomics as atomic
from . import scalars as types
from .arrays import DeviceArray, new_array
from .errors import ShuffleFromInactive
from .lanes import WARP_SIZE, Warp
from .launch import Dim3
from .meetings import FULL_MASK, barrier, collective, current, gather
from .memory import Label, LocalMemory, fresh
from .numbers import INT32, INT64, truth
from .places import assigned_name, here
from .scalars import as_dtype, brev, cbrt, clz, ffs, fma, popc, selp

__all__ = ["atomic", "brev", "cbrt", "clz", "ffs", "fma", "popc", "selp", "types"]

warpsize = INT32[WARP_SIZE]


class _Index:
    """`threadIdx` and its kind: read anew by every thread."""

    def __init__(self, read: Any) -> None:
        self._read = read

    x = property(lambda self: INT32[self._read(current()).x])
    y = property(lambda self: INT32[self._read(current()).y])
    z = property(lambda self: INT32[self._read(current()).z])


threadIdx = _Index(lambda lane: lane.thread_index)  # noqa: N816  # CUDA's names
blockIdx = _Index(lambda lane: lane.cta.index)  # noqa: N816
blockDim = _Index(lambda lane: lane.cta.launch.num_threads)  # noqa: N816
gridDim = _Index(lambda lane: lane.cta.launch.grid)  # noqa: N816


def __getattr__(name: str) -> Any:
    """`laneid`, which every thread reads for itself, and the types."""
    return INT32[current().index] if name == "laneid" else getattr(types, name)


def grid(ndim: int) -> Any:
    """The thread's place in the whole grid; for two or three dimensions a tuple."""
    lane = current()
    sizes = lane.cta.launch.num_threads
    return _first(ndim, Dim3(*map(_place, lane.cta.index, sizes, lane.thread_index)))


def gridsize(ndim: int) -> Any:
    """The number of threads in the whole grid, in each dimension."""
    launch = current().cta.launch
    return _first(ndim, Dim3(*(a * b for a, b in zip(launch.grid, launch.num_threads))))


def _place(cta: int, size: int, thread: int) -> int:
    return cta * size + thread


def _first(ndim: int, sizes: Dim3) -> Any:
    return INT64[sizes.x] if ndim == 1 else tuple(INT64[n] for n in sizes[: int(ndim)])


# -- barriers and fences ---------------------------------------------------------------------------


def syncthreads() -> None:
    """Wait for all threads of the CTA."""
    barrier("syncthreads", None, lambda values: None)


def syncthreads_count(predicate: Any) -> Any:
    """Wait for all threads; for how many of them the predicate is true."""
    return INT32[barrier("syncthreads_count", bool(predicate), sum)]


def syncthreads_and(predicate: Any) -> Any:
    """Wait for all threads; 1 if the predicate is true for all, else 0."""
    return INT32[barrier("syncthreads_and", bool(predicate), lambda values: int(all(values)))]


def syncthreads_or(predicate: Any) -> Any:
    """Wait for all threads; 1 if the predicate is true for any, else 0."""
    return INT32[barrier("syncthreads_or", bool(predicate), lambda values: int(any(values)))]


def syncwarp(mask: int = FULL_MASK) -> None:
    """Wait for the lanes in the mask; what they wrote before, they may read after."""
    collective("syncwarp", mask, None, lambda lanes: dict.fromkeys(lanes), orders_memory=True)


def threadfence() -> None:
    """All this thread has done or seen can be published by its next atomic."""
    current().fence()


threadfence_block = threadfence_system = threadfence


def nanosleep(nanoseconds: int) -> None:
    """Let the others run."""
    current().pause()


# -- shuffles and votes ----------------------------------------------------------------------------


def _shuffle(kind: str, mask: int, value: Any, source: int) -> Any:
    """The value of the lane `source` of the warp, or this lane's own if there is none such."""
    lane = current()
    source = source if 0 <= source < WARP_SIZE else lane.index
    return collective(kind, mask, (value, source), partial(_exchange, lane.warp))


def _exchange(warp: Warp, lanes: dict[int, Any]) -> dict[int, Any]:
    for index, (_, source) in lanes.items():
        if source not in lanes:
            lane = warp.lanes[index]
            raise ShuffleFromInactive(
                f"{lane} of {lane.cta} is lane {index} of its warp and reads lane {source}, which "
                f"takes no part (it is not in the mask, or the CTA has no such thread), in "
                f"{lane.wait}"
            )
    return {index: lanes[source][0] for index, (_, source) in lanes.items()}


def shfl_sync(mask: int, value: Any, src_lane: int) -> Any:
    """The value of lane `src_lane`, which need not be the same for all."""
    return _shuffle("shfl_sync", mask, value, int(src_lane) % WARP_SIZE)


def shfl_up_sync(mask: int, value: Any, delta: int) -> Any:
    """The value of the lane `delta` below; the lowest lanes keep their own."""
    return _shuffle("shfl_up_sync", mask, value, current().index - int(delta))


def shfl_down_sync(mask: int, value: Any, delta: int) -> Any:
    """The value of the lane `delta` above; the highest lanes keep their own."""
    return _shuffle("shfl_down_sync", mask, value, current().index + int(delta))


def shfl_xor_sync(mask: int, value: Any, lane_mask: int) -> Any:
    """The value of the lane whose index differs in these bits."""
    return _shuffle("shfl_xor_sync", mask, value, current().index ^ int(lane_mask))


def _vote(kind: str, mask: int, value: Any, count: Any) -> Any:
    """Every lane gets `count` of all lanes' values."""
    return collective(kind, mask, value, lambda lanes: dict.fromkeys(lanes, count(lanes)))


def all_sync(mask: int, predicate: Any) -> Any:
    """Whether the predicate is true in all lanes."""
    return truth(_vote("all_sync", mask, bool(predicate), lambda lanes: all(lanes.values())))


def any_sync(mask: int, predicate: Any) -> Any:
    """Whether the predicate is true in any lane."""
    return truth(_vote("any_sync", mask, bool(predicate), lambda lanes: any(lanes.values())))


def eq_sync(mask: int, predicate: Any) -> Any:
    """Whether the predicate is the same in all lanes."""
    same = _vote("eq_sync", mask, bool(predicate), lambda lanes: len(set(lanes.values())) == 1)
    return truth(same)


def ballot_sync(mask: int, predicate: Any) -> np.int32:
    """The lanes in which the predicate is true, as bits."""
    return _vote("ballot_sync", mask, bool(predicate), _where)


def match_any_sync(mask: int, value: Any) -> np.int32:
    """The lanes that have the same value as this one, as bits."""

    def group(lanes: dict[int, Any]) -> dict[int, np.int32]:
        same = {x: _where({i: y == x for i, y in lanes.items()}) for x in lanes.values()}
        return {lane: same[x] for lane, x in lanes.items()}

    return collective("match_any_sync", mask, value, group)


def match_all_sync(mask: int, value: Any) -> tuple[np.int32, Any]:
    """The lanes as bits and True, if all have one value; else 0 and False."""

    def agree(lanes: dict[int, Any]) -> tuple[np.int32, Any]:
        equal = len(set(lanes.values())) == 1
        return _where(dict.fromkeys(lanes, equal)), truth(equal)

    return _vote("match_all_sync", mask, value, agree)


def activemask() -> np.uint32:
    """The lanes that are here together, as bits."""
    return types.cast(_where({lane.index: True for lane in gather()}), np.dtype(np.uint32))


def lanemask_lt() -> np.uint32:
    """The lanes below this one, as bits."""
    return types.cast((1 << current().index) - 1, np.dtype(np.uint32))


def _where(lanes: dict[int, Any]) -> np.int32:
    bits = sum(1 << lane for lane, is_set in lanes.items() if is_set)
    return types.cast(bits, np.dtype(np.int32))


# -- memory ----------------------------------------------------------------------------------------


def _shared_array(shape: Any, dtype: Any, alignment: int | None = None) -> DeviceArray:
    """One array per CTA and call; shape 0 is all of the launch's dynamic shared memory."""
    return current().cta.shared.array(_shape(shape), as_dtype(dtype), alignment, here())


def _local_array(shape: Any, dtype: Any, alignment: int | None = None) -> DeviceArray:
    """One array per thread and call, not initialised."""
    extents, dtype = _shape(shape), as_dtype(dtype)
    name = assigned_name(here()) or "local array"
    num_bytes = math.prod(extents) * dtype.itemsize
    memory = fresh("local", num_bytes, alignment or dtype.itemsize, False)
    return new_array(Label(name, None), memory, extents, dtype)


def _const_array_like(array: Any) -> DeviceArray:
    """A copy that no thread can change."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
    data.flags.writeable = False
    name = assigned_name(here()) or "constant array"
    memory = LocalMemory("local", data, array.itemsize, False)
    return new_array(Label(name, None), memory, array.shape, array.dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)


shared = SimpleNamespace(array=_shared_array)
local = SimpleNamespace(array=_local_array)
const = SimpleNamespace(array_like=_const_array_like)


def ldcg(array: Any, index: Any) -> Any:
    """A read with a hint to the cache, which means nothing here."""
    return array[index]


def stcg(array: Any, index: Any, value: Any) -> None:
    """A write with a hint to the cache."""
    array[index] = value


ldca = ldcs = ldlu = ldcv = ldcg
stcs = stwb = stwt = stcg
