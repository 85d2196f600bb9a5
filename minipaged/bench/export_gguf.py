"""Writes a GGUF file of float32 or float16 weights; the counterpart of ``models.gguf_model``."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from gguf import GGUFWriter, LlamaFileType, TokenType
from torch import Tensor

from minipaged.models import ModelConfig
from minipaged.models.gguf_model import IN_LAYERS, OUTSIDE_LAYERS
from minipaged.models.tokenizer import Tokenizer
from minipaged.models.weights import Weights


def write_gguf(
    config: ModelConfig, tokenizer: Tokenizer, weights: Weights, dtype: torch.dtype, path: Path
) -> None:
    """Weights and what it takes to run them; vectors stay float32, as everywhere in such files.

    The tokenizer's splitting rule is named "default": peers are given token ids, never text.
    """
    writer = GGUFWriter(path, config.architecture)
    is_half = dtype == torch.float16
    writer.add_file_type(LlamaFileType.MOSTLY_F16 if is_half else LlamaFileType.ALL_F32)
    _add_config(writer, config)
    _add_tokenizer(writer, tokenizer, config.vocab_size)
    for name in weights:
        tensor = weights[name].float()
        tensor = _permuted(tensor, name, config)
        stored = tensor.to(dtype) if tensor.ndim > 1 else tensor
        writer.add_tensor(_gguf_name(name), stored.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: GGUFWriter, config: ModelConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer, vocab_size: int) -> None:
    model = json.loads(tokenizer.core.to_str())["model"]
    tokens = {i: token for token, i in tokenizer.core.get_vocab(with_added_tokens=True).items()}
    special = {i for i, added in tokenizer.core.get_added_tokens_decoder().items() if added.special}
    plain = {i for i, token in tokens.items() if token in model["vocab"]} - special
    kinds = [TokenType.NORMAL if i in plain else TokenType.CONTROL for i in range(vocab_size)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    end = next(iter(tokenizer.eos_token_ids), 0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([tokens.get(i, f"<unused {i}>") for i in range(vocab_size)])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(end if tokenizer.bos_token_id is None else tokenizer.bos_token_id)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)


def _gguf_name(name: str) -> str:
    """``model.layers.3.self_attn.q_proj.weight`` is ``blk.3.attn_q.weight``."""
    outside = {hf: gguf for gguf, hf in OUTSIDE_LAYERS.items()}
    if name in outside:
        return outside[name]
    inside = {hf: gguf for gguf, hf in IN_LAYERS.items()}
    _, _, number, *middle, kind = name.split(".")
    return f"blk.{number}.{inside['.'.join(middle)]}.{kind}"


def _permuted(tensor: Tensor, name: str, config: ModelConfig) -> Tensor:
    """In a llama file the two numbers of a rotary pair lie side by side: 0 2 1 3 for 0 1 2 3."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}.get(name.split(".")[-2])
    if config.architecture != "llama" or heads is None:
        return tensor
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(tensor.shape)
