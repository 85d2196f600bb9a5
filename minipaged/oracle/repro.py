"""Calls a kernel with the arguments in an .npz and says what is wrong with its answer.

It needs numpy and torch, and nothing of minipaged: a copy of it lies beside each counterexample.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch


def arguments(data: Any, device: str = "cpu") -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Positional and keyword arguments as they were, memory layout included, and the outputs."""
    call, memories = json.loads(str(data["call"])), {}

    def value(x: Any) -> Any:
        if not isinstance(x, dict):
            return x
        if "tuple" in x:
            return tuple(value(y) for y in x["tuple"])
        if "dtype" not in x:
            return torch.device(x["device"])
        dtype = getattr(torch, x["dtype"])
        if "memory" not in x:
            return dtype
        name = x["memory"]
        if name not in memories:
            memories[name] = torch.from_numpy(np.array(data[name])).to(device)
        view = torch.empty(0, dtype=dtype, device=device)
        storage = memories[name].untyped_storage()
        return view.set_(storage, x["offset"], x["shape"], x["stride"])  # pyright: ignore

    args = [value(x) for x in call["args"]]
    kwargs = {name: value(x) for name, x in call["kwargs"].items()}
    named = dict(enumerate(args)) | kwargs
    return args, kwargs, [named[key] for key in call["outputs"]]


def unpack(returned: Any, outputs: list[Any], num_rows: int) -> tuple[Any, Any]:
    """`(out, lse or None)`, rows of `[num_heads, dim]` one after another."""
    if returned is None:
        returned = tuple(outputs)
    parts = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    out, lse = (*parts, None, None)[:2]
    if isinstance(out, torch.Tensor) and out.dim() > 3 and len(out) != num_rows:
        out = out.flatten(0, 1)
    if isinstance(lse, torch.Tensor) and lse.dim() == 2 and len(lse) != num_rows:
        lse = lse.T
    return out, lse


def what_is_wrong(data: Any, returned: Any, outputs: list[Any]) -> str | None:
    """The first thing that is wrong with what the kernel returned, as one sentence, or None."""
    about = json.loads(str(data["about"]))
    right = np.concatenate([data[f"out_{s}"] for s in range(about["num_seqs"])])
    out, lse = unpack(returned, outputs, len(right))
    if not isinstance(out, torch.Tensor):
        return f"returned {type(out).__name__}, not a tensor"
    if tuple(out.shape) != right.shape:
        return f"output is {list(out.shape)}, not {list(right.shape)}"
    if str(out.dtype) != f"torch.{about['dtype']}":
        return f"output is {out.dtype}, the query is {about['dtype']}"
    blind = np.concatenate([data[f"blind_{s}"] for s in range(about["num_seqs"])])
    promises, got = about["contract"], out.detach().cpu().double().numpy()
    if promises["empty_row"] == "zero" and (got[blind] != 0).any():
        return "a query that sees no key does not return 0"
    bound = np.concatenate([data[f"out_bound_{s}"] for s in range(about["num_seqs"])])
    wrong = _worst("element", got, right, bound, blind)
    if wrong or lse is None:
        return wrong
    right = np.concatenate([data[f"lse_{s}"] for s in range(about["num_seqs"])])
    bound = np.concatenate([data[f"lse_bound_{s}"] for s in range(about["num_seqs"])])
    if tuple(lse.shape) != right.shape:
        return f"lse is {list(lse.shape)}, not {list(right.shape)}"
    got = lse.detach().cpu().double().numpy() * (np.log(2) if promises["lse_base"] == "2" else 1)
    empty = np.where(np.isneginf(right), float(promises["empty_lse"].replace("any", "nan")), right)
    if (blind & ~np.isnan(empty) & ~np.isclose(got, empty, rtol=1e-5, atol=1e-5)).any():
        return f"the lse of a query that sees no key is not {promises['empty_lse']}"
    return _worst("lse", got, right, bound, blind)


def _worst(what: str, got: Any, right: Any, bound: Any, blind: Any) -> str | None:
    with np.errstate(all="ignore"):
        times = np.where(got == right, 0.0, np.abs(got - right) / np.maximum(bound, 1e-300))
    times[np.isnan(times)] = np.inf
    times[blind] = 0
    if times.max(initial=0) <= 1:
        return None
    at = tuple(int(i) for i in np.unravel_index(np.argmax(times), times.shape))
    where = ", ".join(f"{n} {i}" for n, i in zip(("row", "head", "element"), at))
    return (
        f"the worst {what}, {where}, is {got[at]:.7g}, should be {right[at]:.7g} "
        f"+- {bound[at]:.1g} ({times[at]:.3g} times the bound; {(times > 1).sum()} are out)"
    )


def judge(data: Any, kernel: Any, device: str = "cpu") -> str | None:
    """What is wrong with this kernel, called once with the stored arguments; None if nothing."""
    args, kwargs, outputs = arguments(data, device)
    call, named = json.loads(str(data["call"])), {**dict(enumerate(args)), **kwargs}
    writable = (*call["outputs"], *call["scratch"])
    inputs = [(k, x, _bytes(x)) for k, x in named.items() if k not in writable]
    try:
        with new_memory_full_of_nan(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = kernel(*args, **kwargs)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    may_write = not json.loads(str(data["about"]))["contract"]["inputs_unchanged"]
    for name, x, was in inputs:
        if not may_write and _bytes(x) != was:
            return f"argument {name} was changed by the call"
    return what_is_wrong(data, returned, outputs)


@contextlib.contextmanager
def new_memory_full_of_nan() -> Iterator[None]:
    """Rows that nobody writes must show, so `torch.empty` is filled."""
    before = torch.are_deterministic_algorithms_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before)


def _bytes(x: Any) -> bytes:
    """What a tensor holds; nothing of what is none."""
    if not isinstance(x, torch.Tensor) or not x.numel():
        return b""
    return x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def find(target: str) -> Any:
    """The function at `package.module:function` or `path/to/file.py:function`."""
    place, _, name = target.rpartition(":")
    sys.path.insert(0, os.getcwd())
    if not place.endswith(".py"):
        return _attribute(importlib.import_module(place), name)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    module = importlib.util.module_from_spec(spec)  # pyright: ignore
    sys.path.insert(0, str(Path(place).resolve().parent))
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)  # pyright: ignore
    return _attribute(module, name)


def _attribute(found: Any, names: str) -> Any:
    for name in names.split("."):
        found = getattr(found, name)
    return found


def main(script: str, words: list[str]) -> int:
    """Replay the .npz beside this script with the kernel it names, or `words[0]`; 1 if it fails."""
    with np.load(Path(script).with_suffix(".npz"), allow_pickle=False) as data:
        about = json.loads(str(data["about"]))
        target = words[0] if words else about["kernel"]
        if not target:
            print(f"name the kernel: python {script} package.module:function")
            return 2
        kernel = find(target)
        if hasattr(signal, "alarm"):
            signal.alarm(int(about["call_limit_s"]) + 5)  # a kernel that hangs ends the script
        print(f"{about['check']}: {about['message']}", flush=True)
        found = judge(data, kernel, about["device"])
    print(f"{target} now: {found or 'right'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(__file__, sys.argv[1:]))
