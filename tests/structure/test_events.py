"""The event counter must itself be able to fail: otherwise it is decoration."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.events import NeverHappened, count, must_happen

TESTS = Path(__file__).parents[1]


def test_an_event_that_never_happened_is_named():
    with (
        pytest.raises(NeverHappened, match=r"eviction happened 0x.*Seen: hit 2x"),
        must_happen("hit", "eviction"),
    ):
        count("hit", 2)


def test_too_few_is_not_enough():
    with (
        pytest.raises(NeverHappened, match="fork happened 2x; at least 3x"),
        must_happen("fork", at_least=3),
    ):
        count("fork", 2)


def test_enough_is_enough_and_unnamed_events_are_free():
    with must_happen("fork", at_least=2) as counter:
        count("fork", 2)
        count("other")
    assert counter == {"fork": 2, "other": 1}


def test_blocks_nest_and_close():
    with must_happen("inner", "outer") as outer:
        count("outer")
        with must_happen("inner") as inner:
            count("inner")
        count("outer")
    count("inner")
    assert (outer["outer"], outer["inner"], inner["inner"], inner["outer"]) == (2, 1, 1, 0)


def test_a_real_failure_is_not_hidden():
    with pytest.raises(ZeroDivisionError), must_happen("never"):
        _ = 1 / 0


@pytest.mark.parametrize(("times", "outcome"), [(2, 0), (1, 1)])
def test_a_whole_module_can_be_held_to_it(tmp_path, times, outcome):
    (tmp_path / "test_it.py").write_text(
        "from support.events import count, must_happen_in_module\n"
        "events = must_happen_in_module('fork', at_least=2)\n"
        f"def test_a(): count('fork', {times - 1})\n"
        "def test_b(): count('fork')\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={TESTS}", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == outcome, done.stdout
    assert ("fork happened 1x" in done.stdout) == bool(outcome)
