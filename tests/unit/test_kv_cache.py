"""The tensors obey: written where told, read where told, and poison where nobody wrote."""

import pytest
import torch

from minipaged.cache import KVCache
from minipaged.core import InvalidBatch

NAN = float("nan")


def small_cache(num_blocks: int = 3, **more) -> KVCache:
    """Two layers, blocks of two tokens, one head of one number: a block prints as two numbers."""
    return KVCache(2, num_blocks, 2, 1, 1, sanitize=True, **more)


def fill(cache: KVCache, numbers: list[float], first_slot: int = 0) -> None:
    """Token n has the key n in layer 0 and n + 0.5 in layer 1; its value is minus its key."""
    slots = torch.arange(first_slot, first_slot + len(numbers))
    for layer in range(2):
        key = torch.tensor(numbers).view(-1, 1, 1) + layer / 2
        cache.write(layer, key, -key, slots)


def keys(cache: KVCache, layer: int = 0) -> list[float]:
    return cache.key[layer].flatten().tolist()


def values(cache: KVCache, layer: int = 0) -> list[float]:
    return cache.value[layer].flatten().tolist()


def same(numbers: list[float], expected: list[float]) -> bool:
    return torch.equal(
        torch.tensor(numbers).nan_to_num(-99), torch.tensor(expected).nan_to_num(-99)
    )


def test_shape_is_a_convention_and_strides_are_a_choice():
    cache = KVCache(2, 5, 4, 3, 8, value_head_dim=6, dtype=torch.float64)
    assert cache.key.shape == (2, 5, 4, 3, 8)
    assert cache.value.shape == (2, 5, 4, 3, 6)
    assert (cache.num_blocks, cache.block_size) == (5, 4)
    assert cache.bytes_per_block == 2 * 4 * 3 * (8 + 6) * 8
    one_head_of_a_block = cache.key[0, 0, :, 0]
    assert one_head_of_a_block.is_contiguous(), "a head's tokens lie together"


@pytest.mark.invariant(14)
def test_what_nobody_wrote_is_poison():
    cache = small_cache()
    assert cache.key.isnan().all()
    assert cache.value.isnan().all()


def test_a_token_goes_to_its_slot_in_its_layer():
    cache = small_cache()
    key, value = torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[[3.0]], [[4.0]]])
    cache.write(1, key, value, torch.tensor([5, 0]))
    assert same(keys(cache, 1), [2, NAN, NAN, NAN, NAN, 1])
    assert same(values(cache, 1), [4, NAN, NAN, NAN, NAN, 3])
    assert cache.key[0].isnan().all(), "the other layer is untouched"


@pytest.mark.invariant(9)
def test_slot_minus_one_is_skipped_and_not_the_last_slot():
    cache = small_cache()
    numbers = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    cache.write(0, numbers, numbers, torch.tensor([-1, 2, -1]))
    assert same(keys(cache), [NAN, NAN, 2, NAN, NAN, NAN])
    cache.write(0, numbers, numbers, torch.tensor([-1, -1, -1]))
    assert same(keys(cache), [NAN, NAN, 2, NAN, NAN, NAN])


def test_every_token_needs_a_slot():
    cache, one = small_cache(), torch.ones(1, 1, 1)
    with pytest.raises(InvalidBatch, match="1 keys and 1 values for 2 slots"):
        cache.write(0, one, one, torch.tensor([0, 1]))
    with pytest.raises(InvalidBatch, match="1 keys and 2 values for 1 slots"):
        cache.write(0, one, torch.ones(2, 1, 1), torch.tensor([0]))


def test_gather_follows_the_blocks_and_stops_at_the_last_token():
    cache = small_cache()
    fill(cache, [0, 1, 2, 3, 4, 5])
    key, value = cache.gather(1, [2, 0], num_tokens=3)
    assert key.flatten().tolist() == [4.5, 5.5, 0.5]
    assert value.flatten().tolist() == [-4.5, -5.5, -0.5]
    assert key.shape == (3, 1, 1)
    key.zero_()
    assert keys(cache, 1)[4] == 4.5, "what is gathered is a copy"


@pytest.mark.invariant(9)
def test_gather_refuses_holes():
    cache = small_cache()
    with pytest.raises(InvalidBatch, match=r"block_ids \[-1, 2\] has holes"):
        cache.gather(0, [-1, 2], num_tokens=4)


def test_a_copy_takes_k_and_v_of_every_layer():
    cache = small_cache()
    fill(cache, [1, 2])
    cache.copy_blocks([(0, 2)])
    for layer in range(2):
        first, second = 1 + layer / 2, 2 + layer / 2
        assert same(keys(cache, layer), [first, second, NAN, NAN, first, second])
        assert same(values(cache, layer), [-first, -second, NAN, NAN, -first, -second])


@pytest.mark.invariant(4)
def test_all_sources_are_read_before_anything_is_written():
    cache = small_cache()
    fill(cache, [1, 2, 3, 4])
    cache.copy_blocks([(0, 1), (1, 0)])
    assert keys(cache)[:4] == [3, 4, 1, 2]
    cache.copy_blocks([(0, 1), (1, 2)])
    assert keys(cache) == [3, 4, 3, 4, 1, 2]


def test_one_source_may_have_many_copies():
    cache = small_cache()
    fill(cache, [1, 2])
    cache.copy_blocks(iter([(0, 1), (0, 2)]))
    assert keys(cache) == [1, 2, 1, 2, 1, 2]


def test_no_copies_are_no_work():
    cache = small_cache()
    cache.copy_blocks([])
    assert cache.key.isnan().all()


def test_swapping_moves_blocks_to_another_cache_and_back():
    device, host = small_cache(3), small_cache(2)
    fill(device, [1, 2, 3, 4])
    device.swap_blocks(host, [(0, 1), (1, 0)])
    assert keys(host, 1) == [3.5, 4.5, 1.5, 2.5]
    assert values(host, 1) == [-3.5, -4.5, -1.5, -2.5]
    host.swap_blocks(device, [(1, 2)])
    assert keys(device) == [1, 2, 3, 4, 1, 2]


def test_poison_is_put_where_it_is_wanted():
    cache = small_cache(2)
    fill(cache, [1, 2, 3, 4])
    cache.poison([1, 2])
    for layer in range(2):
        assert same(keys(cache, layer), [1 + layer / 2, NAN, NAN, 4 + layer / 2])
        assert same(values(cache, layer), [-1 - layer / 2, NAN, NAN, -4 - layer / 2])
    cache.poison([])
