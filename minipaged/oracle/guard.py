"""Calls a stranger's function so that whatever it does ends in a result or one kind of error.

It knows nothing of tensors or kernels: only of exceptions, warnings and time.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")
Kind = str
PATIENCE = 4  # times its limit for a call that waits, for another process or a lock


class KernelFault(Exception):
    """The subject did not return what can be judged.

    The subject's own exception, if there was one, is the `__cause__`.

    Attributes:
        kind: "raised", "hung", "wrong type", or what else a caller found wrong ("shape").
        text: One sentence for a report.
    """

    def __init__(self, kind: Kind, text: str):
        super().__init__(text)
        self.kind, self.text = kind, text

    @property
    def declined(self) -> bool:
        """Whether the subject said that it does not do this: `NotImplementedError`."""
        return isinstance(self.__cause__, NotImplementedError)


class _Alarm(BaseException):
    """Raised inside a subject whose time is up; not an `Exception`, lest the subject catch it."""


def guarded(
    call: Callable[[], Result], seconds: float, returns: type | tuple[type, ...] = object
) -> Result:
    """What `call()` returns, within a time and of a type, its warnings silenced.

    Off the main thread, on systems without `SIGALRM`, and while compiled code runs that never comes
    back to Python, nothing can stop a call, so there the time is not guarded.

    Args:
        call: The subject with its arguments, `lambda: kernel(query, ...)`.
        seconds: Processor time until it counts as hung, and four times that if it only waits; 0 or
            infinity for as long as it likes.
        returns: The types that a result may have.

    Raises:
        KernelFault: It raised, or ran longer than `seconds`, or returned another type.

    Examples:
        >>> guarded(lambda: 1 + 1, seconds=1)
        2
        >>> guarded(lambda: 1 / 0, seconds=1)
        Traceback (most recent call last):
        minipaged.oracle.guard.KernelFault: raised ZeroDivisionError: division by zero
    """
    try:
        with warnings.catch_warnings(), _time_limit(seconds):
            warnings.simplefilter("ignore")
            result = call()
    except KernelFault:  # of a guard within this one
        raise
    except _Alarm:
        raise KernelFault("hung", f"still running after {seconds:g} s or more") from None
    except (Exception, SystemExit) as error:  # a KeyboardInterrupt is the user's, not the subject's
        raise KernelFault("raised", f"raised {_in_one_line(error)}") from error
    if not isinstance(result, returns):
        wanted = returns if isinstance(returns, tuple) else (returns,)
        names = " or ".join(kind.__name__ for kind in wanted)
        raise KernelFault("wrong type", f"returned {type(result).__name__}, not {names}")
    return result


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_Alarm` in the block after `seconds`; a timer of the caller's is put back after it."""
    can_ring = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not can_ring or not 0 < seconds < 1e9:
        yield
        return
    begin, begin_busy = time.monotonic(), time.process_time()

    def ring(*_: Any) -> None:
        idle = time.process_time() - begin_busy < seconds
        if idle and limit == seconds and time.monotonic() - begin < PATIENCE * seconds:
            return  # on a busy machine it has hardly run; the timer rings again
        raise _Alarm

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    limit = min(seconds, left or seconds)
    # It rings again and again: a subject may swallow the first alarm with a bare `except`.
    signal.setitimer(signal.ITIMER_REAL, limit, max(limit / 4, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            left -= time.monotonic() - begin
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), interval)


def _in_one_line(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # even that may be a stranger's code
        lines = []
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
