"""Where libraries disagree, by worked examples: one address, one window, one lse at a time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from minipaged.oracle.cases import Case
from minipaged.oracle.conventions import CONVENTIONS, Convention, find_convention
from minipaged.oracle.conventions.packing import array
from minipaged.oracle.conventions.vllm import ORDERS
from minipaged.oracle.directed import FAR, fit
from minipaged.oracle.recipes import Recipe
from minipaged.oracle.subject import Subject

FOREIGN = sorted(set(CONVENTIONS) - {"native"})


def arguments(convention: Convention, case: Case) -> dict[str, Any]:
    """What a case is packed to, by the names that the library has for it."""
    call = convention.pack(case)
    bound = inspect.signature(convention.read).bind(*call.args, **call.kwargs).arguments
    return {**bound, **bound.pop("options", {})}


def case_for(name: str, **changes: Any) -> Case:
    """Decoding at position `block_size + 2` of one sequence: offset 2 of its second block."""
    features, contract = CONVENTIONS[name].features, CONVENTIONS[name].contract
    size = min(size for size in features.block_sizes if size >= 4)
    recipe = Recipe(
        lengths=((1, size + 3),),
        block_size=size,
        num_kv_heads=min(2, features.num_kv_heads[1]),
        group=2,
        head_dim=min(dim for dim in features.head_dims if dim >= 8),
        padding=0 if contract.padding == "valid" else -1,
        latent=features.latent,
        value_head_dim=8 if features.latent else 0,
    )
    return replace(recipe, **changes).build()


def interleaved(a: dict[str, Any], b: int, o: int, h: int, d: int) -> Any:
    """`[num_blocks, num_kv_heads, block_size // x, head_dim, x]`, seen as four dimensions."""
    cache = a["value_cache"]
    blocks, heads, dim, size = cache.shape
    return cache.reshape(blocks, heads, size // 4, dim, 4)[b, h, o // 4, d, o % 4]


# Where number d of head h is, of the token at offset o of block b, in float32. Keys, then values.
Address = Callable[[dict[str, Any], int, int, int, int], Any]
ADDRESSES: dict[str, tuple[Address, Address]] = {
    "flashinfer": (
        lambda a, b, o, h, d: a["paged_kv_cache"][b, 0, o, h, d],
        lambda a, b, o, h, d: a["paged_kv_cache"][b, 1, o, h, d],
    ),
    "flashinfer_hnd": (
        lambda a, b, o, h, d: a["paged_kv_cache"][b, 0, h, o, d],
        lambda a, b, o, h, d: a["paged_kv_cache"][b, 1, h, o, d],
    ),
    "trtllm": (
        lambda a, b, o, h, d: a["kv_cache"][b, 0, h, o, d],
        lambda a, b, o, h, d: a["kv_cache"][b, 1, h, o, d],
    ),
    "vllm": (
        lambda a, b, o, h, d: a["k"][b, o, h, d],
        lambda a, b, o, h, d: a["v"][b, o, h, d],
    ),
    "vllm_split": (
        lambda a, b, o, h, d: a["k"][b, o, h, d],
        lambda a, b, o, h, d: a["v"][b, o, h, d],
    ),
    "vllm_xpacked": (
        lambda a, b, o, h, d: a["key_cache"][b, h, d // 4, o, d % 4],
        lambda a, b, o, h, d: a["value_cache"][b, h, d, o],
    ),
    "flash_attn": (
        lambda a, b, o, h, d: a["k"][b, o, h, d],
        lambda a, b, o, h, d: a["v"][b, o, h, d],
    ),
    "flash_attn3": (
        lambda a, b, o, h, d: a["k_cache"][b, o, h, d],
        lambda a, b, o, h, d: a["v_cache"][b, o, h, d],
    ),
    "sglang_decode": (
        lambda a, b, o, h, d: a["k_buffer"][b * 4 + o, h, d],
        lambda a, b, o, h, d: a["v_buffer"][b * 4 + o, h, d],
    ),
    "jax": (
        lambda a, b, o, h, d: a["k_pages"][h, b, o, d],
        lambda a, b, o, h, d: a["v_pages"][h, b, o, d],
    ),
    "jax_tpu": (
        lambda a, b, o, h, d: a["k_pages"][h, b, o, d],
        lambda a, b, o, h, d: a["v_pages"][h, b, o, d],
    ),
    "rpa": (
        lambda a, b, o, h, d: a["kv_pages"][b, o, 2 * h, d],
        lambda a, b, o, h, d: a["kv_pages"][b, o, 2 * h + 1, d],
    ),
    "flex": (
        lambda a, b, o, h, d: a["key"][0, h, b * a["page_size"] + o, d],
        lambda a, b, o, h, d: a["value"][0, h, b * a["page_size"] + o, d],
    ),
    "mla": (
        lambda a, b, o, h, d: a["k_cache"][b, o, 0, d],
        lambda a, b, o, h, d: a["k_cache"][b, o, 0, d],
    ),
}
# Those that write this step's token themselves: where the one before it is, and the token itself.
WRITERS: dict[str, tuple[Address, Address]] = {
    "openvino": (
        lambda a, b, o, h, d: a["key_cache"][b, h, o, d],
        lambda a, b, o, h, d: a["key"].reshape(1, 2, -1)[0, h, d],
    ),
    "onnx": (
        lambda a, b, o, h, d: a["key_cache"][b, o, h, d],
        lambda a, b, o, h, d: a["key"].reshape(1, 2, -1)[0, h, d],
    ),
    "hf": (
        lambda a, b, o, h, d: a["key_cache"][b * 4 + o, h, d],
        lambda a, b, o, h, d: a["key"][0, h, 0, d],
    ),
    "sglang": (
        lambda a, b, o, h, d: a["k_buffer"][b * 4 + o, h, d],
        lambda a, b, o, h, d: a["k_extend"][0, h, d],
    ),
}


def test_every_convention_has_its_address():
    assert {*ADDRESSES, *WRITERS} == set(FOREIGN)


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_token_lies_where_the_library_says(name: str):
    case = case_for(name)
    packed, block = arguments(find_convention(name), case), case.placement.block_ids[0][1]
    head, problem = case.problem.num_kv_heads - 1, case.problem
    for tokens, address in zip((problem.key[0], problem.value[0]), ADDRESSES[name]):
        for d in (0, 5):
            got = address(packed, block, 2, head, d)
            assert float(got) == tokens[case.placement.block_size + 2, head, d]


@pytest.mark.parametrize("name", WRITERS)
def test_a_library_that_writes_gets_the_past_in_the_cache_and_the_step_dense(name: str):
    case = case_for(name)
    packed, block = arguments(find_convention(name), case), case.placement.block_ids[0][1]
    past, new = WRITERS[name]
    size, key = case.placement.block_size, case.problem.key[0]
    assert float(past(packed, block, 1, 1, 5)) == key[size + 1, 1, 5]
    assert float(new(packed, block, 2, 1, 5)) == key[size + 2, 1, 5]
    if name != "sglang":  # which writes elsewhere, before
        assert math.isnan(past(packed, block, 2, 1, 5))


def test_interleaved_values_lie_where_the_library_says():
    case = case_for("vllm_xpacked", storage="interleaved values")
    packed = arguments(find_convention("vllm_xpacked"), case)
    got = interleaved(packed, case.placement.block_ids[0][1], 2, 1, 5)
    assert float(got) == case.problem.value[0][case.placement.block_size + 2, 1, 5]


@pytest.mark.parametrize("order", ORDERS)
def test_layers_of_vllm_may_lie_between_the_blocks(order: str):
    case = case_for("vllm", storage=order)
    key: torch.Tensor = arguments(find_convention("vllm"), case)["k"]
    size, heads, dim = key.shape[1:]
    # The stride of a block counts every axis that lies further in: layers, heads, tokens, content.
    inner = order[order.index("B") + 1 :]
    lengths = {"L": 3, "H": heads, "N": size, "C": 2 * dim}
    assert key.stride(0) == math.prod(lengths[axis] for axis in inner)
    assert key.stride(3) == 1


WINDOWS: dict[str, tuple[str, Any, Any]] = {  # argument; for the query and 2 before it; for none
    "flashinfer": ("window_left", 2, None),
    "flashinfer_hnd": ("window_left", 2, None),
    "trtllm": ("window_left", 2, None),
    "vllm": ("window_size", (2, 0), (-1, -1)),
    "vllm_split": ("window_size", (2, 0), (-1, -1)),
    "flash_attn": ("window_size", (2, 0), (-1, -1)),
    "flash_attn3": ("window_size", (2, 0), (-1, -1)),
    "sglang": ("sliding_window_size", 2, -1),
    "vllm_xpacked": ("sliding_window", 3, None),
    "rpa": ("sliding_window", 3, None),
    "onnx": ("local_window_size", 3, None),
    "openvino": ("sliding_window", 3, 0),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_three_visible_tokens_are_said_in_the_words_of_the_library(name: str):
    argument, three, none = WINDOWS[name]
    convention = find_convention(name)
    assert arguments(convention, case_for(name, window=(2, None))).get(argument) == three
    assert arguments(convention, case_for(name)).get(argument) == none


def test_a_window_of_0_is_a_mask_in_sglang_where_0_would_be_off():
    packed = arguments(find_convention("sglang"), case_for("sglang", window=(0, None)))
    assert packed["sliding_window_size"] == -1
    assert packed["custom_mask"].tolist() == [0] * 6 + [1]
    assert packed["skip_prefix_custom_mask"] is False


def test_a_sequence_of_no_keys_is_an_empty_row_in_flashinfer_and_its_last_page_is_not_empty():
    case = Recipe(lengths=((1, 0), (1, 5), (1, 8))).build()
    packed = arguments(find_convention("flashinfer"), case)
    assert packed["kv_indptr"].tolist() == [0, 0, 2, 4]
    assert packed["kv_last_page_len"].tolist() == [4, 1, 4]


def test_mask_bits_of_flashinfer_come_lowest_first_and_every_sequence_begins_a_byte():
    case = Recipe(lengths=((2, 5), (1, 3)), causal=False, mask="random").build()
    convention = find_convention("flashinfer")
    variants = dict(convention.variants(convention.pack(case), convention.contract))
    bits = variants["mask as bits"].kwargs["packed_custom_mask"].tolist()
    first, second = (m.reshape(-1) for m in (case.problem.spec.masks or ()))
    value = sum(int(seen) << i for i, seen in enumerate(first))
    assert bits[:2] == [value & 255, value >> 8]
    assert bits[2:] == [sum(int(seen) << i for i, seen in enumerate(second))]


LSE_SHAPES = {
    "flashinfer": ((3, 4), 1 / math.log(2)),
    "trtllm": ((3, 4), 1 / math.log(2)),
    "flash_attn": ((4, 3), 1.0),
    "flash_attn3": ((4, 3), 1.0),
    "flex": ((2, 4, 2), 1.0),
}


@pytest.mark.parametrize("name", LSE_SHAPES)
def test_the_lse_has_the_shape_and_the_base_of_the_library(name: str):
    convention, (shape, factor) = find_convention(name), LSE_SHAPES[name]
    case = case_for(name, lengths=((1, 7), (2, 4)))
    call = convention.pack(case)
    lse = array(convention.example()(*call.args, **call.kwargs)[1])
    assert lse.shape == shape
    subject = Subject(convention.example(), convention, convention.features, convention.contract)
    natural = subject.run(case).lse
    assert natural
    first = lse[0, :, 0] if name == "flex" else lse[:, 0] if shape[0] == 4 else lse[0]
    np.testing.assert_allclose(first, natural[0][0] * factor, rtol=1e-6)


def test_causal_alibi_of_flash_attention_2_shows_in_its_lse_and_is_taken_out():
    convention = find_convention("flash_attn")
    case = case_for("flash_attn", alibi=True, lengths=((2, 6),))
    call = convention.pack(case)
    problem = case.problem
    slopes = problem.spec.alibi_slopes
    assert slopes is not None
    returned = convention.example()(*call.args, **call.kwargs)
    natural = array(call.unpack(returned)[1])
    # The kernel's bias is `slope * key position`; ours, `slope * (key position - query position)`.
    np.testing.assert_allclose(array(returned[1]).T - natural, np.outer([4, 5], slopes), rtol=1e-5)


def test_alibi_by_distance_is_declined_where_a_query_sees_what_comes_after_it():
    convention = find_convention("flash_attn")
    for causal, declined in ((True, False), (False, True)):
        call = convention.pack(case_for("flash_attn", alibi=True, causal=causal))
        assert bool(convention.refuses(*call.args, **call.kwargs)) is declined  # pyright: ignore


def test_queries_of_jax_come_scaled():
    case = case_for("jax", head_dim=16)
    packed = arguments(find_convention("jax"), case)
    np.testing.assert_array_equal(packed["q"] * 4, case.flat_query.astype(np.float32))
    assert packed["block_tables"].shape == (1, 8)
    assert ((packed["block_tables"] >= 0) & (packed["block_tables"] < 4)).all()


def test_sequences_behind_num_seqs_do_not_count_in_ragged_paged_attention():
    packed = arguments(find_convention("rpa"), case_for("rpa"))
    assert packed["num_seqs"].tolist() == [1]
    assert len(packed["kv_lens"]) == len(packed["page_indices"]) == 2
    assert np.isnan(packed["q"][1:]).all()


def test_keys_and_values_may_be_on_pages_of_their_own_in_tensorrt_llm():
    case = case_for("trtllm", storage="separate rows")
    packed = arguments(find_convention("trtllm"), case)
    rows = packed["block_tables"][0]
    assert not set(rows[0].tolist()) & set(rows[1].tolist()) - {-1}
    size, pool = case.placement.block_size, packed["kv_cache"]
    for row, tokens in zip(rows.tolist(), (case.problem.key[0], case.problem.value[0])):
        assert float(pool[row[1], 0, 1, 2, 5]) == tokens[size + 2, 1, 5]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_buffer_for_results_is_nan_and_named(name: str):
    convention, case = find_convention(name), case_for(name)
    call = convention.pack(case)
    for buffer in call.outputs:
        assert buffer.isnan().all()
        assert any(buffer is x for x in (*call.args, *call.kwargs.values()))
    buffers = {"out", "output", "o", "o_extend"} & set(arguments(convention, case))
    assert bool(buffers) is bool(call.outputs)


@pytest.mark.parametrize("name", FOREIGN)
def test_every_convention_says_where_it_is_laid_down(name: str):
    assert CONVENTIONS[name].source.endswith((".py", ".rst", ".cuh", ".cu", ".cc", ".cpp", ".h"))
    assert CONVENTIONS[name].__doc__


@pytest.mark.parametrize("name", [name for name in FOREIGN if CONVENTIONS[name].features.far])
def test_a_pool_beyond_2_to_the_31_is_packed_without_filling_it(name: str):
    convention = find_convention(name)
    for recipe in FAR:
        fitted = fit(recipe, convention.features, convention.contract, 6)
        assert fitted is None or convention.selfcheck(fitted.build()) == []
