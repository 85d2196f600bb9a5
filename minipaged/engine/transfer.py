"""Small arrays to the device and back; knows which of the two ways makes the host wait.

To the device nobody waits: the bytes go through page-locked memory, in the order of the stream.
From the device the host waits for all that was queued before, so a step does it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_device(array: np.ndarray | Sequence[int], device: torch.device) -> Tensor:
    """A tensor of the array's numbers, ints as int64; on a GPU it may still be on its way."""
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.tensor(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensor: Tensor) -> list[Any]:
    """Its numbers as a list. Waits for the device."""
    return tensor.cpu().tolist()


def rows_of(some: Sequence[int], device: torch.device) -> slice | Tensor:
    """An index of these rows, ascending; neighbours are a slice, which moves nothing."""
    if some[-1] - some[0] == len(some) - 1:
        return slice(some[0], some[-1] + 1)
    return to_device(some, device)
