"""Runs one kernel on a paged attention problem, on a CPU, and says what it should have returned."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.kernels.decode_v3 import layout
from support.attention_problems import Problem

ELEMENTS = {torch.float32: "float32", torch.float8_e4m3fn: "uint8"}  # others are 16 bits
CONVERTERS = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float8_e4m3fn: "float8_e4m3",
}
NUM_WARPS = 4  # of a CTA


def element(tensor: Tensor) -> str:
    """What a kernel calls the tensor's elements."""
    return ELEMENTS.get(tensor.dtype, "uint16")


def launch(
    launcher: Any,
    name: str,
    grid: tuple[int, ...],
    num_threads: int,
    arguments: dict[str, Any],
    constants: dict[str, int | str],
) -> None:
    """Run the kernel of that name; arguments that it does not take are left out."""
    module = importlib.import_module(f"minipaged_cuda.kernels.{name}")
    specialisation = Specialisation.of(getattr(module, name), constants)
    used = {p.name: arguments.get(p.name) for p in specialisation.parameters}
    launcher(specialisation, (*grid, 1, 1)[:3], num_threads, used)


def strides(name: str, tensor: Tensor, axes: str, unit: int = 1) -> dict[str, int]:
    """The strides of the first axes, in ``unit`` elements."""
    steps = zip(axes.split(), tensor.stride())
    return {f"{name}_{axis}_stride": stride // unit for axis, stride in steps}


def attend(
    launcher: Any,
    name: str,
    given: dict[str, Any],
    *,
    heads: int = 1,
    wide: bool = False,
    num_splits: int = 1,
    one_query: bool = False,
) -> tuple[Tensor, Tensor]:
    """The output and lse of an attention kernel of the ladder, and of ``merge`` after it."""
    query, key_cache = given["query"], given["key_cache"]
    (num_tokens, num_heads, dim), num_kv_heads = query.shape, key_cache.shape[2]
    out, lse = torch.full_like(query, torch.nan), torch.full(query.shape[:2], torch.nan)
    arguments = given | {"out": out, "lse": lse, "num_heads": num_heads}
    arguments |= sizes(given, 4 // key_cache.itemsize if wide else 1)
    constants = constants_of(given, one_query=one_query)
    if name != "decode_v3":
        rows = num_tokens * num_heads
        grid, num_threads = {
            "decode_v0": ((-(-rows // 32),), 32),
            "decode_v1": ((num_tokens, num_heads), dim),
            "decode_v2": ((-(-rows // NUM_WARPS),), 32 * NUM_WARPS),
        }[name]
        launch(launcher, name, grid, num_threads, arguments, constants)
        return out, lse
    constants |= layout(dim, key_cache.itemsize, wide=wide)
    constants |= {"HEADS": heads, "SPLIT": int(num_splits > 1)}
    if wide:
        kind = "bf16x2" if key_cache.dtype == torch.bfloat16 else "f16x2"
        constants |= {"KV": "uint32", "low": f"{kind}_low", "high": f"{kind}_high"}
    if num_splits > 1:
        parts = (num_tokens, num_heads, num_splits)
        arguments |= {"out": torch.full((*parts, dim), torch.nan)}
        arguments |= {"lse": torch.full(parts, torch.nan), "num_splits": num_splits}
    grid = (num_tokens, num_kv_heads * constants["G"] // heads, num_splits)
    partial = {"OUT": "float32", "store_out": "store_float32"} if num_splits > 1 else {}
    launch(launcher, name, grid, 32 * NUM_WARPS, arguments, constants | partial)
    if num_splits > 1:
        arguments |= {"partial_out": arguments["out"], "partial_lse": arguments["lse"]}
        arguments |= {"out": out, "lse": lse}
        launch(launcher, "merge", (num_tokens, num_heads), dim, arguments, constants)
    return out, lse


def sizes(given: dict[str, Any], unit: int) -> dict[str, Any]:
    """The sizes and strides of a batch; those of the caches in units of so many elements."""
    query, tables = given["query"], given["block_tables"]
    return {
        "num_tokens": len(query),
        "num_seqs": len(given["seq_lens"]),
        "num_kv_heads": given["key_cache"].shape[2],
        "table_stride": tables.stride(0),
        "window": given["window"] or 0,
        "softcap": given["softcap"] or 0.0,
        **strides("query", query, "token head"),
        **strides("key", given["key_cache"], "block token head", unit),
        **strides("value", given["value_cache"], "block token head", unit),
    }


def constants_of(given: dict[str, Any], *, one_query: bool) -> dict[str, int | str]:
    """What every kernel of the ladder is specialised for."""
    query, key_cache = given["query"], given["key_cache"]
    options = {"WINDOW": "window", "SOFTCAP": "softcap", "ALIBI": "alibi_slopes"}
    options |= {"SINKS": "sinks", "SCALES": "k_scale"}
    return {
        "D": query.shape[2],
        "G": query.shape[1] // key_cache.shape[2],
        "BS": key_cache.shape[1],
        "CAUSAL": int(given["causal"]),
        "ONE_QUERY": int(one_query),
        **{flag: int(given[name] is not None) for flag, name in options.items()},
        "QUERY": element(query),
        "KV": element(key_cache),
        "OUT": element(query),
        "load_query": f"load_{CONVERTERS[query.dtype]}",
        "load_kv": f"load_{CONVERTERS[key_cache.dtype]}",
        "store_out": f"store_{CONVERTERS[query.dtype]}",
    }


def check(got: tuple[Tensor, Tensor], given: dict[str, Any], what: str = "") -> None:
    """Fail unless the output and lse are those of float64, but for roundings.

    Scores are sums of some hundred products of float32, so they, the lse and the weights are right
    to about 1e-6; 16-bit outputs are rounded once more, to half a unit in the last place.
    """
    exact = {"query": given["query"].double()}
    exact |= {name: given[name].double() for name in ("key_cache", "value_cache")}
    want = paged_attention(**{**given, **exact}, return_lse=True)
    half_ulp = torch.finfo(given["query"].dtype).eps / 2
    for name, x, y, relative in zip(("out", "lse"), got, want, (half_ulp, 0.0)):
        close = torch.isclose(x.double(), y.double(), rtol=relative * 1.01, atol=4e-6)
        worst = tuple((~close).nonzero()[0].tolist()) if not close.all() else ()
        assert close.all(), (
            f"{what} {name}{list(worst)} is {x[worst].item()}, should be {y[worst].item()}; "
            f"{int((~close).sum())} of {close.numel()} wrong"
        )


def arguments(problem: Problem, cache_dtype: torch.dtype | None = None) -> dict[str, Any]:
    """A problem's arguments, its caches rounded to another type if one is given."""
    given = dict(problem.arguments)
    if cache_dtype is not None:
        for name in ("key_cache", "value_cache"):
            given[name] = given[name].to(cache_dtype)
    for name in ("k_scale", "v_scale"):
        if isinstance(given[name], float):
            given[name] = torch.full((problem.spec.num_kv_heads,), given[name])
    return given


# --- where kernels run in tests ----------------------------------------------------------------

LAUNCHERS = ["forward", "reverse", "random", "sm_90"]


def make_launcher(name: str) -> Any:
    """A schedule of the simulator, or the emulator for an architecture."""
    if not name.startswith("sm_"):
        from minipaged_cuda.launch.simulated import SimulatedLauncher

        return SimulatedLauncher(schedule=name)  # type: ignore[arg-type]
    pytest.importorskip("numba.cuda", reason="needs numba-cuda: pip install 'minipaged[cuda]'")
    from minipaged_cuda.launch.emulated import EmulatedLauncher

    return EmulatedLauncher(divmod(int(name[3:]), 10))
