"""The launcher of a card without one: cuda.core is a stand-in that records what it is told."""

from __future__ import annotations

import ctypes
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import minipaged_cuda.launch.device as device
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Parameter, Specialisation
from minipaged_cuda.launch.device import Launcher, packer
from support.cuda_compiled import axpy

AXPY = Specialisation.of(axpy, {"N": 3})
CACHED = device._check_driver, device._core, device._config, device._wrapped


class Tensor:
    """What a launcher needs to know of a tensor on a GPU."""

    def __init__(self, address, index=0, pinned=False):
        self.address, self.index, self.pinned = address, index, pinned

    def data_ptr(self):
        return self.address

    def get_device(self):
        return self.index

    def is_pinned(self):
        return self.pinned


ARGUMENTS = {"y": Tensor(0x7F0000000100), "x": Tensor(0x7F0000000200), "a": 2, "size": 4}


@pytest.fixture
def card(monkeypatch):
    """Two H200 and a driver, as far as a launch can tell."""
    state = SimpleNamespace(
        launches=[], loaded=[], bound=[], shared=[], wrapped=[], current=0, stream=0x51,
        driver=13000, capability=(9, 0),
    )  # fmt: skip
    install_core(state, monkeypatch)
    install_torch(state, monkeypatch)
    monkeypatch.setattr(device, "compile_cubin", lambda s, c: f"{s.name} {c}".encode())
    for kept in CACHED:
        kept.cache_clear()
        monkeypatch.setattr(device, kept.__name__, kept)
    yield state
    for kept in CACHED:
        kept.cache_clear()


def install_core(state, monkeypatch):
    """cuda.core and the bindings."""

    def launch(stream, config, kernel, *arguments):
        state.launches.append((stream, config, kernel.name, arguments))

    def from_cubin(cubin):
        state.loaded.append(cubin)
        return SimpleNamespace(get_kernel=lambda name: SimpleNamespace(name=name, handle=name))

    def wrap(handle):
        state.wrapped.append(handle)
        return "stream", handle

    def set_attribute(attribute, value, kernel, card):
        state.shared.append((attribute, value, kernel, card))
        return (status.CUDA_SUCCESS if value <= 227 * 1024 else status.CUDA_ERROR_INVALID_VALUE,)

    status = SimpleNamespace(
        CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"),
        CUDA_ERROR_INVALID_VALUE=SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE"),
    )
    core = SimpleNamespace(
        launch=launch,
        LaunchConfig=lambda grid, block, shmem_size: (grid, block, shmem_size),
        ObjectCode=SimpleNamespace(from_cubin=from_cubin),
        Stream=SimpleNamespace(from_handle=wrap),
        Device=lambda i: SimpleNamespace(set_current=lambda: state.bound.append(i)),
    )
    attributes = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="max shared")
    driver = SimpleNamespace(
        cuDriverGetVersion=lambda: (status.CUDA_SUCCESS, state.driver),
        cuKernelSetAttribute=set_attribute,
        CUfunction_attribute=attributes,
        CUdevice=lambda i: f"card {i}",
        CUresult=status,
    )
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    nvjitlink = SimpleNamespace(version=lambda: (13, 5))
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", nvjitlink)


def install_torch(state, monkeypatch):
    """The few questions that torch is asked."""

    class On:
        def __init__(self, index):
            self.index, self.before = index, state.current

        def __enter__(self):
            state.current = self.index

        def __exit__(self, *_):
            state.current = self.before

    stream = lambda index: SimpleNamespace(cuda_stream=state.stream + index)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state.current)
    monkeypatch.setattr(torch.cuda, "device", On)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: state.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA Card")


# --- a launch ----------------------------------------------------------------------------------


def test_a_launch_has_the_kernels_order_and_types(card):
    Launcher()(AXPY, (3, 2, 1), 128, ARGUMENTS)
    ((stream, config, name, arguments),) = card.launches
    assert (stream, config, name) == (("stream", 0x51), ((3, 2, 1), 128, 0), "axpy_N3")
    assert arguments == (0x7F0000000100, 0x7F0000000200, 2.0, 4)
    assert [type(x) for x in arguments] == [int, int, np.float32, np.int32]


def test_a_kernel_is_loaded_once_for_each_device(card):
    launcher = Launcher()
    there = {**ARGUMENTS, "x": Tensor(1, 1), "y": Tensor(2, 1)}
    for arguments in (ARGUMENTS, ARGUMENTS, there, there, ARGUMENTS):
        launcher(AXPY, (1, 1, 1), 32, arguments)
    assert card.loaded == [b"axpy_N3 (9, 0)"] * 2
    assert [launch[0][1] for launch in card.launches] == [0x51, 0x51, 0x52, 0x52, 0x51]
    assert card.current == 0


def test_the_stream_is_asked_for_every_time(card):
    launcher = Launcher()
    for card.stream in (7, 8, 7, 9):
        launcher(AXPY, (1, 1, 1), 32, ARGUMENTS)
    assert [launch[0] for launch in card.launches] == [("stream", s) for s in (7, 8, 7, 9)]
    assert card.wrapped == [7, 8, 9]  # each once, as that takes longer than a launch


