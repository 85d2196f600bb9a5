"""The same token ids for every engine, from one seed; knows no engine."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import dataclass, field

SEED = 20240601
MAX_LEN = 1024  # no request is longer
NEEDED = 640  # tokens of the longest request at full size


@dataclass(frozen=True)
class Work:
    """What is asked of every engine. Tokens are drawn from the middle of the vocabulary.

    Args:
        vocab_size: of the model.
        max_len: of the model; all lengths shrink alike if the longest request would not fit.
        size: a part of all lengths and numbers, to see a test run; 1 is what is quoted.
    """

    vocab_size: int
    max_len: int
    size: float = 1.0
    single: tuple[list[int], int] = field(init=False)  # one request: prompt, output length
    mixed: list[tuple[list[int], int]] = field(init=False)  # 64 requests, 16-256 in, 16-256 out
    prefix: list[int] = field(init=False)  # 512 tokens that all of these share
    suffixes: list[list[int]] = field(init=False)  # 16 endings of 32 tokens
    parallel: tuple[list[int], int, int] = field(init=False)  # prompt, 8 samples, output length
    beam: tuple[list[int], int, int] = field(init=False)  # prompt, beam width 4, output length

    def __post_init__(self) -> None:
        draw = random.Random(SEED)
        low, high = self.vocab_size // 50 + 1, self.vocab_size * 4 // 5
        fit = min(1.0, self.max_len / NEEDED) * self.size

        def fitted(length: int) -> int:
            return max(2, int(length * fit))

        def tokens(count: int) -> list[int]:
            return [draw.randrange(low, high) for _ in range(fitted(count))]

        def number(count: int) -> int:
            return max(2, int(count * self.size))

        def between() -> int:
            return draw.randint(16, 256)

        values = {
            "single": (tokens(128), fitted(128)),
            "mixed": [(tokens(between()), fitted(between())) for _ in range(number(64))],
            "prefix": tokens(512),
            "suffixes": [tokens(32) for _ in range(number(16))],
            "parallel": (tokens(256), 8, fitted(128)),
            "beam": (tokens(128), 4, fitted(64)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def in_round(self, number: int) -> Work:
        """The same work, but for the endings of the shared prefix: they are turned round.

        A peer whose cache outlives a round must find the prefix there, and no ending.
        """
        turned = copy(self)
        endings = [suffix[number:] + suffix[:number] for suffix in self.suffixes]
        object.__setattr__(turned, "suffixes", endings)
        return turned

    @property
    def num_mixed_inputs(self) -> int:
        """Tokens in the prompts of the mixed requests."""
        return sum(len(prompt) for prompt, _ in self.mixed)

    @property
    def num_mixed_outputs(self) -> int:
        """Tokens that the mixed requests ask for."""
        return sum(count for _, count in self.mixed)

    @property
    def small_pool(self) -> int:
        """Tokens that the pool of ``preempt`` holds: a third of what all requests end up with.

        But never less than one request needs, in blocks of up to 128.
        """
        longest = max(len(prompt) + count for prompt, count in self.mixed)
        third = (self.num_mixed_inputs + self.num_mixed_outputs) // 3
        return max(third, -(-longest // 128) * 128)
