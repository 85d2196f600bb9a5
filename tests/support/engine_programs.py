"""Short random programs on ``EngineWorld`` as plain text, and the shortest part of one that fails.

    tight: add 0110 three; step; step; abort 0

The same programs for everybody and every time: program ``i`` depends on ``i`` alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from minipaged.engine.params import BeamSearchParams, SamplingParams

from .engine_world import EngineWorld

PLACES: dict[str, dict] = {  # 2 tokens in a block, unless said otherwise
    "roomy": {"num_blocks": 16},
    "tight": {"num_blocks": 5},
    "tight, no caching": {"num_blocks": 6, "prefix_caching": False},
    "chunks": {"num_blocks": 8, "max_num_batched_tokens": 3},
    "swapping": {"num_blocks": 5, "preemption": "swap", "num_host_blocks": 5},
    "small host": {"num_blocks": 6, "preemption": "swap", "num_host_blocks": 2},
    "window": {"num_blocks": 6, "window": 2},
    "few at once": {"num_blocks": 12, "max_num_seqs": 2},
    "headroom": {"num_blocks": 8, "watermark": 0.3},
    "single": {"num_blocks": 9, "block_size": 1},
    "few, swapping": {
        "num_blocks": 7,
        "max_num_seqs": 2,
        "preemption": "swap",
        "num_host_blocks": 4,
    },
    "few, no caching": {"num_blocks": 12, "max_num_seqs": 2, "prefix_caching": False},
    "chunks, swapping": {
        "num_blocks": 7,
        "max_num_batched_tokens": 2,
        "preemption": "swap",
        "num_host_blocks": 6,
    },
}
WISHES = {
    "greedy": SamplingParams(temperature=0, max_tokens=5, ignore_eos=True),
    "long": SamplingParams(seed=1, max_tokens=7, ignore_eos=True),
    "short": SamplingParams(seed=2, max_tokens=1),
    "ends": SamplingParams(seed=3, max_tokens=6),
    "stops": SamplingParams(seed=1, max_tokens=6, stop=["00", "11"]),
    "halts": SamplingParams(seed=5, max_tokens=6, stop_token_ids=[0], ignore_eos=True),
    "three": SamplingParams(n=3, seed=1, max_tokens=4),
    "logprobs": SamplingParams(seed=4, max_tokens=2, prompt_logprobs=0),
    "beams": BeamSearchParams(beam_width=2, max_tokens=4, ignore_eos=True),
    "wide": BeamSearchParams(beam_width=3, max_tokens=3),
    "deep": BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True, early_stopping="never"),
}
_CROWDED = ("tight", "few, swapping", "small host", "few, no caching", "chunks, swapping", "window")
_CROWD = ("beams", "wide", "deep", "deep", "long", "three")
_PROMPTS = ("0110100", "0110011", "1111111")
_ACTS = ("fail model 0", "fail model 2", "fail logits", "fail text 0", "fail text 2", "forget")


def program(seed: int) -> list[str]:
    """A place, and then some acts; every second program is a crowd of beams in too small a pool."""
    draw = random.Random(seed)
    crowded = seed % 2 == 1
    acts = [draw.choice(_CROWDED if crowded else tuple(PLACES))]
    for _ in range(draw.randint(2, 30 if crowded else 14)):
        kind = draw.random()
        if kind < (0.25 if crowded else 0.35):
            prompt = draw.choice(_PROMPTS)[: draw.randint(1, 7)]
            acts.append(f"add {prompt} {draw.choice(_CROWD if crowded else tuple(WISHES))}")
        elif kind < 0.85:
            acts.append("step")
        elif kind < 0.92:
            acts.append(f"abort {draw.randint(0, 2)}")
        else:
            acts.append(draw.choice(_ACTS))
    return acts


def play(acts: list[str]) -> None:
    """Run a program to the end, which comes when everybody has finished."""
    place, *rest = acts
    world = EngineWorld(**({"block_size": 2} | PLACES[place]))
    for act in rest:
        _act(world, *act.split())
    world.drain()


def _act(world: EngineWorld, act: str, *words: str) -> None:
    match act, words:
        case "add", (prompt, wish):
            world.add([int(token) for token in prompt], WISHES[wish])
        case "abort", (pick,) if world.expected:
            world.abort(list(world.expected)[int(pick) % len(world.expected)])
        case "fail", ("model", num_written):
            world.break_model(int(num_written))
        case "fail", ("logits",):
            world.break_sampling(None)
        case "fail", ("text", fuse):
            world.break_sampling(int(fuse))
        case "forget", ():
            world.forget_prefixes()
        case "step", ():
            world.step()


def fails(acts: list[str]) -> bool:
    """Whether a law is broken on the way."""
    try:
        play(acts)
    except Exception:
        return True
    return False


def first_failure(num_programs: int) -> tuple[int, list[str]] | None:
    """Which of the programs is the first to fail, and what of it is enough to fail."""
    for seed in range(num_programs):
        acts = program(seed)
        if fails(acts):
            return seed + 1, _shortest(acts)
    return None


def _shortest(acts: list[str]) -> list[str]:
    """Leave out what can be left out, one act after the other, until nothing can."""
    for shorter in _without_one(acts):
        if fails(shorter):
            return _shortest(shorter)
    return acts


def _without_one(acts: list[str]) -> Iterator[list[str]]:
    for i in range(len(acts) - 1, 0, -1):
        yield acts[:i] + acts[i + 1 :]


def as_text(acts: list[str]) -> str:
    """One line to be read."""
    return f"{acts[0]}: {'; '.join(acts[1:])}"
