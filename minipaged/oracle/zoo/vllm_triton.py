"""vLLM's Triton attention on a CPU; knows what its files import, and what is wrong with it."""

from __future__ import annotations

import enum
import functools
import importlib
import logging
from collections.abc import Mapping
from typing import Any

import torch

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.vllm import VLLM
from ..conventions.vllm_xpacked import VLLMXPacked
from .animal import Animal, Finding
from .triton_cpu import SMALL, folder_of, interpreter, never, standing_in

OPS = "vllm.v1.attention.ops"
SPLITS = 4


class QuantMode(enum.IntEnum):
    """vLLM's `KVQuantMode`."""

    NONE, FP8_PER_TENSOR, INT8_PER_TOKEN_HEAD, FP8_PER_TOKEN_HEAD, INT4_PER_TOKEN_HEAD = range(5)


class Platform:
    """A device that is nothing special."""

    device_type = "cpu"

    def fp8_dtype(self) -> torch.dtype:  # noqa: D102
        return torch.float8_e4m3fn

    def get_device_capability(self, *_: Any) -> None:  # noqa: D102
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("is_", "has_")):
            return never
        raise AttributeError(name)


class Logger(logging.Logger):
    """One with vLLM's extra methods."""

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_once"):
            return never
        raise AttributeError(name)


@functools.cache
def stand_ins() -> Mapping[str, Mapping[str, Any]]:
    """What the kernels' files import of vLLM, as little as does on a CPU."""
    triton = interpreter()
    return {
        "vllm": {},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm._custom_ops": {},
        "vllm.logger": {"init_logger": Logger},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.platforms.rocm": {"on_gfx1x": never, "use_rocm_custom_paged_attention": never},
        "vllm.triton_utils": {"tl": triton.language, "triton": triton, "HAS_TRITON": True},
        "vllm.utils": {},
        "vllm.utils.math_utils": {"cdiv": triton.cdiv, "next_power_of_2": triton.next_power_of_2},
        "vllm.utils.torch_utils": {
            "is_quantized_kv_cache": never,
            "is_strictly_contiguous": torch.Tensor.is_contiguous,
        },
        "vllm.v1": {},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": QuantMode},
        "vllm.v1.attention": {},
        OPS: {"__path__": [str(folder_of("vllm") / "v1" / "attention" / "ops")]},
    }


@functools.cache
def operations(name: str) -> Any:
    """One of vLLM's modules of attention kernels."""
    with standing_in(stand_ins()):
        return importlib.import_module(f"{OPS}.{name}")


def load_2d() -> Kernel:
    """A program for every few queries and kv head, over all keys."""
    return operations("triton_unified_attention").unified_attention


def load_3d() -> Kernel:
    """The keys in segments as well; a second kernel merges them."""
    unified_attention = load_2d()

    @functools.wraps(unified_attention)
    def split(*, q: torch.Tensor, **kwargs: Any) -> None:
        tokens, heads, dim = q.shape
        padded = 1 << (dim - 1).bit_length()
        unified_attention(
            q=q,
            **kwargs,
            seq_threshold_3D=10_000,
            num_par_softmax_segments=SPLITS,
            softmax_segm_output=torch.full((tokens, heads, SPLITS, padded), torch.nan),
            softmax_segm_max=torch.full((tokens, heads, SPLITS), torch.nan),
            softmax_segm_expsum=torch.full((tokens, heads, SPLITS), torch.nan),
        )

    return split


def load_xpacked() -> Kernel:
    """Chunks by one kernel and decode by another, over a cache in pieces of 16 bytes."""
    kernel = operations("chunked_prefill_paged_decode").chunked_prefill_paged_decode

    @functools.wraps(kernel)
    def with_stand_ins(*args: Any, **kwargs: Any) -> None:
        with standing_in(stand_ins()):  # it imports as it runs
            kernel(*args, **kwargs)

    return with_stand_ins


FEATURES = VLLM.features.only(**SMALL, kv_forms=())
# The convention excuses rows that see no key. Nothing is excused here, so that they are in the
# ledger.
STRICT = Contract()
WINDOW = Finding(
    "window without causal",
    ("bound",),
    "values are zeroed by their distance to the first query of a block of queries, so later "
    "queries lose keys that they see, while the weights keep their mass "
    "(vllm/v1/attention/ops/triton_unified_attention.py:571-585)",
    {"right_window": False},
)
SLOPES = Finding(
    "ALiBi with sinks",
    ("bound", "statistic"),
    "slopes multiply the distance to the first query of the step, not to the query itself; without "
    "sinks softmax does not see the difference, the sink's logit does "
    "(vllm/v1/attention/ops/triton_attention_helpers.py:440)",
    {"alibi": False},
)
EMPTY_2D = Finding(
    "rows that see no key",
    ("empty rows",),
    "0 / 0, without the guard that the 3D kernel has "
    "(vllm/v1/attention/ops/triton_unified_attention.py:659)",
    {"empty_row": "any"},
)
EMPTY_3D = Finding(
    "sequences of no key",
    ("empty rows",),
    "returns before it writes the output, which keeps what it held "
    "(vllm/v1/attention/ops/triton_unified_attention.py:736)",
    {"empty_row": "any"},
)
NEGATIVE = Finding(
    "negative ALiBi slopes",
    ("finite", "bound"),
    "the sign of the bias serves as the causal mask: with a negative slope a chunk's queries see "
    "what they should not and nothing else (vllm/v1/attention/ops/prefix_prefill.py:675,757)",
    {"alibi": False},
)

ANIMALS = (
    Animal(
        "vLLM unified_attention 2D",
        "slow",
        "vllm",
        load_2d,
        "vllm",
        FEATURES,
        STRICT,
        (WINDOW, SLOPES, EMPTY_2D),
        deadline_s=200,
    ),
    Animal(
        "vLLM unified_attention 3D",
        "slow",
        "vllm",
        load_3d,
        "vllm",
        # More queries than 8, or without causal, it gives to the 2D kernel.
        FEATURES.only(query_len=(0, 8), causal=(True,)),
        STRICT,
        (SLOPES, EMPTY_3D),
        deadline_s=200,
    ),
    Animal(
        "vLLM chunked_prefill_paged_decode",
        "slow",
        "vllm",
        load_xpacked,
        "vllm_xpacked",
        # A sequence without queries is decoded like one with one, beside the output or into the
        # row of another (chunked_prefill_paged_decode.py:98): that may end the process.
        VLLMXPacked.features.only(**SMALL, block_sizes=(8, 16), query_len=(1, 12)),
        STRICT,
        (NEGATIVE,),
        deadline_s=200,
    ),
)
