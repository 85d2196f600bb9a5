"""Finds a model by name or path and puts its three parts together; knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch

from minipaged.core import ModelError

from .config import ModelConfig
from .decoder import DTYPES, Decoder
from .download import DOWNLOADS, pulled_path
from .gguf_file import GGUFFile
from .gguf_model import gguf_config, gguf_weights
from .gguf_tokenizer import gguf_tokenizer
from .tokenizer import Tokenizer
from .weights import read_json, read_safetensors

BUNDLED = Path(__file__).parent / "bundled"
NAMES = ("bundled", *DOWNLOADS)


@dataclass(frozen=True)
class Model:
    """What generating text takes."""

    decoder: Decoder
    tokenizer: Tokenizer
    config: ModelConfig


def load_model(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | str = torch.float32,
    device: torch.device | str = "cpu",
) -> Model:
    """Load a model: ``"bundled"``, a pulled name, a Hugging Face directory or a ``.gguf`` file.

    Args:
        name_or_path: a name goes before a path of the same spelling.
        dtype: float32, bfloat16, float16 or float64, whatever the files store; also by name.
            int8: weights in 8 bits, the rest in float32, on a CPU.
        device: where it will run.

    Raises:
        ModelError: nothing found there, or something this decoder cannot run.
    """
    path = find_model(name_or_path)
    if path.is_dir():
        config = ModelConfig.from_hf(read_json(path / "config.json"))
        tokenizer, weights = Tokenizer.from_directory(path), read_safetensors(path)
    else:
        file = GGUFFile(path)
        config = gguf_config(file)
        tokenizer, weights = gguf_tokenizer(file.metadata), gguf_weights(file, config)
    dtype = DTYPES.get(dtype, dtype)  # type: ignore[call-overload]
    decoder = Decoder(config, weights, dtype=dtype, device=device)  # type: ignore[arg-type]
    return Model(decoder, tokenizer, config)


def find_model(name_or_path: str | Path) -> Path:
    """Where a model lies: its directory or file."""
    name = str(name_or_path)
    if name == "bundled":
        return BUNDLED
    if name in DOWNLOADS:
        path = pulled_path(name)
        if path is None:
            size = DOWNLOADS[name].num_bytes / 1e6
            raise ModelError(
                f"{name} is not here yet: `minipaged pull {name}` fetches {size:.0f} MB"
            )
        return path
    path = Path(name_or_path).expanduser()
    if not path.exists():
        close = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known names are {', '.join(NAMES)}."
        raise ModelError(
            f"no model {name!r}: {hint} Else give a Hugging Face directory or a .gguf file"
        )
    inside = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if path.is_dir() and not (path / "config.json").exists():
        hint = f"; did you mean {inside[0]}?" if inside else ""
        raise ModelError(f"{path} has no config.json, so it is no model directory{hint}")
    return path
