"""One hole in JAX's TPU interpreter, filled: loads through a reshaped or bitcast reference.

JAX 0.10.2's interpreter reads a buffer by indices only, and the ragged kernel reshapes first
(`'ReshapeTransform' object has no attribute 'indices'`). Nothing here knows that kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .animal import required


@functools.cache
def fill_the_hole() -> None:
    """Teach the interpreter's loads to apply what it leaves out."""
    jax = required("jax")
    states = required("jax._src.state.types")
    indexing = required("jax._src.state.indexing")
    interpreter = required("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
    to_range = required("jax._src.pallas.mosaic.interpret.utils").to_range
    load = interpreter.get

    def get(token: Any, device: Any, core: Any, space: Any, buffer: Any, steps: Any, *rest, **kw):
        steps = list(jax.tree.map(int, tuple(steps)))
        known = []
        while steps and isinstance(steps[0], indexing.NDIndexer):
            known.append(steps.pop(0))
        token, values = load(token, device, core, space, buffer, tuple(known), *rest, **kw)
        for step in steps:
            if isinstance(step, states.ReshapeTransform):
                values = values.reshape(step.shape)
            elif isinstance(step, states.BitcastTransform):
                values = _packed(values, np.dtype(step.dtype))
            else:
                values = values[to_range((step,))]
        return token, values

    get.__wrapped__ = get  # copies between memories call it by this name
    interpreter.get = get


def _packed(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Neighbours along the second last dimension as one wider number, as a TPU packs them."""
    times = dtype.itemsize // values.dtype.itemsize
    *outer, rows, columns = values.shape
    pairs = values.reshape(*outer, rows // times, times, columns).swapaxes(-1, -2)
    return np.ascontiguousarray(pairs).view(dtype)[..., 0]
