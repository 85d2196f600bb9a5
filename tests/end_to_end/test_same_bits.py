"""On a CPU a request's log-probabilities have the same bits, whatever else the engine does.

Every compiled sum runs in one order: in a product that of the weights' columns, in attention that
of the positions. So a row's numbers do not depend on the rows beside it, and it makes no difference
whether K and V were computed now, in pieces, or by somebody else.
"""

from __future__ import annotations

from functools import partial

import pytest

from minipaged.engine.params import SamplingParams
from support.engine_models import bundled, make_llm

TEXTS = [
    "In the beginning God created the heaven and the earth. And",
    "In the beginning God created the heaven and the sea, and all",
    "And it came to pass",
    "The king said unto his servants, Go ye out",
    "Blessed",
]
WISH = SamplingParams(temperature=0.7, seed=5, max_tokens=9, logprobs=3, ignore_eos=True)
WAYS = {
    "all together": {},
    "prompts in pieces": {"max_num_batched_tokens": 5},
    "two at a time": {"max_num_seqs": 2},
    "in blocks of 1": {"block_size": 1, "num_blocks": 400},
    "in a pool too small": {"num_blocks": 15},
    "swapped out": {"num_blocks": 15, "preemption": "swap"},
}


def generate(llm, texts):
    """Per request, its tokens, and every log-probability to the last bit."""
    return [
        (sample.token_ids, [{t: x.logprob for t, x in step.items()} for step in sample.logprobs])
        for output in llm.generate(texts, WISH)
        for sample in output.outputs
    ]


@pytest.fixture(scope="module", params=["float32", "int8"])
def compiled(request):
    """Makes engines of one model, whose products and attention are compiled."""
    return partial(make_llm, bundled(request.param), attention=None, sanitize=False)


@pytest.fixture(scope="module")
def alone(compiled):
    """Each request in an engine of its own."""
    return [generate(compiled(), [text])[0] for text in TEXTS]


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_scheduling_changes_a_bit(compiled, alone, way):
    llm = compiled(**WAYS[way])
    assert generate(llm, TEXTS) == alone
    if "pool" in way or "swap" in way:
        assert llm.stats.num_preemptions > 0


def test_a_prefix_that_is_found_changes_no_bit(compiled, alone):
    llm = compiled()
    for _ in range(2):
        assert generate(llm, TEXTS) == alone
    assert llm.stats.prompt_tokens_cached > 0
