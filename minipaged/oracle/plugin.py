"""The judge as pytest tests: one test per check, so that each passes, fails or xfails by itself.

Installed with minipaged, so it is loaded in everybody's pytest: it imports nothing of the judge
until it is asked for something.

    pytest --minipaged-check my.kernels:attention --minipaged-convention flashinfer

or in a test file:

    @conformance(convention="flashinfer", level=3)
    def test_attention():
        return my_attention
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .card import Verdict
    from .conventions import Convention

XFAILS = pytest.StashKey[dict[str, str]]()
RUNS = pytest.StashKey[dict[Any, "dict[str, Verdict]"]]()
ARGUMENT = "minipaged_check"  # of a test made by `conformance`
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "check": ("Judge this kernel.", {"action": "append", "metavar": "MODULE:FUNCTION"}),
    "convention": ("How it is called.", {"default": "native", "metavar": "NAME"}),
    "level": ("Checks up to this level.", {"default": 3, "type": int, "metavar": "0-6"}),
    "contract": ("What it promises: poison=finite, ...", {"action": "append", "default": []}),
    "features": ("What it takes: softcap=false, ...", {"action": "append", "default": []}),
    "device": ("Where its tensors shall be.", {"default": "cpu"}),
    "max-examples": ("Random cases.", {"type": int, "metavar": "N"}),
    "seed": ("Of the random cases.", {"type": int, "metavar": "N"}),
    "xfails-file": (
        "Checks that are known to fail, one 'L2-placement  # reason, issue' per line.",
        {"metavar": "FILE"},
    ),
}
MISSING = "minipaged's checks need Hypothesis: pip install 'minipaged[testing]'"


def conformance(
    convention: str | Convention = "native", level: int = 3, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a test of every check: `test_attention[L2-placement]`.

    The kernel is judged once, when the first of them runs; the options
    `--minipaged-max-examples` and `--minipaged-seed` go before those that are given here.

    Args:
        convention: How the kernel is called.
        level: The checks up to which level.
        **options: More arguments of `check_kernel`: `contract`, `features`, `device`.

    Returns:
        A decorator for a function without parameters that returns the kernel, or for the kernel.

    Raises:
        ImportError: Hypothesis is not installed.
        LookupError: No such convention.
        ValueError: It is asked for another kind than kernels.
    """
    if not _can_judge():
        raise ImportError(MISSING)
    if "kind" in options:
        raise ValueError(
            "conformance is for kernels; for a writer, say, call check_writer(...)"
            ".raise_if_failed() in an ordinary test"
        )
    from .conventions import find_convention

    how = find_convention(convention)

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        def test(minipaged_check: str, pytestconfig: pytest.Config) -> None:
            found = _verdicts(pytestconfig, test, function, how, {"level": level, **options})
            _conclude(found[minipaged_check])

        test.__name__ = test.__qualname__ = function.__name__
        test.__module__, test.__doc__ = function.__module__, function.__doc__
        test.minipaged_level = level  # pyright: ignore[reportFunctionMemberAccess]
        return test

    return decorate


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of pytest."""
    group = parser.getgroup("minipaged", "paged-attention kernels (minipaged)")
    for name, (what, more) in OPTIONS.items():
        group.addoption(f"--minipaged-{name}", help=what, **more)


def pytest_configure(config: pytest.Config) -> None:
    """With `--minipaged-check` and no paths, nothing else is collected."""
    config.stash[RUNS], config.stash[XFAILS] = {}, _xfails(config)
    if _option(config, "check"):
        if not _can_judge():
            raise pytest.UsageError(MISSING)
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per check for what `conformance` has made."""
    if ARGUMENT not in metafunc.fixturenames:
        return
    level = getattr(metafunc.function, "minipaged_level", 3)
    xfails, name = metafunc.config.stash[XFAILS], metafunc.function.__name__
    params = [
        pytest.param(check, id=check, marks=_marks(xfails, name, check))
        for check in _check_ids(level)
    ]
    metafunc.parametrize(ARGUMENT, params)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """One test per check for every `--minipaged-check`; and no xfail without a test."""
    for target in _option(config, "check") or ():
        items += KernelCollector.from_parent(session, name=target, nodeid=target).collect()
    known = {name for item in items for name in _names_of(item)}
    unknown = [name for name in config.stash[XFAILS] if name not in known]
    if unknown and _option(config, "check"):
        raise pytest.UsageError(f"--minipaged-xfails-file: no check {', '.join(unknown)}")


