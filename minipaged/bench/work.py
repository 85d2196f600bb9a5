"""The same token ids for every engine, from one seed; knows no engine."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SEED = 20240601


@dataclass(frozen=True)
class Work:
    """What is asked of every engine. Tokens are drawn from the middle of the vocabulary."""

    vocab_size: int
    max_len: int  # of the model: requests are cut to fit
    single: tuple[list[int], int] = field(init=False)  # one request: prompt, output length
    mixed: list[tuple[list[int], int]] = field(init=False)  # 64 requests, 16-256 in, 16-256 out
    prefix: list[int] = field(init=False)  # 512 tokens that all of these share
    suffixes: list[list[int]] = field(init=False)  # 16 endings of 32 tokens

    def __post_init__(self) -> None:
        draw = random.Random(SEED)
        low, high = self.vocab_size // 50 + 1, self.vocab_size * 4 // 5
        fit = min(1.0, self.max_len / 640)

        def tokens(count: int) -> list[int]:
            return [draw.randrange(low, high) for _ in range(max(1, int(count * fit)))]

        def length() -> int:
            return max(1, int(draw.randint(16, 256) * fit))

        values = {
            "single": (tokens(128), int(128 * fit)),
            "mixed": [(tokens(draw.randint(16, 256)), length()) for _ in range(64)],
            "prefix": tokens(512),
            "suffixes": [tokens(32) for _ in range(16)],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def num_mixed_outputs(self) -> int:
        """Tokens that the mixed requests ask for."""
        return sum(count for _, count in self.mixed)
