"""`check_kernel`: a kernel before the court, from the first call to the report."""

from __future__ import annotations

import difflib
import itertools
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from .checks import CHECKS, FORM, LEVELS, Check, checks_up_to
from .contract import Contract, Features
from .conventions import Convention, Kernel, find_convention
from .counterexample import fixed, load_all
from .directed import directed
from .drawing import Generator, draw_recipe
from .explain import explain
from .guard import KernelFault
from .isolate import judge_in_a_child
from .keeping import save_all
from .recipes import Recipe
from .report import Failure, Report
from .shrink import shrink
from .subject import Subject
from .targets import resolve_function, target_of
from .trial import Trial
from .truth import FORMATS


def check_kernel(
    kernel: Kernel | str,
    convention: str | Convention = "native",
    *,
    level: int = 3,
    max_examples: int = 200,
    seed: int = 0,
    features: Features | None = None,
    contract: Contract | None = None,
    device: str = "cpu",
    deadline_s: float = 120.0,
    call_limit_s: float = 20.0,
    max_failures: int | None = 3,
    first: Iterable[Recipe] = (),
    name: str = "",
    save: str | Path | None = None,
    isolate: bool = False,
    explain: bool = True,
) -> Report:
    """Judge a paged-attention kernel.

    Cases that are known to tell wrong kernels from right ones come first, then random ones. Each
    is held against every check up to `level` that the contract promises, first against those that
    need one call. The first case that breaks a check is made as small as it gets.

    Args:
        kernel: The function, called as `convention` says, or where to import it from:
            "package.module:function" or "path/to/file.py:function".
        convention: Name of a convention, or one of your own.
        level: 0 form, 1 truth, 2 isolation, 3 edges, 4 numerics, 5 algebra, 6 address space; each
            includes those before it.
        max_examples: Random cases.
        seed: Of the random cases; the same seed gives the same ones.
        features: What may be asked of it; None for all that the convention and the kernel's
            signature have.
        contract: What it promises; None for what the convention does.
        device: Where its tensors shall be.
        deadline_s: Seconds after which no new case is begun.
        call_limit_s: Seconds after which a call counts as hung.
        max_failures: Different broken checks after which to stop; None for all there are.
        first: Cases to try before all others.
        name: What to call the kernel in the report.
        save: A folder to keep failing cases in. Those that it holds of this kernel are tried first.
        isolate: Judge it in a child process, so that a crash or a hang in compiled code is a
            verdict too. See `minipaged.oracle.isolate`.
        explain: Make failing cases small, draw them, and name the known fault that does the same;
            without, the verdict comes sooner.

    Returns:
        The verdict; it never raises on account of the kernel.

    Raises:
        LookupError: No such convention, or nothing to import at that place.
        ValueError: `level` is not 0 to 6; there is no such dtype or device; or the kernel cannot
            be isolated.
    """
    if isolate:
        options = dict(locals())
        del options["kernel"], options["convention"], options["isolate"]
        return judge_in_a_child(check_kernel, kernel, convention, options)
    if isinstance(kernel, str):
        name = name or kernel
        kernel = resolve_function(kernel)
    if not 0 <= level < len(LEVELS):
        raise ValueError(f"level={level} does not exist; 0 to {len(LEVELS) - 1} do")
    _check_places(device, features)
    how = find_convention(convention)
    fitted, possible, notes = how.fit(kernel)
    subject = Subject(
        fitted,
        how,
        features.within(possible) if features else possible,
        contract or how.contract,
        device,
        call_limit_s,
    )
    report = Report(
        name or getattr(kernel, "__qualname__", None) or repr(kernel),
        convention=how.name,
        level=level,
        not_judged=list(dict.fromkeys(notes))
        + [f"contract: {line}" for line in subject.contract.waivers()],
    )
    saved = load_all(save, target_of(kernel), report.subject, how.name) if save else []
    first = itertools.chain((one.recipe for one in saved), first)
    court = _Court(subject, report, level, deadline_s, max_failures or len(CHECKS), explain)
    court.hear(itertools.chain(first, directed(subject.features, subject.contract, level)))
    court.hear_random(max_examples, seed)
    court.hear_again()
    court.adjourn()
    if save:
        save_all(report, subject, kernel, save)
        if mended := fixed(saved, report, kernel, how):
            report.figures["counterexamples fixed"] = [str(one.path) for one in mended]
    return report


