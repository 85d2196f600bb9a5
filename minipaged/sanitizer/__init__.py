"""An address sanitizer for paged K/V caches: who may read and write which slot, step by step.

``sanitize`` and ``Shadow`` are for anybody's engine and need numpy only; ``Sanitizer`` watches this
package's pools, tables and caches, and is what ``LLM(sanitize=True)`` switches on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import SanitizerError
from .shadow import Shadow, sanitize

if TYPE_CHECKING:
    from .judge import Owner, Sanitizer
    from .poisoning import poison

__all__ = ["Owner", "Sanitizer", "SanitizerError", "Shadow", "poison", "sanitize"]

_HOMES = {"Owner": "judge", "Sanitizer": "judge", "poison": "poisoning"}  # these load torch


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
