"""Kernels with one known fault each, by class of fault."""

from ..exhibit import Exhibit
from .heads import HEADS
from .isolation import ISOLATION
from .layout import LAYOUT
from .lengths import LENGTHS
from .masks import MASKS
from .numerics import NUMERICS
from .scales import SCALES
from .scores import SCORES
from .sinks import SINKS
from .softmax import SOFTMAX
from .tables import TABLES
from .windows import WINDOWS

KERNELS: tuple[Exhibit, ...] = (
    *LENGTHS,
    *TABLES,
    *MASKS,
    *WINDOWS,
    *HEADS,
    *LAYOUT,
    *SCORES,
    *SCALES,
    *SOFTMAX,
    *SINKS,
    *NUMERICS,
    *ISOLATION,
)
# The level at which an exhibit shows, where it is not 3 or less.
LEVEL = {"int32_offset": 6, "output_truncated": 4}

__all__ = ["KERNELS", "LEVEL"]
