"""Our own three kernels, judged as strangers are, with nothing to excuse."""

from __future__ import annotations

from typing import Any

from ..conventions import Native
from .animal import Animal, required


def _kernel(module: str, name: str) -> Any:
    return lambda: getattr(required(f"minipaged.attention.{module}"), name)


ANIMALS = tuple(
    Animal(
        name,
        "fast",
        "minipaged",
        _kernel(module, name),
        "native",
        features,
        Native.contract,
        level=4,
    )
    for module, name, features in (
        ("paged", "paged_attention", Native.features),
        ("paged", "paged_attention_blockwise", Native.features),
        ("cpu", "cpu_paged_attention", Native.features.only(kv_forms=())),
    )
)
