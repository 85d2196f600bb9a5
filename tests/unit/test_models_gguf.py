"""GGUF files give the same models as the directories they were made from, or are refused."""

from __future__ import annotations

import dataclasses
import math
import random
import struct

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

from minipaged.core import ModelError
from minipaged.models import Decoder, ModelConfig, RopeScaling
from minipaged.models.gguf_file import GGUFFile
from minipaged.models.gguf_model import gguf_config, gguf_weights
from minipaged.models.weights import read_json, read_safetensors
from support.tiny_models import LLAMA3_ROPE, SIZES, make_reference, run_paged

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
torch.set_num_threads(1)

PROMPT = [5, 17, 80, 3, 3, 44, 91, 2, 60, 31, 7, 12]
GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    outside = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    parts = name.split(".")
    if "layers" not in parts:
        return f"{outside[parts[-2]]}.weight"
    return f"blk.{parts[2]}.{GGUF_NAMES[parts[-2]]}.{parts[-1]}"


def permute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of a head in the order 0, half, 1, half + 1, ..., as ``llama`` files have them."""
    heads = np.split(rows, num_heads)
    return np.concatenate(
        [row[None] for head in heads for pair in zip(*np.split(head, 2)) for row in pair]
    )


def write_gguf(path, directory, *, type_=Type.F32, permuted=True, keys=None, tensors=None) -> None:
    """The model of a Hugging Face directory as a GGUF file; matrices are stored as ``type_``."""
    config = ModelConfig.from_hf(read_json(directory / "config.json"))
    arch = "llama" if config.architecture == "mistral" else config.architecture
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_layers)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    for key, value in (keys or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for name, tensor in read_safetensors(directory).items():
        array, num_heads = tensor.numpy(), {"q_proj": config.num_heads}
        num_heads = num_heads | {"k_proj": config.num_kv_heads}
        if arch == "llama" and permuted and name.split(".")[-2] in num_heads:
            array = permute(array, num_heads[name.split(".")[-2]])
        kind = type_ if array.ndim == 2 else Type.F32
        writer.add_tensor(gguf_name(name), quantize(array, kind), raw_dtype=kind)
    for name, array in (tensors or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A llama saved as a directory, its sizes fit for blocks of 32."""
    directory = tmp_path_factory.mktemp("llama")
    make_reference("llama", directory, intermediate_size=64)
    return directory


def logits_of(path) -> torch.Tensor:
    file = GGUFFile(path)
    config = gguf_config(file)
    (logits,) = run_paged(Decoder(config, gguf_weights(file, config)), [PROMPT])
    return logits


@pytest.mark.parametrize(
    "name",
    ["llama", "llama-tied", "llama-biases", "llama-wide-heads", "mistral-window", "qwen2", "qwen3"],
)
def test_config_and_weights_equal_the_directory_they_come_from(name, tmp_path):
    make_reference(name, tmp_path)
    expected = ModelConfig.from_hf(read_json(tmp_path / "config.json"))
    window = expected.sliding_window
    keys = {"llama.attention.sliding_window": window} if window else {}
    write_gguf(tmp_path / "model.gguf", tmp_path, keys=keys)
    file = GGUFFile(tmp_path / "model.gguf")
    config = gguf_config(file)
    assert config.rms_norm_eps == pytest.approx(expected.rms_norm_eps)
    assert dataclasses.asdict(config) == dataclasses.asdict(expected) | {
        "rms_norm_eps": config.rms_norm_eps,
        "architecture": "llama" if name.startswith("mistral") else expected.architecture,
    }
    weights = read_safetensors(tmp_path)
    found = gguf_weights(file, config)
    assert set(found) == set(weights)
    assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_rope_divisors_stand_for_llama3_scaling(tmp_path):
    reference = make_reference("llama-llama3-rope", tmp_path)
    divisors = [llama3_divisor(10000.0 ** (i / 16)) for i in range(16)]
    assert min(divisors) == 1
    assert max(divisors) == 8
    rope = {"rope_freqs.weight": np.array(divisors, np.float32)}
    write_gguf(tmp_path / "model.gguf", tmp_path, tensors=rope)
    expected = reference(torch.tensor([PROMPT])).logits[0].detach()
    torch.testing.assert_close(logits_of(tmp_path / "model.gguf"), expected, rtol=0, atol=1e-4)


def llama3_divisor(period: float) -> float:
    """By how much a pair that turns once in ``2 pi period`` tokens is slowed down."""
    context, factor = LLAMA3_ROPE["original_max_position_embeddings"], LLAMA3_ROPE["factor"]
    turns = context / (2 * math.pi * period)
    if turns < LLAMA3_ROPE["low_freq_factor"]:
        return factor
    if turns > LLAMA3_ROPE["high_freq_factor"]:
        return 1
    share = (turns - 1) / 3
    return 1 / ((1 - share) / factor + share)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, None),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            RopeScaling("linear", 4.0),
        ),
        ({"llama.rope.scale_linear": 2.0}, RopeScaling("linear", 2.0)),
    ],
)
def test_rope_scaling_by_keys(llama, tmp_path, keys, expected):
    write_gguf(tmp_path / "model.gguf", llama, keys=keys)
    assert gguf_config(GGUFFile(tmp_path / "model.gguf")).rope_scaling == expected


