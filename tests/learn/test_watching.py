"""Watching: every save is judged once, keys are heard, and success ends it."""

from __future__ import annotations

import queue

import pytest

from minipaged.learn import watching


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(watching, "PAUSE_S", 0.01)


def test_it_judges_at_every_save_until_it_is_right(tmp_path):
    path, seen = tmp_path / "a.py", []
    path.write_text("one")

    def judge() -> bool:
        seen.append(path.read_text())
        if seen[-1] != "three":
            path.write_text({"one": "two..", "two..": "three"}[seen[-1]])
        return seen[-1] == "three"

    watching.watch(path, judge, lambda: None, queue.Queue())
    assert seen == ["one", "two..", "three"]


def test_nothing_is_judged_twice_and_keys_are_heard(tmp_path):
    path, calls = tmp_path / "a.py", []
    path.write_text("wrong")
    keys: queue.Queue[str] = queue.Queue()
    for key in ("h", "x", "h", "q"):
        keys.put(key)

    def judge() -> bool:
        calls.append("judged")
        return False

    watching.watch(path, judge, lambda: calls.append("hint"), keys)
    assert calls == ["judged", "hint", "hint"]


def test_a_file_may_vanish_while_an_editor_saves(tmp_path):
    path, keys = tmp_path / "gone.py", queue.Queue()
    keys.put("h")

    def arrive() -> None:
        path.write_text("right")

    watching.watch(path, lambda: True, arrive, keys)
    assert path.exists()
