"""nano-vllm's ``BlockManager`` alone, out of a checkout, on a recorded trace."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any


class Manager:
    """See ``minipaged_blocks.Manager``. Its package, which wants a GPU, is bypassed."""

    def __init__(self, options: dict[str, Any]):
        place = Path(options["checkout"]) / "nanovllm"
        if not (place / "engine" / "block_manager.py").exists():
            raise NotImplementedError(f"{place} holds no engine/block_manager.py")
        for name, folder in (("nanovllm", place), ("nanovllm.engine", place / "engine")):
            module = types.ModuleType(name)
            module.__path__ = [str(folder)]
            sys.modules[name] = module
        self.manager = importlib.import_module("nanovllm.engine.block_manager").BlockManager
        self.sequence = importlib.import_module("nanovllm.engine.sequence").Sequence
        self.sequence.block_size = options["block_size"]
        self.num_blocks, self.block_size = options["num_blocks"], options["block_size"]
        self.version = "nano-vllm, xxhash"

    def replay(self, trace: list[list[Any]]) -> dict[str, int]:
        """See ``minipaged_blocks.Manager``."""
        manager, running, hits = self.manager(self.num_blocks, self.block_size), {}, 0
        for what, number, *rest in trace:
            if what == "append":
                sequence = running[number]
                sequence.append_token(rest[0])
                assert manager.can_append(sequence)
                manager.may_append(sequence)
                self._publish(manager, sequence, 1)
            elif what == "add":
                sequence = running[number] = self.sequence(rest[0])
                cached = manager.can_allocate(sequence)
                assert cached >= 0
                manager.allocate(sequence, cached)
                hits += sequence.num_cached_tokens
                self._publish(manager, sequence, len(sequence) - sequence.num_cached_tokens)
            else:
                manager.deallocate(running.pop(number))
        return {"hits": hits}

    @staticmethod
    def _publish(manager: Any, sequence: Any, count: int) -> None:
        """What its scheduler does after a step that computed so many tokens."""
        sequence.num_scheduled_tokens = count
        manager.hash_blocks(sequence)
        sequence.num_cached_tokens += count
