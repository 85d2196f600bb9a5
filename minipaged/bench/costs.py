"""What a model must read and compute per token, and so how fast a machine could be at best."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minipaged.models import ModelConfig

from .limits import Limits
from .random_model import weight_bytes


@dataclass(frozen=True)
class Costs:
    """One model stored in one precision, on one machine. Times in seconds.

    Args:
        config: of the model.
        limits: of the machine; the matrix rate is that of float32.
        weight_size: bytes of one stored weight.
        kv_size: bytes of one stored number of K or V.
    """

    config: ModelConfig
    limits: Limits
    weight_size: float = 4
    kv_size: float = 4

    @property
    def num_weights(self) -> int:
        """Weights that a step multiplies with, the head included."""
        return weight_bytes(self.config, torch.int8)

    @property
    def kv_bytes(self) -> float:
        """Bytes of K and V of one token, in all layers."""
        c = self.config
        return 2 * c.num_layers * c.num_kv_heads * c.head_dim * self.kv_size

    def step_seconds(self, num_seqs: int, context: float) -> float:
        """One decode step: the weights once, and K and V of every sequence; or its products."""
        num_bytes = self.num_weights * self.weight_size + num_seqs * context * self.kv_bytes
        return max(num_bytes / self.limits.read, self.flops_seconds(num_seqs, num_seqs, context))

    def flops_seconds(self, num_tokens: float, num_rows: float, context: float) -> float:
        """The products of some tokens, of which some need logits.

        Args:
            num_tokens: that go through the layers.
            num_rows: of logits.
            context: keys that a token sees on average.
        """
        c = self.config
        head = c.vocab_size * c.hidden_size
        attention = 4 * c.num_layers * c.num_heads * c.head_dim * context
        flops = num_tokens * (2 * (self.num_weights - head) + attention) + num_rows * 2 * head
        return flops / self.limits.matrix

    def requests_seconds(self, lengths: list[tuple[int, int]]) -> float:
        """The products of whole requests, given as (prompt, output) lengths."""
        total = 0.0
        for num_prompt, num_output in lengths:
            num_tokens = num_prompt + num_output - 1  # the last one is not fed back
            total += self.flops_seconds(num_tokens, num_output, num_tokens / 2)
        return total
