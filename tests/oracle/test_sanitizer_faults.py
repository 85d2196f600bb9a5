"""The sanitizer is tested: planted faults die by it, by name and step, and right engines never do.

The engines run over the shadow model, whose own checks of what it reads are switched off here: who
finds something can only be the sanitizer.
"""

from __future__ import annotations

import re

import pytest
import torch

from minipaged.sanitizer import SanitizerError
from support import engine_programs  # the engine is loaded before anything is planted
from support.engine_faults import FAULTS as ENGINE
from support.engine_killers import planted
from support.events import count, must_happen
from support.manager.faults import FAULTS as MANAGER
from support.planted import Fault, fresh

torch.set_num_threads(1)

KNOWN = {fault.name: fault for fault in (*MANAGER, *ENGINE)}
BATCH, EXECUTOR = "cache.batch", "engine.executor"


def fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, "sanitizer", "ours", module, right, wrong)


NEW = (
    fault(
        "copies on write are not carried out",
        EXECUTOR,
        "        self.cache.copy_blocks(step.copies)\n",
        "",
    ),
    fault(
        "nothing is swapped in",
        EXECUTOR,
        "self.host_cache.swap_blocks(self.cache, step.swaps_in)",
        "pass",
    ),
    fault(
        "nothing is swapped out",
        EXECUTOR,
        "self.cache.swap_blocks(self.host_cache, step.swaps_out)",
        "pass",
    ),
    fault(
        "blocks come back in another order",
        EXECUTOR,
        "self.host_cache.swap_blocks(self.cache, step.swaps_in)",
        "self.host_cache.swap_blocks(self.cache, [(a, d) for (a, _), (_, d) in"
        " zip(step.swaps_in, step.swaps_in[::-1])])",
    ),
    fault(
        "slots are off by one",
        BATCH,
        "slots = blocks * block_size + positions % block_size",
        "slots = blocks * block_size + (positions + 1) % block_size",
    ),
    fault(
        "two tokens go into one slot",
        BATCH,
        "slots = blocks * block_size + positions % block_size",
        "slots = blocks * block_size",
    ),
    fault(
        "slots lie behind the pool",
        BATCH,
        "slots = blocks * block_size + positions % block_size",
        "slots = blocks * block_size + positions % block_size + 1000",
    ),
    fault(
        "a row of another sequence",
        BATCH,
        "arrays = (padded, ends, start_loc)",
        "arrays = (np.roll(padded, 1, 0), ends, start_loc)",
    ),
    fault(
        "a shared block is free as soon as one gives it back",
        "core.block_pool",
        "if not self.is_free(block_id):\n            return",
        "if self.ref_count[block_id] > 1:\n            return",
    ),
)
EXPECTED: dict[str, set[str]] = {  # which of the new and the known faults, and what is found
    "copies on write are not carried out": {"unwritten-read"},
    "nothing is swapped in": {"unwritten-read"},
    "nothing is swapped out": {"unwritten-copy"},
    "blocks come back in another order": {"wrong-position"},
    "slots are off by one": {"wrong-slot"},
    "two tokens go into one slot": {"double-write", "wrong-slot"},
    "slots lie behind the pool": {"out-of-pool"},
    "a row of another sequence": {"wrong-table"},
    "a shared block is free as soon as one gives it back": {"unwritten-copy"},
    # --- known from the tests of the manager and the engine ------------------------------------
    "a fork does not count itself as a holder": {"double-free", "ref-count"},
    "a hit does not count a holder of a block that is in use": {"double-free", "ref-count"},
    "a freed duplicate stays in the table": {"ref-count"},
    "the own duplicate is never given back": {"leak"},
    "a cancelled copy keeps its destination": {"leak"},
    "a cancelled copy does not bring the source back": {"chained-copy"},
    "truncation gives back the partial block too": {"unwritten-read"},
    "shared blocks are written without a copy": {"shared-write"},
    "one holder is enough, published or not": {"published-write"},
    "only the first copy of a step is carried out": {"unwritten-read"},
    "a block is named without what comes before it": {"stale-hash"},
    "the salt enters no block but is looked for": {"stale-hash"},
    "an evicted block can still be found": {"stale-hash"},
    "what is known but not computed is published": {"early-publish"},
    "a lookup goes on behind a gap": {"wrong-position"},
    "a passed block stays in the table": {"ref-count"},
    "every holder of a moved block is counted but the second": {"ref-count"},
    "moved sequences keep their old blocks as well": {"leak"},
    "slots are numbered by logical block": {"unowned-write"},
    "positions are off by one": {"wrong-position"},
    "positions start at zero behind a hit": {"wrong-position"},
    "lengths leave out this step": {"wrong-length"},
    "tables are padded with block 0": {"wrong-table"},
    "aborting in the middle of a prompt loses its blocks": {"leak"},
    "beams without offspring keep their blocks": {"ref-count"},
    "a window gives one block too many back": {"out-of-pool"},
}


