"""Which check judges which kind of subject, called with the options that it has.

It knows the names of the checks and imports only the one that is asked for.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .report import Report
from .settings import SettingError, changed

KINDS = {  # kind: where its check is, how many functions it takes
    "kernel": ("check:check_kernel", 1),
    "writer": ("parts:check_writer", 1),
    "copy": ("parts:check_copy", 1),
    "merge": ("parts:check_merge", 1),
    "quantizer": ("parts:check_quantizer", 2),
    "replay": ("parts:check_replay", 2),
    "block-manager": ("managers.check:check_block_manager", 1),
}
SAME = {"call_limit_s": "call_s"}  # what some checks call an option


def find_check(kind: str) -> Callable[..., Report]:
    """The check of this kind of subject.

    Raises:
        SettingError: There is no such kind.
    """
    if kind not in KINDS:
        raise SettingError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    module, _, name = KINDS[kind][0].partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def judge(
    kind: str, subjects: Sequence[Any], contract: Sequence[str], options: Mapping[str, Any]
) -> Report:
    """The verdict on a subject that is no kernel; `contract` as for `settings.changed`.

    Raises:
        SettingError: Too few or many functions, or a setting that this kind does not have.
    """
    check, wanted = find_check(kind), KINDS[kind][1]
    if len(subjects) != wanted:
        raise SettingError(f"a {kind} is {wanted} function{'s'[: wanted - 1]}, not {len(subjects)}")
    hints, known = typing.get_type_hints(check), inspect.signature(check).parameters
    taken = {SAME[k] if SAME.get(k) in known else k: x for k, x in options.items()}
    taken = {k: x for k, x in taken.items() if k in known}
    if contract:
        promises = next(t for t in typing.get_args(hints["contract"]) if t is not type(None))
        taken["contract"] = changed(promises(), contract)
    return check(*subjects, **taken)
