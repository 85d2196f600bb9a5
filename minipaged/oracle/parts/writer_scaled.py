"""Is each stored number of a scaled cache the nearest one? Knows number formats, not slots."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..truth.formats import FORMATS
from .judge import Judge

Scale = float | Tensor | None
SLACK = 2.0**-20  # of a division, or a multiplication by the reciprocal, in float32


def as_float64(x: Tensor) -> NDArray[np.float64]:
    """The numbers of a tensor of any type, exactly."""
    return x.detach().cpu().to(torch.float64).numpy()


def half_steps(x: NDArray[np.float64], dtype: torch.dtype) -> NDArray[np.float64]:
    """How far the nearest number of `dtype` may be from each number of its range."""
    form = FORMATS[str(dtype).removeprefix("torch.")]
    if form.is_integer:
        return np.full_like(x, 0.5)
    spacing = np.ldexp(1.0, np.frexp(x)[1] - form.precision)
    return np.maximum(spacing, form.tiny) / 2


def check_scaled_rows(
    judge: Judge,
    name: str,
    slots: Tensor,  # [num_rows]
    rows: Tensor,  # [num_rows, num_heads, dim]
    scale: float | Tensor,  # or [num_heads]
    stored: Tensor,  # [num_rows, num_heads, dim]
    saturates: bool,
) -> None:
    """The law "nearest": `stored` is within half a step of `row / scale`, or the end of the range.

    Raises:
        Broken: It is not.
    """
    scales = as_float64(torch.as_tensor(scale, dtype=torch.float32).reshape(-1, 1))
    wanted, got = as_float64(rows) / scales, as_float64(stored)
    form = FORMATS[str(stored.dtype).removeprefix("torch.")]
    low = -form.max - 1 if form.is_integer else -form.max
    beyond = (wanted < low) | (wanted > form.max)
    target = np.clip(wanted, low, form.max)
    allowed = half_steps(target, stored.dtype) * (1 + 2**-10) + np.abs(target) * SLACK
    # -127 for -128 is how symmetric quantisation clamps.
    allowed += beyond * (1.0 if form.is_integer else 0.0)
    right = np.abs(got - target) <= allowed
    if not saturates:
        right |= beyond
    for law, some in (("stores the nearest", ~beyond), ("saturates", beyond)):
        wrong = np.argwhere(~right & some)

        def text(wrong=wrong) -> str:
            t, head, dim = (int(i) for i in wrong[0])
            number, divisor = float(rows[t, head, dim]), scales[head % len(scales), 0]
            return (
                f"{name} {number:.6g} / scale {divisor:.6g} = {wanted[t, head, dim]:.6g} is stored "
                f"as {got[t, head, dim]:g} in slot {int(slots[t])}, head {head}, dim {dim}"
            )

        if some.any():
            judge.require(not len(wrong), law, 1, text)
