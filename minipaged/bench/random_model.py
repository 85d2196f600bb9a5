"""Models of any size without their weights: random ones cost as much to compute with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minipaged.models import Decoder, Model, ModelConfig
from minipaged.models.weights import Weights, tensor_shapes

SMOLLM2_135M = ModelConfig(
    architecture="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    max_position_embeddings=8192,
    rope_theta=100000.0,
    tie_word_embeddings=True,
)


class Numbers:
    """A tokenizer for a model that has none: ids are written as numbers."""

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """Numbers between spaces."""
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The numbers, a space after each."""
        return "".join(f"{i} " for i in ids)


def random_model(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Model:
    """A model of these sizes; every layer keeps the size of what goes through it."""
    generator = torch.Generator().manual_seed(0)

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * shape[-1] ** -0.5

    readers = {
        name: (lambda shape=shape: tensor(shape)) for name, shape in tensor_shapes(config).items()
    }
    decoder = Decoder(config, Weights(readers), dtype=dtype, device=device)
    return Model(decoder, Numbers(config.vocab_size), config)  # type: ignore[arg-type]


def weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of the weights that a step reads: all but the embedding, unless it is the head too."""
    shapes = tensor_shapes(config)
    if not config.tie_word_embeddings:
        del shapes["model.embed_tokens.weight"]
    return sum(torch.Size(shape).numel() for shape in shapes.values()) * dtype.itemsize
