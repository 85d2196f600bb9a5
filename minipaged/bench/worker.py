"""One engine in a process of its own, told what to do and timed over a pipe.

``Worker`` is the side that asks; ``python -m minipaged.bench.worker NAME MODEL DTYPE`` the one
that answers, a line of JSON for a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipaged.threads import CPUS, pinned_environment


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed call."""

    value: Any  # what the call returned
    seconds: float
    cpu_seconds: float
    waiting_seconds: float  # its threads were ready to run, but others had the processor

    @property
    def share(self) -> float:
        """Part of the processor time that it asked for and got: 1.0 is undisturbed."""
        return self.cpu_seconds / (self.cpu_seconds + self.waiting_seconds)


class Worker:
    """Starts an engine in its own process, with its threads pinned, and times calls of it."""

    def __init__(self, name: str, model: str, dtype: str, python: str | None = None):
        self.name = name
        command = [python or sys.executable, "-m", __name__, name, model, dtype]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_environment()},
        )
        ready = self._read()
        self.version: str = ready["version"]
        self.load_seconds: float = ready["seconds"]

    def call(self, method: str, *args: Any) -> Timing:
        """Run one method of the adapter; the time is taken inside the worker."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, *args]) + "\n")
        self._process.stdin.flush()
        return Timing(**self._read())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)


def _environment() -> dict[str, str]:
    """The worker's threads are pinned, and it may use what we might before ours were."""
    cpus = ",".join(map(str, CPUS))
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**pinned_environment(), **quiet, "MINIPAGED_BENCH_CPUS": cpus}


def _answer(name: str, model: str, dtype: str) -> None:
    """Load the engine, then call its methods as they are asked for."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, os.environ["MINIPAGED_BENCH_CPUS"].split(",")))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    from .adapters import ADAPTERS

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    started = time.perf_counter()
    adapter = ADAPTERS[name](model, dtype)
    answer(version=adapter.version, seconds=time.perf_counter() - started)
    for line in sys.stdin:
        method, *args = json.loads(line)
        wall, cpu, waiting = time.perf_counter(), time.process_time(), _waiting_seconds()
        value = getattr(adapter, method)(*args)
        answer(
            value=value,
            seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            waiting_seconds=_waiting_seconds() - waiting,
        )


def _waiting_seconds() -> float:
    """How long the threads of this process waited for a processor; 0 where nobody counts it."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e9


if __name__ == "__main__":
    _answer(*sys.argv[1:])
