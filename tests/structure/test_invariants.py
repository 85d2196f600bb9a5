"""Every decision of docs/pages/explanation/invariants.md is held down by a test that says so."""

from __future__ import annotations

from support.invariants import decisions, marked_tests


def test_the_page_tells_fourteen_decisions():
    assert decisions() == list(range(1, 15))


def test_every_decision_has_a_test():
    missing = sorted(set(decisions()) - set(marked_tests()))
    assert missing == [], "no test is marked @pytest.mark.invariant(n) for these"


def test_no_test_marks_a_decision_that_does_not_exist():
    assert set(marked_tests()) <= set(decisions())


def test_marks_are_found_wherever_they_may_stand(tmp_path):
    source = """
import pytest
pytestmark = [pytest.mark.slow, pytest.mark.invariant(4)]
@pytest.mark.invariant(1, 2)
def test_a(): ...
@pytest.mark.invariant(2)
class TestB:
    @pytest.mark.parametrize("x", [5])
    @pytest.mark.invariant(3)
    def test_c(self, x): ...
"""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(source)
    found = {number: files["tests/test_x.py"] for number, files in marked_tests(tmp_path).items()}
    assert found == {1: 1, 2: 2, 3: 1, 4: 1}
