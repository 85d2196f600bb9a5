"""A recorded day of a block manager: who comes, grows and leaves, from one seed; knows no manager.

An operation is ``["add", number, token_ids]``, ``["append", number, token]`` or
``["free", number]``. Requests begin with one of a few shared prompts, continue an earlier
conversation, or are new, so that there are prefixes to be found.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Operation = list[Any]
VOCAB = 32_000
PROMPT, OUTPUT = 4.6, 5.2  # means of the logarithms of lengths: about 100 and 180 tokens
SPREAD, LONGEST = 0.8, 1024


@dataclass
class Trace:
    """The operations, in order; the same for the same arguments.

    Args:
        num_requests: all together.
        num_running: at the same time, at the most.
        seed: of lengths and tokens.
    """

    num_requests: int = 1000
    num_running: int = 64
    seed: int = 20240601
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = random.Random(self.seed)
        shared = [self._tokens(draw, draw.randint(64, 256)) for _ in range(8)]
        running: dict[int, tuple[list[int], int]] = {}  # number: tokens so far, outputs left
        finished: list[list[int]] = []
        waiting = self.num_requests
        while waiting or running:
            while waiting and len(running) < self.num_running:
                number, waiting = self.num_requests - waiting, waiting - 1
                prompt = self._prompt(draw, shared, finished)
                self.operations.append(["add", number, list(prompt)])
                running[number] = prompt, self._length(draw, OUTPUT)
            for number, (token_ids, left) in list(running.items()):
                if left:
                    token_ids.append(draw.randrange(VOCAB))
                    self.operations.append(["append", number, token_ids[-1]])
                    running[number] = token_ids, left - 1
                else:
                    self.operations.append(["free", number])
                    finished.append(running.pop(number)[0])

    def num_blocks(self, block_size: int) -> int:
        """Blocks that hold all there ever was at once, so that nothing is evicted."""
        lengths: dict[int, int] = {}
        for what, number, *rest in self.operations:
            if what != "free":
                lengths[number] = lengths.get(number, 0) + (len(rest[0]) if what == "add" else 1)
        return sum(-(-length // block_size) for length in lengths.values())

    def _prompt(
        self, draw: random.Random, shared: list[list[int]], finished: list[list[int]]
    ) -> list[int]:
        new, kind = self._tokens(draw, self._length(draw, PROMPT)), draw.random()
        if kind < 0.5:
            return draw.choice(shared) + new
        if kind < 0.7 and finished:
            before = draw.choice(finished[-32:])
            return (before + new) if len(before) < LONGEST else new
        return new

    @staticmethod
    def _length(draw: random.Random, mean: float) -> int:
        return min(LONGEST, 1 + int(draw.lognormvariate(mean, SPREAD)))

    @staticmethod
    def _tokens(draw: random.Random, count: int) -> list[int]:
        return [draw.randrange(VOCAB) for _ in range(count)]
