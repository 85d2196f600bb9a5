"""Products with weights of 8 bits on a CPU: a quarter of the bytes, and faster sums.

Weights and rows are cut into groups of ``GROUP`` numbers along the contraction. Each group has a
scale of its own, the largest magnitude in it over 127, and is rounded to whole steps of it:
weights once, rows in every call. Products of whole numbers are summed exactly; scales multiply the
sum of a group, in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.linear.kernels import GATE, STORE
from minipaged.linear.memory import kept
from minipaged.linear.microkernels import GROUP, WIDTH
from minipaged.linear.packed import PACKED, Packed


class Quantized(Packed):
    """As ``Packed``, with int8 weights; x and the result are float32."""

    def _pack(self, weight: Tensor) -> None:
        self.padded_size = -(-self.in_size // GROUP) * GROUP
        weight = F.pad(weight, (0, self.padded_size - self.in_size))
        groups = weight.view(-1, WIDTH, self.padded_size // GROUP, GROUP)
        steps = groups.abs().amax(3, keepdim=True) / 127
        whole = (groups / steps.clamp(min=torch.finfo(steps.dtype).tiny)).round_()
        self.scales = kept(steps[..., 0].transpose(1, 2))  # [num_panels, groups, WIDTH]
        # X comes with 128 added, which the kernel takes back: 128 times the sum of the weights.
        self.offsets = kept((whole.sum(3) * -128).to(torch.int32).transpose(1, 2))
        fours = whole.to(torch.int8).view(-1, WIDTH, self.padded_size // 4, 4)
        self.panels = kept(fours.transpose(1, 2))  # [num_panels, in_size / 4, WIDTH, 4]
        self.nbytes = self.panels.nbytes + self.scales.nbytes + self.offsets.nbytes
        self._scales, self._offsets = self.scales.data_ptr(), self.offsets.data_ptr()

    def rows(self, index: Tensor) -> Tensor:
        """See ``plain.Product``: as they are kept, rounded."""
        panel, place = index // WIDTH, index % WIDTH
        whole = self.panels[panel, :, place].flatten(1).float()
        scales = self.scales[panel, :, place].repeat_interleave(GROUP, 1)
        return (whole * scales)[:, : self.in_size].contiguous()


class _Quantized:
    warm_up = staticmethod(PACKED.warm_up)  # of the same compiled functions
    normalise = staticmethod(PACKED.normalise)

    @staticmethod
    def linear(weight: Tensor, bias: Tensor | None = None) -> Quantized:
        return Quantized(weight, bias, STORE)

    @staticmethod
    def gated(weight: Tensor, bias: Tensor | None = None) -> Quantized:
        return Quantized(weight, bias, GATE)


QUANTIZED = _Quantized()
