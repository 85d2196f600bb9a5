"""Runs the console sessions of a page, as a reader would, and compares what they print."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from .markdown import ROOT, Block

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
PROGRAMS = {"minipaged": f'"{sys.executable}" -m minipaged', "python": f'"{sys.executable}"'}
_NOTE = re.compile(r"run(?:: (?P<may>may exit|exits) with (?P<code>\d+))?")


class WrongSession(AssertionError):
    """A command ended otherwise, or printed something else, than the page says."""


def exit_codes(block: Block) -> set[int] | None:
    """With which codes its commands may end, by ``<!-- run -->`` before it; None: not to be run.

    ``<!-- run: exits with 1 -->`` demands a code, ``<!-- run: may exit with 1 -->`` allows it too.
    """
    found = _NOTE.fullmatch(block.note)
    if found is None:
        return None
    if found["code"] is None:
        return {0}
    return {int(found["code"])} | ({0} if found["may"] == "may exit" else set())


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Each command of a session, and what the page shows that it prints; "" if nothing."""
    found: list[tuple[str, str]] = []
    for line in block.body.replace("\\\n", " ").splitlines(keepends=True):
        if line.startswith("$ ") or block.language == "bash":
            found.append((line.removeprefix("$ ").strip(), ""))
        else:
            command, shown = found[-1]
            found[-1] = (command, shown + line)
    return [(command, shown) for command, shown in found if command]


def run_session(block: Block, folder: Path) -> None:
    """Run a session's commands in ``folder``.

    Raises:
        WrongSession: with the place, the command, and both texts.
    """
    codes = exit_codes(block)
    assert codes is not None, f"{block.where} is not marked to be run"
    for command, shown in commands_of(block):
        program, _, rest = command.partition(" ")
        if program not in PROGRAMS:
            raise WrongSession(
                f"{block.where}: only {', '.join(PROGRAMS)} can be run, not {command}"
            )
        done = subprocess.run(
            ["bash", "-c", f"{PROGRAMS[program]} {rest}"],
            cwd=folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=240,
        )
        if done.returncode not in codes:
            text = f"{block.where}: {command}\nended with {done.returncode}, not {codes}"
            raise WrongSession(f"{text}\n{done.stdout}")
        if shown and not doctest.OutputChecker().check_output(shown, done.stdout, FLAGS):
            raise WrongSession(
                f"{block.where}: {command}\nshould print\n{shown}\nbut:\n{done.stdout}"
            )


def _environment() -> dict[str, str]:
    """No terminal, no network, and this working tree."""
    fixed = {"COLUMNS": "100", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    kept = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "PYTHONWARNINGS")}
    return kept | fixed
