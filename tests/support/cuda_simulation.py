"""Kernels that must fail in the simulator, and what their messages say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minipaged_cuda.simulator import Simulator


def failure(kind, kernel, num_threads, *arguments, grid=1, simulator=None, **options):
    """The message of the error that a launch must end with, whatever the schedule."""
    messages = []
    for schedule in ("forward", "reverse", "random"):
        with pytest.raises(kind) as caught:
            (simulator or Simulator(schedule=schedule)).launch(
                kernel, grid, num_threads, arguments, **options
            )
        messages.append(str(caught.value))
    return messages[0]


def zeros(n=64):
    return np.zeros(n, np.float32)


def quotes(message, *lines):
    """Whether a message names each line by file, number and text."""
    return all(re.search(rf"\w+\.py:\d+ `{re.escape(x)}`", message) for x in lines)
