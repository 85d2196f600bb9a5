"""Work done in a fork of this process, watched until it is done, dead or hung; knows no kernel."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from .journal import Journal
from .subject import COMPILING
from .targets import TargetError

GRACE_S = 2.0  # after the call limit: until then the child's own alarm may still ring


@dataclass(frozen=True)
class End:
    """How a child ended: the name of the check it failed, "" if it ended well, and a sentence."""

    check: str
    told: str


def run(work: Callable[[], None], journal: Journal, call_limit_s: float, limit_s: float) -> End:
    """Do the work in a fork, and wait until it is done, dead or hung."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(work)
    try:
        return _wait(pid, journal, call_limit_s, limit_s)
    except BaseException:  # Ctrl-C
        _kill(pid)
        raise


def _child(work: Callable[[], None]) -> None:
    """Never returns. `_exit`: what is registered to run at exit is the parent's."""
    code = 0
    try:
        faulthandler.disable()  # the verdict says it in one line, and dozens may die
        torch.set_num_threads(1)  # a pool of threads does not survive a fork
        work()
    except TargetError as error:
        print(f"minipaged: {error}", file=sys.stderr)
        code = 2
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, journal: Journal, call_limit_s: float, limit_s: float) -> End:
    size, changed, pause = -1, time.monotonic(), 0.002
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return how_it_ended(os.waitstatus_to_exitcode(status))
        now, new_size = time.monotonic(), journal.size()
        if new_size != size:
            size, changed = new_size, now
        silence = now - changed
        if silence > limit_s or (
            silence > call_limit_s + GRACE_S and _hangs(journal, silence, call_limit_s)
        ):
            _kill(pid)
            return End("hung", f"still running after {silence:.0f} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _hangs(journal: Journal, silence: float, call_limit_s: float) -> bool:
    words = journal.read()
    times = COMPILING if words.is_first_of_its_kind else 1
    return words.in_a_call and silence > times * call_limit_s + GRACE_S


def how_it_ended(code: int) -> End:
    """In words; negative codes are signals."""
    if code < 0:
        name = signal.Signals(-code).name
        why = {
            "SIGSEGV": "segmentation fault",
            "SIGABRT": "abort",
            "SIGBUS": "bus error",
            "SIGFPE": "division by zero",
            "SIGILL": "illegal instruction",
            "SIGKILL": "out of memory, perhaps",
        }.get(name, "a signal")
        return End("died", f"the process was killed by {name} ({why})")
    return End("died", f"the process exited with code {code}")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
