"""Runs kernels with a fault planted in one of their texts, without touching a file or a module.

The changed text is executed beside the package: its functions take the place of the right ones, in
the globals of other kernels as well, for whoever launches through a `PlantedLauncher`, and for
nobody else. It has a file name of its own, so a compiler, a traceback and the key of what is kept
on disk see the text with the fault.
"""

from __future__ import annotations

import builtins
import linecache
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import minipaged_cuda

KERNELS = f"{minipaged_cuda.__name__}.kernels"
ROOT = Path(minipaged_cuda.__file__).parents[1]


@dataclass(frozen=True)
class Fault:
    """A few characters of one module, and what is wrong with their replacement."""

    name: str  # what is wrong, in a few words
    kind: str  # the class of fault
    like: str  # the public report it is modelled on
    module: str  # ``decode_v1``, or ``operations.copies``
    right: str  # stands in the source exactly once
    wrong: str
    judge: str  # the cheapest one known to see it,
    case: str  # and in which case

    @property
    def full_module(self) -> str:
        return f"{KERNELS}.{self.module}" if "." not in self.module else f"{_TOP}.{self.module}"

    def source(self) -> str:
        """The module's text with the fault in it."""
        text = _read(self.full_module)
        times = text.count(self.right)
        if times != 1:
            raise LookupError(f"{self.name}: {self.right!r} stands {times} times in {self.module}")
        return text.replace(self.right, self.wrong)


@dataclass(frozen=True)
class Case:
    """One operation, and what it must do.

    Attributes:
        name: What is special about it.
        run: Runs it on a launcher, and raises an AssertionError if the result is not right.
        is_far: Its offsets pass 2**31, in memory too large to keep books of every element.
    """

    name: str
    run: Callable[[PlantedLauncher], None]
    is_far: bool = False


class Planted:
    """The modules of all kernels, and of the fault if it is elsewhere, with the fault in one."""

    def __init__(self, fault: Fault | None):
        self.fault = fault
        self.modules: dict[str, ModuleType] = {}

    def module(self, name: str) -> Any:
        """A second copy of a module of the package, made when it is first asked for."""
        if name not in self.modules:
            is_here = self.fault is not None and self.fault.full_module == name
            self._execute(name, self.fault.source() if self.fault and is_here else _read(name))
        return self.modules[name]

    def _execute(self, name: str, text: str) -> None:
        module = self.modules[name] = ModuleType(name)
        file = f"<{name} planted {id(self)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        exec(compile(text, file, "exec", dont_inherit=True), vars(module))

    def _import(self, name: str, *more: Any) -> Any:
        is_ours = name.startswith(f"{KERNELS}.") or (self.fault and name == self.fault.full_module)
        return self.module(name) if is_ours else __import__(name, *more)


class PlantedLauncher:
    """Gives another launcher the planted kernels in place of the right ones.

    Outputs are NaN before: what a kernel forgets to write is then wrong.
    """

    def __init__(self, launcher: Any, planted: Planted):
        self.launcher, self.planted, self.card = launcher, planted, launcher.card

    def __call__(self, specialisation, grid, num_threads, arguments, **more):
        kernel = specialisation.kernel
        kernel = getattr(self.planted.module(kernel.__module__), kernel.__name__)
        for name in ("out", "lse"):
            if name in arguments:
                arguments[name].fill_(torch.nan)
        self.launcher(replace(specialisation, kernel=kernel), grid, num_threads, arguments, **more)


_TOP = minipaged_cuda.__name__


def _read(name: str) -> str:
    return ROOT.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
