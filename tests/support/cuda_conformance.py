"""Our operations as a judge of strangers calls them, in cases that a CPU computes quickly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from minipaged.oracle import Contract, Features
from minipaged.oracle.checks import checks_up_to
from minipaged.oracle.conventions import Native
from minipaged.oracle.directed import directed
from minipaged.oracle.drawing import Generator, draw_recipe
from minipaged.oracle.recipes import Recipe
from minipaged.oracle.subject import Result, Subject
from minipaged.oracle.trial import Trial
from minipaged_cuda import paged_attention

CONTRACT = Native.contract.only(spare_rows="zero")
# With the keys in one run, what else is in the batch changes no bit, nor does the order of heads.
INVARIANT = CONTRACT.only(batch_invariant=True, head_invariant=True, scaling_exact=True)
SMALL = Native.features.only(
    dtypes=("float32",),
    kv_forms=(),
    value_head_dims=None,
    head_dims=(8,),
    block_sizes=(4,),
    groups=(3, 3),
    num_kv_heads=(1, 2),
    num_seqs=(1, 3),
    query_len=(0, 3),
    kv_len=(0, 40),
)
PLAIN = SMALL.only(causal=(True,), left_window=False, softcap=False, alibi=False, sinks=False)
TILES = SMALL.only(dtypes=("float16",), head_dims=(32,), block_sizes=(16,))
FLOAT8 = TILES.only(head_dims=(64,), kv_forms=("float8_e4m3fn",), kv_scales=("head", "tensor"))
ONE_CALL = (0, 1, 3)  # levels of checks that look at one answer, and so cost one call together


def kernel(name: str, launcher: Any, **options: Any) -> Callable[..., Any]:
    """`paged_attention` by one kernel on one launcher."""
    return partial(paged_attention, kernel=name, launcher=launcher, **options)


def every_option(attend: Callable[..., Any]) -> Callable[..., Any]:
    """The same with every option on; where a case has none, at a value that changes nothing.

    Options are compiled into a kernel, so that cases of all kinds need one kernel, not thirty-two.
    """

    def call(query, key_cache, value_cache, *batch, **given):
        heads = query.new_zeros(query.shape[1], dtype=torch.float32)
        neutral = {"window": 2**30, "softcap": 1e9, "alibi_slopes": heads}
        neutral |= {"sinks": heads - torch.inf, "k_scale": 1.0}
        return attend(query, key_cache, value_cache, *batch, **{**neutral, **given})

    return call


def small_cases(features: Features, count: int, most_work: int = 400) -> Iterator[Recipe]:
    """Of the cases that chance draws, and of the directed ones, as many small ones each."""
    known = [r for r in directed(features, CONTRACT, 3) if work(r) <= most_work]
    yield from known[:: max(1, len(known) // count)][:count]
    dice = Generator(0)
    drawn = (draw_recipe(dice, features, CONTRACT, 3) for _ in iter(int, 1))
    small = (recipe for recipe in drawn if work(recipe) <= most_work)
    yield from (next(small) for _ in range(count))


def work(recipe: Recipe) -> int:
    """Scores to be computed."""
    return recipe.num_kv_heads * recipe.group * sum(q * k for q, k in recipe.lengths)


def broken_laws(
    attend: Callable[..., Any],
    recipe: Recipe,
    contract: Contract = CONTRACT,
    levels: tuple[int, ...] = ONE_CALL,
) -> list[str]:
    """What is wrong with one case, of every check of these levels that the contract promises."""
    trial = Trial(_subject(attend, contract), recipe.build())
    checks = [c for c in checks_up_to(max(levels), contract, SMALL) if c.level in levels]
    found = ((check.name, check.examine(trial)) for check in checks)
    return [f"{recipe}: {name}: {message}" for name, message in found if message]


def answer(attend: Callable[..., Any], recipe: Recipe) -> Result:
    """What the kernel says to one case."""
    return _subject(attend, CONTRACT).run(recipe.build())


def _subject(attend: Callable[..., Any], contract: Contract) -> Subject:
    return Subject(attend, Native(), SMALL, contract, call_limit_s=120.0)
