"""The one file that touches torch's streams, graphs and page-locked memory; knows no model.

    capture      work() once, so that all is compiled and allocated; then once more, recorded:
                 nothing runs, the launches are written down with the addresses they were given
    replay       one launch of them all: same addresses, whatever lies there by now

So whoever captures must leave its inputs where they are and only change what lies in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Gpu:
    """One CUDA device, for an executor.

    Args:
        device: the CUDA device; its current stream is the one that everything is ordered by.

    Attributes:
        device: where tensors go.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        return torch.cuda.get_device_capability(self.device)

    def host_memory(self, num_bytes: int) -> Tensor:  # [num_bytes] uint8
        """Page-locked memory, which a copy to the device needs not wait for.

        It is not handed out anew before such a copy is done.
        """
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def finish(self) -> None:
        """Wait until the device has done all that was begun."""
        torch.cuda.synchronize(self.device)

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """Record all that ``work`` launches; the function returned launches it again.

        It returns what ``work`` returned: tensors that every replay writes anew, and that those of
        other captures may overwrite too, so they are to be used up before the next replay.
        """
        with torch.cuda.device(self.device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                result = work()

        def replay() -> Any:
            graph.replay()
            return result

        return replay
