"""Calling JAX with NumPy arrays, few shapes of them; knows no kernel.

Every new shape is compiled anew, which takes longer than everything else here. So batches and
pools are padded to round sizes, as those who call JAX do.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .animal import required

SEQUENCES, PAGES, COLUMNS = 16, 512, 128
FEW_SHAPES: dict[str, Any] = {
    "block_sizes": (4, 16),
    "num_kv_heads": (2, 2),
    "num_seqs": (1, 9),
    "kv_len": (0, 260),
}


def jax() -> Any:
    """JAX, on the CPU.

    Raises:
        NotHere: It is not installed.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    return required("jax")


def rounded_up(x: NDArray[Any], axis: int, multiple: int, mode: Any = "constant") -> NDArray[Any]:
    """The array with zeros behind it along one axis, up to a multiple; or as `numpy.pad` does."""
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, -x.shape[axis] % multiple)
    return np.pad(x, pads, mode)
