"""Hugging Face transformers' continuous batching: how one layer writes, gathers and attends."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.huggingface import HuggingFace
from .animal import Animal, Finding, required

BATCHING = "transformers.generation.continuous_batching"
FEATURES = HuggingFace.features.only(head_dims=(1, 3, 8, 16, 64), query_len=(1, 12))


def load(forward: str, own_mask: bool) -> Kernel:
    """One layer with SDPA or in plain PyTorch; the mask as given, or as the library builds it."""
    cache = required(f"{BATCHING}.cache_allocators.full_attention").FullAttentionCacheAllocator
    build_attention_mask = required(f"{BATCHING}.utils").build_attention_mask
    module, name = {
        "sdpa": ("sdpa_attention", "sdpa_attention_forward"),
        "eager": ("eager_paged", "eager_paged_attention_forward"),
    }[forward]
    attend = getattr(required(f"transformers.integrations.{module}"), name)

    def layer(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        read_index: Tensor,
        write_index: Tensor,
        attention_mask: Tensor,
        *,
        scaling: float,
        cu_seq_lens_q: Tensor,
        cu_seq_lens_k: Tensor,
    ) -> Tensor:
        allocator = SimpleNamespace(_kv_token_views=[(key_cache, value_cache)])
        fresh = (x[0].transpose(0, 1) for x in (key, value))
        states = cache.update(allocator, *fresh, 0, read_index, write_index)
        if own_mask:
            smallest = torch.finfo(query.dtype).min
            attention_mask = torch.full_like(attention_mask, smallest)
            starts = (x.tolist() for x in (cu_seq_lens_q, cu_seq_lens_k))
            build_attention_mask(attention_mask, *starts)
        owner: Any = SimpleNamespace(num_key_value_groups=query.shape[1] // key.shape[1])
        gathered = (x.transpose(0, 1)[None] for x in states)
        return attend(owner, query, *gathered, attention_mask, scaling=scaling)[0]

    return layer


LOW_SCORES = Finding(
    "scores in half precision",
    ("bound", "statistic", "finite"),
    "scores are kept in the dtype of the query: bfloat16 loses their bits, float16 overflows "
    "(transformers/integrations/eager_paged.py:31)",
    {"dtypes": ("float32",)},
)
WEAK_MASK = Finding(
    "a mask of -65504",
    ("bound", "statistic"),
    "what is masked has the smallest number of the dtype added to its score, not -inf: in float16 "
    "a hidden key that scores 65504 more than those in sight wins "
    "(transformers/generation/continuous_batching/utils.py:173)",
    {"dtypes": ("float32", "bfloat16")},
    {"dtypes": ("float16",)},
)
CAUSAL = FEATURES.only(causal=(True,), left_window=False, masks=())

ANIMALS = tuple(
    Animal(
        f"transformers continuous batching, {forward}",
        "fast",
        "transformers",
        functools.partial(load, forward, own_mask),
        "hf",
        features,
        Contract(empty_row="any"),
        expected,
    )
    for forward, own_mask, features, expected in (
        ("sdpa", True, CAUSAL, (WEAK_MASK,)),
        ("eager", False, FEATURES, (LOW_SCORES,)),
    )
)
