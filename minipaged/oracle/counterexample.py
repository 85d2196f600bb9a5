"""Failing cases that were kept, read and tried again; what is wrong with them, the checks say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from .checks import CHECKS, FORM, Check
from .contract import Contract, Features
from .conventions import Convention, Kernel, find_convention
from .guard import KernelFault
from .recipes import Recipe
from .report import Report
from .subject import Subject
from .targets import resolve_function
from .trial import Trial
from .truth import NumericModel

NOT_RUN = ("died", "hung")  # nobody calls such a kernel again only to write a file


@dataclass(frozen=True)
class Counterexample:
    """A case that broke a check, as it was saved.

    Attributes:
        path: The .npz.
        check: Name of the check.
        level: Of the check.
        message: What was wrong then.
        kernel: Its target, "" if it had none.
        name: What the report called it.
        convention: How it was called.
        recipe: The case.
        contract: What the kernel was held to.
        features: What could be asked of it.
        device: Where its tensors were.
        call_limit_s: Seconds after which a call counts as hung.
        picture: What was drawn of it then.
        diagnosis: The known fault that had the same output, or None.
    """

    path: Path
    check: str
    level: int
    message: str
    kernel: str
    name: str
    convention: str
    recipe: Recipe
    contract: Contract
    features: Features
    device: str = "cpu"
    call_limit_s: float = 20.0
    picture: str = ""
    diagnosis: str | None = None

    def subject(
        self, kernel: Kernel | None = None, convention: Convention | None = None
    ) -> Subject:
        """The kernel as it was judged.

        Raises:
            TargetError: It cannot be imported.
            LookupError: The convention is gone.
        """
        how = convention or find_convention(self.convention)
        fitted, _, _ = how.fit(kernel or resolve_function(self.kernel))
        return Subject(fitted, how, self.features, self.contract, self.device, self.call_limit_s)

    def replay(
        self, kernel: Kernel | None = None, convention: Convention | None = None
    ) -> str | None:
        """What is wrong now, as one sentence, or None: the kernel has been mended.

        Args:
            kernel: Another kernel than the one that failed.
            convention: Where it was one of your own.

        Raises:
            TargetError: As `subject`.
        """
        trial = Trial(self.subject(kernel, convention), self.recipe.build())
        for check in self.checks():
            try:
                message = check.examine(trial)
            except KernelFault as fault:
                message = fault.text
            if message:
                return message
        return None

    def checks(self) -> Iterator[Check]:
        """The one that it broke; all, if the kernel did not get so far as to be checked."""
        named = [check for check in CHECKS if check.name == self.check]
        for check in named or CHECKS:
            if check.promised(self.contract, self.features) and (named or check.level == 0):
                yield check


def load(path: str | Path) -> Counterexample:
    """A saved counterexample.

    Raises:
        ValueError: The file is not one.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            about = json.loads(str(data["about"]))
        numeric = about["contract"].pop("numeric")
        contract = Contract(**about["contract"], numeric=numeric and NumericModel(**numeric))
        features = Features(**{k: _tuples(v) for k, v in about["features"].items()})
        names = [f.name for f in fields(Counterexample) if f.name in about]
        names = [name for name in names if name not in ("recipe", "contract", "features")]
        return Counterexample(
            Path(path),
            **{name: about[name] for name in names},
            recipe=Recipe.from_dict(about["recipe"]),
            contract=contract,
            features=features,
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        text = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ValueError(f"{path} is not a counterexample: {text}") from error


def load_all(folder: str | Path, kernel: str, name: str, convention: str) -> list[Counterexample]:
    """Those of the same kernel and convention, in the order of their names."""
    found = []
    for path in sorted(Path(folder).glob("*.npz")):
        try:
            saved = load(path)
        except ValueError:
            continue  # somebody else's, or of another version
        same = saved.kernel == kernel if kernel else saved.name == name
        if same and saved.convention == convention:
            found.append(saved)
    return found


def fixed(
    saved: Iterable[Counterexample], report: Report, kernel: Kernel, convention: Convention
) -> list[Counterexample]:
    """Those that the kernel gets right now."""
    failed = {failure.check for failure in report.failures}
    if failed & {*FORM, *NOT_RUN}:
        return []
    return [
        one for one in saved if one.check not in failed and one.replay(kernel, convention) is None
    ]


def _tuples(x: Any) -> Any:
    return tuple(_tuples(y) for y in x) if isinstance(x, list) else x
