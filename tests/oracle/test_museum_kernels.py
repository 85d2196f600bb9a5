"""The museum of wrong kernels: the right one passes, every wrong one dies, and soon."""

from __future__ import annotations

import json

import pytest

from minipaged.oracle.check import check_kernel
from minipaged.oracle.conventions import find_convention
from minipaged.oracle.museum.kernels import KERNELS, LEVEL
from minipaged.oracle.museum.run import judged, museum_rows_json, run_museum
from minipaged.oracle.museum.specimen import Specimen

NEED_SPLITS = {  # with one split there is nothing to merge
    "splits_merged_in_base_2",
    "mean_of_splits",
    "empty_split_merged",
    "only_first_sequence_merged",
    "merge_needs_lse",
    "last_split_forgotten",
    "lse_of_last_split",
    "split_end_unmasked",
    "splits_at_random",
    "splits_of_first_sequence",
}
CLASSES = {"lengths", "masks", "heads", "layout", "scores", "softmax", "numerics", "isolation"}


def test_the_specimen_passes():
    few = find_convention("native").features.only(
        dtypes=("bfloat16",), kv_forms=(), groups=(1, 2), block_sizes=(1, 3, 16), head_dims=(5, 16)
    )
    report = check_kernel(Specimen(), level=3, features=few, max_examples=5, deadline_s=1000)
    assert report.passed, str(report)
    assert not report.not_judged  # all bits are as they should be, too


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{}, {"tile": 64, "queries": 16}, {"num_splits": 1}])
def test_the_specimen_passes_at_every_level_and_size(sizes):
    specimen = Specimen()
    vars(specimen).update(sizes)
    report = check_kernel(specimen, level=6, deadline_s=3000)
    assert report.passed, str(report)


@pytest.mark.parametrize("exhibit", KERNELS, ids=lambda exhibit: exhibit.name)
def test_a_wrong_kernel_dies_soon(exhibit):
    row = judged(exhibit, LEVEL.get(exhibit.name, 3), deadline_s=1000)
    assert row.killed, f"{exhibit.what} Nobody sees it."
    assert row.calls < 1000


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"tile": 64, "queries": 16}, {"tile": 32, "num_splits": 1}])
def test_a_wrong_kernel_dies_with_tiles_of_other_sizes_too(sizes):
    lived = []
    for exhibit in KERNELS:
        kernel = exhibit.make()
        vars(kernel).update(sizes)
        level = LEVEL.get(exhibit.name, 3)
        report = check_kernel(kernel, level=level, max_failures=1, explain=False, deadline_s=1000)
        lived += [] if report.failures else [exhibit.name]
    assert set(lived) <= (NEED_SPLITS if sizes.get("num_splits") == 1 else set())


def test_every_label_is_complete():
    assert len({exhibit.name for exhibit in KERNELS}) == len(KERNELS) > 150
    assert {exhibit.fault_class for exhibit in KERNELS} == CLASSES
    for exhibit in KERNELS:
        assert exhibit.kind == "kernel"
        assert exhibit.what.endswith(".")
        assert not exhibit.like or any(c.isdigit() for c in exhibit.like) or " " in exhibit.like
    assert set(LEVEL) <= {exhibit.name for exhibit in KERNELS}


def test_a_run_gives_a_row_for_every_exhibit_and_the_same_again():
    some = KERNELS[:3]
    rows, again = (run_museum(1, exhibits=some) for _ in range(2))
    assert [row.name for row in rows] == [exhibit.name for exhibit in some]
    assert [(r.check, r.calls, r.message) for r in rows] == [
        (r.check, r.calls, r.message) for r in again
    ]
    plain = json.loads(museum_rows_json(rows))
    assert plain[0]["killed"] is True
    assert not run_museum(1, kinds=("writer",), exhibits=some)