def test_rows_that_nobody_permuted_show(llama, tmp_path):
    write_gguf(tmp_path / "right.gguf", llama)
    write_gguf(tmp_path / "wrong.gguf", llama, permuted=False)
    wrong, right = (logits_of(tmp_path / f"{which}.gguf") for which in ("wrong", "right"))
    assert (wrong - right).abs().max() > 0.1


# How far a stored weight may be from the true one, as a part of the largest in its block.
STEPS = {"F16": 2**-11, "BF16": 2**-8, "Q8_0": 1 / 127, "Q5_0": 1 / 16, "Q5_1": 1 / 16}
STEPS |= {"Q4_0": 1 / 8, "Q4_1": 1 / 8}


@pytest.mark.parametrize("name", STEPS)
def test_a_quantised_model_is_near_the_true_one(llama, tmp_path, name):
    write_gguf(tmp_path / "model.gguf", llama, type_=Type[name])
    file = GGUFFile(tmp_path / "model.gguf")
    weights = read_safetensors(llama)
    found = gguf_weights(file, gguf_config(file))
    assert set(found) == set(weights)
    for key, tensor in weights.items():
        assert found[key].dtype == torch.float32
        error = (found[key] - tensor).abs().max() / tensor.abs().max()
        assert error < STEPS[name], key


