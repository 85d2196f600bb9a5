"""The shape comments of attention are true, and the helper that says so can say no."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minipaged.attention import cpu, dense, online_softmax, paged, semantics
from support.attention_problems import Spec
from support.shape_comments import WrongShape, checked, checking, comments_of, uncommented

PUBLIC = [
    semantics.visible,
    semantics.attention_scores,
    online_softmax.AttentionState.update,
    online_softmax.merge_states,
    dense.dense_attention,
    paged.paged_attention,
    paged.paged_attention_blockwise,
    cpu.cpu_paged_attention,
    cpu.cpu_write_kv,
]


def looked_up(
    table: Tensor,  # [num_rows, width] float32, one row per thing
    at: Tensor,  # [num_queries] int64
    bounds: Tensor | None = None,  # [num_queries + 1]
    *,
    pair: Tensor | float = 1.0,  # [2]
    anything: Tensor | None = None,  # [..., width]
    unsaid: int = 0,
) -> Tensor:  # [num_queries, width]
    """A function with comments."""  # [not, a, shape]
    return table[at] if unsaid == 0 else table[at][:, unsaid:]


TABLE, AT = torch.zeros(5, 3), torch.tensor([1, 2])


def test_comments_are_found():
    said = comments_of(looked_up)
    assert {name: comment.dims for name, comment in said.items()} == {
        "table": ["num_rows", "width"],
        "at": ["num_queries"],
        "bounds": ["num_queries + 1"],
        "pair": ["2"],
        "anything": ["...", "width"],
        "return": ["num_queries", "width"],
    }
    assert said["table"].dtype == torch.float32
    assert said["bounds"].dtype is None


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"bounds": torch.zeros(3)},
        {"pair": torch.zeros(2)},
        {"pair": 3.0},
        {"anything": torch.zeros(4, 7, 3)},
        {"anything": torch.zeros(3)},
    ],
)
def test_what_the_comments_say_passes(more):
    assert checked(looked_up)(TABLE, AT, **more).shape == (2, 3)


WRONG = {
    "a dimension more": ((TABLE[None], AT), {}, r"table is \[1, 5, 3\]"),
    "a dtype": ((TABLE.double(), AT), {}, "torch.float64, its comment says .* torch.float32"),
    "no room for one more": ((TABLE, AT), {"bounds": torch.zeros(2)}, "num_queries is "),
    "a number": ((TABLE, AT), {"pair": torch.zeros(3)}, "and 2 is 2 elsewhere"),
    "behind an ellipsis": ((TABLE, AT), {"anything": torch.zeros(4, 2)}, "width is "),
    "too short for an ellipsis": ((TABLE, AT), {"anything": torch.tensor(1.0)}, "anything is"),
    "the result": ((TABLE, AT), {"unsaid": 1}, r"the result is \[2, 2\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_they_do_not_say_fails(name):
    args, kwargs, message = WRONG[name]
    with pytest.raises(WrongShape, match=message):
        checked(looked_up)(*args, **kwargs)


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__name__)
def test_every_tensor_has_a_comment(function):
    assert comments_of(function)
    assert uncommented(function) == []


def test_the_helper_misses_no_tensor_without_a_comment():
    def silent(
        a: Tensor,
        b: Tensor | None,  # [num_rows]
        c: int,
        d: Tensor | float | None,  # optional
    ):
        return a

    assert uncommented(silent) == ["a", "d"]


def test_the_comments_of_a_method_are_true():
    update = checked(online_softmax.AttentionState.update)
    empty = online_softmax.AttentionState.empty(2, 3, 4, like=TABLE)
    assert update(empty, torch.zeros(2, 3, 5), torch.zeros(2, 5, 4)).acc.shape == (2, 3, 4)
    with pytest.raises(WrongShape, match="num_keys is"):
        update(empty, torch.zeros(2, 3, 5), torch.zeros(2, 1, 4))


SPECS = [
    Spec(((2, 9), (1, 5)), 2, 3, 8, 5, 4, kv_scales="tensor", alibi=True, sinks=True),
    Spec(((3, 3),), 1, 2, 4, 4, 2, dtype="float64", window=2, softcap=1.0, kv_scales="float"),
    Spec(((0, 3), (2, 0)), 1, 1, 4, 4, 2, dtype="bfloat16"),
]


@pytest.mark.parametrize("spec", SPECS)
def test_the_comments_are_true(spec):
    problem = spec.build()
    modules = (semantics, online_softmax, dense, paged, cpu)
    with checking(*modules) as called:
        for form in (
            paged.paged_attention,
            paged.paged_attention_blockwise,
            cpu.cpu_paged_attention,
        ):
            out, lse = problem(form)
        online_softmax.merge_states(out.float(), lse, out.float(), lse)
        cache = problem.arguments["key_cache"].clone()
        row = cache[0, :1]
        cpu.cpu_write_kv(row, row, cache, cache, torch.tensor([0]))
    assert called >= {function.__name__ for function in PUBLIC if function.__name__ != "update"}
    assert not hasattr(paged.paged_attention, "__wrapped__"), "the modules are as before"
