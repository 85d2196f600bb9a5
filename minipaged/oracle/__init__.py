"""The judge of paged-attention kernels, of the other parts of a cache, and of block managers.

`check_kernel(my_paged_attention, convention="flashinfer")` returns a `Report`; its siblings do the
same for writers, copies, merges, quantizers, plan-and-run kernels and block managers. Every name
is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .address_space import sparse_cache
    from .cases import Case, Placement
    from .check import check_kernel
    from .contract import Contract, Features
    from .conventions import CONVENTIONS, Call, Convention
    from .guard import KernelFault, guarded
    from .managers import ManagerContract, check_block_manager
    from .parts import (
        CopyContract,
        MergeContract,
        QuantizerContract,
        ReplayContract,
        WriterContract,
        check_copy,
        check_merge,
        check_quantizer,
        check_replay,
        check_writer,
    )
    from .recipes import Recipe
    from .report import Failure, Report
    from .truth import Codes, NumericModel, Problem, Spec, Truth, reference

__all__ = [
    "CONVENTIONS",
    "Call",
    "Case",
    "Codes",
    "Contract",
    "Convention",
    "CopyContract",
    "Failure",
    "Features",
    "KernelFault",
    "ManagerContract",
    "MergeContract",
    "NumericModel",
    "Placement",
    "Problem",
    "QuantizerContract",
    "Recipe",
    "ReplayContract",
    "Report",
    "Spec",
    "Truth",
    "WriterContract",
    "check_block_manager",
    "check_copy",
    "check_kernel",
    "check_merge",
    "check_quantizer",
    "check_replay",
    "check_writer",
    "guarded",
    "reference",
    "sparse_cache",
]

_HOMES = {
    "address_space": ("sparse_cache",),
    "cases": ("Case", "Placement"),
    "check": ("check_kernel",),
    "contract": ("Contract", "Features"),
    "conventions": ("CONVENTIONS", "Call", "Convention"),
    "guard": ("KernelFault", "guarded"),
    "managers": ("ManagerContract", "check_block_manager"),
    "recipes": ("Recipe",),
    "report": ("Failure", "Report"),
    "truth": ("Codes", "NumericModel", "Problem", "Spec", "Truth", "reference"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME_OF.get(name, "parts")
    return getattr(importlib.import_module(f".{home}", __name__), name)
