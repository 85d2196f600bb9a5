"""All layers in one compiled call: what the same decoder computes one operation after the other."""

from __future__ import annotations

import numba
import pytest
import torch

from minipaged.attention import cpu, paged_attention
from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockPool, BlockTable
from minipaged.linear import PLAIN
from minipaged.models import Decoder, ModelConfig, cpu_step
from minipaged.models.cpu_step import CompiledStep
from minipaged.models.weights import tensor_shapes

SIZES = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 40, "num_layers": 3}
SIZES["max_position_embeddings"] = 64
HEADS = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 8}
MODELS = {
    "llama": ModelConfig("llama", **SIZES, **HEADS),
    "a head per K and V": ModelConfig("llama", **SIZES, num_heads=3, num_kv_heads=3, head_dim=8),
    "biases": ModelConfig("qwen2", **SIZES, **HEADS, qkv_bias=True),
    "a window": ModelConfig("mistral", **SIZES, **HEADS, sliding_window=5),
    "norms of heads": ModelConfig("qwen3", **SIZES, **HEADS, qk_norm=True),
}


def decoder_of(config, dtype=torch.float32, form=None):
    dice = torch.Generator().manual_seed(1)
    shapes = tensor_shapes(config).items()
    weights = {name: torch.randn(shape, generator=dice) * 0.3 for name, shape in shapes}
    return Decoder(config, weights, dtype=dtype, form=form)


def hidden_of(decoder, attention=cpu.cpu_paged_attention, make=KVCache, lengths=((9, 4), (2, 2))):
    """A prompt of each length, and then so many tokens more; K and V begin as NaN."""
    config, pool = decoder.config, BlockPool(12)
    tables, results = [BlockTable(pool, block_size=3) for _ in lengths], []
    sizes = config.num_layers, pool.num_blocks, 3, config.num_kv_heads, config.head_dim
    cache = make(*sizes, sanitize=True, write_kv=cpu.cpu_write_kv)
    for counts in zip(*lengths):
        for table, count in zip(tables, counts):
            table.reserve(count)
        batch = PagedBatch.build(tables)
        ids = (torch.arange(sum(counts)) * 7 + 3) % config.vocab_size
        results.append(decoder.forward(ids, batch, cache, attention))
        for table in tables:
            table.commit(list(range(table.num_reserved)))
    return results, cache


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_it_computes_what_torch_does(config):
    compiled, cache = hidden_of(decoder_of(config))
    plain, expected = hidden_of(decoder_of(config, form=PLAIN), paged_attention)
    for mine, right in zip(
        (*compiled, cache.key, cache.value), (*plain, expected.key, expected.value)
    ):
        torch.testing.assert_close(mine, right, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_with_8_bits_it_is_the_decoder_that_calls_the_same_products(config):
    decoder = decoder_of(config, torch.int8)
    compiled, _ = hidden_of(decoder)
    one_by_one, _ = hidden_of(decoder, lambda *args, **kw: cpu.cpu_paged_attention(*args, **kw))
    for mine, right in zip(compiled, one_by_one):
        torch.testing.assert_close(mine, right, rtol=0.1, atol=0.1)  # a step of 8 bits apart


class Watched(KVCache):
    def write(self, *given):
        raise AssertionError("this is for whoever calls it")


def test_whoever_watches_is_asked():
    """A function of one's own, a cache that is watched, a norm that is not compiled."""
    decoder, cache = decoder_of(MODELS["llama"]), KVCache(1, 1, 1, 1, 1, write_kv=cpu.cpu_write_kv)
    assert CompiledStep.can_run(decoder, cache, cpu.cpu_paged_attention)
    assert not CompiledStep.can_run(decoder, cache, paged_attention)
    assert not CompiledStep.can_run(decoder, KVCache(1, 1, 1, 1, 1), cpu.cpu_paged_attention)
    watched = Watched(1, 1, 1, 1, 1, write_kv=cpu.cpu_write_kv)
    assert not CompiledStep.can_run(decoder, watched, cpu.cpu_paged_attention)
    half = KVCache(1, 1, 1, 1, 1, dtype=torch.bfloat16, write_kv=cpu.cpu_write_kv)
    assert not CompiledStep.can_run(decoder, half, cpu.cpu_paged_attention)
    for other in (decoder_of(MODELS["norms of heads"]), decoder_of(MODELS["llama"], form=PLAIN)):
        assert not CompiledStep.can_run(other, cache, cpu.cpu_paged_attention)


def test_what_a_step_needs_is_compiled_before_the_first(monkeypatch):
    """Compiling takes seconds, which are in no figure of a step: warming up asks for its types."""
    asked = []

    def run(*given):
        asked.append([numba.typeof(x) for x in given])
        return cpu_step_run(*given)

    cpu_step_run = cpu_step.run
    monkeypatch.setattr(cpu_step, "run", run)
    decoder = decoder_of(MODELS["llama"])
    cache = KVCache(3, 4, 3, 2, 8, sanitize=True, write_kv=cpu.cpu_write_kv)
    assert decoder.warm_up(cache, cpu.cpu_paged_attention) > 0
    assert len(asked) == 1
    assert cache.key.isnan().all()
    hidden_of(decoder)
    assert all(types == asked[0] for types in asked[1:])
    assert len(asked) == 3
