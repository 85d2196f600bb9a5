"""``config.json`` is read as ``transformers`` reads it; what we cannot do is refused by name."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from minipaged.core import ModelError
from minipaged.models import ModelConfig, RopeScaling
from minipaged.models.rope import rotary_angles, rotary_frequencies, rotate

BASE = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**options) -> ModelConfig:
    return ModelConfig.from_hf({**BASE, **options})


def test_what_is_not_said_is_what_hugging_face_assumes():
    assert read() == ModelConfig("llama", 96, 64, 96, 3, 8, 8, 8, 2048)
    assert read(model_type="mistral").num_kv_heads == 8
    assert read(model_type="mistral").sliding_window == 4096
    assert read(model_type="qwen3").head_dim == 128


def test_null_is_the_same_as_not_said():
    names = ("head_dim", "num_key_value_heads", "rope_scaling", "rms_norm_eps")
    assert read(**dict.fromkeys(names)) == read()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ()),
        ({"model_type": "qwen2"}, ("qkv",)),
        ({"model_type": "qwen2", "attention_bias": True}, ("qkv",)),
        ({"attention_bias": True}, ("qkv", "output")),
        ({"mlp_bias": True}, ("mlp",)),
        ({"model_type": "qwen3", "attention_bias": True, "mlp_bias": True}, ("qkv", "output")),
        ({"model_type": "mistral", "attention_bias": True}, ()),
    ],
)
def test_which_products_have_a_bias(options, expected):
    config = read(**options)
    found = [name for name in ("qkv", "output", "mlp") if getattr(config, f"{name}_bias")]
    assert tuple(found) == expected


QWEN = {"model_type": "qwen2", "sliding_window": 5}


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({"sliding_window": 5}, None),  # llama has none, whatever the file says
        ({"model_type": "mistral", "sliding_window": 5}, 5),
        ({"model_type": "mistral", "sliding_window": None}, None),
        (QWEN, None),
        (QWEN | {"use_sliding_window": False, "max_window_layers": 0}, None),
        (QWEN | {"use_sliding_window": True}, None),  # from layer 28 on, and there are 3
        (QWEN | {"use_sliding_window": True, "max_window_layers": 3}, None),
        (QWEN | {"use_sliding_window": True, "max_window_layers": 0}, 5),
        (QWEN | {"use_sliding_window": True, "layer_types": ["sliding_attention"] * 3}, 5),
        (QWEN | {"use_sliding_window": True, "layer_types": ["full_attention"] * 3}, None),
    ],
)
def test_the_window_that_every_layer_has(options, window):
    assert read(**options).sliding_window == window


def test_a_mixture_of_windows_is_refused():
    with pytest.raises(ModelError, match="2 of 3 layers attend to everything and the rest to a"):
        read(**QWEN, use_sliding_window=True, max_window_layers=2)
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    with pytest.raises(ModelError, match=r"1 of 3 layers .* only if all layers have it"):
        read(**QWEN, use_sliding_window=True, layer_types=kinds)


def test_both_spellings_of_rope():
    new = read(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3})
    old = read(rope_scaling={"type": "llama3", **LLAMA3}, rope_theta=5e5)
    assert new == old
    assert new.rope_theta == 5e5
    assert new.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
    assert read(rope_parameters={"rope_type": "default", "rope_theta": 3.0}).rope_scaling is None
    assert read(rope_scaling={"type": "linear", "factor": 4.0}).rope_scaling.factor == 4.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported; supported are llama, mis"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; it should be 'silu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config .* is not supported"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_type 'yarn' is not supported"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor 0.25"),
        ({"rope_scaling": {"type": "linear"}}, "factor should be a positive number, .* None"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "low_freq_factor should be"),
        ({"hidden_size": None}, "hidden_size should be a positive whole number, .* None"),
        ({"hidden_size": "64"}, "hidden_size should be a positive whole number, .* '64'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers should be a positive whole number"),
        ({"num_attention_heads": 8.5}, "num_attention_heads should be a positive whole number"),
        ({"num_key_value_heads": 3}, "8 query heads cannot share 3 kv heads evenly"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
        ({"rope_theta": 0}, "rope_theta should be a positive number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps should be a positive number"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(options, message):
    with pytest.raises(ModelError, match=message):
        read(**options)


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    frequencies = rotary_frequencies(read())
    query, key = torch.randn(2, 1, 1, 8, dtype=torch.float64)

    def at(position, x):
        cos, sin = rotary_angles(torch.tensor([position]), frequencies, torch.float64)
        return rotate(x, cos, sin)

    assert torch.equal(at(0, query), query)
    torch.testing.assert_close(at(9, query).norm(), query.norm())
    near, far = (at(9, query) * at(4, key)).sum(), (at(105, query) * at(100, key)).sum()
    torch.testing.assert_close(near, far, rtol=0, atol=1e-4)


def test_rotation_turns_component_i_with_component_i_plus_half():
    cos, sin = torch.tensor([0.6, 1.0, 0.6, 1.0]), torch.tensor([-0.8, 0.0, 0.8, 0.0])
    x = torch.tensor([1.0, 5.0, 10.0, 7.0])
    expected = torch.tensor([0.6 - 8.0, 5.0, 6.0 + 0.8, 7.0])
    torch.testing.assert_close(rotate(x, cos, sin), expected)


def test_llama3_keeps_fast_pairs_and_slows_the_slow_ones():
    config = read(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}, head_dim=64)
    plain = rotary_frequencies(dataclasses.replace(config, rope_scaling=None))
    ratio = rotary_frequencies(config) / plain
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(1 / 8)
    assert torch.all(ratio.diff() <= 0)
    assert 0 < ((ratio > 1 / 8) & (ratio < 1)).sum() < 10
