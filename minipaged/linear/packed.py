"""Products compiled for a CPU, float32: the weight is kept as the kernel reads it, in panels.

    W [out_size, in_size]  ->  panels [num_panels, in_size, WIDTH]

so that a panel is read from its first number to its last, whatever the number of rows. A row's
product depends on nothing but the row, to the last bit: not on the other rows, nor on threads.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from minipaged.attention.cpu import num_threads
from minipaged.linear.kernels import ADD, GATE, STORE, multiply, normalise
from minipaged.linear.memory import kept
from minipaged.linear.microkernels import WIDTH


class Packed:
    """X W^T + b on a CPU, and what is done with it on the way to memory.

    Args:
        weight: ``[out_size, in_size]`` float32; not kept.
        bias: ``[out_size]`` float32.
        finish: what becomes of the product; ``GATE`` takes the first half of ``weight`` for G.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, finish: int = STORE):
        order = panel_order(len(weight), finish)
        self.in_size, self.finish = weight.shape[1], finish
        self.out_size = len(weight) // 2 if finish == GATE else len(weight)
        self.bias = None if bias is None else padded_rows(bias, order)
        self._pack(padded_rows(weight, order))

    def _pack(self, weight: Tensor) -> None:
        """Keep the weight, whose rows are in the order of the panels already."""
        self.panels = kept(weight.unflatten(0, (-1, WIDTH)).transpose(1, 2))
        self.padded_size, self.nbytes = self.in_size, self.panels.nbytes
        self._scales = self._offsets = 0

    def __call__(self, x: Tensor) -> Tensor:
        """See ``plain.Product``."""
        out = torch.empty(len(x), self.out_size)
        self._multiply(x, out, self.finish)
        return out

    def add_to(self, out: Tensor, x: Tensor) -> None:
        """See ``plain.Product``."""
        self._multiply(x, out, ADD)

    def rows(self, index: Tensor) -> Tensor:
        """See ``plain.Product``."""
        return self.panels[index // WIDTH, :, index % WIDTH]

    @property
    def addresses(self) -> tuple[int, ...]:
        """The sizes and addresses that ``kernels.multiply`` wants, in its order."""
        bias = 0 if self.bias is None else self.bias.data_ptr()
        weights = self.panels.data_ptr(), self._scales, self._offsets, self.padded_size
        return self.in_size, *weights, bias, self.out_size

    def _multiply(self, x: Tensor, out: Tensor, finish: int) -> None:
        x = x if x.stride(1) == 1 else x.contiguous()
        *weights, bias, out_size = self.addresses
        from_x = x.data_ptr(), x.stride(0), *weights, bias
        to_out = out.data_ptr(), out.stride(0), len(x), out_size, finish
        arguments: Any = (*from_x, *to_out, num_threads())
        multiply(*arguments)


def panel_order(num_rows: int, finish: int) -> Tensor:  # [num_panels * WIDTH] int64, -1 for none
    """Which row of W each place of the panels holds; for a gate, G's and U's halves of a panel."""
    halves = 2 if finish == GATE else 1
    size, width = num_rows // halves, WIDTH // halves
    places = torch.arange(-(-size // width) * width).view(-1, 1, width)
    places = torch.where(places < size, places, -1).repeat(1, halves, 1)
    if halves == 2:
        places[:, 1] += torch.where(places[:, 1] < 0, 0, size)
    return places.flatten()


def padded_rows(x: Tensor, order: Tensor) -> Tensor:
    """Rows in that order, and zeros where there is none."""
    rows = x[order.clamp(min=0)]
    rows[order < 0] = 0
    return rows


class _Packed:
    @staticmethod
    def warm_up() -> float:
        begin = time.perf_counter()
        x = torch.zeros(1, 1)
        Packed(torch.zeros(WIDTH, 1))(_Packed.normalise(x, None, 1.0))
        return time.perf_counter() - begin

    @staticmethod
    def normalise(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        out, x = torch.empty(x.shape), x if x.stride(1) == 1 else x.contiguous()
        scale = 0 if weight is None else weight.data_ptr()
        sizes = x.stride(0), len(x), x.shape[1]
        normalise(x.data_ptr(), *sizes, scale, epsilon, out.data_ptr())
        return out

    @staticmethod
    def linear(weight: Tensor, bias: Tensor | None = None) -> Packed:
        return Packed(weight, bias)

    @staticmethod
    def gated(weight: Tensor, bias: Tensor | None = None) -> Packed:
        return Packed(weight, bias, GATE)


PACKED = _Packed()
