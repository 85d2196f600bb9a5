"""The learner's folder: nothing he wrote is ever lost, and progress is what his files say."""

from __future__ import annotations

import pytest

from minipaged.learn.workbook import BEGUN, DONE, NEW, PROGRESS, Workbook, find_folder


@pytest.fixture
def book(tmp_path) -> Workbook:
    return Workbook(tmp_path / "exercises")


def again(book: Workbook) -> Workbook:
    """The same folder, as another process sees it."""
    return Workbook(book.folder)


def test_looking_creates_nothing(book, double):
    assert book.state(double) == NEW
    assert book.hints_seen(double) == 0
    assert not book.folder.exists()


def test_a_file_is_begun_once_and_never_overwritten(book, double):
    assert book.begin(double)
    book.path(double).write_text("mine")
    assert not book.begin(double)
    assert book.path(double).read_text() == "mine"
    assert again(book).state(double) == BEGUN


def test_done_means_as_the_file_stands(book, double):
    book.begin(double)
    book.path(double).write_text("right")
    book.record(double, accepted=True)
    assert again(book).state(double) == DONE
    book.path(double).write_text("right, and then changed")
    assert again(book).state(double) == BEGUN
    book.path(double).unlink()
    assert again(book).state(double) == DONE, "what was learnt stays learnt"


def test_a_failure_takes_done_back(book, double):
    book.begin(double)
    book.record(double, accepted=True)
    book.record(double, accepted=False)
    assert again(book).state(double) == BEGUN


def test_hints_come_one_by_one_and_end(book, double):
    assert [again(book).see_hint(double) for _ in range(3)] == [1, 2, 2]
    assert again(book).hints_seen(double) == 2


def test_reset_keeps_every_old_file(book, double):
    book.begin(double)
    assert book.reset(double) is None, "an untouched starter is nothing to keep"
    for text in ("first", "second"):
        book.path(double).write_text(text)
        book.reset(double)
        assert book.is_untouched(double)
    kept = sorted(path.read_text() for path in book.folder.glob("*.old*.py"))
    assert kept == ["first", "second"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"double": 3}', "\x00", '{"double": {"hints": null}}']
)
def test_damaged_progress_is_not_fatal(book, double, text):
    book.begin(double)
    (book.folder / PROGRESS).write_text(text)
    damaged = again(book)
    assert damaged.state(double) == BEGUN
    assert damaged.see_hint(double) == 1
    damaged.record(double, accepted=True)
    assert again(book).state(double) == DONE


def test_the_folder_is_found_from_inside_as_well(tmp_path, double):
    assert find_folder(tmp_path) == tmp_path / "minipaged-exercises"
    book = Workbook(tmp_path / "mine")
    book.see_hint(double)
    assert find_folder(book.folder) == book.folder
