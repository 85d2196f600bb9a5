"""Attention with a fault planted in its source: a second copy of the modules, the first untouched.

The compiled path runs as plain Python here. Numba's names are replaced by what they mean, and
tiles, splits and items are small, so that short problems reach every edge without compiling.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np

PACKAGE = "minipaged.attention"
SOURCES = Path(importlib.import_module(PACKAGE).__file__).parent
READABLE = ("semantics", "online_softmax", "dense", "validation", "paged")
COMPILED = ("cpu_primitives", "cpu_plan", "cpu_matrices", "cpu_kernels", "cpu_write", "cpu")
SMALL = {
    "cpu_plan": {
        "SPLIT = 256": "SPLIT = 64",
        "ROWS = 64": "ROWS = 128",
        "SERIAL = 1 << 18": "SERIAL = 0",
    },
}


@dataclass(frozen=True)
class Fault:
    """A few characters of one module, and what is wrong with their replacement."""

    name: str
    module: str
    right: str  # stands in the source exactly once
    wrong: str

    def source(self) -> str:
        """The module's text with the fault in it."""
        text = (SOURCES / f"{self.module}.py").read_text(encoding="utf-8")
        times = text.count(self.right)
        if times != 1:
            raise LookupError(f"{self.name}: {self.right!r} stands {times}x in {self.module}.py")
        return text.replace(self.right, self.wrong)


def load(fault: Fault | None = None) -> SimpleNamespace:
    """All forms of attention and their parts, fresh, with the fault in them."""
    package = ModuleType(PACKAGE)
    package.__path__ = []
    with _modules_as_they_were():
        sys.modules[PACKAGE] = package
        for name in READABLE:
            _load_module(package, name, fault)
        sys.modules.update(_plain_numba())
        for name in COMPILED:
            _load_module(package, name, fault)
    package.cpu_kernels.math = SimpleNamespace(log=np.log)
    return SimpleNamespace(
        dense=package.dense.dense_attention,
        gather=package.paged.paged_attention,
        blockwise=package.paged.paged_attention_blockwise,
        merge_states=package.online_softmax.merge_states,
        AttentionState=package.online_softmax.AttentionState,
        cpu=_on_threads(package.cpu, 1),
        cpu_threads=_on_threads(package.cpu, 3),
        write_kv=_quietly(package.cpu.cpu_write_kv),
        primitives=package.cpu_primitives,
    )


@contextmanager
def _modules_as_they_were() -> Iterator[None]:
    before = dict(sys.modules)
    try:
        yield
    finally:
        sys.modules.clear()
        sys.modules.update(before)


