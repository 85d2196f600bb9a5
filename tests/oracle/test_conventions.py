"""Conventions: what is packed is read back, and the typical fault of each one dies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from minipaged.oracle import check_kernel
from minipaged.oracle.cases import Case
from minipaged.oracle.checks import FORM
from minipaged.oracle.contract import Features
from minipaged.oracle.conventions import CONVENTIONS, Call, Convention, Kernel, find_convention
from minipaged.oracle.directed import directed
from minipaged.oracle.recipes import Recipe
from minipaged.oracle.strategies import recipes

FOREIGN = sorted(set(CONVENTIONS) - {"native"})
TABLES = "block_table block_tables page_table page_indices kv_indices block_indices read_index"
INDEX_LISTS = {*TABLES.split(), "physical_to_logical"}
SCALES = {"sm_scale", "scale", "softmax_scale", "scaling", "bmm1_scale"}
QUERIES = {"q", "query", "q_extend"}


def small(features: Features, **changes: Any) -> Features:
    """The same features in sizes that a slow kernel can do."""
    least_query, least_kv = features.query_len[0], features.kv_len[0]
    return features.only(
        **{
            "dtypes": features.dtypes[:1],
            "block_sizes": tuple(sorted(features.block_sizes)[:2]),
            "head_dims": tuple(sorted(features.head_dims)[:2]),
            "num_kv_heads": (1, min(2, features.num_kv_heads[1])),
            "groups": (1, 2),
            "query_len": (least_query, min(4, features.query_len[1])),
            "kv_len": (least_kv, 9),
            "num_seqs": (1, 3),
            **changes,
        }
    )


def in_the_language(convention: Convention, case: Case) -> Call | None:
    """The case packed, or None if the convention's arguments cannot say it."""
    call = convention.pack(case)
    refuses = getattr(convention, "refuses", lambda *args, **kwargs: "")
    return None if refuses(*call.args, **call.kwargs) else call


def easy(convention: Convention) -> Iterator[Recipe]:
    """Directed cases, without the long ones."""
    features = small(convention.features, dtypes=convention.features.dtypes)
    for recipe in directed(features, convention.contract, 3):
        if max(kv_len for _, kv_len in recipe.lengths) <= 33:
            yield recipe


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_packed_is_read_back_in_every_directed_case(name: str):
    convention = find_convention(name)
    cases = [recipe.build() for recipe in easy(convention)]
    said = [case for case in cases if in_the_language(convention, case)]
    assert len(said) > 0.7 * len(cases)
    for case in said:
        assert convention.selfcheck(case) == [], str(case.recipe)


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_packed_is_read_back_in_any_case(name: str):
    convention = find_convention(name)
    features = convention.features
    fewer = features.only(
        head_dims=tuple(sorted(features.head_dims)[:2]), kv_len=(features.kv_len[0], 40)
    )

    @settings(max_examples=25, deadline=None, database=None)
    @hypothesis.seed(1)
    @given(recipes(fewer, convention.contract, 3))
    def check(recipe: Recipe):
        case = recipe.build()
        hypothesis.assume(in_the_language(convention, case))
        assert convention.selfcheck(case) == []

    check()


def plain_case(name: str, **changes: Any) -> Case:
    """Two sequences that every convention can say, the first of two blocks."""
    features, contract = CONVENTIONS[name].features, CONVENTIONS[name].contract
    size = min(features.block_sizes)
    recipe = Recipe(
        lengths=((1, size + 3), (1, size)),
        head_dim=sorted(features.head_dims)[1],
        block_size=size,
        dtype=features.dtypes[0],
        padding=0 if contract.padding == "valid" else -1,
        num_kv_heads=min(2, features.num_kv_heads[1]),
        latent=features.latent,
        value_head_dim=8 if features.latent else 0,
    )
    return replace(recipe, **changes).build()


@pytest.mark.parametrize("name", FOREIGN)
def test_other_ways_to_ask_say_the_same(name: str):
    convention = find_convention(name)
    case = plain_case(name)
    if convention.features.masks:
        case = plain_case(name, causal=False, mask="tree", lengths=((3, 7), (2, 5)))
    call = in_the_language(convention, case)
    assert call
    for _, other in convention.variants(call, convention.contract):
        again = convention.read(*other.args, **other.kwargs)
        assert all(
            np.array_equal(case.problem.visible(s), again.visible(s))
            for s in range(case.problem.num_seqs)
        )


