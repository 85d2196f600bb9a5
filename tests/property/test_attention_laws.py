"""Laws of attention, for the two readable forms and the compiled one, against loops and `exp`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from minipaged.attention import dense_attention, paged_attention, paged_attention_blockwise
from minipaged.attention.cpu import cpu_paged_attention
from support import attention_laws as laws
from support.attention_problems import Spec, specs
from support.events import must_happen

FORMS = {
    "gather": paged_attention,
    "blockwise": paged_attention_blockwise,
    "cpu": cpu_paged_attention,
}
BITWISE = {"gather": paged_attention, "cpu": cpu_paged_attention}
EVENTS = (
    "many rows",
    "an empty sequence",
    "a sequence without queries",
    "more queries than keys",
    "a partial last block",
    "the window binds",
    "a freed block",
    "the future is seen",
    "rows of nobody",
)
each_form = pytest.mark.parametrize("name", FORMS)


def holds(law, form, strategy, *events: str, at_least: int = 1, **options) -> None:
    """Look for a problem on which the law fails; fail, too, if the events never happened."""

    @settings(**options)
    @given(strategy)
    def search(spec: Spec) -> None:
        spec.count_events()
        law(form, spec)

    with must_happen(*events, at_least=at_least):
        search()


@each_form
def test_attention_is_the_formula(name):
    """Whatever no query sees is NaN here, so this also says that nothing else is ever read."""
    holds(laws.equals_the_formula, FORMS[name], specs(), *EVENTS, at_least=3)


def test_long_sequences_on_the_compiled_form():
    """Long enough for several tiles and splits, which short problems never reach."""
    long = specs(dtypes=("float32", "bfloat16"), min_len=60, max_len=600, max_rows=3, max_seqs=1)
    events = ("a later tile", "a later split", "the window binds")
    form = FORMS["cpu"]
    holds(laws.equals_the_formula, form, long, *events, at_least=3, max_examples=25)


@each_form
def test_placement_changes_no_bit(name):
    holds(laws.placement_changes_no_bit, FORMS[name], specs())


@each_form
def test_batch_mates_change_no_bit(name):
    holds(laws.batch_mates_change_no_bit, FORMS[name], specs())


@pytest.mark.parametrize("name", BITWISE)
def test_block_size_changes_no_bit(name):
    holds(laws.block_size_changes_no_bit, FORMS[name], specs())


@each_form
def test_chunking_a_prefill_changes_nothing(name):
    causal = specs(max_rows=20).map(_causal)
    holds(
        laws.chunks_are_within_budget, FORMS[name], causal, "a chunk", at_least=30, max_examples=40
    )


def test_chunking_a_prefill_changes_no_bit_of_the_compiled_form():
    causal = specs(min_len=30, max_len=140, max_rows=140, max_seqs=1).map(_causal)
    holds(laws.chunks_change_no_bit, FORMS["cpu"], causal, "a chunk", "a later tile")


@each_form
def test_grouped_heads_are_repeated_heads(name):
    grouped = specs().filter(lambda spec: spec.group > 1)
    holds(laws.groups_are_repeated_heads, FORMS[name], grouped, max_examples=40)


@given(specs(max_seqs=2))
def test_dense_attention_is_the_formula(spec):
    """Over the same numbers, without blocks: here positions behind the window are real, too."""
    problem = spec.build()
    options = {k: v for k, v in problem.options.items() if k not in ("k_scale", "v_scale")}
    outs, lses = [], []
    for s in range(len(spec.lengths)):
        query = problem.arguments["query"][problem.rows(s)]
        keys, values = (
            _scaled(stored[s], problem.arguments[scale])
            for stored, scale in ((problem.keys, "k_scale"), (problem.values, "v_scale"))
        )
        out, lse = dense_attention(query, keys, values, **options, return_lse=True)
        outs.append(out)
        lses.append(lse)
    num_rows = problem.rows(len(spec.lengths) - 1).stop
    expected = problem.expected
    got_out, got_lse = expected.out.clone(), expected.lse.clone()
    got_out[:num_rows], got_lse[:num_rows] = torch.cat(outs), torch.cat(lses)
    expected.check(got_out, got_lse)


def _scaled(stored, scale):
    if scale is None:
        return stored
    compute = torch.float64 if stored.dtype == torch.float64 else torch.float32
    return stored.to(compute) * torch.as_tensor(scale, dtype=compute)[..., None]


def _causal(spec: Spec) -> Spec:
    """Chunks are the same only if no query sees what a later chunk brings."""
    return replace(spec, causal=True, extra_rows=0)
