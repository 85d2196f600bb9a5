"""One animal of the zoo: a kernel as its makers ship it, and what is known to be wrong with it.

It knows how to state what is expected, not how to load or judge anything.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..contract import Contract, Features
from ..conventions import Convention, Kernel

Lane = Literal["fast", "slow"]
# A contract under which a kernel is never compared with itself: one call for a case, not twenty.
ONE_CALL = {"repeatable": False}


class NotHere(Exception):
    """A kernel cannot be had on this machine; the message is the reason that a test skips with."""


@dataclass(frozen=True)
class Finding:
    """One thing that is known to be wrong, and how to look past it.

    Attributes:
        name: A few words.
        checks: Names of the checks that fail because of it; `*` stands for anything.
        cause: One sentence: what the kernel does, and `file:line` of its source.
        without: Changes of the features or the contract under which it does not show.
        where: Changes of the features or the contract under which it is looked for, if it is rare.
        level: Level of the checks that show it; None for the animal's.
        bitwise: It shows when a kernel is compared with itself, not only against the truth.
    """

    name: str
    checks: tuple[str, ...]
    cause: str
    without: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    level: int | None = None
    bitwise: bool = False

    def explains(self, check: str) -> bool:
        """True if a failure of this check was expected."""
        return any(fnmatchcase(check, pattern) for pattern in self.checks)


@dataclass(frozen=True)
class Animal:
    """A kernel to be judged.

    Attributes:
        name: Unique.
        lane: "fast" if it takes seconds; "slow" if it takes minutes, as interpreted kernels do.
        package: The distribution that it comes from; its version is in the table.
        load: Imports it. Raises `NotHere`.
        convention: How it is called.
        features: What can be asked of it here.
        contract: What it is held to.
        expected: What is known to be wrong with it: nothing else may be, and all of it must be.
        level: See `check_kernel`.
        examples: Random cases to try; five times as many where a finding is looked for.
        deadline_s: Seconds for one judgement; there is one more than there are findings.
        call_limit_s: Seconds after which a call counts as hung.
    """

    name: str
    lane: Lane
    package: str
    load: Callable[[], Kernel]
    convention: str | Convention
    features: Features
    contract: Contract = field(default_factory=Contract)
    expected: tuple[Finding, ...] = ()
    level: int = 3
    examples: int = 30
    deadline_s: float = 120.0
    call_limit_s: float = 60.0

    @property
    def version(self) -> str:
        """Of the package that is installed; "" where there is none."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def tamed(self, but: Finding | None = None) -> tuple[Features, Contract]:
        """What is left to judge when every known finding is looked past, save one."""
        changes: dict[str, Any] = {}
        for finding in self.expected:
            if finding is not but:
                changes |= finding.without
        if but is not None:
            changes |= {**but.where, **({} if but.bitwise else ONE_CALL)}
        names = {field.name for field in fields(Features)}
        features = {name: value for name, value in changes.items() if name in names}
        contract = {name: value for name, value in changes.items() if name not in names}
        return self.features.only(**features), self.contract.only(**contract)


def required(module: str) -> Any:
    """The module, imported.

    Raises:
        NotHere: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotHere(f"cannot import {module}: {error}") from error
