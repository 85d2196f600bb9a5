"""What a convention is: how one library wants to be called; knows cases and tensors, no library.

To teach the oracle another library, subclass `Convention`: say in `features` and `contract` what
it can express, and in `pack` how a case becomes arguments. `read` is the way back, written from
the library's own documentation; with it `selfcheck` proves the pair, and `example` is a correct
kernel of that convention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, reference
from ..truth.problem import Array

Kernel = Callable[..., Any]


@dataclass
class Call:
    """The arguments of one call, and what becomes of its result.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
        unpack: What the kernel returned -> `(out, lse)`, rows in the order of `Case.flat_query`:
            `[num_tokens, num_heads, value_head_dim]`, and `[num_tokens, num_heads]`, to the base
            that the contract says, or None. Reads `outputs` where the kernel returns nothing.
        outputs: Buffers among the arguments that the kernel is to write; filled with NaN, with
            guard rows around them.
        scratch: Arguments that it may write as it likes.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    unpack: Callable[[Any], tuple[Any, Any]] = lambda returned: returned
    outputs: tuple[Any, ...] = ()
    scratch: tuple[Any, ...] = ()


class Convention:
    """How one library is called.

    Attributes:
        name: As `--convention` takes it.
        features: What the library's arguments can express.
        contract: What it promises by its documentation.
        lse_dtype: What the lse comes in; None if that is the kernel's choice.
        source: Where the convention is laid down.
    """

    name: ClassVar[str]
    features: ClassVar[Features] = Features()
    contract: ClassVar[Contract] = Contract()
    lse_dtype: ClassVar[str | None] = None
    source: ClassVar[str] = ""

    def pack(self, case: Case, device: str = "cpu") -> Call:
        """The arguments of this case."""
        raise NotImplementedError

    def read(self, *args: Any, **kwargs: Any) -> Problem:
        """The problem that these arguments state, as the library documents them."""
        raise NotImplementedError

    def write(self, outs: Array, lses: Array, *args: Any, **kwargs: Any) -> Any:
        """What a correct kernel returns (or writes to its output buffer) for these arguments.

        Args:
            outs: `[num_tokens, num_heads, value_head_dim]` float64.
            lses: `[num_tokens, num_heads]` float64, natural logarithms.
            *args: What the kernel was called with.
            **kwargs: The same.
        """
        raise NotImplementedError

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Other ways to ask for the same output, each with a name: without the lse, say."""
        yield from ()

    def fit(self, kernel: Kernel) -> tuple[Kernel, Features, list[str]]:
        """The kernel as `pack` may call it, the features its signature takes, what is left out."""
        return kernel, self.features, []

    def example(self) -> Kernel:
        """A correct kernel of this convention, slow: it reads its arguments and asks the truth."""

        def kernel(*args: Any, **kwargs: Any) -> Any:
            truth = reference(self.read(*args, **kwargs))
            outs, lses = np.concatenate(truth.out), np.concatenate(truth.lse)
            return self.write(outs, lses, *args, **kwargs)

        kernel.__name__ = f"example_{self.name}"
        return kernel

    def selfcheck(self, case: Case) -> list[str]:
        """What `read(pack(case))` loses or changes; empty if the convention is sound.

        Keys, values, queries and options must come back exactly, whatever poison lies in the
        slots that the case does not own: so every element is where the convention says.
        """
        call, problem = self.pack(case), case.problem
        again = self.read(*call.args, **call.kwargs)
        found = []
        for name in ("query", "key", "value"):
            for s, (right, got) in enumerate(zip(getattr(problem, name), getattr(again, name))):
                if right.shape != got.shape:
                    found.append(f"{name} of sequence {s}: {got.shape}, not {right.shape}")
                elif not np.array_equal(right, got):
                    found.append(f"{name} of sequence {s} has other numbers")
        for s in range(problem.num_seqs):
            if not np.array_equal(problem.visible(s), again.visible(s)):
                found.append(f"sequence {s}: other keys are visible")
        found += [
            f"{name}: {getattr(again.spec, name)}, not {getattr(problem.spec, name)}"
            for name in ("scale", "softcap", "alibi_slopes", "sinks")
            if not _same(getattr(problem.spec, name), getattr(again.spec, name))
        ]
        return found


def _same(right: Any, got: Any) -> bool:
    if right is None or got is None:
        return right is got
    return bool(np.allclose(right, got, rtol=1e-6, atol=0))
