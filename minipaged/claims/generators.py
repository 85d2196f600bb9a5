"""Workloads drawn from a seed, for what is known by its means only; every parameter is said.

Of the paper's data sets (section 6.1) the means of lengths are published, and no more. A length is
therefore drawn from a lognormal distribution with the published mean; how far it spreads is our
assumption, said in ``Workload.source``, and an argument, so that its influence can be measured.

The draws use nothing but ``random.Random.random`` and arithmetic, so a seed gives the same
workload on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist

from .workload import Arrival, Workload

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths of a given mean; ``spread`` is the standard deviation in parts of it."""

    mean: float
    spread: float

    def draw(self, random: Random) -> int:
        """A whole number of at least 1."""
        variance = log(1 + self.spread**2)
        deviate = _NORMAL.inv_cdf(random.random() or 0.5)
        return max(1, round(exp(log(self.mean) - variance / 2 + sqrt(variance) * deviate)))

    def __str__(self) -> str:
        return f"mean {self.mean:g}, spread {self.spread:g}"


SHAREGPT = Lengths(161.31, 1.6), Lengths(337.99, 0.9)
"""Prompts and answers: the means are the paper's, the spreads are not published.

The answers' follows from the first bar of figure 2, which is therefore no test of it: tokens and
reserved slots, 33.7 % of the pool, are seven sequences of 756 tokens at their ends. Over time an
answer counts as long as it runs, so that is 161 + 338 * (1 + spread**2). The prompts' is a choice.
"""

ALPACA = Lengths(19.31, 0.6), Lengths(58.45, 1.1)
"""Prompts and answers: the means are the paper's, the spreads a choice."""

PAPER_MAX_LEN = 2048
"""Positions of OPT-13B, the model of the paper's figures."""


def poisson_times(num_arrivals: int, rate: float, random: Random) -> list[float]:
    """Times of independent arrivals, ``rate`` per second on average; the first comes after a gap.

    Raises:
        ValueError: the rate is not positive.
    """
    if not rate > 0:
        raise ValueError(f"a rate is positive, not {rate} arrivals per second")
    times, now = [], 0.0
    for _ in range(num_arrivals):
        now -= log(1 - random.random()) / rate
        times.append(now)
    return times


def drawn(
    name: str,
    lengths: tuple[Lengths, Lengths],
    num_arrivals: int,
    rate: float,
    seed: int,
    max_len: int = PAPER_MAX_LEN,
) -> Workload:
    """Prompts and answers of drawn lengths, Poisson arrivals.

    Pairs of more than ``max_len`` tokens together are drawn again, so the means of what comes out
    are a little smaller than what goes in.
    """
    random = Random(f"{name} {seed}")
    times = poisson_times(num_arrivals, rate, random)
    arrivals = [Arrival(time, *_pair(lengths, max_len, random)) for time in times]
    source = (
        f"drawn, seed {seed}: Poisson arrivals, {rate:g}/s; lognormal lengths, prompt "
        f"{lengths[0]}, answer {lengths[1]}; at most {max_len} tokens together"
    )
    return Workload(name, source, tuple(arrivals))


def sharegpt_like(num_arrivals: int, rate: float = 2.0, seed: int = 0) -> Workload:
    """Conversations of the lengths of ShareGPT, as far as the paper tells them.

    Examples:
        >>> workload = sharegpt_like(2000)
        >>> round(workload.mean_prompt_len), round(workload.mean_output_len)
        (150, 335)
    """
    return drawn("ShareGPT-like", SHAREGPT, num_arrivals, rate, seed)


def alpaca_like(num_arrivals: int, rate: float = 30.0, seed: int = 0) -> Workload:
    """Instructions of the lengths of Alpaca, as far as the paper tells them: short."""
    return drawn("Alpaca-like", ALPACA, num_arrivals, rate, seed)


def chat(num_arrivals: int, rate: float = 1.0, seed: int = 0, longest: int = 1024) -> Workload:
    """Turns of conversations: each prompt is the end of all that was said before (section 6.5).

    A prompt is the last ``longest`` tokens of the history and the new question, an answer has at
    most ``longest`` tokens. Conversations have one to eight turns, every number as likely.
    """
    random = Random(f"chat {seed}")
    arrivals, history, turns_left = [], 0, 0
    for time in poisson_times(num_arrivals, rate, random):
        if turns_left == 0:
            history, turns_left = 0, 1 + int(random.random() * 8)
        question, answer = (lengths.draw(random) for lengths in SHAREGPT)
        answer = min(answer, longest)
        history += question
        arrivals.append(Arrival(time, min(history, longest), answer))
        history, turns_left = history + answer, turns_left - 1
    source = (
        f"drawn, seed {seed}: Poisson arrivals, {rate:g}/s; conversations of 1 to 8 turns, "
        f"question {SHAREGPT[0]}, answer {SHAREGPT[1]}; prompt: the last {longest} tokens of them"
    )
    return Workload("chat", source, tuple(arrivals))


def _pair(lengths: tuple[Lengths, Lengths], max_len: int, random: Random) -> tuple[int, int]:
    """A prompt and an answer that fit together."""
    while True:
        prompt, answer = (each.draw(random) for each in lengths)
        if prompt + answer <= max_len:
            return prompt, answer