class KernelCollector(pytest.Collector):
    """A kernel named on the command line; its name is its target."""

    def collect(self) -> Iterable[pytest.Item]:
        """A test per check.

        Raises:
            pytest.UsageError: No such kernel, convention, level or setting.
        """
        from .checks import LEVELS
        from .conventions import find_convention
        from .settings import SettingError, changed
        from .targets import resolve_function

        option = functools.partial(_option, self.config)
        level, options = option("level"), {"device": option("device")}
        if not 0 <= level < len(LEVELS):
            raise pytest.UsageError(f"--minipaged-level {level}: 0 to {len(LEVELS) - 1} exist")
        try:
            how, kernel = find_convention(option("convention")), self.name
            kernel = resolve_function(self.name)
            options["contract"] = changed(how.contract, option("contract"))
            if words := option("features"):
                options["features"] = changed(how.fit(kernel)[1], words)
        except (LookupError, SettingError) as error:
            raise pytest.UsageError(str(error.args[0])) from error
        options |= {"level": level, "name": self.name}
        items = []
        for check in _check_ids(level):
            item = CheckItem.from_parent(self, name=check)
            item.judge = lambda: _verdicts(self.config, self.name, kernel, how, options)
            for mark in _marks(self.config.stash[XFAILS], self.name, check):
                item.add_marker(mark)
            items.append(item)
        return items


class CheckItem(pytest.Item):
    """One check of a kernel."""

    judge: Callable[[], Mapping[str, Verdict]]

    def runtest(self) -> None:
        """Fail or skip as the verdict says."""
        _conclude(self.judge()[self.name])

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where pytest says that it is."""
        return self.path, None, f"{self.parent.name if self.parent else ''}[{self.name}]"


def _option(config: pytest.Config, name: str) -> Any:
    return config.getoption(f"--minipaged-{name}")


def _can_judge() -> bool:
    return importlib.util.find_spec("hypothesis") is not None


def _check_ids(level: int) -> list[str]:
    from .checks import CHECKS

    return [_id(check.level, check.name) for check in CHECKS if check.level <= level]


def _id(level: int, name: str) -> str:
    return f"L{level}-{name.replace(' ', '-')}"


def _verdicts(
    config: pytest.Config, key: Any, given: Any, how: Convention, options: Mapping[str, Any]
) -> dict[str, Verdict]:
    """The verdict on every check by its id; judged once, then remembered."""
    runs = config.stash[RUNS]
    if key not in runs:
        from .card import verdicts
        from .check import check_kernel

        asked = {"max_examples": _option(config, "max-examples"), "seed": _option(config, "seed")}
        asked = {name: x for name, x in asked.items() if x is not None}
        kernel = given() if _is_factory(given) and callable(key) else given
        usual = {"max_failures": None, "name": getattr(given, "__name__", "")}
        report = check_kernel(kernel, how, **{**usual, **options, **asked})
        runs[key] = {_id(v.level, v.check): v for v in verdicts(report)}
    return runs[key]


def _is_factory(function: Callable[..., Any]) -> bool:
    """True of functions that take nothing: they return the kernel."""
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _conclude(verdict: Verdict) -> None:
    from .card import story

    if verdict.failure:
        pytest.fail(story(verdict.failure), pytrace=False)
    if verdict.outcome == "not judged":
        pytest.skip("not claimed by the kernel, or not reached after what failed before")


def _marks(xfails: Mapping[str, str], test: str, check: str) -> list[pytest.MarkDecorator]:
    """`strict`: a check that passes although it is listed is a failure."""
    names = (check, f"{test}[{check}]")
    return [pytest.mark.xfail(reason=xfails[name], strict=True) for name in names if name in xfails]


def _names_of(item: pytest.Item) -> list[str]:
    parent = item.parent.name if item.parent else ""
    check = item.name.rpartition("[")[2].rstrip("]")
    return [item.name, check, f"{parent}[{item.name}]"]


def _xfails(config: pytest.Config) -> dict[str, str]:
    """The file's lines: check name to reason. Nothing is waived without one."""
    file, found = _option(config, "xfails-file"), {}
    if not file:
        return found
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pytest.UsageError(f"--minipaged-xfails-file {file}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        name, _, reason = (part.strip() for part in line.partition("#"))
        if name and not reason:
            raise pytest.UsageError(
                f"{file}:{number}: a reason is missing, as in: {name}  # reason, issue"
            )
        if name:
            found[name] = reason
    return found
