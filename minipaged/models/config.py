"""The sizes and options of one model, as its ``config.json`` states them; knows no tensors.

What this decoder cannot compute faithfully is refused here, by name, before any weight is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minipaged.core import ModelError

# What Hugging Face assumes where a config.json of the family is silent.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
}
# Options that would change the arithmetic, and the only value under which ours is right.
REQUIRED = {"hidden_act": "silu", "partial_rotary_factor": 1.0, "quantization_config": None}


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are slowed to reach past the context of the first training.

    ``linear`` divides all by ``factor``; ``llama3`` only those that turn slowly (see ``rope``);
    ``divisors`` gives each its own, which is how a GGUF file records the outcome of ``llama3``.
    """

    kind: str
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_len: float = 8192
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """Everything the decoder needs to know before it sees a weight."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} kv heads evenly"
            )
        if self.head_dim % 2:
            raise ModelError(f"rotary embedding turns pairs, head_dim {self.head_dim} is odd")

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Read a Hugging Face ``config.json``.

        Raises:
            ModelError: an architecture or option this decoder does not have, or a missing size.
        """
        family = raw.get("model_type", "")
        if family not in FAMILIES:
            raise ModelError(
                f"model_type {family!r} is not supported; supported are {', '.join(FAMILIES)}"
            )
        given = {**FAMILIES[family], **raw}
        _refuse_unsupported(given)
        rope_theta, rope_scaling = _rope(given)
        hidden_size = number(given, "hidden_size")
        num_heads = number(given, "num_attention_heads")
        attention_bias = family in ("llama", "qwen3") and bool(given.get("attention_bias"))
        return cls(
            architecture=family,
            vocab_size=number(given, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=number(given, "intermediate_size"),
            num_layers=number(given, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=number(given, "num_key_value_heads", num_heads),
            head_dim=number(given, "head_dim", hidden_size // num_heads),
            max_position_embeddings=number(given, "max_position_embeddings", 2048),
            rms_norm_eps=number(given, "rms_norm_eps", 1e-6, whole=False),
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
            tie_word_embeddings=bool(given.get("tie_word_embeddings")),
            qkv_bias=attention_bias or family == "qwen2",
            output_bias=attention_bias,
            mlp_bias=family == "llama" and bool(given.get("mlp_bias")),
            qk_norm=family == "qwen3",
            sliding_window=_sliding_window(given),
        )


def number(given: Mapping[str, Any], key: str, default: Any = None, *, whole: bool = True) -> Any:
    """``given[key]``, or ``default`` where it is absent or null; a positive number in any case."""
    value = default if given.get(key) is None else given[key]
    if not isinstance(value, int if whole else (int, float)) or value <= 0:
        kind = "whole number" if whole else "number"
        raise ModelError(f"{key} should be a positive {kind}, the model says {value!r}")
    return value


def _refuse_unsupported(given: Mapping[str, Any]) -> None:
    for key, right in REQUIRED.items():
        if given.get(key) not in (None, right):
            raise ModelError(f"{key} {given[key]!r} is not supported; it should be {right!r}")


def _rope(given: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Either spelling: ``rope_parameters``, or the older ``rope_theta`` and ``rope_scaling``."""
    options = given.get("rope_parameters") or given.get("rope_scaling") or {}
    _refuse_unsupported(options)
    theta = float(number({**given, **options}, "rope_theta", 10000.0, whole=False))
    kind = options.get("rope_type", options.get("type")) or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", number(options, "factor", whole=False))
    if kind != "llama3":
        raise ModelError(f"rope_type {kind!r} is not supported; supported are linear and llama3")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return theta, RopeScaling("llama3", *(number(options, name, whole=False) for name in names))


def _sliding_window(given: Mapping[str, Any]) -> int | None:
    """The window all layers share. A mixture of window and full layers is refused."""
    family, num_layers = given["model_type"], given["num_hidden_layers"]
    if family == "llama" or not given.get("sliding_window"):
        return None
    num_full = 0
    if family != "mistral":  # in qwen only the layers from max_window_layers on have the window
        num_full = given.get("max_window_layers", 28) if given.get("use_sliding_window") else None
    kinds = given.get("layer_types") or [
        "full_attention" if num_full is None or i < num_full else "sliding_attention"
        for i in range(num_layers)
    ]
    num_full = kinds.count("full_attention")
    if 0 < num_full < num_layers:
        raise ModelError(
            f"{num_full} of {num_layers} layers attend to everything and the rest to a window of "
            f"{given['sliding_window']}; a window is supported only if all layers have it"
        )
    return given["sliding_window"] if num_full == 0 else None
