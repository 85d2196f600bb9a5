"""Where Numba keeps the compiled CPU kernels, and whether they are there; imports neither."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_dir

_SOURCES = Path(__file__).parents[1] / "attention"


def find_kernels() -> list[Path]:
    """The index files of kernels compiled from the present source; empty means a cold cache.

    A heuristic: which shapes and dtypes they hold is known to Numba alone. An index is named after
    its module (``cpu_plan.attend-104.py311.nbi``) and outdated by a change of that module alone.
    """
    found = [path for place in _places() for path in place.rglob("cpu*.nbi")]
    return [path for path in found if path.stat().st_mtime >= _written(path)]


def _written(index: Path) -> float:
    source = _SOURCES / f"{index.name.partition('.')[0]}.py"
    return source.stat().st_mtime if source.exists() else float("inf")


def kernels_go_to() -> Path | None:
    """Where Numba will write: told by ``NUMBA_CACHE_DIR``, or beside the source, or the user's."""
    return next((place for place in _places() if os.access(_existing(place), os.W_OK)), None)


def _places() -> list[Path]:
    told = os.environ.get("NUMBA_CACHE_DIR")
    if told:
        return [Path(told)]
    return [_SOURCES / "__pycache__", Path(user_cache_dir("numba", appauthor=False))]


def _existing(path: Path) -> Path:
    return path if path.exists() or path == path.parent else _existing(path.parent)
