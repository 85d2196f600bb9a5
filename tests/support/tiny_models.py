"""Random models of every family, saved as ``transformers`` saves them, and a way to run ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockPool, BlockTable
from minipaged.models import Decoder, ModelConfig
from minipaged.models.weights import read_json, read_safetensors

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "pad_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-mha": ("llama", {"num_key_value_heads": 4}),
    "llama-one-kv-head": ("llama", {"num_key_value_heads": 1}),
    "llama-wide-heads": ("llama", {"head_dim": 24}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-llama3-rope": ("llama", {"rope_parameters": LLAMA3_ROPE, "head_dim": 32}),
    "llama-linear-rope": ("llama", {"rope_parameters": LINEAR_ROPE}),
    "mistral-window": ("mistral", {"sliding_window": 5}),
    "mistral-no-window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3-biases": ("qwen3", {"head_dim": 8, "attention_bias": True}),
}


def make_reference(name: str, directory: Path, **changes):
    """A ``transformers`` model of random weights, in float32, saved in ``directory``.

    Weights are large, norms and biases far from their initial values, so that no part can be left
    out without the logits showing it.
    """
    import transformers

    family, options = MODELS[name]
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **options, **changes})
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            vector = parameter.dim() == 1
            parameter.copy_(1 + noise / 4 if vector else noise * parameter.shape[-1] ** -0.5)
    model.save_pretrained(directory)
    return model


def in_float64(reference):
    """The same model in float64 throughout; its own normalisation would round to float32."""
    reference = reference.double()
    for module in reference.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, norm=module: F.rms_norm(
                x, x.shape[-1:], norm.weight, norm.variance_epsilon
            )
    return reference


def load_decoder(directory: Path, **options) -> Decoder:
    """Our decoder of a saved model; these have no tokenizer, so ``load_model`` refuses them."""
    config = ModelConfig.from_hf(read_json(directory / "config.json"))
    return Decoder(config, read_safetensors(directory), **options)


def run_paged(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    block_size: int = 16,
    step_lens: Sequence[int] = (),
    attention: Callable[..., Tensor] = paged_attention,
) -> list[Tensor]:
    """Logits of every position of every prompt, ``step_lens`` tokens of each at a time.

    After the given steps the rest follows in one. Blocks are handed out interleaved and not from
    0, and the cache starts as NaN, so whoever reads a wrong slot is found out.
    """
    num_blocks = 3 + sum(-(-len(prompt) // block_size) for prompt in prompts)
    pool, config = BlockPool(num_blocks), decoder.config
    pool.allocate(3)
    tables = [BlockTable(pool, block_size) for _ in prompts]
    cache = KVCache(
        *(config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim),
        dtype=decoder.dtype,
        device=decoder.device,
        sanitize=True,
    )
    logits: list[list[Tensor]] = [[] for _ in prompts]
    for step_len in [*step_lens, max(map(len, prompts))]:
        running = [i for i, prompt in enumerate(prompts) if tables[i].num_tokens < len(prompt)]
        if not running:
            break
        new = []
        for i in running:
            start = tables[i].num_tokens
            new.append(prompts[i][start : start + step_len])
            tables[i].reserve(len(new[-1]))
        batch = PagedBatch.build([tables[i] for i in running], decoder.device)
        ids = torch.tensor([token for part in new for token in part], device=decoder.device)
        hidden = decoder.forward(ids, batch, cache, attention)
        for i, rows in zip(running, decoder.logits(hidden).split([len(part) for part in new])):
            tables[i].commit(prompts[i])
            logits[i].append(rows)
    return [torch.cat(rows) for rows in logits]


def save_tokenizer(directory: Path, **options) -> None:
    """A small byte-level BPE tokenizer beside a model; ``options`` go to tokenizer_config.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat and the rat sat on the cat"], trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    options = {"bos_token": "<s>", "eos_token": "</s>"} | options
    (directory / "tokenizer_config.json").write_text(json.dumps(options))
