"""Judges a learner's file: in this process, or, as a learner needs it, in one that may hang or die.

python -m minipaged.learn.judging FOLDER FILE RESULT.json
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from .catalog import Task, at
from .exercise import Exercise
from .limits import Endless, Printed, limit_memory, time_limit
from .loading import Unreadable, load, own_lines, require
from .rejection import MOMENT, Rejected, trying
from .verdict import Verdict

EXTRA = ("greenlet", "hypothesis", "pytest")  # of the extra `learn`
STARTING_S = 60.0  # to import what the exercise needs, on a slow disk


def judge(task: Task, path: Path) -> Verdict:
    """Judge a file in this process; whatever its code raises becomes a verdict."""
    path = path.resolve()
    try:
        exercise = task.exercise
        reference = load(task.folder / "solution.py", f"solution_of_{task.name}")
    except ImportError as error:
        return Verdict("unavailable", *_missing(error))
    printed, begin = Printed(), time.perf_counter()
    trying()
    MOMENT.listener = printed.forget
    try:
        with redirect_stdout(printed), time_limit(exercise.seconds):
            module = load(path, f"answer_to_{task.name}")
            require(module, reference, exercise.functions)
            figures = exercise.check(module)
        verdict = Verdict("accepted", figures=figures or "")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        verdict = _told(error, path, exercise)
    finally:
        MOMENT.listener = None
    seconds = time.perf_counter() - begin
    said = "" if verdict.is_accepted else str(printed)
    return replace(verdict, printed=said, seconds=seconds)


def _told(error: BaseException, path: Path, exercise: Exercise) -> Verdict:
    """What went wrong, for somebody who knows only his own file."""
    if isinstance(error, Unreadable):
        return Verdict("unreadable", error.headline, error.lines)
    if isinstance(error, Rejected):
        headline, *story = str(error).splitlines()
        return Verdict("rejected", headline, tuple(story))
    lines = own_lines(error.__traceback__, path)
    program = MOMENT.lines
    if isinstance(error, NotImplementedError) and lines:
        return Verdict("unwritten", f"nothing stands there yet: {lines[-1]}")
    if isinstance(error, Endless):
        limit = f"still running after {exercise.seconds:g} s; it was at"
        return Verdict("endless", "your code does not come to an end", (*program, limit, *lines))
    name = type(error).__name__
    told = f"{name}: {error}" if str(error) else name
    if isinstance(error, SystemExit):
        told = "your code ended the program (SystemExit)"
    if not lines:  # the judge could not use what it got
        headline = f"what {exercise.functions[0]} returned cannot be used: {told}"
        return Verdict("raised", headline, program)
    return Verdict("raised", told, (*lines, *program))


def _missing(error: ImportError) -> tuple[str, tuple[str, ...]]:
    """What to install; nothing is wrong with the learner's file."""
    needs = (error.name or "").partition(".")[0]
    if needs in EXTRA:
        return f"this exercise needs {needs}", ("pip install 'minipaged[learn]'",)
    return f"this exercise cannot be judged here: {error}", ()


def judge_apart(task: Task, path: Path) -> Verdict:
    """Judge a file in a fresh process with a time limit, so that nothing it does reaches us."""
    limit = STARTING_S + 3 * float(task.facts.get("seconds", 10.0))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "verdict.json")
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            str(task.folder),
            str(path.resolve()),
            str(result),
        ]
        found = os.pathsep.join(p or os.getcwd() for p in sys.path)
        try:
            done = subprocess.run(
                command,
                env=os.environ | {"PYTHONPATH": found},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=limit,
                cwd=path.resolve().parent,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict("endless", f"your code waits for something: no end after {limit:.0f} s")
        if result.exists():
            return Verdict.load(result.read_text(encoding="utf-8"))
    last = done.stderr.decode(errors="replace").strip().splitlines()[-4:]
    return Verdict("died", f"the process ended with code {done.returncode}", tuple(last))


def main(folder: str, path: str, result: str) -> None:
    """The other process: judge, write the verdict, leave."""
    limit_memory()
    task = at(Path(folder))
    part = Path(result).with_suffix(".part")
    part.write_text(judge(task, Path(path)).dump(), encoding="utf-8")
    part.rename(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