def with_fault(name: str, words: set[str], change: Callable[[Any], Any]) -> Convention | None:
    """The convention with one argument packed wrongly; None if it has no such argument."""
    base = CONVENTIONS[name]
    signature = inspect.signature(base().read)
    found = words & set(signature.parameters)
    if not found:
        return None

    class Faulty(base):
        def pack(self, case: Case, device: str = "cpu") -> Call:
            call = super().pack(case, device)
            bound = signature.bind(*call.args, **call.kwargs)
            word = sorted(found & set(bound.arguments))[0]
            bound.arguments[word] = change(bound.arguments[word])
            return replace(call, args=bound.args, kwargs=bound.kwargs)

    return Faulty()


def backwards(x: Any) -> Any:
    """The last axis the other way round."""
    return x.flip(-1) if isinstance(x, torch.Tensor) else np.flip(x, -1)


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize(
    ("words", "change"),
    [
        pytest.param(INDEX_LISTS, backwards, id="index list backwards"),
        pytest.param(SCALES, lambda scale: scale * 1.01, id="scale wrong"),
        pytest.param(QUERIES, backwards, id="query dims backwards"),
    ],
)
def test_a_fault_in_pack_is_found_by_selfcheck(name: str, words: set[str], change: Any):
    faulty = with_fault(name, words, change)
    if faulty is None:
        assert name in ("jax", "jax_tpu")  # no scale among the arguments
        return
    case = plain_case(name)
    assert find_convention(name).selfcheck(case) == []
    assert faulty.selfcheck(case) != []


@pytest.mark.parametrize("name", FOREIGN)
def test_a_correct_kernel_passes(name: str):
    convention = find_convention(name)
    features = small(convention.features)
    report = check_kernel(
        convention.example(), convention, features=features, max_examples=10, deadline_s=0.7
    )
    assert not report.failures, report
    assert report.cases >= 2


# --- The typical fault of each convention: what a wrong kernel of it does ---------------------

Mistake = Callable[..., Any]


