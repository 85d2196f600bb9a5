"""The side that asks: starts an engine in a process and a Python of its own, and times its calls.

The side that answers is ``peers/serve.py``. Knows no engine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipaged.threads import CPUS, pinned_environment

from .share import share_of

PEERS = Path(__file__).parent / "peers"
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Declined(Exception):
    """The engine cannot do this work; the message says why."""


class Failed(RuntimeError):
    """The engine's process failed or ended."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed call."""

    value: Any  # what the call returned
    seconds: float
    cpu_seconds: float
    waiting_seconds: float  # its threads were ready to run, but others had the processor
    peak_bytes: int | None = None  # the most memory its process has held so far

    @property
    def share(self) -> float:
        """Part of the processor time that it asked for and got: 1.0 is undisturbed."""
        return share_of(self.cpu_seconds, self.waiting_seconds)


class Worker:
    """One engine, loaded.

    Args:
        name: what to call it in the report.
        adapter: ``FILE.py:CLASS``; a file name without a directory is one of ``peers/``.
        options: handed to the adapter.
        python: the interpreter that has the engine.
        environment: variables that must be set before it starts.
    """

    def __init__(
        self,
        name: str,
        adapter: str,
        options: Mapping[str, Any],
        python: str,
        environment: Mapping[str, str] | None = None,
    ):
        self.name, self.peak_bytes = name, 0
        self._process = subprocess.Popen(
            [python, str(PEERS / "serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **pinned_environment(), **QUIET, **(environment or {})},
        )
        options = {"cpus": CPUS, "threads": len(CPUS), **options}
        try:
            ready = self._ask({"adapter": str(PEERS / adapter), "options": options})
        except BaseException:
            self.close()
            raise
        self.version: str = ready["version"] or name
        self.precision: str = ready["precision"] or "unknown precision"
        self.weight_bytes: float = ready["weight_bytes"] or 4
        self.kv_bytes: float = ready["kv_bytes"] or 4
        self.load_seconds: float = ready["seconds"]
        self.compile_seconds: float | None = ready["compile_seconds"]

    def call(self, method: str, *arguments: Any) -> Timing:
        """Run one method of the adapter; the time is taken inside its process.

        Raises:
            Declined: it has no such thing.
            Failed: it failed; the message has its traceback.
        """
        timing = Timing(**self._ask([method, *arguments]))
        self.peak_bytes = max(self.peak_bytes, timing.peak_bytes or 0)
        return timing

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, question: Any) -> dict[str, Any]:
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        try:
            pipe_in.write(json.dumps(question) + "\n")
            pipe_in.flush()
            line = pipe_out.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Failed(f"{self.name} ended with exit code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name} failed:\n{answer['error']}")
        if "declined" in answer:
            raise Declined(answer["declined"])
        return answer
