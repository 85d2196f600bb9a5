"""Which device, which numbers, and who computes with them; knows no sizes and no requests."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import torch

from minipaged.core import InvalidRequest
from minipaged.models.decoder import DTYPES

from .executor import Executor

GROUP = "minipaged.executors"  # entry points: a device's name = its Executor


def choose_device(
    device: torch.device | str | None, attention: Callable[..., Any] | None
) -> torch.device:
    """What was asked for; None: a GPU if there is one and something that computes on it."""
    has_cuda = torch.cuda.is_available()
    if device is None:
        is_usable = has_cuda and (attention is not None or not missing_for("cuda"))
        device = "cuda" if is_usable else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InvalidRequest(f"device={device!r}: must be 'cpu' or 'cuda'") from None
    if found.type == "cuda" and not has_cuda:
        raise InvalidRequest(
            f"device={device!r}: torch finds no CUDA device; `minipaged doctor` may say why"
        )
    return found


def choose_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """What was asked for; None: float32 on a CPU, bfloat16 on a GPU that has it, else float16."""
    if dtype is None and device.type == "cuda":
        has_bfloat16 = torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if has_bfloat16 else torch.float16
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in DTYPES.values():
        raise InvalidRequest(f"dtype={dtype!r}: must be {', '.join(DTYPES)}")
    return found


def executor_for(
    device: torch.device, attention: Callable[..., Any] | None = None
) -> type[Executor]:
    """Who computes on a device; with an attention function of one's own, always the plain one.

    Raises:
        InvalidRequest: the device needs an executor that is not installed.
    """
    if attention is not None or device.type == "cpu":
        return Executor
    if missing := missing_for(device.type):
        is_extra = device.type == "cuda"
        advice = "pip install 'minipaged[cuda]'" if is_extra else "there are 'cpu' and 'cuda'"
        raise InvalidRequest(
            f"device={str(device)!r} needs {', '.join(missing)}: {advice}; "
            "or give attention= a function of your own"
        )
    (executor,) = _executors(device.type)
    return executor


def missing_for(device_type: str) -> list[str]:
    """The modules that are not installed, of those that computing on such a device needs."""
    executors = _executors(device_type)
    needed = executors[0].requires if executors else (f"an executor for {device_type}",)
    return [module for module in needed if not _is_installed(module)]


def _executors(device_type: str) -> list[type[Executor]]:
    return [entry.load() for entry in entry_points(group=GROUP, name=device_type)][:1]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it would be in
        return False