def natural_lse(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The lse is a natural logarithm, where base 2 is promised."""
    out, lse = kernel(*args, **kwargs)
    return out, lse * math.log(2)


def high_bits_first(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The bits of a packed mask are read from the highest."""
    if "packed_custom_mask" in kwargs:
        bits = np.unpackbits(kwargs["packed_custom_mask"].numpy()[:, None], axis=1)[:, ::-1]
        kwargs["packed_custom_mask"] = torch.from_numpy(np.packbits(bits, axis=1)[:, 0])
    return kernel(*args, **kwargs)


def last_page_full(kernel: Kernel, q: Any, cache: Any, *args: Any, **kwargs: Any) -> Any:
    """The length of the last page is ignored."""
    pages = cache[0] if isinstance(cache, tuple) else cache[:, 0]
    return kernel(q, cache, *args[:3], torch.full_like(args[3], pages.shape[1]), **kwargs)


def heads_for_tokens(kernel: Kernel, q: Any, cache: Any, *args: Any, **kwargs: Any):
    """HND pages are read as NHD."""
    if isinstance(cache, tuple):
        return kernel(q, cache, *args, **kwargs)
    shape = (*cache.shape[:2], cache.shape[3], cache.shape[2], cache.shape[4])
    return kernel(q, cache.reshape(shape).transpose(2, 3), *args, **kwargs)


def wider(word: str, by: int = 1) -> Mistake:
    """A window is one wider than asked for."""

    def mistake(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
        value = kwargs.get(word)
        if isinstance(value, tuple):
            kwargs[word] = (value[0] + by if value[0] >= 0 else -1, value[1])
        elif value is not None and value > 0:
            kwargs[word] = value + by
        return kernel(*args, **kwargs)

    mistake.__name__ = f"{word}_{'+' if by > 0 else '-'}1"
    return mistake


def blocks_one_after_another(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The stride of a block is taken to be its size."""
    for word in ("k", "v"):
        x = kwargs[word]
        strides = (x.shape[1] * x.stride(1), *x.stride()[1:])
        kwargs[word] = torch.as_strided(x, x.shape, strides, x.storage_offset())
    return kernel(*args, **kwargs)


def keys_for_values(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Keys and values are mistaken for each other."""
    kwargs["k"], kwargs["v"] = kwargs["v"], kwargs["k"]
    return kernel(*args, **kwargs)


def pieces_transposed(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Number d of a key is looked for at piece d % x, not d // x."""
    cache = args[5]
    wrong = cache.permute(0, 1, 4, 3, 2).reshape(cache.shape)
    return kernel(*args[:5], wrong, *args[6:], **kwargs)


def plain_values(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Interleaved values are read as if they were not."""
    kwargs.pop("use_interleaved_v_cache", None)
    return kernel(*args, **kwargs)


def lse_by_token(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The lse is `[num_tokens, num_heads]` in memory, and only looks like the transposed."""
    out, lse, *rest = kernel(*args, **kwargs)
    return (out, lse.T.reshape(lse.shape), *rest)


def window_for_all(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Window 0 is taken for no window."""
    left, right = kwargs["window_size"]
    kwargs["window_size"] = (left or -1, right)
    return kernel(*args, **kwargs)


def first_descale(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """One scale for all kv heads."""
    if "k_descale" in kwargs:
        kwargs["k_descale"] = kwargs["k_descale"][:, :1].expand_as(kwargs["k_descale"])
    return kernel(*args, **kwargs)


def prefix_unmasked(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The mask leaves the prefix alone."""
    return kernel(*args, **{**kwargs, "skip_prefix_custom_mask": True})


def next_slot(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Every token is read from the slot after its own."""
    slots = (args[5] + 1) % len(args[1])
    return kernel(*args[:5], slots, *args[6:], **kwargs)


def scaled_twice(kernel: Kernel, q: Any, *args: Any, **kwargs: Any) -> Any:
    """The queries are scaled, though they come scaled."""
    return kernel((q * q.shape[-1] ** -0.5).astype(q.dtype), *args, **kwargs)


def whole_pages(kernel: Kernel, q: Any, k: Any, v: Any, lengths: Any, pages: Any, **kwargs: Any):
    """Lengths are rounded up to whole pages."""
    return kernel(q, k, v, -(-lengths // k.shape[2]) * k.shape[2], pages, **kwargs)


def keys_first(kernel: Kernel, q: Any, pages: Any, *args: Any, **kwargs: Any) -> Any:
    """The first half of the heads is taken for the keys, the second for the values."""
    half = pages.shape[2] // 2
    wrong = np.empty_like(pages)
    wrong[:, :, 0::2], wrong[:, :, 1::2] = pages[:, :, :half], pages[:, :, half:]
    return kernel(q, wrong, *args, **kwargs)


def past_is_all(kernel: Kernel, **kwargs: Any) -> Any:
    """The length of the past is taken to count this step: the oldest tokens are dropped."""
    new = np.diff(kwargs["subsequence_begins"])
    past = np.maximum(kwargs["past_lens"] - new, 0).astype(np.int32)
    return kernel(**{**kwargs, "past_lens": past})


def by_page_id(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Pages are taken in the order of their ids."""
    table, inverse = args[3].clone(), torch.full_like(args[4], -1)
    for row, back in zip(table, inverse):
        pages = row[row >= 0].sort().values
        row[: len(pages)] = pages
        back[pages] = torch.arange(len(pages))
    return kernel(*args[:3], table, inverse, *args[5:], **kwargs)


def gathered_before_written(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """Keys are gathered before this step's are written."""
    stale = args[3][args[6]].transpose(0, 1)[None]
    return kernel(args[0], stale, *args[2:], **kwargs)


def keys_on_pages_of_values(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The row of the keys is used for the values too."""
    if "uses_shared_paged_kv_idx" in kwargs:
        args = (*args[:3], args[3][:, :1].expand_as(args[3]), *args[4:])
    return kernel(*args, **kwargs)


def scale_of_the_latent(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    """The scale is that of the row."""
    return kernel(*args, **{**kwargs, "softmax_scale": args[0].shape[-1] ** -0.5})


def last_part_as_value(kernel: Kernel, q: Any, cache: Any, *args: Any, **kwargs: Any) -> Any:
    """The values are the last part of the row."""
    _, lse = kernel(q, cache, *args, **kwargs)
    return kernel(q.roll(args[2], -1), cache.roll(args[2], -1), *args, **kwargs)[0], lse


MISTAKES: list[tuple[str, Mistake]] = [
    ("flashinfer", natural_lse),
    ("flashinfer", last_page_full),
    ("flashinfer", wider("window_left")),
    ("flashinfer", high_bits_first),
    ("flashinfer_hnd", heads_for_tokens),
    ("vllm", blocks_one_after_another),
    ("vllm", wider("window_size", -1)),
    ("vllm_split", keys_for_values),
    ("vllm_xpacked", pieces_transposed),
    ("vllm_xpacked", plain_values),
    ("vllm_xpacked", wider("sliding_window")),
    ("flash_attn", lse_by_token),
    ("flash_attn", window_for_all),
    ("flash_attn3", first_descale),
    ("flash_attn3", wider("window_size", -1)),
    ("sglang", prefix_unmasked),
    ("sglang", wider("sliding_window_size", -1)),
    ("sglang_decode", next_slot),
    ("jax", scaled_twice),
    ("jax_tpu", whole_pages),
    ("rpa", keys_first),
    ("rpa", wider("sliding_window")),
    ("openvino", past_is_all),
    ("openvino", wider("sliding_window")),
    ("flex", by_page_id),
    ("hf", gathered_before_written),
    ("trtllm", natural_lse),
    ("trtllm", keys_on_pages_of_values),
    ("mla", scale_of_the_latent),
    ("mla", last_part_as_value),
    ("onnx", wider("local_window_size", -1)),
]


# Windows of 0 are asked for from level 3 on, other ways to ask from level 2 on.
LEVELS = {window_for_all: 3, high_bits_first: 2}


@pytest.mark.parametrize(
    ("name", "mistake"), MISTAKES, ids=[f"{name}-{m.__name__}" for name, m in MISTAKES]
)
def test_the_typical_fault_of_a_convention_dies(name: str, mistake: Mistake):
    convention = find_convention(name)
    right = convention.example()

    def wrong(*args: Any, **kwargs: Any) -> Any:
        return mistake(right, *args, **kwargs)

    report = check_kernel(
        wrong,
        convention,
        level=LEVELS.get(mistake, 1),
        features=small(convention.features),
        max_examples=60,
        max_failures=1,
        explain=False,
    )
    assert not report.passed, mistake.__doc__
    assert report.failures[0].check not in FORM, "it must die of its numbers, not of our clumsiness"


def test_every_convention_has_a_fault_that_dies():
    assert {name for name, _ in MISTAKES} == set(FOREIGN)


def test_a_kernel_is_not_asked_for_an_option_that_it_has_no_keyword_for():
    example = find_convention("flashinfer").example()

    def plain(q, cache, qo_indptr, indptr, indices, last, *, sm_scale, causal=False):
        return example(q, cache, qo_indptr, indptr, indices, last, sm_scale=sm_scale, causal=causal)

    _, features, notes = find_convention("flashinfer").fit(plain)
    assert not any((features.left_window, features.softcap, features.sinks, features.lse))
    assert "softcap: the kernel has no argument 'logits_soft_cap'" in notes
    report = check_kernel(
        plain, "flashinfer", level=1, features=small(features), max_examples=5, deadline_s=1
    )
    assert not report.failures, report


def test_what_a_library_cannot_say_is_declined_and_counted():
    convention = find_convention("vllm")
    recipe = Recipe(lengths=((2, 6),), causal=False, window=(2, 1))
    features = small(convention.features, left_window=False, right_window=False)
    report = check_kernel(
        convention.example(),
        convention,
        level=1,
        features=features,
        max_examples=0,
        deadline_s=0.5,
        first=[recipe],
    )
    assert not report.failures
    assert any("as far to the right as to the left" in line for line in report.not_judged)
