"""Keeps what was dear to make on disk; knows bytes and names, not what they mean."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """What was kept under this name, or else what ``make`` returns, which is then kept.

    A file that is damaged counts as none, and a directory that cannot be written costs time only.
    """
    file = cache_dir() / name
    found = _read(file)
    if found is not None:
        return found
    made = make()
    _write(file, made)
    return made


def cache_dir() -> Path:
    """Where compiled kernels are kept; ``MINIPAGED_CACHE_DIR`` moves it."""
    chosen = os.environ.get("MINIPAGED_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("minipaged", appauthor=False) / "cuda"


def _read(file: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        seal, _, data = file.read_bytes().partition(b"\n")
        if seal == _seal(data):
            return data
    return None


def _write(file: Path, data: bytes) -> None:
    """Whoever reads at the same time sees the old file or the new one, whole."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=file.parent, suffix=".part")
        with open(handle, "wb") as stream:
            stream.write(_seal(data) + b"\n" + data)
        os.replace(part, file)


def _seal(data: bytes) -> bytes:
    return b"// sha256 of what follows: " + hashlib.sha256(data).hexdigest().encode()
