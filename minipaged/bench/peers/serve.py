"""Answers a line of JSON with a line of JSON, in the peer's own Python; knows no peer.

Run by its path. The first line says which adapter to load, ``{"adapter": "FILE.py:CLASS",
"options": {...}}``, every further one which method to call and time, ``["method", argument, ...]``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def serve() -> None:
    """Load the adapter, then call its methods as they are asked for, until there is no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer

    def answer(fields: dict[str, Any]) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    asked = json.loads(sys.stdin.readline())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, asked["options"].get("cpus") or os.sched_getaffinity(0))
    started = time.perf_counter()
    try:
        adapter = _load(asked["adapter"])(asked["options"])
    except NotImplementedError as error:
        return answer({"declined": str(error)})
    except BaseException as error:
        return answer(_failure(error))
    seconds = time.perf_counter() - started
    answer({**_attributes(adapter), "seconds": seconds, "peak_bytes": _peak_bytes()})
    for line in sys.stdin:
        answer(_timed(adapter, *json.loads(line)))


def _load(where: str) -> Any:
    """The class at FILE:CLASS, loaded by path: a file called like its peer would hide it."""
    file, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location("_adapter", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _attributes(adapter: Any) -> dict[str, Any]:
    names = ("version", "precision", "weight_bytes", "kv_bytes", "compile_seconds")
    return {name: getattr(adapter, name, None) for name in names}


def _timed(adapter: Any, method: str, *arguments: Any) -> dict[str, Any]:
    """One call: what it returned, how long it took, and what of the processor it got."""
    wall, cpu, waiting = time.perf_counter(), time.process_time(), waiting_seconds()
    try:
        value = getattr(adapter, method)(*arguments)
    except NotImplementedError as error:
        return {"declined": str(error)}
    except BaseException as error:
        return _failure(error)
    return {
        "value": value,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "waiting_seconds": max(0.0, waiting_seconds() - waiting),
        "peak_bytes": _peak_bytes(),
    }


def waiting_seconds() -> float:
    """How long the threads of this process waited for a processor; 0 where nobody counts it."""
    total = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[1])
        except OSError:  # the thread has just ended
            continue
    return total / 1e9


def _peak_bytes() -> int | None:
    """The most memory that this process has held; None where nobody counts it."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _failure(error: BaseException) -> dict[str, Any]:
    return {"error": "".join(traceback.format_exception(type(error), error, error.__traceback__))}


if __name__ == "__main__":
    HERE = str(Path(__file__).resolve().parent)
    sys.path[:] = [place for place in sys.path if place != HERE]  # adapters hide no package
    serve()
