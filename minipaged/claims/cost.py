"""How long a step takes on a machine that is not here: every constant, and where it is from.

    seconds = max(weights read, new tokens computed)            a roofline
              + K and V of all positions attended to read
              + a cost per sequence + a cost per step
              + blocks swapped * (a cost per transfer + bytes moved)

Which numbers of the claims depend on this: those that speak of seconds or rates, and the mean
batch under a given rate. Shares of memory under a full queue hardly do, savings by sharing do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Load(NamedTuple):
    """What a step does, as far as it takes time."""

    num_new: int  # tokens computed
    num_attended: int  # positions whose K and V are read, the new ones included
    num_seqs: int
    num_swapped: int = 0  # blocks, out and in


@dataclass(frozen=True, slots=True)
class CostModel:
    """The paper's first setting: OPT-13B on one A100 of 40 GB (section 6.1, table 1).

    Constants are known, assumed or calibrated. How much hangs on those that are not known is part
    of the claim about throughput (``minipaged reproduce throughput``).

    Examples:
        >>> model = CostModel()
        >>> round(1000 * model.seconds(Load(num_new=1, num_attended=200, num_seqs=1)), 1)
        24.4
    """

    weight_bytes: float = 26e9  # known: 13e9 parameters of 2 bytes, the paper's table 1
    kv_bytes: float = 819_200  # known: of one position, 2 * 5120 * 40 layers * 2 bytes; section 3.1
    flops_per_token: float = 26e9  # known: a product and a sum for every parameter
    peak_flops: float = 312e12  # known: A100, 16 bits, its data sheet
    peak_bandwidth: float = 1.555e12  # known: A100 40 GB, bytes per second, its data sheet
    flops_used: float = 0.5  # assumed: share of the peak that is reached
    bandwidth_used: float = 0.8  # assumed
    per_step: float = 3e-3  # assumed: seconds for scheduling, launching, sampling
    per_seq: float = 0.33e-3  # calibrated, alone of all: by figure 13's two batches of vLLM
    bus_bandwidth: float = 25e9  # known: PCIe 4.0 x16, bytes per second as reached in practice
    per_transfer: float = 10e-6  # assumed: seconds to begin one transfer
    transfers_per_block: int = 80  # known: K and V of 40 layers lie apart

    @property
    def weights(self) -> float:
        """Seconds to read all weights once."""
        return self.weight_bytes / (self.peak_bandwidth * self.bandwidth_used)

    def seconds(self, load: Load, block_size: int = 16) -> float:
        """Of one step."""
        num_new, num_attended, num_seqs, num_swapped = load
        computing = num_new * self.flops_per_token / (self.peak_flops * self.flops_used)
        reading = num_attended * self.kv_bytes / (self.peak_bandwidth * self.bandwidth_used)
        rest = self.per_step + self.per_seq * num_seqs
        seconds = max(self.weights, computing) + reading + rest
        return seconds + self.swap_seconds(num_swapped, block_size) if num_swapped else seconds

    def swap_seconds(self, num_blocks: int, block_size: int) -> float:
        """To move blocks over the bus, in either direction, while nothing else happens."""
        moved = block_size * self.kv_bytes / self.bus_bandwidth
        return num_blocks * (self.transfers_per_block * self.per_transfer + moved)
