"""Conventions whose options are keywords, so that a kernel may leave out those it does not take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from ..contract import Features
from .base import Convention, Kernel


class Keyworded(Convention):
    """A convention that passes an option only where it is on.

    Attributes:
        options: Keyword: the feature that needs it, and what that feature is without it.
    """

    options: ClassVar[Mapping[str, tuple[str, Any]]] = {}

    def refuses(self, *args: Any, **kwargs: Any) -> str:
        """Why the library cannot say what these arguments were to say; "" if it can.

        For pairs of options that `features` cannot tell apart. Such cases are declined, and the
        report counts them.
        """
        return ""

    def fit(self, kernel: Kernel) -> tuple[Kernel, Features, list[str]]:
        """Features whose keyword the kernel does not have are not asked of it."""
        features, notes = self.features, []
        for keyword in self._missing(kernel):
            feature, without = self.options[keyword]
            features = features.only(**{feature: without})
            notes.append(f"{feature}: the kernel has no argument {keyword!r}")

        @functools.wraps(kernel)
        def call(*args: Any, **kwargs: Any) -> Any:
            if why := self.refuses(*args, **kwargs):
                raise NotImplementedError(why)
            returns_lse = kwargs.get("return_lse", False) and not features.lse
            if returns_lse:
                del kwargs["return_lse"]
            returned = kernel(*args, **kwargs)
            return (returned, None) if returns_lse else returned

        return call, features, notes

    def _missing(self, kernel: Kernel) -> list[str]:
        return [keyword for keyword in self.options if not accepts(kernel, keyword)]


def accepts(kernel: Kernel, keyword: str) -> bool:
    """Whether a kernel has this keyword, as far as its signature tells."""
    try:
        parameters = inspect.signature(kernel).parameters
    except (TypeError, ValueError):  # a builtin: it will say so itself
        return True
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def given(**options: Any) -> dict[str, Any]:
    """Those options that are not None."""
    return {name: value for name, value in options.items() if value is not None}
