"""How a fault is planted into the specimen: some of its methods are others."""

from __future__ import annotations

from typing import Any

from ..exhibit import Exhibit
from ..specimen import Specimen

UNKNOWN = ""  # no public instance known


def plant(fault_class: str, name: str, like: str, what: str, **methods: Any) -> Exhibit:
    """The specimen with these methods instead of its own, as an exhibit."""
    return Exhibit(name, "kernel", fault_class, like, what, type(name, (Specimen,), methods))
