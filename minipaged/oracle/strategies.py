"""Hypothesis strategies for cases of every kind; they shrink to few queries, keys and features.

from hypothesis import given
from minipaged.oracle import strategies as st

@given(st.recipes())
def test_my_kernel(recipe):
    case = recipe.build()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from .cases import Case
from .contract import Contract, Features
from .drawing import draw_recipe
from .recipes import Recipe

T = TypeVar("T")


class _Drawn:
    """Dice that Hypothesis throws, and throws again when it shrinks."""

    def __init__(self, draw: Callable[..., Any]):
        self.draw = draw

    def choice(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))


@st.composite
def recipes(
    draw: Any, features: Features | None = None, contract: Contract | None = None, level: int = 3
) -> Recipe:
    """Recipes of cases that a kernel of these features takes; see `drawing.draw_recipe`."""
    return draw_recipe(_Drawn(draw), features or Features(), contract or Contract(), level)


def cases(
    features: Features | None = None, contract: Contract | None = None, level: int = 3
) -> st.SearchStrategy[Case]:
    """The cases of `recipes`, built."""
    return recipes(features, contract, level).map(Recipe.build)
