"""Fresh processes, from nothing to the first token, with compiled code on disk and without."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from .processes import Run, run
from .stats import Figure

FIRST_TOKEN = ["-m", "minipaged", "generate", "In the beginning", "--max-tokens", "1", "--quiet"]
WARM = {
    "python itself": ["-c", "pass"],
    "import minipaged": ["-c", "import minipaged"],
    "minipaged --help": ["-m", "minipaged", "--help"],
    "minipaged bench --help": ["-m", "minipaged", "bench", "--help"],
    "first token, compiled before": FIRST_TOKEN,
}
COLD = "first token, nothing compiled"
Say = Callable[[str], None]


def measure_startup(rounds: int, say: Say, on_trial: bool = False) -> list[Figure]:
    """Seconds of whole processes, in turns; the bundled model, which is part of the package.

    Args:
        rounds: that count, after one that fills the caches of files and compiled code.
        say: is told what is going on.
        on_trial: only what is quick.
    """
    commands = dict(WARM)
    if on_trial:
        commands = {name: WARM[name] for name in ("python itself", "import minipaged")}
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    if not on_trial:
        runs[COLD] = []
    for i in range(rounds + 1):
        say(f"round {i} of {rounds}" if i else "warm-up")
        for name, arguments in commands.items():
            done = run(arguments)
            runs[name] += [done] if i else []
        if COLD in runs and i:  # every round compiles anew, so there is nothing to warm up
            runs[COLD].append(_cold())
    return [
        Figure(name, "minipaged", "s", tuple(r.seconds for r in many), min(r.share for r in many))
        for name, many in runs.items()
    ]


def _cold() -> Run:
    with tempfile.TemporaryDirectory(prefix="minipaged-bench-") as empty:
        return run(FIRST_TOKEN, {"NUMBA_CACHE_DIR": empty})
