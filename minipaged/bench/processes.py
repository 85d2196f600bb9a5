"""Times whole processes of this Python, and which part of the CPU each got; knows no benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .share import share_of

LOOK = 0.02  # seconds between two looks at a process, for its books end with it


@dataclass(frozen=True, slots=True)
class Run:
    """One process that ended well."""

    seconds: float
    share: float


def run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """``python *arguments`` to its end, its output thrown away.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    begin, share = time.perf_counter(), 1.0
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(LOOK)
            break
        share = _share(process.pid) or share
    if code:
        raise subprocess.CalledProcessError(code, process.args)
    return Run(time.perf_counter() - begin, share)


def _share(process_id: int) -> float | None:
    """What its threads got so far of what they asked for; None where nobody counts it."""
    running = waiting = 0
    with suppress(OSError):  # it has just ended
        for file in Path(f"/proc/{process_id}/task").glob("*/schedstat"):
            ran, waited, _ = map(int, file.read_text().split())
            running, waiting = running + ran, waiting + waited
    return share_of(running, waiting) if running else None
