"""The judge behind glass: a kernel that kills its process, or never comes back, gets its verdict.

The kernel runs in a child, and before every call the child writes down which case it is about to
try. If it dies, its last words are the counterexample. It knows processes, not kernels.

A kernel given by its address, "package.module:function", and one that can be imported are judged
in a fresh process, so that importing them may crash too. Any other object (a lambda, a closure)
is judged in a fork of this process, which needs a system with `fork` and a process in which CUDA
has not been used yet.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from .checks import checks_up_to
from .children import End, how_it_ended, run
from .contract import Contract
from .conventions import Convention, Kernel, find_convention
from .guard import KernelFault
from .journal import Journal, LastWords, watched
from .keeping import save as save_failure
from .recipes import Recipe
from .report import Failure, Report
from .shrink import shrink
from .subject import Subject
from .targets import TargetError, resolve_function, target_of
from .trial import Trial

SHRINK_S = 8.0
STARTING_S = 120.0  # to import the kernel and what it needs
Check = Callable[..., Report]


def judge_in_a_child(
    check: Check, kernel: Kernel | str, convention: str | Convention, options: dict[str, Any]
) -> Report:
    """The report of `check(kernel, convention, **options)`, which runs in another process.

    Raises:
        ValueError: This kernel cannot be sent to another process.
    """
    if not hasattr(os, "fork"):
        raise ValueError("isolation needs a system with fork: Linux, macOS, or WSL")
    how = find_convention(convention)
    target = kernel if isinstance(kernel, str) else target_of(kernel)
    is_ours_alone = "__main__" in (getattr(kernel, "__module__", ""), type(how).__module__)
    name = options.get("name") or (kernel if isinstance(kernel, str) else _name(kernel))
    options = options | {"name": name, "first": tuple(options.get("first", ()))}
    job = check, target, how, options
    if target and not is_ours_alone and (packed := _pickled(job)):
        return _in_a_fresh_process(packed, job)
    if torch.cuda.is_initialized():
        raise ValueError(
            f"{name} cannot be isolated: CUDA is in use here and the kernel cannot be imported by "
            'another process; put it into a module and pass "module:function"'
        )
    return supervise(check, kernel, how, options)


def supervise(
    check: Check, kernel: Kernel | str, convention: str | Convention, options: dict[str, Any]
) -> Report:
    """Judge the kernel in forks of this process, which never calls it itself."""
    with tempfile.TemporaryDirectory() as folder:
        journal, result = Journal(Path(folder, "journal")), Path(folder, "report")

        def child() -> None:
            how = watched(find_convention(convention), journal.begin, journal.end)
            result.with_suffix(".part").write_bytes(pickle.dumps(check(kernel, how, **options)))
            result.with_suffix(".part").rename(result)

        begin = time.perf_counter()
        limit = options["deadline_s"] + STARTING_S
        end = run(child, journal, options["call_limit_s"], limit)
        if result.exists():
            return pickle.loads(result.read_bytes())
        return _verdict(end, journal.read(), kernel, convention, options, begin)


def _verdict(
    end: End,
    words: LastWords,
    kernel: Kernel | str,
    convention: str | Convention,
    options: dict[str, Any],
    begin: float,
) -> Report:
    """The report that a dead child could not write."""
    how = find_convention(convention)
    report = Report(options["name"], convention=how.name, level=options["level"])
    report.not_judged.append("whatever comes after the call in which the process ended")
    report.calls, report.cases = words.calls, min(words.calls, 1)
    seconds = time.perf_counter() - begin
    recipe, message = words.recipe, f"{end.told} {words.told()}"
    if recipe and words.in_a_call and options.get("explain", True):
        judged = _Retrial(kernel, how, options)

        def still(candidate: Recipe) -> str | None:
            return judged.dies(candidate, end.check)

        recipe, message = shrink(recipe, message, still, judged.features, 60, SHRINK_S)
        words = judged.words or words
    failure = Failure(end.check, 0, message, recipe, calls=words.calls, seconds=seconds)
    report.failures.append(failure)
    report.seconds = time.perf_counter() - begin
    if options.get("save") and recipe:
        judged = _Retrial(kernel, how, options)
        path = save_failure(
            failure, judged.subject(), judged.kernel, options["save"], report.subject
        )
        report.failures = [Failure(**{**failure.__dict__, "path": path})]
    return report


class _Retrial:
    """The same kernel again, one case at a time, each in a child of its own."""

    def __init__(self, kernel: Kernel | str, convention: Convention, options: dict[str, Any]):
        self.kernel = resolve_function(kernel) if isinstance(kernel, str) else kernel
        self.convention, self.options = convention, options
        self.features = options["features"] or convention.fit(self.kernel)[1]
        self.contract: Contract = options["contract"] or convention.contract
        self.words: LastWords | None = None

    def subject(self, convention: Convention | None = None) -> Subject:
        """It, called as this convention says."""
        how = convention or self.convention
        device, limit = self.options["device"], self.options["call_limit_s"]
        return Subject(how.fit(self.kernel)[0], how, self.features, self.contract, device, limit)

    def dies(self, recipe: Recipe, check: str) -> str | None:
        """How this case ends the process, if it does, and in the same way."""
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder, "journal"))

            def child() -> None:
                how = watched(self.convention, journal.begin, journal.end)
                trial = Trial(self.subject(how), recipe.build())
                for law in checks_up_to(self.options["level"], self.contract, self.features):
                    with suppress(KernelFault):
                        law.examine(trial)

            end = run(child, journal, self.options["call_limit_s"], STARTING_S)
            words = journal.read()
        if end.check != check or not words.in_a_call:
            return None
        self.words = words
        return f"{end.told} {words.told()}"


def _name(kernel: Kernel) -> str:
    return getattr(kernel, "__qualname__", None) or repr(kernel)


def _pickled(job: Any) -> bytes:
    """The job for another process, or nothing if some part of it cannot be sent."""
    try:
        return pickle.dumps(job)
    except Exception:  # a convention or a numeric model of the caller's own
        return b""


def _in_a_fresh_process(packed: bytes, job: tuple[Check, str, Any, dict[str, Any]]) -> Report:
    """A new interpreter with our path is the parent of the children."""
    _, target, convention, options = job
    code = "from minipaged.oracle.isolate import serve; serve()"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "report")
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        environment = os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-c", code, str(result)]
        done = subprocess.run(command, input=packed, env=environment, check=False)
        if result.exists():
            found = pickle.loads(result.read_bytes())
            if isinstance(found, TargetError):
                raise found
            return found
    name = find_convention(convention).name
    report = Report(options["name"], convention=name, level=options["level"])
    end = how_it_ended(done.returncode)
    report.failures.append(Failure("died", 0, f"{end.told} while importing {target}"))
    return report


def serve() -> None:
    """The other end of a fresh process: import the kernel, judge it in forks, write the report."""
    check, target, convention, options = pickle.loads(sys.stdin.buffer.read())
    found: Any
    try:
        found = supervise(check, resolve_function(target), convention, options)
    except TargetError as error:
        found = error
    Path(sys.argv[1]).write_bytes(pickle.dumps(found))
