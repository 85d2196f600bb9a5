"""A checkpoint's tensors under their Hugging Face names, read one by one and checked on the way.

Knows the names and shapes a decoder needs and the safetensors files; knows no arithmetic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from minipaged.core import ModelError

from .config import ModelConfig


class Weights(Mapping[str, Tensor]):
    """Tensors by name, each read from its file when asked for, so that two copies never coexist."""

    def __init__(self, readers: Mapping[str, Callable[[], Tensor]]):
        self._readers = readers

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor the model consists of."""
    hidden, mlp = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (query, hidden, config.qkv_bias),
        "self_attn.k_proj": (key, hidden, config.qkv_bias),
        "self_attn.v_proj": (key, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, query, config.output_bias),
        "mlp.gate_proj": (mlp, hidden, config.mlp_bias),
        "mlp.up_proj": (mlp, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, mlp, config.mlp_bias),
    }
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config.qk_norm:
        layer |= {f"self_attn.{which}_norm.weight": (config.head_dim,) for which in "qk"}
    for name, (out_size, in_size, bias) in linears.items():
        layer[f"{name}.weight"] = (out_size, in_size)
        if bias:
            layer[f"{name}.bias"] = (out_size,)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


class WeightReader:
    """Hands a decoder its tensors in its dtype, on its device, in the layout it multiplies with.

    Raises:
        ModelError: from the constructor if names are missing or unexpected, later if a tensor has
            another shape than the config implies or holds a NaN or an infinity.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device | str,
    ):
        if config.num_layers > len(weights):
            raise ModelError(
                f"the config says {config.num_layers} layers, the checkpoint has {len(weights)} "
                "tensors in all"
            )
        self._shapes, self._weights = tensor_shapes(config), weights
        self._dtype, self._device = dtype, device
        missing = [name for name in self._shapes if name not in weights]
        unexpected = [name for name in weights if name not in self._shapes and not _idle(name)]
        if missing or unexpected:
            raise ModelError(f"the checkpoint {_complaint(missing, unexpected)}")

    def tensor(self, name: str) -> Tensor:
        """One tensor as stored, a copy of its own."""
        return self._read(name).clone()

    def fused(self, *names: str) -> Tensor:  # [sum of the out_sizes, in_size]
        """Several weights ``[out_size, in_size]`` that multiply the same input, as one."""
        return torch.cat([self._read(name) for name in names])

    def bias(self, *names: str) -> Tensor | None:  # [sum of the out_sizes]
        """The biases beside ``fused`` weights, or None if this model has none there."""
        biases = [name.removesuffix("weight") + "bias" for name in names]
        if biases[0] not in self._shapes:
            return None
        return torch.cat([self._read(bias) for bias in biases])

    def _read(self, name: str) -> Tensor:
        tensor, expected = self._weights[name], self._shapes[name]
        if tuple(tensor.shape) != expected:
            raise ModelError(
                f"{name} has shape {list(tensor.shape)}, the config implies {list(expected)}"
            )
        tensor = tensor.to(self._device, self._dtype)
        # One sum sees every NaN and infinity, those that the cast just made included.
        accumulator = torch.promote_types(self._dtype, torch.float32)
        if not math.isfinite(tensor.sum(dtype=accumulator).item()):
            raise ModelError(f"{name} holds a NaN or an infinity (as {self._dtype})")
        return tensor


def _idle(name: str) -> bool:
    """Whether checkpoints may hold a tensor that nobody reads: old ones do, and tied heads."""
    return name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")


def _complaint(missing: list[str], unexpected: list[str]) -> str:
    parts = []
    for verb, names in (("lacks", missing), ("has the unexpected", unexpected)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            parts.append(f"{verb} {', '.join(names[:3])}{more}")
    if missing == ["lm_head.weight"]:
        parts.append("perhaps tie_word_embeddings should be true")
    return "; ".join(parts)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelError: unreadable, not JSON, or not an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} should hold a JSON object, it holds a {type(content).__name__}")
    return content


def read_safetensors(directory: Path) -> Weights:
    """The weights of a Hugging Face directory, in one file or in shards.

    Raises:
        ModelError: no such files there, a shard missing, or a file cut short or damaged.
    """
    index, single = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if index.exists():
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict):
            raise ModelError(f"{index} should say in its weight_map which file has which tensor")
        files = {directory / str(name) for name in places.values()}
    else:
        files = {single}
    readers = {}
    for path in sorted(files):
        try:
            shard = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise ModelError(f"cannot read the weights in {path}: {error}") from error
        readers |= {name: partial(shard.get_tensor, name) for name in shard.keys()}  # noqa: SIM118
    return Weights(readers)
