"""Launches kernels on the card, on torch's current stream; knows no kernel, and never waits.

Numba is only the compiler. What it made is loaded once per device and launched by cuda.core, where
a tensor is one pointer of 8 bytes: a launch looks nothing up that it could have known before.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch

from minipaged_cuda.compile import compile_cubin
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Parameter, Specialisation

OLDEST = (7, 5)
BINDINGS = ("cuda.bindings.driver", "cuda.bindings.nvjitlink")
SMALL_SHARED = 48 * 1024  # bytes; a kernel that wants more has to say so before its first launch

Grid = tuple[int, int, int]


class Launcher:
    """Runs specialised kernels on the GPU that their tensors are on.

    A kernel is compiled and loaded at its first launch, or before by `prepare`: a CUDA graph can
    only be captured of kernels that are loaded.
    """

    def __init__(self):
        self._loaded: dict[tuple[int, Specialisation], _Loaded] = {}
        self._thread = threading.local()  # which device's context is bound to this thread

    def prepare(self, specialisations: Iterable[Specialisation], device: int | None = None) -> None:
        """Compile and load kernels for a device, the current one if there is none given.

        Raises:
            DeviceError: The card or its driver is too old, or a package is missing.
            KernelError: A text does not compile.
        """
        device = torch.cuda.current_device() if device is None else device
        with _on(device):
            self._bind_thread(device)
            for specialisation in specialisations:
                self._load(device, specialisation)

    def __call__(
        self,
        specialisation: Specialisation,
        grid: Grid,
        num_threads: int,
        arguments: Mapping[str, Any],
        *,
        dynamic_shared: int = 0,
    ) -> None:
        """Begin one kernel, and do not wait for it; an empty grid is no launch.

        Args:
            specialisation: The kernel.
            grid: CTAs in x, y and z.
            num_threads: Of a CTA.
            arguments: By parameter name, more than the kernel takes are allowed.
            dynamic_shared: Bytes of a CTA.

        Raises:
            DeviceError: The tensors are not on one GPU, or it cannot run this.
            KernelError: An argument is missing, or the text does not compile.
        """
        if 0 in grid:
            return
        device = _device_of(specialisation, arguments)
        with _on(device):
            self._bind_thread(device)
            loaded = self._load(device, specialisation)
            if dynamic_shared > loaded.max_shared:
                _allow_shared(loaded.kernel, device, dynamic_shared)
                loaded.max_shared = dynamic_shared
            config = _config(grid, num_threads, dynamic_shared)
            _core().launch(_stream(device), config, loaded.kernel, *loaded.pack(arguments))

    def _load(self, device: int, specialisation: Specialisation) -> _Loaded:
        found = self._loaded.get((device, specialisation))
        if found is None:
            found = _load(specialisation, device)
            self._loaded[device, specialisation] = found
        return found

    def _bind_thread(self, device: int) -> None:
        """A thread that torch has not used yet has no CUDA context."""
        if getattr(self._thread, "device", None) != device:
            _core().Device(device).set_current()
            self._thread.device = device


# --- arguments ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Loaded:
    """A kernel on a device, which lets a CTA have so much dynamic shared memory."""

    kernel: Any
    packers: tuple[tuple[str, Callable[[Any], Any]], ...]
    max_shared: int = SMALL_SHARED

    def pack(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The arguments in the kernel's order, each as exactly the bytes that it reads."""
        try:
            return [pack(arguments[name]) for name, pack in self.packers]
        except KeyError as missing:
            raise KernelError(f"a launch lacks the kernel's argument {missing}") from None


def packer(parameter: Parameter) -> Callable[[Any], Any]:
    """What turns a value into an argument: an address, or a number of the declared type."""
    return _address if parameter.is_pointer else getattr(np, parameter.type_name)


def _address(value: Any) -> int:
    return 0 if value is None else value.data_ptr()


