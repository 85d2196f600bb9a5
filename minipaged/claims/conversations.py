"""Conversations with the real engine: every turn sends all that was said before it again.

The bundled model answers token ids that are drawn, not text: what is measured is how many prompt
tokens it has to compute, and how long a turn takes.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass, field
from random import Random

from minipaged.engine.llm import LLM

from .real import bundled, greedy, tokens

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Script:
    """Who says how much."""

    num_conversations: int = 4
    num_turns: int = 12
    question_len: int = 24
    answer_len: int = 24
    longest: int | None = None  # the history is cut to its last tokens; None: sent whole

    def prompt_len(self, turn: int) -> int:
        """Tokens sent in a turn."""
        whole = turn * (self.question_len + self.answer_len) + self.question_len
        return min(whole, self.longest or whole)

    @property
    def num_sent(self) -> int:
        """Tokens of all prompts."""
        return self.num_conversations * sum(map(self.prompt_len, range(self.num_turns)))

    def num_known(self, turn: int) -> int:
        """Tokens of a turn's prompt that are in full blocks of the turn before, if sent whole.

        The last token of an answer was never fed back, so it has no K and V.
        """
        written = self.prompt_len(turn - 1) + self.answer_len - 1 if turn else 0
        return written // BLOCK_SIZE * BLOCK_SIZE

    @property
    def num_all_known(self) -> int:
        """Of all prompts."""
        return self.num_conversations * sum(map(self.num_known, range(self.num_turns)))


@dataclass
class Played:
    """What the engine did, turn by turn; all conversations take a turn together."""

    computed: list[int] = field(default_factory=list)  # prompt tokens through the model
    found: list[int] = field(default_factory=list)  # prompt tokens that needed no computing
    seconds: list[float] = field(default_factory=list)


def new_engine(prefix_caching: bool) -> LLM:
    """The bundled model, with room for everybody's whole history."""
    return LLM(bundled(), block_size=BLOCK_SIZE, num_blocks=512, prefix_caching=prefix_caching)


def play(llm: LLM, script: Script, seed: int) -> Played:
    """Hold the conversations to their end."""
    random, played = Random(f"conversations {seed}"), Played()
    params = greedy(script.answer_len)
    histories: list[list[int]] = [[] for _ in range(script.num_conversations)]
    for _ in range(script.num_turns):
        for history in histories:
            history += tokens(random, script.question_len, llm.config.vocab_size)
        prompts = [history[-(script.longest or 0) :] for history in histories]
        before, begin = copy(llm.stats), time.perf_counter()
        outputs = llm.generate(prompts, params)
        played.seconds.append(time.perf_counter() - begin)
        done = llm.stats.since(before)
        played.computed.append(done.prompt_tokens_computed)
        played.found.append(done.prompt_tokens_cached)
        for history, output in zip(histories, outputs):
            history += output.outputs[0].token_ids
    return played
