"""Lets Ctrl-C wait for the end of a step, so that no book is left open; knows no engine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back one interrupt until the body is done; a second one breaks through at once.

    Signals reach only the main thread, and only Python's own handler is replaced; in any other
    case this does nothing.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received = []

    def hold_back(signum: int, frame: object) -> None:
        received.append(signum)
        if len(received) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold_back)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt
