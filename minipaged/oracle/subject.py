"""The kernel on trial, called safely: its inputs and the memory around its outputs are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .cases import Case
from .contract import Contract, Features
from .conventions import Call, Convention, Kernel
from .conventions.packing import array
from .guard import KernelFault, guarded
from .truth.problem import Array

COMPILING = 6  # times the limit of a call that may have to compile first
LARGEST_WATCHED = 2**28  # bytes; address space that is lent, not given, must not be copied


@dataclass(frozen=True, eq=False)
class Result:
    """What a kernel returned, per sequence, as float64; `lse` is None where it returns none."""

    out: tuple[Array, ...]
    lse: tuple[Array, ...] | None

    def same_bits(self, other: Result) -> bool:
        """True if no number differs; NaN equals nothing."""
        mine, theirs = (r.out + (r.lse or ()) for r in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs))


@dataclass
class Subject:
    """A kernel, how it is called, and what it promises.

    Attributes:
        kernel: The function itself.
        convention: How it is called.
        features: What may be asked of it.
        contract: What it promises.
        device: Where its tensors live.
        call_limit_s: Seconds after which a call counts as hung.
        calls: Calls so far.
        notes: What was seen that is no failure, by the check that saw it.
        earlier: What the last call returned, and a copy of it from then.
        compiled: Dtypes and memory orders that it has been called with.
    """

    kernel: Kernel
    convention: Convention
    features: Features
    contract: Contract
    device: str = "cpu"
    call_limit_s: float = 20.0
    calls: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    earlier: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    compiled: set[tuple[str, ...]] = field(default_factory=set)

    def run(self, case: Case) -> Result:
        """The kernel's answer.

        Raises:
            KernelFault: It raised, hung, returned something else than documented, or wrote where
                it must not.
        """
        return self.run_call(case, self.convention.pack(case, self.device))

    def run_call(self, case: Case, call: Call) -> Result:
        """The same, with arguments that are packed already."""
        self.calls += 1
        watched = _Watch(call, self.contract.inputs_unchanged)
        with _garbage_in_new_memory():
            returned = guarded(lambda: self.kernel(*call.args, **call.kwargs), self._limit(case))
        result = self._result(case, call, returned)
        watched.check()
        if self.contract.fresh_output:
            self._check_earlier(call, returned)
        return result

    def _check_earlier(self, call: Call, returned: Any) -> None:
        """What an earlier call returned is the caller's: this one did not write to it."""
        earlier, mine = self.earlier, {_place(x) for x in call.outputs}
        several = returned if isinstance(returned, (tuple, list)) else (returned,)
        tensors = [x for x in several if isinstance(x, Tensor) and _place(x) not in mine]
        self.earlier = [(x, x.clone()) for x in tensors]
        for x, before in earlier:
            if not torch.equal(x.nan_to_num(), before.nan_to_num()):
                raise KernelFault(
                    "guard", f"wrote to what the call before returned, {_describe(x)}"
                )

    def _limit(self, case: Case) -> float:
        """Seconds that a call may take; the first of its dtypes may have a kernel to compile."""
        kind = case.problem.dtype, case.stored_dtype("key"), case.placement.storage
        if kind in self.compiled:
            return self.call_limit_s
        self.compiled.add(kind)
        return COMPILING * self.call_limit_s

    def _result(self, case: Case, call: Call, returned: Any) -> Result:
        """What was returned, as the convention says it; whatever else it is, is a fault."""
        try:
            return self._unpacked(case, call, returned)
        except KernelFault:
            raise
        except Exception as error:
            text = f"returned {_describe(returned)}, which is not what {self.convention.name} says"
            raise KernelFault("shape", f"{text} ({type(error).__name__})") from None

    def _unpacked(self, case: Case, call: Call, returned: Any) -> Result:
        out, lse = call.unpack(returned)
        problem, rows = case.problem, len(case.flat_query)
        expected = rows, problem.num_heads, problem.value_head_dim
        self._check_form("output", out, expected, problem.dtype)
        if lse is not None and self.features.lse:
            self._check_form("lse", lse, expected[:2], self.convention.lse_dtype)
            natural = array(lse) * (np.log(2) if self.contract.lse_base == "2" else 1)
            return self._judged(case, array(out), natural)
        return self._judged(case, array(out), None)

    def _judged(self, case: Case, out: Array, lse: Array | None) -> Result:
        """The answer without what the contract leaves open: queries that see no key."""
        blind = np.concatenate(case.problem.blind_rows())
        if self.contract.empty_row == "any":
            out = np.where(blind[:, None, None], 0.0, out)
        if lse is not None and self.contract.empty_lse == "any":
            lse = np.where(blind[:, None], -np.inf, lse)
        split = case.per_sequence
        return Result(split(out), None if lse is None else split(lse))

    def _check_form(self, what: str, got: Any, shape: tuple[int, ...], dtype: str | None) -> None:
        if not hasattr(got, "shape"):
            raise KernelFault("shape", f"{what} is {_describe(got)}, not {list(shape)}")
        if tuple(got.shape) != shape:
            raise KernelFault("shape", f"{what} is {list(got.shape)}, not {list(shape)}")
        if dtype and str(got.dtype).removeprefix("torch.") != dtype:
            raise KernelFault("dtype", f"{what} is {got.dtype}, should be {dtype}")
        if isinstance(got, Tensor) and got.device.type != torch.device(self.device).type:
            raise KernelFault("device", f"{what} is on {got.device}, the query on {self.device}")


class _Watch:
    """The bytes of every argument before a call, to be compared after it."""

    def __init__(self, call: Call, inputs_unchanged: bool):
        self.call = call
        writable = {id(x) for x in (*call.outputs, *call.scratch)}
        named = [(f"argument {i}", x) for i, x in enumerate(call.args)] + list(call.kwargs.items())
        self.inputs = [
            (name, x, _form(x), _memory(x).clone())
            for name, x in named
            if inputs_unchanged
            and isinstance(x, Tensor)
            and id(x) not in writable
            and x.untyped_storage().nbytes() < LARGEST_WATCHED
        ]
        self.outputs = [(x, x.clone(), _memory(x).clone()) for x in call.outputs]
        self.dtype = torch.get_default_dtype()

    def check(self) -> None:
        if torch.get_default_dtype() != self.dtype:
            torch.set_default_dtype(self.dtype)
            raise KernelFault("inputs", "torch's default dtype was changed by the call")
        for name, x, form, before in self.inputs:
            if _form(x) != form or not torch.equal(_memory(x), before):
                raise KernelFault("inputs", f"{name}, {_describe(x)}, was changed by the call")
        for x, inner, before in self.outputs:
            x.copy_(inner)  # as it was: whatever still differs lies outside
            if not torch.equal(_memory(x), before):
                raise KernelFault("guard", f"wrote outside the output, {_describe(x)}")


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _form(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset(), x.dtype


def _memory(x: Tensor) -> Tensor:
    """All bytes that a tensor's storage has, those outside the view too."""
    storage = x.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(storage)  # pyright: ignore


def _describe(x: Any) -> str:
    """In a few words, whatever it is."""
    try:
        return _in_words(x)
    except Exception:
        return f"a {type(x).__name__}"


def _in_words(x: Any) -> str:
    if isinstance(x, (tuple, list)):
        return f"a {type(x).__name__} of ({', '.join(_describe(y) for y in x)})"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
    return "nothing" if x is None else f"a {type(x).__name__}"


@contextmanager
def _garbage_in_new_memory() -> Iterator[None]:
    """Fills what `torch.empty` gives with NaN, so that rows nobody writes are seen."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    # The public `use_deterministic_algorithms` would import all of the compiler, for seconds.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before, warn_only=only_warn)
