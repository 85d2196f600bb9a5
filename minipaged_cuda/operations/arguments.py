"""Turns torch tensors into what kernels take: strides in their unit, numbers per head, a launcher.

It knows tensors and parameter names, no plan of a whole operation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minipaged.core import InvalidBatch
from minipaged_cuda.errors import DeviceError
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.plan import Card, Constants, Launch

Launcher = Callable[..., None]


def run(launcher: Launcher, launch: Launch, arguments: Mapping[str, Any]) -> None:
    """Launch one kernel of a plan; arguments that it has no parameter for are left out."""
    specialisation = specialise(launch)
    used = {p.name: arguments[p.name] for p in specialisation.parameters}
    launcher(specialisation, launch.grid, launch.num_threads, used)


def specialise(launch: Launch) -> Specialisation:
    """The kernel of that name, in the module of that name, with the launch's constants."""
    return _specialise(launch.kernel, launch.constants, launch.max_registers)


@cache
def _specialise(kernel: str, constants: Constants, max_registers: int | None) -> Specialisation:
    module = importlib.import_module(f"minipaged_cuda.kernels.{kernel}")
    chosen = dict(constants)
    return Specialisation.of(getattr(module, kernel), chosen, max_registers=max_registers)


@cache
def element_bytes(launch: Launch) -> dict[str, int]:
    """Bytes of what each pointer parameter of a kernel points to: its strides count these."""
    parameters = specialise(launch).parameters
    return {p.name: np.dtype(p.type_name).itemsize for p in parameters if p.is_pointer}


def strides(name: str, tensor: Tensor, axes: tuple[str, ...], unit: int) -> dict[str, int]:
    """``{"key_block_stride": ..., ...}`` of a tensor's first axes, in units of so many bytes."""
    size = tensor.element_size()
    return {f"{name}_{axis}_stride": s * size // unit for axis, s in zip(axes, tensor.stride())}


def attention_tensors(
    launch: Launch,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
) -> dict[str, Any]:
    """What every attention kernel takes: tensors, sizes and strides."""
    units, axes = element_bytes(launch), ("block", "token", "head")
    table = block_tables if block_tables.stride(1) == 1 else block_tables.contiguous()
    return {
        "query": query,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "block_tables": table,
        "seq_lens": seq_lens.contiguous(),
        "query_start_loc": query_start_loc.contiguous(),
        "num_tokens": len(query),
        "num_seqs": len(seq_lens),
        "num_heads": query.shape[1],
        "num_kv_heads": key_cache.shape[2],
        "table_stride": table.stride(0),
        **strides("query", query, axes[1:], units["query"]),
        **strides("key", key_cache, axes, units["key_cache"]),
        **strides("value", value_cache, axes, units["value_cache"]),
    }


def per_head(value: Tensor | float | None, num_heads: int, like: Tensor) -> Tensor | None:
    """``[num_heads]`` float32 on the device of ``like``; None is an option that is off."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        return value.to(torch.float32).contiguous()
    return torch.full((num_heads,), value, dtype=torch.float32, device=like.device)


# --- who runs it -------------------------------------------------------------------------------


def launcher_and_card(launcher: Launcher | None, tensor: Tensor) -> tuple[Launcher, Card]:
    """Who runs the kernels on this tensor's device, and what launch plans take it for.

    Raises:
        InvalidBatch: What was given is no launcher, or does not say what card it stands for.
        DeviceError: The tensor is on no GPU, and no launcher was given.
    """
    card, is_on_gpu = getattr(launcher, "card", None), tensor.device.type == "cuda"
    if launcher is not None:
        is_called = callable(launcher) and not isinstance(launcher, type)
        if not is_called or not (is_on_gpu or isinstance(card, Card)):
            raise InvalidBatch(
                f"launcher is {launcher!r}; it must be an instance, such as SimulatedLauncher(), "
                "that is called with (specialisation, grid, num_threads, arguments), and off a GPU "
                f"also has a `.card`, what plans take it for; the tensors are on {tensor.device}"
            )
        return launcher, card or _card(tensor.device)
    if not is_on_gpu:
        raise DeviceError(
            f"the kernels run on a GPU, and the tensors are on {tensor.device}: move them, or use "
            "minipaged.attention.cpu. To try the kernels without a GPU, pass "
            "launcher=minipaged_cuda.launch.simulated.SimulatedLauncher()"
        )
    return _device_launcher(), _card(tensor.device)


@cache
def _device_launcher() -> Launcher:
    from minipaged_cuda.launch.device import Launcher

    return Launcher()


@cache
def _card(device: torch.device) -> Card:
    found = torch.cuda.get_device_properties(device)
    return Card((found.major, found.minor), found.multi_processor_count)