@pytest.mark.parametrize("name", [*STEPS, "F32", "Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("shape", [(3, 256), (64, 512), (1, 768)])
def test_every_type_is_read_as_its_format_says(tmp_path, name, shape):
    """``load`` reshapes what it hands to the package: the values must not notice."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[Type[name]]
    raw = random_blocks(math.prod(shape) // block_size, block_bytes, name)
    raw = raw.reshape(shape[0], -1)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("filler", np.ones(3, np.float32))
    writer.add_tensor("matrix", raw, raw_dtype=Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "one.gguf")
    found = file.load("matrix")
    assert found.shape == shape
    assert torch.equal(found, torch.from_numpy(dequantize(raw, Type[name]).copy()))
    if name in BY_HAND:
        by_hand = BY_HAND[name](raw.reshape(-1)[:block_bytes].tobytes())
        np.testing.assert_allclose(found.reshape(-1)[:block_size], by_hand, rtol=1e-6)


def random_blocks(num_blocks: int, block_bytes: int, name: str) -> np.ndarray:
    """Any bytes are a valid block, except that its scales, 16-bit floats, should be finite."""
    if name in ("F32", "F16", "BF16"):
        values = np.random.default_rng(3).standard_normal(num_blocks).astype(np.float32)
        return np.atleast_1d(quantize(values, Type[name])).view(np.uint8)
    blocks = np.random.default_rng(3).integers(0, 256, (num_blocks, block_bytes), np.uint8)
    scale = np.array([0.37], np.float16).view(np.uint8)
    for start in {"Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,)}.get(name, (0, 2)):
        blocks[:, start : start + 2] = scale
    return blocks


def q4_k(block: bytes, high_bits: bytes = bytes(32), low_at: int = 16) -> list[float]:
    """Eight groups of 32: ``scale * quant - minimum``, scales and minima in 6 bits each."""
    scale, minimum = struct.unpack("<2e", block[:4])
    packed, values = block[4:16], []
    for group in range(8):
        if group < 4:
            s, m = packed[group] & 63, packed[group + 4] & 63
        else:
            s = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            m = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        for i in range(32):
            quant = block[low_at + group // 2 * 32 + i] >> 4 * (group % 2) & 15
            quant += (high_bits[i] >> group & 1) << 4
            values.append(scale * s * quant - minimum * m)
    return values


def q6_k(block: bytes) -> list[float]:
    """Sixteen groups of 16: ``scale * (quant - 32)``, four bits and two bits stored apart."""
    low, high, scales = block[:128], block[128:192], struct.unpack("16b", block[192:208])
    (scale,) = struct.unpack("<e", block[208:])
    values = []
    for n in range(256):
        half, quarter, i = n // 128, n % 128 // 32, n % 32
        four = low[half * 64 + quarter % 2 * 32 + i] >> 4 * (quarter // 2) & 15
        two = high[half * 32 + i] >> 2 * quarter & 3
        values.append(scale * scales[n // 16] * (four + (two << 4) - 32))
    return values


BY_HAND = {
    "Q4_K": q4_k,
    "Q5_K": lambda block: q4_k(block, block[16:48], 48),
    "Q6_K": q6_k,
    "Q4_1": lambda block: [
        np.float32(struct.unpack("<e", block[:2])[0]) * quant + struct.unpack("<e", block[2:4])[0]
        for quant in [b & 15 for b in block[4:]] + [b >> 4 for b in block[4:]]
    ],
}


# What is no GGUF file, or not one of ours.


@pytest.fixture(scope="module")
def content(llama, tmp_path_factory):
    """The bytes of a sound file, and where its tensors begin."""
    path = tmp_path_factory.mktemp("sound") / "model.gguf"
    tokens = {"tokenizer.ggml.tokens": ["a", "b", "ab"], "tokenizer.ggml.scores": [0.5, 1.5, 2.5]}
    write_gguf(path, llama, keys=tokens)
    start = min(info.start for info in GGUFFile(path).tensors.values())
    return path.read_bytes(), start


def read_bytes(tmp_path, data: bytes) -> GGUFFile:
    (tmp_path / "model.gguf").write_bytes(data)
    return GGUFFile(tmp_path / "model.gguf")


def test_a_file_cut_anywhere_is_refused(content, tmp_path):
    data, start = content
    cuts = [*range(0, start, 13), *range(start, len(data), 5003), len(data) - 1]
    for cut in cuts:
        with pytest.raises(ModelError, match=r"model\.gguf "):
            read_bytes(tmp_path, data[:cut])


def test_a_file_cut_in_a_tensor_names_it(content, tmp_path):
    with pytest.raises(ModelError, match=r"should hold \S+ \[.*has \d+ bytes: perhaps its downl"):
        read_bytes(tmp_path, content[0][:-1])


def test_a_damaged_header_is_refused_or_harmless(content, tmp_path):
    data, start = content
    rng, refused = random.Random(1), 0
    for _ in range(600):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            damaged[rng.randrange(start)] = rng.choice((0, 1, 9, 127, 255))
        try:
            file = read_bytes(tmp_path, bytes(damaged))
            config = gguf_config(file)
            Decoder(config, gguf_weights(file, config))
        except ModelError:
            refused += 1
    assert 100 < refused < 600


@pytest.mark.parametrize(
    ("at", "patch", "message"),
    [
        (0, b"GGML", "is not a GGUF file: it starts with b'GGML'"),
        (4, struct.pack("<I", 1), "GGUF version 1; versions 2 and 3 can be read"),
        (4, struct.pack(">I", 3), "GGUF version 50331648"),
        (8, struct.pack("<Q", 2**60), "cut short or damaged: .* bytes of header should follow"),
        (16, struct.pack("<Q", 2**60), "cut short or damaged: .* bytes of header should follow"),
        (24, struct.pack("<Q", 2**63), "cut short or damaged"),
    ],
)
def test_a_wrong_head_is_refused(content, tmp_path, at, patch, message):
    data = content[0]
    with pytest.raises(ModelError, match=message):
        read_bytes(tmp_path, data[:at] + patch + data[at + len(patch) :])


@pytest.mark.parametrize(("code", "name"), [(10, "Q2_K"), (16, "IQ2_XXS"), (999, "number 999")])
def test_an_unreadable_type_is_named(content, tmp_path, code, name):
    data = content[0]
    entry = data.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 2 * 8
    patched = data[:entry] + struct.pack("<I", code) + data[entry + 4 :]
    with pytest.raises(ModelError, match=rf"stores blk.0.attn_q.weight as type {name}; F32, F16"):
        read_bytes(tmp_path, patched)


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="cut short or damaged"):
        read_bytes(tmp_path, b"")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"general.architecture": "gemma"}, "holds a 'gemma' model; supported are llama, qwen2"),
        ({"llama.expert_count": 8}, "neither expert models nor split files"),
        ({"split.count": 3}, "neither expert models nor split files"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"llama.rope.dimension_count": 4}, "rope.dimension_count 4 must equal the head size 8"),
        ({"llama.attention.value_length": 4}, "attention.value_length 4 must equal"),
        ({"llama.block_count": None}, "block_count should be a positive whole number"),
        ({"llama.attention.head_count": [4, 4]}, "attention.head_count should be a positive"),
        ({"llama.block_count": 3}, r"lacks model.layers.2.input_layernorm.weight"),
        ({"llama.block_count": 1}, r"has the unexpected model.layers.1."),
    ],
)
def test_models_we_cannot_run_are_refused_by_name(llama, tmp_path, keys, message):
    write_gguf(tmp_path / "model.gguf", llama)
    file = GGUFFile(tmp_path / "model.gguf")
    file.metadata.update(keys)
    with pytest.raises(ModelError, match=message):
        Decoder(config := gguf_config(file), gguf_weights(file, config))


def test_an_unknown_tensor_is_refused(llama, tmp_path):
    extra = {"blk.0.ffn_gate_exps.weight": np.ones((2, 2), np.float32)}
    write_gguf(tmp_path / "model.gguf", llama, tensors=extra)
    file = GGUFFile(tmp_path / "model.gguf")
    config = gguf_config(file)
    with pytest.raises(ModelError, match=r"has the unexpected blk.0.ffn_gate_exps.weight"):
        Decoder(config, gguf_weights(file, config))


def test_sizes_come_from_the_file_not_from_us(llama, tmp_path):
    write_gguf(tmp_path / "model.gguf", llama)
    assert gguf_config(GGUFFile(tmp_path / "model.gguf")).vocab_size == SIZES["vocab_size"]
