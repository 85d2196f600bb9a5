"""What every test shares: Hypothesis profiles, one thread, no network, GPU tests only on a GPU."""

from __future__ import annotations

import os

# Set before anything imports torch, so that subprocesses and late imports obey as well.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
from hypothesis import HealthCheck, settings

# A failure must repeat for whoever sees it: no clock, no random seed, no memory of other runs.
settings.register_profile(
    "quick",
    derandomize=True,
    deadline=None,
    max_examples=100,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("quick"))
settings.register_profile(
    "deep", settings.get_profile("quick"), derandomize=False, max_examples=2000, print_blob=True
)
settings.load_profile(os.environ.get("MINIPAGED_PROFILE", "quick"))


def why_no_gpu() -> str | None:
    """Why tests marked ``gpu`` cannot run here, or None if they can."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device: torch.cuda.is_available() is False"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip ``gpu`` tests with the reason; torch is only asked if there are any."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    reason = why_no_gpu() if gpu_items else None
    for item in gpu_items:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
