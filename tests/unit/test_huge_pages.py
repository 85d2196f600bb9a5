"""Large pages are asked for where whole ones fit, and asking never changes what a program sees."""

import mmap

import numpy as np
import pytest

from minipaged import huge_pages
from minipaged.huge_pages import ask_for_huge_pages, page_size

needs_pages = pytest.mark.skipif(not page_size(), reason="this system has no large pages")


@pytest.fixture
def memory():
    """Four large pages of memory, and a bit, that nobody wrote to."""
    pages = mmap.mmap(-1, 4 * page_size() + 4096)
    return np.frombuffer(pages, np.uint8)


@needs_pages
@pytest.mark.parametrize("offset", [0, 1, 4096])
def test_asks_for_the_whole_pages_inside_and_for_no_others(memory, offset, monkeypatch):
    asked = []
    monkeypatch.setattr(
        huge_pages,
        "_library_and_size",
        lambda: (lambda *arguments: asked.append(arguments) or 0, 1 << 21),
    )
    address, size = memory.ctypes.data + offset, 1 << 21
    granted = ask_for_huge_pages(address, memory.nbytes - offset)
    ((begin, length, _),) = asked
    assert granted == length
    assert begin % size == length % size == 0
    assert address <= begin < address + size
    assert begin + length <= memory.ctypes.data + memory.nbytes < begin + length + size


@needs_pages
def test_memory_reads_as_before(memory):
    memory[::1000] = 7
    expected = memory.copy()
    assert ask_for_huge_pages(memory.ctypes.data, memory.nbytes) in (
        0,
        3 * page_size(),
        4 * page_size(),
    )
    assert (memory == expected).all()


@needs_pages
def test_memory_smaller_than_a_page_is_left_alone(memory):
    begin = -memory.ctypes.data % page_size()
    assert ask_for_huge_pages(memory.ctypes.data + begin + 1, page_size()) == 0


def test_a_system_without_them_is_asked_nothing(monkeypatch):
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    huge_pages._library_and_size.cache_clear()
    try:
        assert page_size() == 0
        assert ask_for_huge_pages(1 << 30, 1 << 30) == 0
    finally:
        huge_pages._library_and_size.cache_clear()


@needs_pages
def test_a_system_that_refuses_is_no_error(monkeypatch):
    monkeypatch.setattr(huge_pages, "_library_and_size", lambda: (lambda *_: -1, 1 << 21))
    assert ask_for_huge_pages(0, 1 << 30) == 0
