"""The faults that are planted in our own core die here too, where a pool's border shows them."""

from __future__ import annotations

import pytest

from minipaged.oracle.managers import check_block_manager
from minipaged.oracle.managers.ours import CORE, CoreAdapter
from support.manager.faults import FAULTS
from support.planted import planted

# Tensors and the ledger lie behind the border; of the others, no caller of a table can meet these.
BEHIND = ("cache.batch", "cache.kv_cache", "ledger")
OUT_OF_REACH = {
    "a free block may be freed again": "a table releases what it holds, once",
    "part of what was asked for is handed out": "reserve asks first whether all fits",
    "names come from Python's own hash": "a collision has to be constructed",
}
VISIBLE = [f for f in FAULTS if f.module not in BEHIND and f.name not in OUT_OF_REACH]


class WithoutOwnCheck(CoreAdapter):
    """The judge alone: the core's own look at its books is not asked."""

    check = None  # type: ignore[assignment]


@pytest.mark.parametrize("fault", VISIBLE, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_planted_in_the_core_is_noticed(fault):
    with planted(fault):
        report = check_block_manager(WithoutOwnCheck, CORE, max_failures=1, shrink=False)
    assert report.failures, f"nobody noticed that {fault.name}"


def test_nearly_all_faults_of_the_core_are_visible():
    here = [fault for fault in FAULTS if fault.module not in BEHIND]
    assert len(VISIBLE) >= 0.95 * len(here)
    assert set(OUT_OF_REACH) < {fault.name for fault in here}
