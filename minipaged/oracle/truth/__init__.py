"""The truth about attention, independent of everything that is judged by it."""

from .formats import FORMATS, Format, rounded, unit_roundoff
from .problem import Codes, Problem, Spec
from .reference import NumericModel, Truth, reference

__all__ = [
    "FORMATS",
    "Codes",
    "Format",
    "NumericModel",
    "Problem",
    "Spec",
    "Truth",
    "reference",
    "rounded",
    "unit_roundoff",
]
