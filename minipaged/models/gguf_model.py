"""A Llama-family model out of a GGUF file: configuration, weights and their Hugging Face names.

Two things differ from a Hugging Face checkpoint: names, and for the ``llama`` architecture the
order of the rows of q and k, which put the two components of a rotary pair side by side.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from minipaged.core import ModelError

from .config import ModelConfig, RopeScaling, number
from .gguf_file import GGUFFile
from .weights import Weights

OUTSIDE_LAYERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_DIVISORS = "rope_freqs.weight"


def gguf_config(file: GGUFFile) -> ModelConfig:
    """The configuration in a file's metadata, and in which tensors it has.

    Raises:
        ModelError: an architecture or option this decoder does not have, or a missing size.
    """
    architecture = file.metadata.get("general.architecture", "")
    if architecture not in ("llama", "qwen2", "qwen3"):
        raise ModelError(
            f"{file.path} holds a {architecture!r} model; supported are llama, qwen2, qwen3"
        )
    given = {key.removeprefix(f"{architecture}."): v for key, v in file.metadata.items()}
    if given.get("expert_count") or given.get("split.count", 1) > 1:
        raise ModelError(f"{file.path}: neither expert models nor split files are supported")
    if "token_embd.weight" not in file.tensors:
        raise ModelError(f"{file.path} has no token_embd.weight, so it is no language model")
    vocab_size, hidden_size = file.tensors["token_embd.weight"].shape
    num_heads = number(given, "attention.head_count")
    head_dim = number(given, "attention.key_length", hidden_size // num_heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if given.get(key, head_dim) != head_dim:
            raise ModelError(f"{file.path}: {key} {given[key]} must equal the head size {head_dim}")
    window = given.get("attention.sliding_window") or None  # a mistral is a `llama` here
    return ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=number(given, "feed_forward_length"),
        num_layers=number(given, "block_count"),
        num_heads=num_heads,
        num_kv_heads=number(given, "attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_position_embeddings=number(given, "context_length", 2048),
        rms_norm_eps=number(given, "attention.layer_norm_rms_epsilon", whole=False),
        rope_theta=number(given, "rope.freq_base", 10000.0, whole=False),
        rope_scaling=_rope_scaling(file, given),
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        sliding_window=window if architecture == "llama" else None,
    )


def gguf_weights(file: GGUFFile, config: ModelConfig) -> Weights:
    """The weights under their Hugging Face names, each dequantised when asked for."""
    names = {_hf_name(name): name for name in file.tensors if name != ROPE_DIVISORS}
    return Weights({hf: partial(_load, file, name, config) for hf, name in names.items()})


def _rope_scaling(file: GGUFFile, given: dict) -> RopeScaling | None:
    if ROPE_DIVISORS in file.tensors:
        return RopeScaling("divisors", divisors=tuple(file.load(ROPE_DIVISORS).tolist()))
    factor = number(given, "rope.scaling.factor", given.get("rope.scale_linear", 1.0), whole=False)
    kind = given.get("rope.scaling.type", "linear")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind != "linear":
        raise ModelError(f"{file.path}: rope scaling {kind!r} is not supported, only linear is")
    return RopeScaling("linear", factor)


def _hf_name(name: str) -> str:
    """``blk.3.attn_q.weight`` is ``model.layers.3.self_attn.q_proj.weight``."""
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in IN_LAYERS:
        return f"model.layers.{parts[1]}.{IN_LAYERS[parts[2]]}.{parts[3]}"
    return OUTSIDE_LAYERS.get(name, name)


def _load(file: GGUFFile, name: str, config: ModelConfig) -> Tensor:
    tensor = file.load(name)
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}.get(name.split(".")[-2])
    if config.architecture != "llama" or heads is None or len(tensor) != heads * config.head_dim:
        return tensor  # as it is; if its shape is wrong, whoever reads it says so
    return unpermute(tensor, heads)


def unpermute(rows: Tensor, num_heads: int) -> Tensor:
    """Rows 0 1 2 3 of a head become 0 2 1 3: pairs (2i, 2i + 1) back to (i, i + head_dim / 2)."""
    return rows.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).reshape(rows.shape)
