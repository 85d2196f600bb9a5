"""write_kv: each row is in its slot, bit for bit or rounded once, and nothing else has changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from support.cuda_kernels import CONVERTERS, LAUNCHERS, element, launch, strides

BLOCK_SIZE, NUM_BLOCKS, NUM_HEADS = 3, 4, 2
SLOTS = [9, -1, 4, 5, 0, 11, -1]
CONVERSIONS = [
    (torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float16),
    (torch.float16, torch.float32),
]


def storage(layout: str, *shape: int, dtype: torch.dtype) -> Tensor:
    """A cache of bytes that no float has, in some memory order: [blocks, tokens, heads, dim]."""
    blocks, tokens, heads, dim = shape
    if layout == "HND":
        memory = torch.zeros(blocks, heads, tokens, dim, dtype=dtype).transpose(1, 2)
    elif layout == "padded":
        memory = torch.zeros(blocks, tokens + 1, heads + 1, dim + 3, dtype=dtype)
        memory = memory[:, :tokens, :heads, :dim]
    else:
        memory = torch.zeros(shape, dtype=dtype)
    return memory.fill_(-7.0)


def new_rows(dim: int, dtype: torch.dtype, *, strided: bool = False) -> Tensor:
    """Keys or values, as they come, or as the middle of a fused projection."""
    torch.manual_seed(dim)
    rows = torch.randn(len(SLOTS), 3 * NUM_HEADS, dim).to(dtype)
    return rows[:, NUM_HEADS : 2 * NUM_HEADS] if strided else rows[:, :NUM_HEADS].contiguous()


def write(launcher: Any, key: Tensor, value: Tensor, caches: list[Tensor], **options: Any) -> None:
    """Launch the kernel; ``wide``, or the mode that the types ask for, and scales."""
    slots = torch.tensor([[slot, 0] for slot in SLOTS])[:, 0]  # a column: its stride is 2
    wide, k_scale = options.get("wide", False), options.get("k_scale")
    unit = 4 // key.itemsize if wide else 1
    converts = key.dtype != caches[0].dtype or k_scale is not None
    to_float8 = caches[0].dtype == torch.float8_e4m3fn
    mode = 0 if wide else 3 if converts and to_float8 else 2 if converts else 1
    constants: dict[str, int | str] = {
        "BS": BLOCK_SIZE,
        "MODE": mode,
        "SCALES": int(k_scale is not None),
    }
    elements = 16 // key.itemsize if wide else 1
    constants |= {"ROW": key.shape[2] // elements, "VALUE_ROW": value.shape[2] // elements}
    constants |= {"NEW": "uint32", "KV": "uint32"} if wide else {}
    if not wide:
        constants |= {"NEW": element(key), "KV": element(caches[0])}
        constants |= {"load_new": f"load_{CONVERTERS[key.dtype]}"}
        constants |= {} if to_float8 else {"store_kv": f"store_{CONVERTERS[caches[0].dtype]}"}
    arguments = {
        "key": key,
        "value": value,
        "key_cache": caches[0],
        "value_cache": caches[1],
        "slot_mapping": slots,
        "num_kv_heads": NUM_HEADS,
        "slot_stride": slots.stride(0),
        **strides("new_key", key, "token head", unit),
        **strides("new_value", value, "token head", unit),
        **strides("key", caches[0], "block token head", unit),
        **strides("value", caches[1], "block token head", unit),
        "k_scale": k_scale,
        "v_scale": None if k_scale is None else 2 * k_scale,
    }
    launch(launcher, "write_kv", (len(SLOTS),), 32, arguments, constants)


def expected(cache: Tensor, rows: Tensor) -> Tensor:
    """What the cache holds afterwards: ``rows`` are rounded by torch."""
    right = cache.clone()
    for slot, row in zip(SLOTS, rows):
        if slot >= 0:
            right[slot // BLOCK_SIZE, slot % BLOCK_SIZE] = row.to(cache.dtype)
    return right


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(*(x.contiguous().view(torch.uint8) for x in (a, b)))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_rows_move_as_words_of_16_bytes(launcher, layout):
    for dtype, dim, value_dim in ((torch.float16, 16, 8), (torch.float32, 20, 20)):
        key, value = new_rows(dim, dtype, strided=True), new_rows(value_dim, dtype)
        sizes = (NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS)
        caches = [storage(layout, *sizes, d, dtype=dtype) for d in (dim, value_dim)]
        right = [expected(c, rows) for c, rows in zip(caches, (key, value))]
        write(launcher, key, value, caches, wide=True)
        assert all(map(same_bits, caches, right))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_rows_of_any_size_move_element_by_element_and_keep_a_nans_bits(launcher):
    key, value = new_rows(5, torch.float16), new_rows(7, torch.float16, strided=True)
    key.view(torch.int16)[2, 0, 3] = 0x7D23  # a NaN with a payload
    caches = [
        storage("padded", NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, d, dtype=torch.float16) for d in (5, 7)
    ]
    around = [c.as_strided((c.untyped_storage().nbytes() // 2,), (1,)).clone() for c in caches]
    right = [expected(c, rows) for c, rows in zip(caches, (key, value))]
    write(launcher, key, value, caches)
    assert all(map(same_bits, caches, right))
    for cache, before in zip(caches, around):  # the padding is as it was
        after = cache.as_strided(before.shape, (1,)).clone()
        changed = int((after.view(torch.int16) != before.view(torch.int16)).sum())
        assert changed == sum(s >= 0 for s in SLOTS) * NUM_HEADS * cache.shape[3]


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_conversion_rounds_to_the_nearest_even(launcher):
    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-11, 65519.0, 1e-7, 0.0, -0.0, 3.14159])
    for source, stored in CONVERSIONS:
        key = new_rows(8, source)
        key[0, 0] = ties.to(source)
        caches = [storage("NHD", NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, 8, dtype=stored) for _ in "kv"]
        right = [expected(c, rows) for c, rows in zip(caches, (key, -key))]
        write(launcher, key, -key, caches)
        assert all(map(same_bits, caches, right)), (source, stored)


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16])
def test_float8_holds_the_nearest_of_x_over_scale_and_at_most_448(launcher, source):
    scale = torch.tensor([0.5, 0.03])  # of each head; that of the values is twice as large
    key = new_rows(8, source)
    key[0, 0, :3] = torch.tensor([1e4, -1e4, 448 * 0.5])
    caches = [
        storage("HND", NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, 8, dtype=torch.float8_e4m3fn)
        for _ in "kv"
    ]
    write(launcher, key, key, caches, k_scale=scale)
    for cache, factor in zip(caches, (scale, 2 * scale)):
        exact = (key.double() / factor.double()[:, None]).clamp(-448, 448)
        want = expected(cache, exact.float()).double()
        step = torch.maximum(want.abs() * 2**-3, torch.tensor(2.0**-9))  # at a tie, either side
        near = (cache.double() - want).abs() <= step
        assert near.all()
        assert (cache.double() != want).float().mean() < 0.02
