"""The ways in which libraries call paged attention, by name."""

from __future__ import annotations

import difflib

from .base import Call, Convention, Kernel
from .flash_attn import FlashAttention2
from .flash_attn3 import FlashAttention3
from .flashinfer import FlashInfer, FlashInferHND
from .flex import Flex
from .huggingface import HuggingFace
from .jax_paged import JaxPaged, JaxPagedTPU, RaggedPaged
from .mla import MLA
from .native import Native
from .onnx import OnnxRuntime
from .openvino import OpenVINO
from .sglang import SGLang, SGLangDecode
from .trtllm import TRTLLM
from .vllm import VLLM, VLLMSplit
from .vllm_xpacked import VLLMXPacked

ALL = (
    Native,
    FlashInfer,
    FlashInferHND,
    VLLM,
    VLLMSplit,
    VLLMXPacked,
    FlashAttention2,
    FlashAttention3,
    SGLang,
    SGLangDecode,
    JaxPaged,
    JaxPagedTPU,
    RaggedPaged,
    OpenVINO,
    Flex,
    HuggingFace,
    TRTLLM,
    MLA,
    OnnxRuntime,
)
CONVENTIONS: dict[str, type[Convention]] = {c.name: c for c in ALL}


def find_convention(name: str | Convention) -> Convention:
    """The convention of this name.

    Raises:
        LookupError: There is none; the message has the nearest names.
    """
    if isinstance(name, Convention):
        return name
    if name in CONVENTIONS:
        return CONVENTIONS[name]()
    near = difflib.get_close_matches(name, CONVENTIONS, n=3, cutoff=0.3) or sorted(CONVENTIONS)
    raise LookupError(f"no convention {name!r}; the nearest: {', '.join(near)}")


__all__ = ["CONVENTIONS", "Call", "Convention", "Kernel", "Native", "find_convention"]