def _check_places(device: str, features: Features | None) -> None:
    for dtype in features.dtypes if features else ():
        if dtype not in FORMATS:
            near = difflib.get_close_matches(dtype, FORMATS, n=3, cutoff=0.3) or FORMATS
            raise ValueError(f"no dtype {dtype!r}; the nearest: {', '.join(near)}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        told = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {told}") from None


LONG = 1000  # keys; a case with more is held against the truth only, for the sake of time
# Levels whose checks look at one answer. They go through all cases first: most wrong kernels are
# wrong in plain sight, and need not be called twenty times for every case before that.
ONE_CALL = (0, 1, 3, 4)


class _Court:
    """Goes through cases and checks, and writes the report."""

    def __init__(
        self,
        subject: Subject,
        report: Report,
        level: int,
        deadline_s: float,
        max_failures: int,
        explain: bool = True,
    ):
        self.subject, self.report, self.max_failures = subject, report, max_failures
        self.explain = explain
        self.checks = list(checks_up_to(level, subject.contract, subject.features))
        self.broken: list[Check] = []  # accused already; a case that breaks one teaches no more
        self.begin = time.perf_counter()
        self.deadline = self.begin + deadline_s
        self.declined: dict[str, int] = {}
        self.waiting: list[tuple[Trial, Recipe]] = []
        self.asked: list[Recipe] = []
        self.worst_ratio = self.worst_statistic = 0.0

    @property
    def done(self) -> bool:
        over = time.perf_counter() > self.deadline
        return over or len(self.report.failures) >= self.max_failures or not self.checks

    def hear(self, many: Iterable[Recipe]) -> None:
        """Try these cases, one after another."""
        for recipe in many:
            if self.done:
                return
            self.hear_one(recipe)

    def hear_random(self, count: int, seed: int) -> None:
        """Try `count` random cases."""
        subject, dice = self.subject, Generator(seed)
        self.hear(
            draw_recipe(dice, subject.features, subject.contract, self.report.level)
            for _ in range(count)
        )

    def hear_one(self, recipe: Recipe) -> None:
        """Hold one case against the checks that need one call; the rest waits for `hear_again`."""
        self.report.cases += 1
        self.asked.append(recipe)
        trial = Trial(self.subject, recipe.build())
        if self.hold(trial, recipe, [c for c in self.checks if c.level in ONE_CALL]):
            self.measure(trial)
            if sum(kv_len for _, kv_len in recipe.lengths) <= LONG:
                self.waiting.append((trial, recipe))

    def hear_again(self) -> None:
        """Hold the cases that passed against the checks that need many calls each."""
        for trial, recipe in self.waiting:
            if self.done:
                return
            self.hold(trial, recipe, [c for c in self.checks if c.level not in ONE_CALL])

    def hold(self, trial: Trial, recipe: Recipe, checks: list[Check]) -> bool:
        """Whether the case passes these checks; one that breaks an accused law is not judged."""
        if self.is_known(trial):
            return False
        for check in checks:
            found = self.examine(check, trial)
            if found is None:
                return False  # it declined the case: there is nothing to examine
            name, message = found
            if message:
                self.accuse(check, name, message, recipe)
                return False  # what else is wrong with this answer may have the same cause
        return True

    def is_known(self, trial: Trial) -> bool:
        """Whether this answer breaks a law that the kernel is accused of already."""
        found = (self.examine(check, trial) for check in self.broken if check.level in ONE_CALL)
        return any(f is not None and f[1] for f in found)

    def examine(self, check: Check, trial: Trial) -> tuple[str, str] | None:
        """The check's name and what is wrong, "" if nothing; None if the kernel declined."""
        try:
            message = check.examine(trial)
        except KernelFault as fault:
            if fault.declined:
                self.decline(fault)
                return None
            return fault.kind, fault.text
        self.report.judged[check.name] = self.report.judged.get(check.name, 0) + 1
        return check.name, message or ""

    def decline(self, fault: KernelFault) -> None:
        self.declined[fault.text] = self.declined.get(fault.text, 0) + 1

    def accuse(self, check: Check, name: str, message: str, recipe: Recipe) -> None:
        """Make the case small and write the failure down; the check is not asked again."""
        calls, seconds = self.subject.calls, time.perf_counter() - self.begin

        def still(candidate: Recipe) -> str | None:
            trial = Trial(self.subject, candidate.build())
            found = None if self.is_known(trial) else self.examine(check, trial)
            return found[1] if found and found[0] == name else None

        small, picture, diagnosis = recipe, "", None
        if self.explain:
            small, message = shrink(recipe, message, still, self.subject.features)
            if name not in FORM:
                picture, diagnosis = explain(self.subject, recipe, small)
        level = 0 if name in FORM else check.level
        self.report.failures.append(
            Failure(name, level, message, small, picture, calls, seconds, diagnosis)
        )
        self.checks = [c for c in self.checks if c is not check]
        self.broken.append(check)
        if name in FORM or check.level == 0:
            self.checks = []  # nothing it returns can be trusted

    def measure(self, trial: Trial) -> None:
        """Keep how much of the error budget was used."""
        ratios = [float(r.max()) for r in trial.out_ratio() if r.size]
        self.worst_ratio = max([self.worst_ratio, *ratios])
        mean, count = trial.statistic()
        if count >= 64:
            self.worst_statistic = max(self.worst_statistic, mean)

    def say_what_was_not_reached(self) -> None:
        """The deadline came first: which checks were never applied, and how many cases wait."""
        report, seconds = self.report, self.deadline - self.begin
        report.unreached = [c.name for c in self.checks if not report.judged.get(c.name)]
        many_calls = [c for c in self.checks if c.level not in ONE_CALL]
        heard = max((report.judged.get(c.name, 0) for c in many_calls), default=0)
        report.not_judged.append(
            f"stopped by the deadline of {seconds:g} s after {report.cases} cases; "
            f"{len(self.waiting) - heard} of them were not held against the checks of isolation"
        )

    def adjourn(self) -> Report:
        """The report, complete."""
        report = self.report
        if time.perf_counter() > self.deadline:
            self.say_what_was_not_reached()
        report.calls = self.subject.calls
        report.seconds = time.perf_counter() - self.begin
        report.not_judged += [f"{n} cases declined: {text}" for text, n in self.declined.items()]
        report.not_judged += [
            f"{k}: other bits, no failure ({v})" for k, v in self.subject.notes.items()
        ]
        report.figures["asked"] = asked(self.asked)
        report.figures["error budget used"] = self.worst_ratio
        report.figures["error statistic T"] = self.worst_statistic
        return report


def asked(recipes: list[Recipe]) -> str:
    """How far the cases reached; a verdict says nothing of what lies beyond."""
    if not recipes:
        return "nothing"
    lengths = [pair for r in recipes for pair in r.lengths]
    most = {
        "queries": max((q for q, _ in lengths), default=0),
        "keys": max((k for _, k in lengths), default=0),
        "sequences": max(len(r.lengths) for r in recipes),
        "heads": max(r.num_kv_heads * r.group for r in recipes),
        "heads per kv head": max(r.group for r in recipes),
        "head dim": max(r.head_dim for r in recipes),
        "block size": max(r.block_size for r in recipes),
    }
    dtypes = sorted({r.dtype for r in recipes} | {r.kv_form for r in recipes if r.kv_form})
    return ", ".join(f"{name} to {n}" for name, n in most.items()) + "; " + ", ".join(dtypes)
