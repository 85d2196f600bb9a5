"""Writes a model's weights in the forms that other engines read, once, into the user's cache.

Every peer shall compute with the same numbers as we do: a quantised file is written out as the
numbers that it stands for. Knows no engine.
"""

from __future__ import annotations

import json
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from minipaged.core import ModelError
from minipaged.models import ModelConfig
from minipaged.models.catalog import find_model
from minipaged.models.download import models_dir
from minipaged.models.gguf_file import GGUFFile
from minipaged.models.gguf_model import gguf_config, gguf_weights
from minipaged.models.gguf_tokenizer import gguf_tokenizer
from minipaged.models.tokenizer import Tokenizer
from minipaged.models.weights import Weights, read_json, read_safetensors

from .export_gguf import write_gguf


def export_model(name: str, form: str) -> str:
    """Where the model lies in this form; it is written unless it is there already.

    Args:
        name: as ``load_model`` takes it.
        form: "name" (for this engine, as it is), "directory" (Hugging Face, float32),
            "gguf-f16", "gguf-f32", or "gguf" (the model's own file, quantised as it is).

    Raises:
        ModelError: there is no such model, or the form cannot express it.
    """
    source = find_model(name)
    if form == "name":
        return name
    if form == "directory" and source.is_dir():
        return str(source)
    target = models_dir() / "exported" / f"{source.stem}-{_key(source)}" / form
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as scratch:
            ready = Path(scratch) / form
            ready.mkdir()
            _write(source, form, ready)
            ready.rename(target)
    return str(target if form == "directory" else target / "model.gguf")


def _write(source: Path, form: str, target: Path) -> None:
    if form == "gguf":
        return _link(source, target / "model.gguf")
    config, tokenizer, weights = read_model(source)
    if config.rope_scaling is not None or config.sliding_window is not None:
        raise ModelError(f"{source}: rope scaling and windows are not exported to other engines")
    if form == "directory":
        _write_directory(config, tokenizer, weights, target)
    else:
        dtype = {"gguf-f16": torch.float16, "gguf-f32": torch.float32}[form]
        write_gguf(config, tokenizer, weights, dtype, target / "model.gguf")


def _link(source: Path, target: Path) -> None:
    """A name of its own for the file, beside which an engine may write what it makes of it."""
    if source.suffix != ".gguf":
        raise ModelError(f"{source} is no .gguf file, which a peer could read as it is quantised")
    target.symlink_to(source.resolve())


def read_model(source: Path) -> tuple[ModelConfig, Tokenizer, Weights]:
    """The parts of a model, before any engine makes something of them."""
    if source.is_dir():
        config = ModelConfig.from_hf(read_json(source / "config.json"))
        return config, Tokenizer.from_directory(source), read_safetensors(source)
    file = GGUFFile(source)
    config = gguf_config(file)
    return config, gguf_tokenizer(file.metadata), gguf_weights(file, config)


def _write_directory(
    config: ModelConfig, tokenizer: Tokenizer, weights: Weights, target: Path
) -> None:
    if config.architecture != "llama":
        raise ModelError(f"{config.architecture} models are not exported: only llama")
    (target / "config.json").write_text(json.dumps(_hf_config(config), indent=1))
    tokenizer.core.save(str(target / "tokenizer.json"))
    tensors = {name: weights[name].float().contiguous() for name in weights}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def _hf_config(config: ModelConfig) -> dict[str, Any]:
    same = ("vocab_size", "hidden_size", "intermediate_size", "head_dim", "rms_norm_eps")
    same = (*same, "rope_theta", "max_position_embeddings", "tie_word_embeddings")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{field: getattr(config, field) for field in same},
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _key(source: Path) -> str:
    """Another file, or the same name with other contents, is another export."""
    files = [source] if source.is_file() else sorted(source.glob("*"))
    stamps = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return sha256(repr(stamps).encode()).hexdigest()[:12]
