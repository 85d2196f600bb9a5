"""Whatever a subject does, the guard returns its result or raises one kind of error."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import warnings

import pytest

from minipaged.oracle.guard import KernelFault, guarded


def fault_of(call, seconds=5.0, returns: type | tuple[type, ...] = object) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        guarded(call, seconds, returns)
    return caught.value


def sleep_forever():
    while True:
        time.sleep(0.01)


def test_a_result_passes_through():
    assert guarded(lambda: "out", 1.0) == "out"


def test_an_exception_is_told_in_one_line_and_kept_as_the_cause():
    fault = fault_of(lambda: [].index(1))
    assert (fault.kind, fault.text) == ("raised", "raised ValueError: 1 is not in list")
    assert isinstance(fault.__cause__, ValueError)


def test_a_subject_that_exits_has_raised():
    assert fault_of(lambda: sys.exit(3)).text == "raised SystemExit: 3"


def test_the_users_interrupt_is_not_the_subjects():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded(interrupt, 1.0)


def test_a_hang_is_stopped():
    begin = time.monotonic()
    assert fault_of(sleep_forever, 0.05).kind == "hung"
    assert time.monotonic() - begin < 2


def test_a_hang_that_swallows_exceptions_is_stopped():
    def stubborn():
        for _ in range(2):
            with contextlib.suppress(BaseException):
                sleep_forever()

    assert guarded(stubborn, 0.02) is None  # it came back by itself, at the second alarm
    assert fault_of(lambda: (stubborn(), sleep_forever()), 0.02).kind == "hung"


def test_the_type_of_a_result_is_checked():
    assert fault_of(lambda: None, returns=tuple).text == "returned NoneType, not tuple"
    assert fault_of(lambda: 1.0, returns=(int, str)).kind == "wrong type"
    assert guarded(lambda: 1, 1.0, (int, str)) == 1


def test_warnings_of_the_subject_are_silent():
    guarded(lambda: warnings.warn("deprecated", stacklevel=1), 1.0)  # they are errors in our tests


def test_it_works_off_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(guarded(lambda: 7, 1.0)))
    thread.start()
    thread.join()
    assert found == [7]


def test_a_timer_of_the_callers_is_put_back():
    before = signal.getsignal(signal.SIGALRM)
    left_before, _ = signal.getitimer(signal.ITIMER_REAL)  # the test runner may have set one
    guarded(lambda: None, 1.0)
    left_after, _ = signal.getitimer(signal.ITIMER_REAL)
    assert signal.getsignal(signal.SIGALRM) is before
    assert left_before - 5 < left_after <= left_before


def test_guards_may_be_nested():
    fault = fault_of(lambda: guarded(sleep_forever, 60), 0.05)
    assert fault.kind == "hung"


@pytest.mark.parametrize("seconds", [0, float("inf")])
def test_no_limit_is_possible(seconds):
    assert guarded(lambda: 1, seconds) == 1
