"""What a child writes down before every call, and what its parent reads when it is dead."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .cases import Case
from .contract import Features
from .conventions import Call, Convention, Kernel
from .recipes import Recipe


def watched(
    convention: Convention,
    before: Callable[[Case], None],
    after: Callable[[], None] = lambda: None,
) -> Convention:
    """The convention, which now tells of every call.

    Args:
        convention: It stays as it is.
        before: Called with the case before the kernel is.
        after: Called when the kernel is back.
    """
    inner, twin = convention, copy.copy(convention)
    packed: list[Case] = []

    def pack(case: Case, device: str = "cpu") -> Call:
        packed[:] = [case]
        return inner.pack(case, device)

    def fit(kernel: Kernel) -> tuple[Kernel, Features, list[str]]:
        fitted, features, notes = inner.fit(kernel)

        def call(*args: Any, **kwargs: Any) -> Any:
            for case in packed:
                before(case)
            try:
                return fitted(*args, **kwargs)
            finally:
                after()

        return call, features, notes

    vars(twin).update(pack=pack, fit=fit)  # they hide the methods of the class
    return twin


class Journal:
    """A file that the child writes and the parent reads: one line per call, closed when it ends."""

    def __init__(self, path: Path):
        self.path = path
        self.file: Any = None

    def begin(self, case: Case) -> None:
        """A call begins; whatever happens then, this is on its way to the parent."""
        if self.file is None:
            self.file = self.path.open("ab", buffering=0)
        place = asdict(case.placement)
        place.pop("block_ids")
        recipe = case.recipe.to_dict() if case.recipe is not None else None
        self.file.write(json.dumps([recipe, place]).encode() + b"\n")

    def end(self) -> None:
        """It came back."""
        self.file.write(b"ended\n")

    def size(self) -> int:
        """Bytes written by now."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> LastWords:
        """What there is to read now."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        calls = [line for line in lines if line != b"ended"]
        told = [json.loads(line) for line in calls]
        kinds = [(r and (r["dtype"], r["kv_form"]), p["storage"]) for r, p in told]
        recipe, placement = told[-1] if told else (None, {})
        return LastWords(
            recipe and Recipe.from_dict(recipe),
            placement,
            len(calls),
            bool(lines) and lines[-1] != b"ended",
            bool(kinds) and kinds[-1] not in kinds[:-1],
        )


@dataclass(frozen=True)
class LastWords:
    """The last call that was begun, whether it was still running, and had to compile first."""

    recipe: Recipe | None
    placement: dict[str, Any]
    calls: int
    in_a_call: bool
    is_first_of_its_kind: bool

    def told(self) -> str:
        """Where it was, as part of a sentence."""
        if not self.in_a_call:
            return f"after {self.calls} calls, outside of them"
        names = ("poison", "padding", "num_blocks", "holes")
        place = ", ".join(f"{name}={self.placement[name]!r}" for name in names)
        return f"in call {self.calls} ({place})"
