"""The launchers that every kernel is tested on."""

from __future__ import annotations

import pytest

from support.cuda_kernels import make_launcher


@pytest.fixture
def launcher(request: pytest.FixtureRequest):
    """``@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)``."""
    return make_launcher(request.param)
