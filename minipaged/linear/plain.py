"""Products in plain torch, on any device, and the choice among the forms; knows no compiler."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.core.errors import ModelError


class Product(Protocol):
    """Rows times a weight matrix, which it keeps in whatever order it reads best."""

    nbytes: int  # of weights, as kept

    def __call__(self, x: Tensor) -> Tensor:  # [num_rows, in_size] to [num_rows, out_size]
        """The product, in the type of ``x``."""
        ...

    def add_to(self, out: Tensor, x: Tensor) -> None:  # [num_rows, out_size], [num_rows, in_size]
        """Add the product to ``out``, in place."""
        ...

    def rows(self, index: Tensor) -> Tensor:  # [n] int64 to [n, in_size]
        """Rows of the weight itself: an embedding is a product read the other way."""
        ...


class Form(Protocol):
    """A way to compute products."""

    def warm_up(self) -> float:
        """Compile what products need, or load it from disk; returns the seconds taken."""
        ...

    def linear(
        self,
        weight: Tensor,  # [out_size, in_size]
        bias: Tensor | None = None,  # [out_size]
    ) -> Product:
        """X W^T + b."""
        ...

    def gated(
        self,
        weight: Tensor,  # [2 * out_size, in_size]: the gate's rows, then those of the other half
        bias: Tensor | None = None,  # [2 * out_size]
    ) -> Product:
        """silu(X G^T) * (X U^T), with G and U the halves of the weight."""
        ...

    def normalise(
        self,
        x: Tensor,  # [num_rows, size]
        weight: Tensor | None,  # [size]
        epsilon: float,
    ) -> Tensor:  # [num_rows, size]
        """The RMS norm of each row: x / sqrt(mean(x**2) + epsilon) * weight."""
        ...


class Linear:
    """X W^T + b, by the library that torch uses."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias
        self.nbytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        """See ``Product``."""
        return F.linear(x, self.weight, self.bias)

    def add_to(self, out: Tensor, x: Tensor) -> None:
        """See ``Product``."""
        out += self(x)

    def rows(self, index: Tensor) -> Tensor:
        """See ``Product``."""
        return self.weight.index_select(0, index)


class Gated(Linear):
    """silu(X G^T) * (X U^T)."""

    def __call__(self, x: Tensor) -> Tensor:
        """See ``Product``."""
        gate, other = super().__call__(x).chunk(2, -1)
        return F.silu(gate).mul_(other)


class _Plain:
    linear, gated = Linear, Gated

    @staticmethod
    def normalise(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)

    @staticmethod
    def warm_up() -> float:
        return 0.0  # nothing is compiled


PLAIN: Form = _Plain()


def form_for(dtype: torch.dtype, device: torch.device) -> Form:
    """The fastest form for weights of a type on a device: torch.int8 is int8 weights.

    Raises:
        ModelError: int8 weights on another device than a CPU.
    """
    if device.type != "cpu":
        if dtype is torch.int8:
            raise ModelError(f"int8 weights are for a CPU, not for {device}: choose bfloat16 there")
        return PLAIN
    if dtype is torch.float32:
        from .packed import PACKED

        return PACKED
    if dtype is torch.int8:
        from .quantized import QUANTIZED

        return QUANTIZED
    return PLAIN
