"""All exhibits that are no kernels: writers, copies, merges, quantisers, replays."""

from __future__ import annotations

from typing import Any

import torch

from ..parts import (
    QuantizerContract,
    WriterContract,
    check_copy,
    check_merge,
    check_quantizer,
    check_replay,
    check_writer,
)
from ..report import Report
from .exhibit import Exhibit
from .parts_copies import COPIES
from .parts_merges import MERGES
from .parts_quantizers import QUANTIZERS
from .parts_replays import REPLAYS
from .parts_writers import SCALED, WRITERS

PARTS: tuple[Exhibit, ...] = (*WRITERS, *SCALED, *COPIES, *MERGES, *QUANTIZERS, *REPLAYS)

_ASYMMETRIC = {"contract": QuantizerContract(symmetric=False)}
# Arguments of the check, for exhibits that need others than the usual.
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        exhibit.name: {
            "k_scale": 0.25,
            "v_scale": 0.02,
            "contract": WriterContract(cache_dtypes=(torch.int8,)),
        }
        for exhibit in SCALED
    },
    "constant_rows_give_nan": _ASYMMETRIC,
    "range_in_the_type_of_x": _ASYMMETRIC,
    "zero_point_in_a_byte": _ASYMMETRIC,
    "fp8_overflows_to_nan": {"contract": QuantizerContract(format="float8_e4m3fn")},
}
_CHECKS = {"writer": check_writer, "copy": check_copy, "merge": check_merge}


def judge(exhibit: Exhibit, **options: Any) -> Report:
    """The verdict of the check for an exhibit's kind, which should be that it failed.

    Args:
        exhibit: One of `PARTS`.
        options: Further arguments of the check, such as `max_examples`.
    """
    options = {"name": exhibit.name, **SETTINGS.get(exhibit.name, {}), **options}
    subject = exhibit.make()
    if exhibit.kind == "quantizer":
        return check_quantizer(*subject, **options)
    if exhibit.kind == "replay":
        return check_replay(*subject, fresh=exhibit.make, **options)
    return _CHECKS[exhibit.kind](subject, **options)
