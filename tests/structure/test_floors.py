"""The building's statics: a file imports only from lower floors, and nothing goes in circles.

    floor 6   cli                    floor 7   __main__
    floor 5.9 learn                  its exercises may use everything below
    floor 5   oracle  view  claims  bench          side towers; minipaged_cuda stands here too
    floor 4.5 minipaged itself: the names that `import minipaged` offers, all from below
    floor 4   engine.llm, engine.advance, engine.executor, ...: where scheduling meets the model
    floor 3   models · engine
    floor 2.5 cache · 2.75 sanitizer floor 2   core: block_table, ledger, snapshot
    floor 1.6 linear
    floor 1.5 attention              floor 1   core: block_pool
                                     floor 0   core: errors, hashing

An import counts wherever it stands: at the top of a file, inside a function, or under
``TYPE_CHECKING``. A type in an annotation is knowledge too: ``models`` may name ``KVCache``, which
lies below it, and ``cache`` may not name ``Decoder``. Inside one package and floor, files may
import each other in one direction only, which is what the test for cycles checks. A package's
``__init__.py`` stands on the highest floor of its package.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.imports import Import, find_cycle, find_imports, find_modules, is_inside

ROOT = Path(__file__).parents[2]
PACKAGES = ("minipaged", "minipaged_cuda")

FLOORS: dict[str, float] = {  # the longest matching prefix counts
    "minipaged.core.errors": 0,
    "minipaged.threads": 0,
    "minipaged.huge_pages": 0,
    "minipaged.core.hashing": 0,
    "minipaged.core.block_pool": 1,
    "minipaged.core": 2,
    "minipaged.attention": 1.5,
    "minipaged.linear": 1.6,
    "minipaged.cache": 2.5,
    "minipaged.sanitizer": 2.75,
    "minipaged.models": 3,
    "minipaged.engine": 3,
    "minipaged.engine.advance": 4,  # the half of the loop that meets the model
    "minipaged.engine.devices": 4,
    "minipaged.engine.executor": 4,
    "minipaged.engine.llm": 4,
    "minipaged.engine.memory": 4,
    "minipaged.oracle": 5,
    "minipaged.view": 5,
    "minipaged.claims": 5,
    "minipaged.bench": 5,
    "minipaged_cuda": 5,  # errors, simulator, emulator, disk_cache, buckets, graphs
    "minipaged_cuda.specialise": 5.1,
    "minipaged_cuda.kernel": 5.2,
    "minipaged_cuda.primitives": 5.3,
    "minipaged_cuda.kernels": 5.4,
    "minipaged_cuda.bind": 5.4,
    "minipaged_cuda.plan": 5.5,
    "minipaged_cuda.compile": 5.5,
    "minipaged_cuda.compile_mlir": 5.5,
    "minipaged_cuda.machine_code": 5.5,
    "minipaged_cuda.launch": 5.6,
    "minipaged_cuda.operations": 5.7,
    "minipaged_cuda.caches": 5.7,
    "minipaged_cuda.executor": 5.8,
    "minipaged.learn": 5.9,
    "minipaged.cli": 6,
    "minipaged.__main__": 7,
}
FRONT_DOOR = 4.5  # `minipaged/__init__.py`

# Narrower than the floors: of our own modules these may import only the ones named.
ONLY: dict[str, tuple[str, ...]] = {
    "minipaged.core": ("minipaged.core",),
    "minipaged.attention": ("minipaged.attention", "minipaged.core.errors"),
    "minipaged.linear": (
        "minipaged.linear",
        "minipaged.attention",
        "minipaged.core.errors",
        "minipaged.huge_pages",
    ),
    "minipaged.cache": ("minipaged.cache", "minipaged.core", "minipaged.huge_pages"),
    "minipaged.view": ("minipaged.view", "minipaged.core"),
    "minipaged.oracle.truth": ("minipaged.oracle.truth",),  # a judge shares no line with the judged
}

# Other people's packages: (who) must not import (what), except (where).
BANS: list[tuple[str, str, tuple[str, ...]]] = [
    ("minipaged.core", "torch", ()),
    ("minipaged.core", "numpy", ()),
    ("minipaged.core", "numba", ()),
    ("minipaged.view", "torch", ()),
    ("minipaged.view", "numpy", ()),
    ("minipaged", "minipaged_cuda", ("minipaged.learn.exercises",)),
    ("minipaged", "hypothesis", ("minipaged.oracle", "minipaged.learn.exercises")),  # an extra
    ("minipaged", "pytest", ("minipaged.oracle",)),
    ("minipaged", "transformers", ("minipaged.bench",)),  # to compare with; nothing needs it
]


def floor_of(module: str, modules: dict[str, Path]) -> float | None:
    """The floor a module stands on; None if the table does not know it."""
    if module == "minipaged":
        return FRONT_DOOR
    known = [prefix for prefix in FLOORS if is_inside(module, prefix)]
    own = FLOORS[max(known, key=len)] if known else None
    if own is not None and modules[module].name == "__init__.py":
        return max([own, *(f for m, f in FLOORS.items() if is_inside(m, module))])
    return own


def room_of(module: str) -> str:
    """``minipaged.core`` for all of core; a file directly in the package is a room by itself."""
    return ".".join(module.split(".")[:2])


def complaint(edge: Import, modules: dict[str, Path]) -> str | None:
    """Why this import is not allowed, or None."""
    for who, what, where in BANS:
        banned = is_inside(edge.importer, who) and is_inside(edge.imported, what)
        if banned and not any(is_inside(edge.importer, place) for place in where):
            return f"{edge}: {who} must not import {what}"
    if edge.imported not in modules:
        return None
    for who, allowed in ONLY.items():
        if is_inside(edge.importer, who) and not any(is_inside(edge.imported, a) for a in allowed):
            return f"{edge}: of our modules, {who} may import only {allowed or 'nothing'}"
    upper, lower = floor_of(edge.importer, modules), floor_of(edge.imported, modules)
    if upper is None or lower is None:
        return None  # reported once, by name
    neighbours = room_of(edge.importer) == room_of(edge.imported) and lower == upper
    if lower < upper or neighbours:
        return None
    return f"{edge}: floor {upper} must not lean on floor {lower}"


def complaints(root: Path) -> list[str]:
    """Everything that is wrong with the tree below ``root``."""
    modules = find_modules(root, *PACKAGES)
    edges = find_imports(modules)
    homeless = [m for m in modules if floor_of(m, modules) is None]
    found = [f"{m} has no floor: give it one in FLOORS" for m in homeless]
    found += [text for edge in edges if (text := complaint(edge, modules))]
    if cycle := find_cycle(edges):
        found.append("imports in a circle: " + " -> ".join(cycle))
    return found


def test_every_import_goes_down():
    assert complaints(ROOT) == []


def test_the_test_sees_the_whole_building():
    modules = find_modules(ROOT, *PACKAGES)
    rooms = {room_of(module) for module in modules}
    assert rooms >= {f"minipaged.{p}" for p in ("core", "attention", "cache", "models", "engine")}
    edges = {(e.importer, e.imported) for e in find_imports(modules)}
    assert ("minipaged.core.block_table", "minipaged.core.block_pool") in edges


SOUND = {
    "minipaged/__init__.py": "def __getattr__(n):\n    from minipaged.engine import LLM",
    "minipaged/core/__init__.py": "from .block_table import BlockTable",
    "minipaged/core/errors.py": "class OutOfBlocks(Exception): ...",
    "minipaged/core/block_pool.py": "from .errors import OutOfBlocks",
    "minipaged/core/block_table.py": "from .block_pool import BlockPool",
    "minipaged/attention/__init__.py": "from .paged import paged_attention",
    "minipaged/attention/paged.py": "import torch\nfrom ..core.errors import OutOfBlocks",
    "minipaged/cache/__init__.py": "import torch\nfrom minipaged.core import BlockTable",
    "minipaged/models/__init__.py": "",
    "minipaged/models/decoder.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..cache import KVCache"
    ),
    "minipaged/engine/__init__.py": "from .llm import LLM",
    "minipaged/engine/sequence.py": "from minipaged.core import BlockTable",
    "minipaged/engine/scheduler.py": "from .sequence import Sequence",
    "minipaged/engine/llm.py": "from ..models import decoder\nfrom .scheduler import Scheduler",
    "minipaged/cli.py": "def main():\n    from minipaged.engine import LLM",
    "minipaged/oracle/__init__.py": "import hypothesis",
    "minipaged/oracle/truth/__init__.py": "from .problem import Spec",
    "minipaged/oracle/truth/problem.py": "import math",
    "minipaged/view/__init__.py": "import rich\nfrom minipaged.core import snapshot",
    "minipaged_cuda/__init__.py": "from minipaged.attention import paged_attention",
}

PLANTED = {
    "a floor leans on a higher one": (
        "minipaged/core/block_pool.py",
        "from .block_table import BlockTable",
        "floor 1 must not lean on floor 2",
    ),
    "a lazy import is an import": (
        "minipaged/models/decoder.py",
        "def f():\n    from minipaged.engine.llm import LLM",
        "floor 3 must not lean on floor 4",
    ),
    "so is one for the type checker": (
        "minipaged/models/decoder.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from minipaged import engine",
        "floor 3 must not lean on floor 4",
    ),
    "so is one by name": (
        "minipaged/engine/sequence.py",
        "import importlib\nimportlib.import_module('minipaged.cli')",
        "floor 3 must not lean on floor 6",
    ),
    "neighbours on one floor are still strangers": (
        "minipaged/engine/sequence.py",
        "from minipaged.models import decoder",
        "floor 3 must not lean on floor 3",
    ),
    "nothing imports the package itself": (
        "minipaged/engine/sequence.py",
        "from minipaged import __version__",
        "floor 3 must not lean on floor 4.5",
    ),
    "core knows no tensors": (
        "minipaged/core/errors.py",
        "def f():\n    import torch.nn.functional as F",
        "minipaged.core must not import torch",
    ),
    "attention knows no blocks": (
        "minipaged/attention/paged.py",
        "from minipaged.core.block_pool import BlockPool",
        "may import only",
    ),
    "the cache decides nothing and computes nothing": (
        "minipaged/cache/__init__.py",
        "from minipaged.attention import paged_attention",
        "may import only",
    ),
    "a picture needs only the books": (
        "minipaged/view/__init__.py",
        "from ..cache import KVCache",
        "may import only",
    ),
    "the judge shares no line with the judged": (
        "minipaged/oracle/truth/problem.py",
        "from minipaged.attention import paged_attention",
        "may import only",
    ),
    "minipaged runs without its kernels": (
        "minipaged/engine/llm.py",
        "try:\n    import minipaged_cuda\nexcept ImportError: ...",
        "minipaged must not import minipaged_cuda",
    ),
    "an extra is not a dependency": (
        "minipaged/engine/llm.py",
        "from hypothesis import given",
        "minipaged must not import hypothesis",
    ),
    "a new room needs a floor": (
        "minipaged/attic.py",
        "",
        "minipaged.attic has no floor",
    ),
    "files of one room must not go in circles": (
        "minipaged/engine/sequence.py",
        "def f():\n    from .scheduler import Scheduler",
        "imports in a circle: minipaged.engine.",
    ),
    "nor a file with its own package": (
        "minipaged/core/block_table.py",
        "from minipaged.core import errors, BlockPool",
        "imports in a circle: minipaged.core",
    ),
}


def build(root: Path, tree: dict[str, str]) -> Path:
    for name, source in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return root


def test_a_sound_building_stands(tmp_path):
    assert complaints(build(tmp_path, SOUND)) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda name: name.replace(" ", "-"))
def test_a_planted_fault_is_found(tmp_path, plant):
    path, source, expected = PLANTED[plant]
    found = complaints(build(tmp_path, SOUND | {path: source}))
    assert any(expected in text for text in found), found