def _device_of(specialisation: Specialisation, arguments: Mapping[str, Any]) -> int:
    """The index of the GPU that all tensors among the arguments are on."""
    pointers = [arguments.get(p.name) for p in specialisation.parameters if p.is_pointer]
    devices = {x.get_device() for x in pointers if x is not None}
    if len(devices) == 1 and -1 not in devices:
        return devices.pop()
    names = [p.name for p in specialisation.parameters if p.is_pointer]
    return _device_among({n: x for n, x in zip(names, pointers) if x is not None})


def _device_among(tensors: Mapping[str, Any]) -> int:
    """The same where some lie in page-locked memory of the host: any GPU can address that."""
    places = {name: x.get_device() for name, x in tensors.items()}
    on_host = [n for n, index in places.items() if index < 0 and not tensors[n].is_pinned()]
    if on_host:
        raise DeviceError(f"in memory of the host that is not page-locked: {', '.join(on_host)}")
    devices = {name: index for name, index in places.items() if index >= 0}
    if len(set(devices.values())) > 1:
        where = ", ".join(f"{name} on cuda:{index}" for name, index in devices.items())
        raise DeviceError(f"the tensors of a launch are on one GPU, not {where}")
    return next(iter(devices.values()), torch.cuda.current_device())


def _on(device: int) -> Any:
    is_current = device == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(device)


# --- the card ----------------------------------------------------------------------------------


def _load(specialisation: Specialisation, device: int) -> _Loaded:
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        card = torch.cuda.get_device_name(device)
        have, need = (".".join(map(str, pair)) for pair in (capability, OLDEST))
        raise DeviceError(f"{card} has compute capability {have}, and the kernels need {need}")
    _check_driver()
    cubin = compile_cubin(specialisation, capability)
    try:
        kernel = _core().ObjectCode.from_cubin(cubin).get_kernel(specialisation.name)
    except Exception as error:
        raise DeviceError(f"the driver does not load {specialisation.name}: {error}") from error
    return _Loaded(kernel, tuple((p.name, packer(p)) for p in specialisation.parameters))


@cache
def _check_driver() -> None:
    """A driver loads what any compiler of its own major version, or an older one, has made.

    Raises:
        DeviceError: The compiler is of a later one.
    """
    driver, nvjitlink = map(importlib.import_module, BINDINGS)
    _, number = driver.cuDriverGetVersion()
    supported, compiler = (number // 1000, number % 1000 // 10), nvjitlink.version()
    if supported[0] < compiler[0]:
        raise DeviceError(
            "this driver supports CUDA {}.{}, and kernels would be compiled by CUDA {}.{}: ".format(
                *supported, *compiler
            )
            + f"pip install 'numba-cuda[cu{supported[0]}]', or install a newer driver"
        )


def _allow_shared(kernel: Any, device: int, num_bytes: int) -> None:
    driver = importlib.import_module(BINDINGS[0])
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle, card = kernel.handle, driver.CUdevice(device)
    (error,) = driver.cuKernelSetAttribute(attribute, num_bytes, handle, card)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(
            f"a CTA of this kernel needs {num_bytes} bytes of shared memory, more than this card "
            f"has ({error.name})"
        )


@lru_cache(1024)
def _config(grid: Grid, num_threads: int, shared: int) -> Any:
    return _core().LaunchConfig(grid=grid, block=num_threads, shmem_size=shared)


def _stream(device: int) -> Any:
    """Torch's stream of this moment; it is another one while a graph is captured."""
    return _wrapped(torch.cuda.current_stream(device).cuda_stream)


@lru_cache(1024)
def _wrapped(handle: int) -> Any:
    """A stream as cuda.core takes it: to make one takes longer than to launch a kernel."""
    return _core().Stream.from_handle(handle)


@cache
def _core() -> Any:
    try:
        return importlib.import_module("cuda.core")
    except ImportError as error:
        raise DeviceError(
            f"launching kernels needs cuda-core ({error}): pip install 'minipaged[cuda]'"
        ) from error
