"""Checkpoints are read whole or refused, with the tensor's name and both shapes."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from minipaged.core import ModelError
from minipaged.linear import PLAIN, form_for
from minipaged.models import Decoder, ModelConfig
from minipaged.models.weights import WeightReader, read_json, read_safetensors, tensor_shapes

torch.set_num_threads(1)

CONFIG = ModelConfig("llama", 40, 16, 24, 2, 4, 2, 4, 64, qkv_bias=True)


@pytest.fixture
def weights():
    generator = torch.Generator().manual_seed(7)
    shapes = tensor_shapes(CONFIG)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_one_file_and_shards_hold_the_same(tmp_path, weights):
    save_file(weights, tmp_path / "model.safetensors")
    whole = read_safetensors(tmp_path)
    (tmp_path / "sharded").mkdir()
    write_shards(tmp_path / "sharded", weights)
    shards = read_safetensors(tmp_path / "sharded")
    assert set(whole) == set(shards) == set(weights)
    assert all(torch.equal(whole[n], weights[n]) for n in weights)
    assert all(torch.equal(shards[n], weights[n]) for n in weights)


def write_shards(directory, weights):
    names = sorted(weights)
    parts = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, directory / file)
    places = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_weights_that_share_an_input_become_one_product(weights):
    reader = WeightReader(CONFIG, weights, torch.float32, "cpu")
    names = [f"model.layers.1.self_attn.{x}_proj.weight" for x in "qkv"]
    fused, x = reader.fused(*names), torch.randn(3, 16)
    assert fused.is_contiguous()
    for rows in (x, x[:1], x[:0]):
        right = torch.cat([rows @ weights[n].t() for n in names], 1)
        product = form_for(torch.float32, torch.device("cpu")).linear(fused)
        torch.testing.assert_close(product(rows), right)
    biases = [weights[n.replace("weight", "bias")] for n in names]
    assert torch.equal(reader.bias(*names), torch.cat(biases))
    assert reader.bias("model.layers.1.self_attn.o_proj.weight") is None


def test_a_decoder_keeps_nothing_of_the_checkpoint(weights):
    decoder = Decoder(CONFIG, weights, form=PLAIN)
    products = [decoder.embedding, decoder.head, decoder.layers[0].output]
    kept = [decoder.norm, decoder.layers[0].mlp_norm, *(product.weight for product in products)]
    given = {tensor.data_ptr() for tensor in weights.values()}
    assert not given & {tensor.data_ptr() for tensor in kept}


def test_missing_and_unexpected_tensors_are_named(weights):
    del weights["model.norm.weight"]
    with pytest.raises(ModelError, match=r"lacks model.norm.weight$"):
        Decoder(CONFIG, weights)
    weights["model.norm.scale"] = torch.ones(16)
    with pytest.raises(ModelError, match=r"lacks model.norm.weight; has the unexpected model.no"):
        Decoder(CONFIG, weights)
    with pytest.raises(ModelError, match=r"layers.0.self_attn.q_proj.weight and 22 more"):
        Decoder(CONFIG, {f"model.layers.{i}.input_layernorm.weight": None for i in range(2)})


def test_a_missing_head_hints_at_tying(weights):
    del weights["lm_head.weight"]
    with pytest.raises(ModelError, match="perhaps tie_word_embeddings should be true"):
        Decoder(CONFIG, weights)


def test_what_old_checkpoints_hold_besides_is_ignored(weights):
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    Decoder(CONFIG, weights)


def test_a_wrong_shape_names_tensor_and_both_shapes(weights):
    name = "model.layers.1.mlp.down_proj.weight"
    weights[name] = weights[name].t()
    with pytest.raises(ModelError, match=rf"{name} has shape \[24, 16\], .* implies \[16, 24\]"):
        Decoder(CONFIG, weights)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite_is_named(weights, bad):
    weights["model.layers.0.self_attn.v_proj.bias"][3] = bad
    with pytest.raises(ModelError, match=r"self_attn.v_proj.bias holds a NaN or an infinity"):
        Decoder(CONFIG, weights)


def test_a_weight_too_large_for_the_dtype_is_named(weights):
    weights["model.norm.weight"][3] = 1e6
    Decoder(CONFIG, weights, dtype=torch.bfloat16)
    with pytest.raises(ModelError, match=r"model.norm.weight holds .* \(as torch.float16\)"):
        Decoder(CONFIG, weights, dtype=torch.float16)


def test_a_file_cut_anywhere_is_refused(tmp_path, weights):
    path = tmp_path / "model.safetensors"
    save_file(weights, path)
    content = path.read_bytes()
    for cut in range(0, len(content), len(content) // 50):
        path.write_bytes(content[:cut])
        with pytest.raises(ModelError, match=r"cannot read the weights in"):
            read_safetensors(tmp_path)


def test_missing_files_are_named(tmp_path, weights):
    with pytest.raises(ModelError, match=r"cannot read the weights in .*model.safetensors"):
        read_safetensors(tmp_path)
    write_shards(tmp_path, weights)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot read the weights in .*00002-of-00002"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("text", ["{", "", "[1]", "\x00", '{"weight_map": [1]}'])
def test_an_index_that_is_no_index_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match=r"model.safetensors.index.json"):
        read_safetensors(tmp_path)


def test_json_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"cannot read .*config.json"):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"cannot read .*config.json"):
        read_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="should hold a JSON object, it holds a list"):
        read_json(tmp_path / "config.json")