class Blind:
    """Runs ``support.engine_programs`` on an engine that checks no slot itself."""

    def __init__(self) -> None:
        self.programs, shadow = fresh(engine_programs.__name__), fresh("support.engine_shadow")
        shadow.check_reads = lambda *args: None
        self.broken, self.refused = shadow.Broken, fresh("minipaged.core").InvalidRequest
        self.make = type("Blind", (shadow.ShadowLLM,), {"_learn_names": lambda self, s: None})

    def play(self, seed: int) -> None:
        place, *acts = self.programs.program(seed)
        llm = self.make(**({"block_size": 2} | self.programs.PLACES[place]))
        for i, act in enumerate(acts):
            self.act(llm, i, *act.split())
        while llm.has_unfinished:
            llm.step()

    def act(self, llm, i: int, act: str, *words: str) -> None:
        match act, words:
            case "add", (prompt, wish):
                try:
                    tokens = [int(token) for token in prompt]
                    llm.add(tokens, self.programs.WISHES[wish], salt="x" if i % 3 == 2 else None)
                except self.refused:
                    pass
            case "abort", (pick,) if llm._requests:
                llm.abort(list(llm._requests)[int(pick) % len(llm._requests)])
            case "forget", ():
                llm.pool.forget_prefixes()
            case "step", ():
                llm.step()
            case "fail", (what, *number):
                self.fail(llm, what, *map(int, number))

    def fail(self, llm, what: str, number: int = 0) -> None:
        if what == "model":
            llm.shadow.fail_after = number
        elif what == "logits":
            llm.shadow.logits_fail = True
        else:
            llm.words.fuse = number
        try:
            llm.step()
        except self.broken:
            count(f"{what} failed")
        llm.shadow.fail_after, llm.shadow.logits_fail, llm.words.fuse = None, False, None


def first_error(num_programs: int) -> SanitizerError | None:
    """What the sanitizer says first. Whatever else breaks ends a program, and proves nothing."""
    blind = Blind()
    for seed in range(num_programs):
        try:
            blind.play(seed)
        except SanitizerError as error:
            return error
        except Exception:
            continue
    return None


@pytest.mark.parametrize("name", EXPECTED, ids=lambda name: name.replace(" ", "-"))
def test_a_planted_fault_is_named_with_its_sequence_and_step(name: str):
    with planted({f.name: f for f in NEW}.get(name) or KNOWN[name]):
        error = first_error(num_programs=250)
    assert error is not None, f"nobody noticed that {name}"
    assert error.kind in EXPECTED[name], str(error)
    assert re.match(rf'step {error.step}, sequence "{error.sequence}": ', str(error)), str(error)


def test_right_engines_raise_no_alarm():
    """Samples, beams, chunks, preemption, swapping, windows, aborts, failures, salts, evictions."""
    with must_happen("model failed", "logits failed", "text failed", at_least=10):
        blind = Blind()
        for seed in range(300):
            blind.play(seed)


def test_the_kinds_of_faults_are_many():
    assert len(EXPECTED) >= 30
    assert len(set().union(*EXPECTED.values())) >= 15
