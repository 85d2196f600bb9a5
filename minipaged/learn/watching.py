"""Judges a file whenever it is saved, until it is right or the learner has had enough."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PAUSE_S = 0.2


def watch(
    path: Path,
    judge: Callable[[], bool],
    give_hint: Callable[[], None],
    keys: queue.Queue[str] | None = None,
) -> None:
    """Judge at once, then at every save; ``h`` and Enter gives a hint, ``q`` and Enter ends.

    Args:
        path: the file; it may vanish for a moment, as some editors save.
        judge: says whether the file is accepted, and shows it.
        give_hint: shows one hint more.
        keys: lines that the learner types; None: from stdin, if that is a terminal.
    """
    keys = _typed() if keys is None else keys
    judged = None
    while True:
        stamp = _stamp(path)
        if stamp is not None and stamp != judged:
            judged = stamp
            if judge():
                return
        try:
            key = keys.get(timeout=PAUSE_S)
        except queue.Empty:
            continue
        if key == "q":
            return
        if key == "h":
            give_hint()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _typed() -> queue.Queue[str]:
    """Lines from a terminal, read by a thread that dies with the program."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip().lower()[:1])
            time.sleep(0)

    if sys.stdin and sys.stdin.isatty():
        threading.Thread(target=read, daemon=True).start()
    return lines
