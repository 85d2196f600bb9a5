"""Bounds on what a learner's code may use: processor time, memory, printed text."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MAX_PRINTED = 2_000
MEMORY_BYTES = 6 << 30


class Endless(BaseException):
    """The time is up; not an ``Exception``, or a learner's ``except`` would take it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``Endless`` inside the block once it has used so much processor time.

    Where the system has no such timer (Windows), or this is not the main thread, nothing happens:
    the process that waits for this one has a limit of its own.
    """

    def ring(*_: object) -> None:
        raise Endless

    try:
        before = signal.signal(signal.SIGPROF, ring)
    except (AttributeError, ValueError):
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.2)  # again, if somebody swallows it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_memory() -> None:
    """A list that grows for ever shall end in a ``MemoryError``, not take the machine."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or hard > MEMORY_BYTES:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, hard))


class Printed(io.TextIOBase):
    """What was printed since the last program began: its beginning, and how much more."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A new program begins."""
        self.text, self.num_lost = "", 0

    def write(self, text: str) -> int:
        """Keep it, while there is room."""
        room = max(0, MAX_PRINTED - len(self.text))
        self.text += text[:room]
        self.num_lost += len(text) - len(text[:room])
        return len(text)

    def writable(self) -> bool:
        """It takes text."""
        return True

    def __str__(self) -> str:
        more = f"\n... and {self.num_lost:,} characters more" if self.num_lost else ""
        return self.text.rstrip("\n") + more
