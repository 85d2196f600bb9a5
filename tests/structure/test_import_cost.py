"""`import minipaged` and `minipaged --help` are cheap: they load no tensors library at all."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "numba", "transformers", "tokenizers", "safetensors", "gguf")


def loaded_after(code: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded after ``code``."""
    code += f"\nimport sys; print('loaded:', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def ask_help(*words: str) -> str:
    return (
        f"import sys; sys.argv = ['minipaged', *{words!r}, '--help']\n"
        "from minipaged.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end"
    )


@pytest.mark.parametrize(
    "code",
    ["import minipaged", "import minipaged.core", "import minipaged; dir(minipaged)"],
)
def test_importing_loads_nothing_heavy(code):
    assert loaded_after(code) == []


def test_view_loads_nothing_heavy():
    assert loaded_after("import minipaged.view") == []


@pytest.mark.parametrize("words", [(), ("generate",)], ids=["minipaged", "generate"])
def test_help_loads_nothing_heavy(words):
    assert loaded_after(ask_help(*words)) == []


def test_the_lazy_names_are_real():
    code = "import minipaged\nfor name in minipaged.__all__: getattr(minipaged, name)"
    assert "torch" in loaded_after(code)


def test_importing_is_not_slow():
    """Very loose, for a loaded machine; the benchmark has the true figure."""
    start = time.perf_counter()
    loaded_after("import minipaged")
    assert time.perf_counter() - start < 5
