"""SGLang's Triton attention on a CPU; knows what its files import, and what is wrong with it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.sglang import SGLang, SGLangDecode
from .animal import Animal, Finding
from .triton_cpu import SMALL, folder_of, interpreter, never, standing_in

OPS = "sglang.kernels.ops.attention"
HARDWARE = "cuda", "cuda_alike", "gfx95_supported", "gfx1250_supported", "hip", "musa", "npu", "xpu"
QUESTIONS = "get_bool_env_var", *(f"is_{what}" for what in HARDWARE)


class Unset:
    """Any of SGLang's settings: not set."""

    def __getattr__(self, name: str) -> Unset:
        return self

    def get(self) -> None:  # noqa: D102
        return None

    def __bool__(self) -> bool:
        return False


@functools.cache
def operations(name: str) -> Any:
    """One of SGLang's modules of attention kernels."""
    interpreter()
    utils = {**dict.fromkeys(QUESTIONS, never), "get_device_core_count": lambda *_: 1}
    stand_ins = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.environ": {"envs": Unset()},
        "sglang.srt.utils": utils,
        "sglang.kernels": {},
        "sglang.kernels.ops": {},
        OPS: {"__path__": [str(folder_of("sglang") / "kernels" / "ops" / "attention")]},
    }
    with standing_in(stand_ins):
        return importlib.import_module(f"{OPS}.{name}")


def load_extend() -> Kernel:
    """Chunks: a prefix in the pool, and this step's keys and values beside it."""
    return operations("extend_attention").extend_attention_fwd


def load_decode() -> Kernel:
    """One query per sequence, the keys in four splits."""
    return operations("decode_attention").decode_attention_fwd


STRICT = Contract()
SOFTCAP = Finding(
    "softcap of small scores",
    ("bound", "lse bound", "statistic"),
    "tanh(x) is computed as 2 sigmoid(2 x) - 1, which cancels for small x: scores are wrong by the "
    "cap times 6e-8, whatever their size (sglang/kernels/ops/attention/decode_attention.py:231, "
    "and extend_attention.py:210)",
    {"softcap": False},
    {"dtypes": ("float32",), "sinks": False, "masks": (), "num_seqs": (1, 1), "kv_len": (0, 9)},
    level=4,
)
PRODUCTS = Finding(
    "one query head per kv head, float16",
    ("bound", "statistic"),
    "the kernel for this multiplies query by key element by element in their own dtype "
    "(sglang/kernels/ops/attention/decode_attention.py:352)",
    {"groups": (2, 4)},
    {"groups": (1, 1), "dtypes": ("float16",)},
)

SINKS = Finding(
    "a sink far above all scores",
    ("lse bound",),
    "a sink is added as exp(sink - largest score), which overflows when that is more than 88: the "
    "output is right, the lse inf (sglang/kernels/ops/attention/extend_attention.py:878)",
    {"sinks": False},
)

ANIMALS = (
    Animal(
        "SGLang extend_attention_fwd",
        "slow",
        "sglang",
        load_extend,
        "sglang",
        # Its softcap is the decode kernel's, and the finding on it too rare to be waited for.
        SGLang.features.only(**SMALL, value_head_dims=(16, 40, 64), softcap=False),
        STRICT,
        (SINKS,),
        deadline_s=200,
    ),
    Animal(
        "SGLang decode_attention_fwd",
        "slow",
        "sglang",
        load_decode,
        "sglang_decode",
        SGLangDecode.features.only(**SMALL, value_head_dims=(16, 40, 64), kv_forms=()),
        STRICT,
        (
            Finding(
                "sequences of no key",
                ("empty rows",),
                "0 / 0 when the splits are merged "
                "(sglang/kernels/ops/attention/decode_attention.py:1016)",
                {"empty_row": "any"},
            ),
            SOFTCAP,
            PRODUCTS,
        ),
        deadline_s=200,
    ),
)
