"""Small PTX kernels for tests: a few lines of a body, with everything around them written here."""

from __future__ import annotations

import numpy as np

from minipaged_cuda.emulator import Counts, Emulator, parse
from minipaged_cuda.emulator.parser import Function

REGISTERS = """
    .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<32>;
    .reg .f32 %f<16>; .reg .f64 %fd<16>;
"""
_TYPES = {np.dtype(f"{kind}{size}"): f"b{8 * size}" for kind in "iu" for size in (2, 4, 8)} | {
    np.dtype(np.float16): "b16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
}


def kernel(body: str, *parameters: str, outside: str = "") -> Function:
    """A kernel with pointer parameters of these names; each one's address is in `%name`."""
    signature = ", ".join(f".param .u64 {name}" for name in parameters)
    loads = "\n".join(f".reg .b64 %{name}; ld.param.u64 %{name}, [{name}];" for name in parameters)
    text = f"""
    .version 8.0
    .target sm_90
    .address_size 64
    {outside}
    .visible .entry test({signature})
    {{
        {REGISTERS}
        {loads}
        {body}
        ret;
    }}
    """
    return parse(text).entry("test")


def element(name: str, size: int, address: str, index: str = "%tid.x") -> str:
    """Statements that put the address of an element of the array `%name` in `address`."""
    return f"""
        mov.u32 %r31, {index};
        mul.wide.u32 %rd31, %r31, {size};
        add.s64 {address}, %{name}, %rd31;
    """


def each(text: str, result: str | np.dtype | type, *inputs: np.ndarray) -> np.ndarray:
    """What every thread finds in `%d` after `text`; `%a`, `%b`, `%c` are its own inputs."""
    inputs = tuple(np.ascontiguousarray(x) for x in inputs)
    out = np.zeros(len(inputs[0]), result)
    names = "abc"[: len(inputs)]
    body = f".reg .{_TYPES[out.dtype]} %d;\n"
    for name, values in zip(names, inputs):
        type = _TYPES[values.dtype]
        body += f".reg .{type} %{name};\n" + element(f"in_{name}", values.itemsize, "%rd30")
        body += f"ld.global.{type} %{name}, [%rd30];\n"
    body += text + element("out", out.itemsize, "%rd30")
    body += f"st.global.{_TYPES[out.dtype]} [%rd30], %d;"
    entry = kernel(body, "out", *(f"in_{name}" for name in names))
    Emulator().launch(entry, 1, len(out), [out, *inputs])
    return out


def run(
    body: str, num_threads: int, arrays: dict[str, np.ndarray], *, grid: int = 1, outside: str = ""
) -> Counts:
    """Launch a body on arrays that its kernel knows by their names."""
    entry = kernel(body, *arrays, outside=outside)
    return Emulator(max_steps=20_000).launch(
        entry, grid, num_threads, list(arrays.values()), names=list(arrays)
    )
