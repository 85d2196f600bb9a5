"""One decoder for the Llama family, in plain torch; reaches K and V only through a paged cache.

Prefill, a chunk of one and decode are one and the same call: the batch says which tokens are where.
Knows no block tables, no sampling and no files.

Paper: section 4.3, the model's side of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minipaged.core import InvalidBatch, ModelError
from minipaged.linear import PLAIN, Form, Product, form_for

from .config import ModelConfig
from .rope import rotary_angles, rotary_frequencies, rotate
from .weights import WeightReader

if TYPE_CHECKING:
    from minipaged.cache import KVCache, PagedBatch

    from .cpu_step import CompiledStep

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int8": torch.int8,  # weights alone; activations, K and V are float32
}


def _check_output(mixed: object, query: Tensor) -> None:
    """What an attention function of somebody else returned; a wrong shape could pass unnoticed."""
    if not isinstance(mixed, Tensor):
        kind = type(mixed).__name__
        raise InvalidBatch(f"the attention function returned a {kind}, not a tensor")
    if mixed.shape != query.shape or mixed.dtype != query.dtype:
        raise InvalidBatch(
            f"the attention function returned {list(mixed.shape)} {mixed.dtype}, not "
            f"[num_tokens, num_heads, head_dim] = {list(query.shape)} {query.dtype}"
        )


@dataclass(slots=True)
class Layer:
    """The weights of one decoder layer."""

    attention_norm: Tensor  # [hidden_size]
    qkv: Product
    qk_norm: Tensor | None  # [num_heads + num_kv_heads, head_dim]
    output: Product
    mlp_norm: Tensor  # [hidden_size]
    gate_up: Product  # silu(gate) * up
    down: Product

    @classmethod
    def read(cls, reader: WeightReader, config: ModelConfig, prefix: str, form: Form) -> Layer:
        """The layer whose tensors are called ``prefix...``."""

        def read(make: Callable[..., Product], *names: str) -> Product:
            """One product out of all weights that take the same input."""
            names = tuple(f"{prefix}{name}_proj.weight" for name in names)
            return make(reader.fused(*names), reader.bias(*names))

        qk_norm = None
        if config.qk_norm:
            query, key = (reader.tensor(f"{prefix}self_attn.{x}_norm.weight") for x in "qk")
            counts = (config.num_heads, 1), (config.num_kv_heads, 1)
            qk_norm = torch.cat((query.repeat(counts[0]), key.repeat(counts[1])))
        return cls(
            attention_norm=reader.tensor(f"{prefix}input_layernorm.weight"),
            qkv=read(form.linear, "self_attn.q", "self_attn.k", "self_attn.v"),
            qk_norm=qk_norm,
            output=read(form.linear, "self_attn.o"),
            mlp_norm=reader.tensor(f"{prefix}post_attention_layernorm.weight"),
            gate_up=read(form.gated, "mlp.gate", "mlp.up"),
            down=read(form.linear, "mlp.down"),
        )


class Decoder:
    """A stack of layers over one residual stream.

    Args:
        config: sizes and options.
        weights: tensors under their Hugging Face names; read once, copied, and not kept.
        dtype: of weights, activations and the K/V it writes; normalisation and rotary angles are
            computed in float32 or better. torch.int8: of weights, and the rest is float32.
        device: where the weights go and where every argument of ``forward`` must be.
        form: how products are computed; None: the fastest for this type and device.

    Raises:
        ModelError: tensors are missing, unexpected, of another shape or not finite; or no form
            computes with such weights on this device.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        form: Form | None = None,
    ):
        if dtype not in DTYPES.values():
            raise ModelError(f"dtype {dtype} is not supported; supported are {', '.join(DTYPES)}")
        self.config, self.weight_dtype, self.device = config, dtype, torch.device(device)
        self.dtype = torch.float32 if dtype is torch.int8 else dtype
        self.form = form or form_for(dtype, self.device)
        reader = WeightReader(config, weights, self.dtype, device)
        self.layers = [
            Layer.read(reader, config, f"model.layers.{i}.", self.form)
            for i in range(config.num_layers)
        ]
        self.frequencies = rotary_frequencies(config).to(device)
        self.norm = reader.tensor("model.norm.weight")
        name = "model.embed_tokens.weight"
        is_tied = config.tie_word_embeddings
        self._step: CompiledStep | None = None
        self.head = self.form.linear(reader.tensor(name if is_tied else "lm_head.weight"))
        self.embedding = self.head if is_tied else PLAIN.linear(reader.tensor(name))

    @torch.inference_mode()
    def warm_up(self, cache: KVCache, attention: Callable[..., Tensor]) -> float:
        """Compile what a step needs, or load it from disk, so that none waits; returns seconds."""
        begin = time.perf_counter()
        self.form.warm_up()
        if step := self._compiled_step(cache, attention):
            step.warm_up(cache)
        return time.perf_counter() - begin

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,  # [num_tokens] int64
        batch: PagedBatch,
        cache: KVCache,
        attention: Callable[..., Tensor],
    ) -> Tensor:  # [num_tokens, hidden_size]
        """Run the new tokens through all layers, leaving their K and V in the cache.

        ``attention`` has the signature of ``minipaged.attention.paged_attention``. The result is
        the residual stream; only the rows that sample a token need to go on to ``logits``.

        Raises:
            InvalidBatch: ``attention`` returned no tensor, or one of another shape or dtype.
        """
        hidden = self.embedding.rows(token_ids)
        step = self._compiled_step(cache, attention)
        if step is not None and step(hidden, batch, cache):
            return hidden
        angles = rotary_angles(batch.positions, self.frequencies, self.dtype)
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, *angles)
            cache.write(index, key, value, batch.slot_mapping)
            mixed = attention(
                query,
                cache.key[index],
                cache.value[index],
                batch.block_tables,
                batch.seq_lens,
                batch.query_start_loc,
                scale=self.config.head_dim**-0.5,
                window=self.config.sliding_window,
            )
            _check_output(mixed, query)
            layer.output.add_to(hidden, mixed.flatten(1))
            gated = layer.gate_up(self._normalise(hidden, layer.mlp_norm))
            layer.down.add_to(hidden, gated)
        return hidden

    @torch.inference_mode()
    def logits(
        self,
        hidden: Tensor,  # [num_rows, hidden_size]
    ) -> Tensor:  # [num_rows, vocab_size] float32, float64 if the model is
        """Scores of every next token after each row."""
        scores = self.head(self._normalise(hidden, self.norm))
        return scores.to(torch.promote_types(self.dtype, torch.float32))

    def _compiled_step(
        self, cache: KVCache, attention: Callable[..., Tensor]
    ) -> CompiledStep | None:
        """All layers in one call, if there is one for all that they need."""
        if self.form is PLAIN:
            return None
        from .cpu_step import CompiledStep

        if not CompiledStep.can_run(self, cache, attention):
            return None
        self._step = self._step or CompiledStep(self)
        return self._step

    def _project(
        self, layer: Layer, hidden: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key (both rotated) and value heads; queries and keys are handled in one piece."""
        config = self.config
        heads = layer.qkv(self._normalise(hidden, layer.attention_norm)).contiguous()
        heads = heads.unflatten(1, (-1, config.head_dim))
        query_key, value = heads.split_with_sizes(
            (config.num_heads + config.num_kv_heads, config.num_kv_heads), 1
        )
        if layer.qk_norm is not None:
            rows = self._normalise(query_key.reshape(-1, config.head_dim))
            query_key = rows.view_as(query_key) * layer.qk_norm
        query_key = rotate(query_key, cos, sin)
        return query_key[:, : config.num_heads], query_key[:, config.num_heads :], value

    def _normalise(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.form.normalise(x, weight, self.config.rms_norm_eps)
