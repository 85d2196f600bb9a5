"""The size the project promises: small enough to read, measured here and nowhere else.

To see the numbers: ``python tests/structure/update_readme.py``.
"""

from __future__ import annotations

import pytest

from support.sizes import PARTS, Part, function_lengths, num_lines, report, round_up


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_stays_within_its_budget(part):
    assert len(part.files()) > 5, f"{part.name} is not all there: {part.files()}"
    assert part.num_lines() < part.budget, f"over budget\n{report()}"


def test_everything_but_the_compiled_path_is_counted():
    counted = {path.name for path in PARTS[0].files()}
    assert "block_pool.py" in counted
    assert not any(name.startswith("cpu") for name in counted)


def test_how_lines_are_counted(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text('"""Doc."""\n\n\ndef f():\n    # why\n    return 1\n')
    (tmp_path / "room" / "cpu_fast.py").write_text("x = 1\n" * 100)
    (tmp_path / "room" / "sub").mkdir()
    (tmp_path / "room" / "sub" / "b.py").write_text("x = 1\n" * 100)
    part = Part("room", ("room",), budget=10, skip=("cpu",))
    assert part.num_lines(tmp_path) == 4
    assert num_lines(tmp_path / "room" / "cpu_fast.py") == 100
    assert function_lengths(part.files(tmp_path)) == [3]


def test_rounding_never_flatters():
    assert [round_up(n) for n in (1, 50, 51, 1199)] == [50, 50, 100, 1200]