def _load_module(package: ModuleType, name: str, fault: Fault | None) -> None:
    path = SOURCES / f"{name}.py"
    here = fault is not None and fault.module == name
    text = fault.source() if here else path.read_text(encoding="utf-8")
    for large, small in SMALL.get(name, {}).items():
        assert text.count(large) == 1, f"{large}: a constant has changed"
        text = text.replace(large, small)
    module = ModuleType(f"{PACKAGE}.{name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    setattr(package, name, module)
    exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    if name == "cpu_plan":  # records whose fields are attributes, as in compiled code
        module.PROBLEM = np.dtype((np.record, module.PROBLEM))
        module.ITEM = np.dtype((np.record, module.ITEM))


def _on_threads(cpu: ModuleType, number: int) -> Callable[..., Any]:
    def attention(query, key_cache, value_cache, *args, **kwargs):
        cpu.num_threads = lambda: number
        for cache in (key_cache, value_cache):
            end = cache.untyped_storage().data_ptr() + cache.untyped_storage().nbytes()
            _ends[cache.data_ptr()] = end
        attend = _quietly(cpu.cpu_paged_attention)
        return attend(query, key_cache, value_cache, *args, **kwargs)

    return attention


def _quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled code does not warn about infinities."""

    def call(*args, **kwargs):
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return call


# --- what Numba's names mean ---------------------------------------------------------------------


def _plain_numba() -> dict[str, ModuleType]:
    top, extending = ModuleType("numba"), ModuleType("numba.extending")
    top.njit = lambda function=None, **_: function or (lambda f: f)
    top.cfunc = lambda *_, **__: lambda function: SimpleNamespace(address=function)
    top.prange, top.carray, top.types = range, _carray, numba.types
    top.get_num_threads = lambda: 3
    extending.intrinsic, extending.overload = _intrinsic, _overload
    return {"numba": top, "numba.extending": extending}


_EVERYTHING = 1 << 60
_ends: dict[int, int] = {}  # where the memory of a cache ends: a fault must not read beyond


def _carray(address: int, shape: int | tuple[int, ...], dtype) -> np.ndarray:
    """The array at an address."""
    dtype = np.dtype(dtype)
    if shape == _EVERYTHING:
        shape = (_ends[address] - address) // dtype.itemsize
    shape = shape if isinstance(shape, tuple) else (shape,)
    num_bytes = math.prod(int(n) for n in shape) * dtype.itemsize
    if num_bytes == 0:
        return np.empty(shape, dtype)
    place = {"data": (int(address), False), "shape": (num_bytes,)}
    interface = place | {"typestr": "|u1", "version": 3}
    raw = np.asarray(SimpleNamespace(__array_interface__=interface))
    return raw.view(dtype).reshape(shape)


def _take_number(address: int) -> int:
    counter = ctypes.c_int64.from_address(int(address))
    counter.value += 1
    return counter.value - 1


def _multiply_add(rows: int, width: int) -> Callable[..., None]:
    def block(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, n, first, last):
        for r in range(i, i + rows):
            row = c[r * c_stride + n : r * c_stride + n + width]
            for k in range(first, last):
                row += a[a_at[r] + k] * b[b_at[k] + n : b_at[k] + n + width]

    return block


def _transpose(source, source_at, t, d, target, target_at, stride, ahead, ahead_at):
    for i in range(16):
        begin = source_at[t + i] + d
        target[target_at + i : target_at + i + 15 * stride + 1 : stride] = source[
            begin : begin + 16
        ]


_PLAIN_BUILDER = SimpleNamespace(
    select=np.where,
    fcmp_ordered=lambda sign, a, b: {">": np.greater, "<": np.less}[sign](a, b),
    fadd=np.add,
)


def _fold(combine: Callable[..., Any]) -> Callable[..., Any]:
    def fold(x, begin):
        value = np.full(16, begin, x.dtype)
        for t in range(0, len(x), 16):
            value = combine(_PLAIN_BUILDER, value, x[t : t + 16])
        for half in (8, 4, 2, 1):
            value = combine(_PLAIN_BUILDER, value, np.roll(value, -half))
        return value[0]

    return fold


_FAMILIES: dict[str, Callable[..., Any]] = {"block": _multiply_add, "fold": _fold}
_INTRINSICS: dict[str, Callable[..., Any]] = {
    "pointer": lambda address: address,
    "call": lambda function, argument, option: function(argument, option),
    "take_number": _take_number,
    "transpose_16x16": _transpose,
    "float_of_bits": lambda bits: np.int32(bits).view(np.float32),
}


def _intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    if function.__name__ in _FAMILIES:
        return _FAMILIES[function.__name__](**inspect.getclosurevars(function).nonlocals)
    return _INTRINSICS[function.__name__]


def _overload(stub: Callable[..., Any], **_) -> Callable[..., Any]:
    """Choose the implementation by the type of the first argument, as the compiler would."""
    chosen: dict[Any, Callable[..., Any]] = {}

    def decorate(choose: Callable[..., Any]) -> Callable[..., Any]:
        def dispatch(*args):
            kind = args[0].dtype
            if kind not in chosen:
                kinds = [numba.typeof(x) if isinstance(x, np.generic) else x for x in args]
                chosen[kind] = choose(*kinds)
            return chosen[kind](*args)

        stub.__globals__[stub.__name__] = dispatch
        return choose

    return decorate
