"""A GPU made of Python: tensors that say they are elsewhere, and a torch that counts crossings.

    x = torch.ones(3).to("meta")     under ``FakeDevice()``: its numbers lie on a CPU, hidden
    x + torch.ones(3)                refused, as a GPU refuses it
    x.tolist(), x.sum().item()       the host waits: counted
    torch.ones(3).to("meta")         so does this, unless page-locked and ``non_blocking``
    graph = device.capture(work)     what ``work`` launches is written down, tensors and all
    graph()                          the same launches, on the same tensors, whatever they hold now

Between two replays all that a recorded launch wrote is poisoned, and what it may read from outside
can be asked for, so a recording that leans on anything that does not stay is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"  # the only other device that every build of torch knows


class DeviceTensor(Tensor):
    """A tensor on the fake device; ``numbers`` has them."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> DeviceTensor:
        layout = {"strides": real.stride(), "storage_offset": real.storage_offset()}
        shape = real.shape
        tensor = Tensor._make_wrapper_subclass(cls, shape, **layout, dtype=real.dtype, device=NAME)  # type: ignore[attr-defined]
        tensor.numbers = real
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} on the device, outside of ``with FakeDevice()``")

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()


WAITING = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "is_nonzero")


class WaitsInGraph(AssertionError):
    """Something inside a recording makes the host wait, which a GPU refuses."""


class FakeDevice(TorchDispatchMode):
    """A device, and what an executor asks of a GPU (see ``minipaged_cuda.graphs.Gpu``)."""

    def __init__(self) -> None:
        super().__init__()
        self.device, self.capability = torch.device(NAME), (9, 0)
        self.counts: Counter[str] = Counter()  # "wait", "upload", "launch", "replay"
        self.recording: Recording | None = None
        self.recordings: list[Recording] = []

    # --- what torch does ------------------------------------------------------------------------

    @torch.inference_mode(False)  # a wrapper made under it has no views
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), function.overloadpacket.__name__
        leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        is_here = any(isinstance(x, DeviceTensor) for x in leaves)
        goes_to = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
        if goes_to == NAME:
            kwargs["device"] = torch.device("cpu")
        if is_here and (name in WAITING or goes_to == "cpu"):
            self.wait(name)
        if name == "copy_" and is_here:
            self._cross(isinstance(args[1], DeviceTensor), len(args) > 2 and args[2])
        elif goes_to == NAME and leaves and not is_here:
            self._cross(False, kwargs.get("non_blocking"))
        elif is_here and any(x.ndim and not isinstance(x, DeviceTensor) for x in leaves):
            raise RuntimeError(f"{name}: some of its tensors are on the device, some are not")
        if goes_to == NAME or (is_here and goes_to is None):
            return self.launch(function, args, kwargs)
        return function(*_numbers(args), **_numbers(kwargs))

    def _cross(self, is_here_already: bool, non_blocking: Any) -> None:
        """Something of the host is copied to the device."""
        if not is_here_already:
            self.counts["upload"] += 1
            if not non_blocking:
                self.wait("an upload that is not asynchronous")

    def wait(self, why: str) -> None:
        """The host waits for the device."""
        self.counts["wait"] += 1
        if self.recording is not None:
            raise WaitsInGraph(f"{why} inside a recording")

    def launch(self, function: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run on the hidden numbers, and write it down where that is wanted."""
        self.counts["launch"] += 1
        result = function(*_numbers(args), **_numbers(kwargs))
        if self.recording is not None:
            self.recording.add(function, _numbers(args), _numbers(kwargs), result)
        known = {
            id(x.numbers): x for x in tree_leaves((args, kwargs)) if isinstance(x, DeviceTensor)
        }

        def wrap(x: Any) -> Any:
            return known[id(x)] if id(x) in known else DeviceTensor(x)

        return tree_map(lambda x: wrap(x) if isinstance(x, Tensor) else x, result)

    @torch.inference_mode(False)
    def launch_kernel(self, kernel: Callable, *args: Any, **kwargs: Any) -> Any:
        """Run a function of plain tensors as one launch: what it does inside is its affair."""

        def alone(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return kernel(*args, **kwargs)

        return self.launch(alone, args, kwargs)

    def _refuse_strangers(self, function: Any, leaves: list[Tensor]) -> None:
        strangers = [x for x in leaves if not isinstance(x, DeviceTensor) and x.ndim]
        if strangers and function.overloadpacket.__name__ not in ("copy_", "_to_copy"):
            raise RuntimeError(f"{function}: some of its tensors are on the device, some are not")
        if strangers and function.overloadpacket.__name__ == "copy_":
            self.counts["upload"] += 1

    # --- what an executor asks -------------------------------------------------------------------

    def host_memory(self, num_bytes: int) -> Tensor:
        return torch.full((num_bytes,), 0xAB, dtype=torch.uint8)  # whatever was there

    def finish(self) -> None:
        self.wait("synchronize")

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        work()
        self.recording = recording = Recording()
        try:
            result = work()
        finally:
            self.recording = None
        self.recordings.append(recording)

        def replay() -> Any:
            self.counts["replay"] += 1
            recording.replay()
            return result

        return replay


class Recording:
    """Launches and their tensors, to be launched again on the same tensors."""

    def __init__(self) -> None:
        self.launches: list[tuple[Callable, Any, Any, list[Tensor]]] = []
        self.written: list[Tensor] = []  # keeps them alive, as a graph's memory is
        self.outside: dict[int, Tensor] = {}  # what it reads that it has not made, by address
        self.num_replays = 0

    def add(self, function: Callable, args: Any, kwargs: Any, result: Any) -> None:
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = {_storage(x) for x in self.written}
        self.outside |= {_storage(x): x for x in inputs if _storage(x) not in made}
        before = {_storage(x) for x in inputs}
        new = [
            x for x in tree_leaves(result) if isinstance(x, Tensor) and _storage(x) not in before
        ]
        self.written += new
        is_view = not new and result is not None and not _writes(function)
        if not is_view:
            self.launches.append((function, args, kwargs, new))

    def replay(self) -> None:
        self.num_replays += 1
        for tensor in self.written:
            tensor.fill_(torch.nan if tensor.is_floating_point() else -(2**30))
        for function, args, kwargs, recorded in self.launches:
            result = function(*args, **kwargs)
            fresh = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
            for old, now in zip(recorded, fresh):
                old.copy_(now)


def _writes(function: Any) -> bool:
    schema = getattr(function, "_schema", None)  # a kernel of ours has none, and writes
    return schema is None or schema.is_mutable


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _numbers(tree: Any) -> Any:
    return tree_map(lambda x: x.numbers if isinstance(x, DeviceTensor) else x, tree)
