"""One decoder for the Llama family, its tokenizer, and where models come from."""

from .catalog import NAMES, Model, load_model
from .config import ModelConfig, RopeScaling
from .decoder import Decoder
from .download import models_dir, pull, pulled_path
from .tokenizer import Tokenizer

__all__ = [
    "NAMES",
    "Decoder",
    "Model",
    "ModelConfig",
    "RopeScaling",
    "Tokenizer",
    "load_model",
    "models_dir",
    "pull",
    "pulled_path",
]