def test_an_empty_grid_is_no_launch(card):
    Launcher()(AXPY, (0, 1, 1), 32, ARGUMENTS)
    assert not card.launches
    assert not card.loaded


def test_page_locked_memory_of_the_host_is_addressed_like_the_cards(card):
    Launcher()(AXPY, (1, 1, 1), 32, {**ARGUMENTS, "x": Tensor(0x99, -1, pinned=True)})
    assert card.launches[0][3][1] == 0x99


def test_none_is_a_null_pointer(card):
    Launcher()(AXPY, (1, 1, 1), 32, {**ARGUMENTS, "x": None})
    assert card.launches[0][3][1] == 0


def test_much_shared_memory_is_asked_for_once(card):
    launcher = Launcher()
    for num_bytes in (48 * 1024, 64 * 1024, 50 * 1024, 64 * 1024, 100 * 1024):
        launcher(AXPY, (1, 1, 1), 32, ARGUMENTS, dynamic_shared=num_bytes)
    sizes = [64 * 1024, 100 * 1024]
    assert card.shared == [("max shared", size, "axpy_N3", "card 0") for size in sizes]
    assert card.launches[-1][1] == ((1, 1, 1), 32, 100 * 1024)


def test_kernels_can_be_loaded_before_they_are_needed(card):
    launcher = Launcher()
    launcher.prepare([AXPY, Specialisation.of(axpy, {"N": 4})], device=1)
    assert len(card.loaded) == 2
    assert card.bound == [1]
    assert not card.launches


# --- errors ------------------------------------------------------------------------------------


def test_more_shared_memory_than_the_card_has(card):
    with pytest.raises(DeviceError, match="needs 262144 bytes of shared memory, more than"):
        Launcher()(AXPY, (1, 1, 1), 32, ARGUMENTS, dynamic_shared=256 * 1024)


def test_a_tensor_on_the_host(card):
    with pytest.raises(DeviceError, match="memory of the host that is not page-locked: x"):
        Launcher()(AXPY, (1, 1, 1), 32, {**ARGUMENTS, "x": torch.zeros(4)})


def test_tensors_on_two_devices(card):
    with pytest.raises(DeviceError, match="are on one GPU, not y on cuda:0, x on cuda:1"):
        Launcher()(AXPY, (1, 1, 1), 32, {**ARGUMENTS, "x": Tensor(1, 1)})


def test_an_argument_that_is_missing(card):
    with pytest.raises(KernelError, match="a launch lacks the kernel's argument 'size'"):
        Launcher()(AXPY, (1, 1, 1), 32, {n: x for n, x in ARGUMENTS.items() if n != "size"})


def test_a_card_that_is_too_old(card):
    card.capability = (7, 0)
    with pytest.raises(DeviceError, match=r"NVIDIA Card has compute capability 7\.0, .* need 7\.5"):
        Launcher()(AXPY, (1, 1, 1), 32, ARGUMENTS)


def test_a_driver_that_is_too_old(card):
    card.driver = 12080
    with pytest.raises(DeviceError, match=r"supports CUDA 12\.8, .* by CUDA 13\.5: .*cu12\]"):
        Launcher()(AXPY, (1, 1, 1), 32, ARGUMENTS)


def test_machine_code_that_the_driver_refuses(card, monkeypatch):
    def refuse(cubin):
        raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")

    monkeypatch.setattr(sys.modules["cuda.core"].ObjectCode, "from_cubin", refuse)
    with pytest.raises(DeviceError, match="does not load axpy_N3: CUDA_ERROR_INVALID_IMAGE"):
        Launcher()(AXPY, (1, 1, 1), 32, ARGUMENTS)


def test_without_cuda_core_the_message_says_what_to_install(card, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(DeviceError, match=r"needs cuda-core .*pip install 'minipaged\[cuda\]'"):
        Launcher()(AXPY, (1, 1, 1), 32, ARGUMENTS)


# --- bytes -------------------------------------------------------------------------------------


def test_cuda_core_puts_exactly_these_bytes_before_the_kernel():
    handler = pytest.importorskip(
        "cuda.core._kernel_arg_handler", reason="needs cuda-core: pip install 'minipaged[cuda]'"
    )
    values = [
        (Parameter("p", "uint32", True), Tensor(0x7F0000000100), struct.pack("q", 0x7F0000000100)),
        (Parameter("null", "uint32", True), None, bytes(8)),
        (Parameter("i", "int32", False), -2, struct.pack("i", -2)),
        (Parameter("l", "int64", False), -(2**40), struct.pack("q", -(2**40))),
        (Parameter("u", "uint32", False), 2**32 - 1, struct.pack("I", 2**32 - 1)),
        (Parameter("f", "float32", False), 0.1, struct.pack("f", 0.1)),
    ]
    holder = handler.ParamHolder(tuple(packer(p)(value) for p, value, _ in values))
    addresses = (ctypes.c_void_p * len(values)).from_address(holder.ptr)
    found = [ctypes.string_at(a, len(x)) for a, (_, _, x) in zip(addresses, values)]
    assert found == [x for _, _, x in values]
