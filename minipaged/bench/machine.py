"""On what and with what a figure was measured, as the lines above a table; measures nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from minipaged.threads import CPUS, pinned_environment

PACKAGES = ("minipaged", "torch", "numba")


def describe_machine() -> dict[str, Any]:
    """Processor, versions, threads and load, as they are now."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_name(),
        "processors": len(CPUS),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or len(CPUS)),
        "pinned": _is_pinned(),
        "load": load,
        "versions": {"Python": platform.python_version(), **_versions()},
    }


def heading(machine: dict[str, Any]) -> list[str]:
    """The same for people."""
    versions = ", ".join(f"{name} {text}" for name, text in machine["versions"].items())
    pinned = "each pinned to a processor" if machine["pinned"] else "NOT pinned"
    load = "unknown" if machine["load"] is None else f"{machine['load']:.2f}"
    return [
        f"{machine['cpu']}, {machine['processors']} processors; {versions}",
        f"{machine['threads']} threads, {pinned}; load average {load} at the start; "
        f"{machine['time']}",
    ]


def _is_pinned() -> bool:
    """Whether OpenMP was told so before it started; elsewhere than on Linux nobody can."""
    wanted = pinned_environment().get("OMP_PROC_BIND")
    return wanted is not None and os.environ.get("OMP_PROC_BIND", "false").lower() != "false"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
