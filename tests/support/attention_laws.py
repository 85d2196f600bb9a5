"""What must hold of any paged attention, as checks on a `Spec`; each raises AssertionError.

The property tests run them on what we ship, the mutation tests on what we broke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from support.attention_problems import Problem, Spec
from support.events import count

Form = Callable[..., tuple[Tensor, Tensor]]


def equals_the_formula(form: Form, spec: Spec) -> None:
    """Output and lse are those of the loops, within the roundings that cannot be avoided."""
    problem = spec.build()
    before = {name: _copy(x) for name, x in problem.arguments.items()}
    out, lse = problem(form)
    problem.expected.check(out, lse, str(spec))
    assert out.dtype == problem.arguments["query"].dtype
    assert lse.dtype == (torch.float64 if spec.dtype == "float64" else torch.float32)
    assert torch.equal(out, form(**problem.arguments)), "return_lse changes the output"
    for name, x in problem.arguments.items():
        assert _same_bits(x, before[name]), f"{name} was written to"


def placement_changes_no_bit(form: Form, spec: Spec) -> None:
    """Blocks may lie anywhere, in storage of any order, among any garbage."""
    layout = {"NHD": "HND", "HND": "padded", "padded": "NHD", "interleaved": "HND"}[spec.layout]
    moved = replace(spec, placement=spec.placement + 1, layout=layout, padding=2**31 - 1)
    _assert_same(spec.build()(form), moved.build()(form), "another placement")


def batch_mates_change_no_bit(form: Form, spec: Spec) -> None:
    """Each sequence alone gives what it gives in the batch."""
    problem = spec.build()
    out, lse = problem(form)
    for s, (query_len, _) in enumerate(spec.lengths):
        rows = problem.rows(s)
        alone = {
            "query": problem.arguments["query"][rows],
            "block_tables": problem.arguments["block_tables"][s : s + 1],
            "seq_lens": problem.arguments["seq_lens"][s : s + 1],
            "query_start_loc": torch.tensor([0, query_len], dtype=torch.int32),
        }
        _assert_same((out[rows], lse[rows]), problem(form, **alone), f"sequence {s} alone")


def block_size_changes_no_bit(form: Form, spec: Spec) -> None:
    """The size of a block is no part of the result (of forms that do not sum block by block)."""
    other = replace(spec, block_size=5 if spec.block_size != 5 else 7)
    _assert_same(spec.build()(form), other.build()(form), "another block size")


def chunks_change_no_bit(form: Form, spec: Spec) -> None:
    """Prefill in one call, in chunks, or token by token: a row is the same to the last bit."""
    for piece, whole in _chunked(form, spec):
        _assert_same(whole, piece, "in chunks")


def chunks_are_within_budget(form: Form, spec: Spec) -> None:
    """The same, for forms whose sums are ordered by shape: each chunk is right by itself."""
    problem, budget = spec.build(), spec.build().expected
    for rows, piece in _chunks(form, problem):
        part = replace(
            budget,
            out=budget.out[rows],
            lse=budget.lse[rows],
            out_budget=budget.out_budget[rows],
            lse_budget=budget.lse_budget[rows],
        )
        part.check(*piece, what="in chunks")


def groups_are_repeated_heads(form: Form, spec: Spec) -> None:
    """Query heads that share a kv head see what they would see in a copy of their own."""
    problem = spec.build()
    copies = {
        name: problem.arguments[name].repeat_interleave(spec.group, dim=2)
        for name in ("key_cache", "value_cache")
    }
    for name in ("k_scale", "v_scale"):
        scale = problem.arguments[name]
        copies[name] = scale.repeat_interleave(spec.group) if torch.is_tensor(scale) else scale
    problem.expected.check(*problem(form, **copies), what="with repeated heads")


def _chunked(form: Form, spec: Spec):
    problem = spec.build()
    out, lse = problem(form)
    for rows, piece in _chunks(form, problem):
        yield piece, (out[rows], lse[rows])


def _chunks(form: Form, problem: Problem):
    """Every sequence's queries in two calls, the keys of the later ones not yet there in the first.

    Under a causal mask only: what a query sees then does not depend on what comes after it.
    """
    arguments = problem.arguments
    for s, (query_len, seq_len) in enumerate(problem.spec.lengths):
        rows = problem.rows(s)
        for cut in {1, query_len // 2, query_len - 1} & set(range(1, query_len)):
            for first, last in ((0, cut), (cut, query_len)):
                visible = seq_len - (query_len - last)
                if visible < 0:
                    continue
                count("a chunk")
                here = slice(rows.start + first, rows.start + last)
                chunk = {
                    "query": arguments["query"][here],
                    "block_tables": arguments["block_tables"][s : s + 1],
                    "seq_lens": torch.tensor([visible], dtype=torch.int32),
                    "query_start_loc": torch.tensor([0, last - first], dtype=torch.int32),
                }
                yield here, problem(form, **chunk)


def _copy(x):
    return x.clone() if isinstance(x, Tensor) else x


def _same_bits(a, b) -> bool:
    return torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) if isinstance(a, Tensor) else a == b


def _assert_same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], what: str) -> None:
    for name, a, b in zip(("out", "lse"), one, other):
        assert torch.equal(a, b), f"{what}: {name} differs by {(a - b).abs().max().item():.3g}"
