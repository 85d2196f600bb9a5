"""Adapter for nano-vllm's scheduler, loaded from a checkout; nothing of it is copied here.

Only its scheduler, block manager and sequence are loaded, so neither flash-attn nor a GPU is
needed, only ``xxhash``. What its package would import besides is left out.
"""

# ruff: noqa: D102 - what each method means is said in ``protocol``

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from .contract import ManagerContract, Size
from .protocol import Plan

NANO_FULL = ManagerContract(keys=("",), min_block_size=2, deduplicates=False, exact_tables=False)
"""What one would wish for: twins and blocks for a whole prompt are a choice, the rest is not."""

NANO = ManagerContract(
    keys=("",),
    min_block_size=2,  # the next block is asked for when ``len % block_size == 1``
    decodes_in_budget=False,  # only prompts are counted
    deduplicates=False,
    exact_tables=False,
    blank_first=False,  # one queue, first freed, first reused
    refuses_impossible=False,  # nano-vllm #274, #270
    max_decode_wait=None,  # nano-vllm #73, #276
    oldest_progresses=False,  # while prompts come, nobody decodes
    work_conserving=False,
    admits_what_fits="whole",  # only the first prompt of a step may be cut
)
"""What nano-vllm at bb823b3 keeps."""


@functools.cache
def load(checkout: str) -> SimpleNamespace:
    """Its three modules, in a package that is not its own."""
    root = Path(checkout) / "nanovllm"
    if not (root / "engine" / "scheduler.py").is_file():
        raise FileNotFoundError(f"{checkout} is no checkout of nano-vllm: no nanovllm/engine")
    for name, path in (("nanovllm", root), ("nanovllm.engine", root / "engine")):
        module = ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    config = ModuleType("nanovllm.config")
    config.Config = object  # type: ignore[attr-defined]
    sys.modules["nanovllm.config"] = config
    return SimpleNamespace(
        scheduler=importlib.import_module("nanovllm.engine.scheduler"),
        sequence=importlib.import_module("nanovllm.engine.sequence"),
        params=importlib.import_module("nanovllm.sampling_params"),
    )


class NanoVllmAdapter:
    """``Scheduler`` with its ``BlockManager``. Use ``functools.partial(NanoVllmAdapter, path)``."""

    def __init__(self, checkout: str, size: Size):
        self.nano = load(checkout)
        self.nano.sequence.Sequence.block_size = size.block_size
        config = SimpleNamespace(
            max_num_seqs=size.max_seqs,
            max_num_batched_tokens=size.budget,
            eos=-1,
            kvcache_block_size=size.block_size,
            num_kvcache_blocks=size.num_blocks,
        )
        self.scheduler = self.nano.scheduler.Scheduler(config)
        self.by_name: dict[str, Any] = {}
        self.planned: tuple[list, bool] = ([], False)

    def add(
        self, name: str, tokens: list[int], max_tokens: int, key: str | None, num_samples: int
    ) -> None:
        params = self.nano.params.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.by_name[name] = self.nano.sequence.Sequence(tokens, params)
        self.scheduler.add(self.by_name[name])

    def step(self) -> Plan:
        self.planned = self.scheduler.schedule()
        names = {id(sequence): name for name, sequence in self.by_name.items()}
        start = lambda s: s.num_cached_tokens  # noqa: E731
        return Plan(
            [(names[id(s)], start(s), start(s) + s.num_scheduled_tokens) for s in self.planned[0]]
        )

    def feed(self, tokens: dict[str, list[int]]) -> list[str]:
        sequences, is_prefill = self.planned
        names = {id(sequence): name for name, sequence in self.by_name.items()}
        drawn = [tokens.get(names[id(s)], [0])[0] for s in sequences]
        self.scheduler.postprocess(sequences, drawn, is_prefill)
        ended = [name for name, s in self.by_name.items() if s.is_finished]
        for name in ended:
            del self.by_name[name]
        return ended

    def tables(self) -> dict[str, list[int]]:
        return {name: list(s.block_table) for name, s in self.by_name.items()}

    def num_free(self) -> int:
        return len(self.scheduler.block_manager.free_block_ids)
