"""What a GPU needs here and what of it is missing: facts are looked up once, then judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = ("numba-cuda", "cuda-core", "cuda-bindings")
INSTALL, INSTALL_TESTS = "pip install 'minipaged[cuda]'", "pip install 'minipaged[cuda-test]'"
OLDEST = (7, 5)  # compute capability that the kernels are compiled for
Version = tuple[int, int]


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; ``remedy`` is a command, where one would help."""

    topic: str
    text: str
    is_problem: bool = False
    remedy: str | None = None


class Card(NamedTuple):
    """A GPU that torch sees."""

    name: str
    num_bytes: int
    capability: Version


@dataclass(frozen=True)
class Facts:
    """All that is asked of the machine; None where there is no answer."""

    has_driver: bool = False
    torch: str | None = None  # its version
    torch_cuda: str | None = None  # what it was built for
    cards: tuple[Card, ...] = ()
    driver: str | None = None  # its version
    driver_cuda: Version | None = None  # the newest CUDA that it knows
    packages: dict[str, str | None] = field(default_factory=dict)
    compiler_cuda: Version | None = None  # of the linker that makes kernels; None: it is not found
    ptxas: str | None = None  # where it is


def look() -> Facts:
    """Ask torch, the driver and the installed packages."""
    packages = {name: _version(name) for name in PACKAGES}
    torch = _quietly(lambda: import_module("torch"))
    cards = _quietly(lambda: _cards(torch)) or ()
    return Facts(
        has_driver=bool(cards) or has_driver(),
        torch=torch and torch.__version__,
        torch_cuda=torch and torch.version.cuda,
        cards=cards,
        driver=_quietly(_driver),
        driver_cuda=_quietly(_driver_cuda) if packages["cuda-bindings"] else None,
        packages=packages,
        compiler_cuda=_quietly(_compiler_cuda),
        ptxas=_quietly(_ptxas),
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """What the facts mean for whoever wants to generate; a GPU is never necessary."""
    if facts.torch is None:
        return
    if not facts.has_driver:
        text = "no NVIDIA driver, so no GPU is used; nothing else needs one, nor the extra cuda"
        yield Finding("cuda", text)
    elif facts.cards:
        yield from map(_of_card, facts.cards)
        yield _of_driver(facts)
        yield from _of_kernels(facts)
    elif facts.torch_cuda is None:
        text = f"there is a driver, but torch {facts.torch} is built without CUDA"
        yield Finding("cuda", text, remedy="pip install --force-reinstall torch")
    else:
        text = f"there is a driver, but torch (CUDA {facts.torch_cuda}) finds no device"
        yield Finding("cuda", text, remedy="nvidia-smi")


def _of_card(card: Card) -> Finding:
    size = f"{card.num_bytes / 2**30:.0f} GiB"
    text = f"{card.name}, {size}, compute capability {_dotted(card.capability)}"
    if card.capability >= OLDEST:
        return Finding("cuda", text)
    text += f": too old for the kernels, which need {_dotted(OLDEST)}; --device cpu works, and so"
    return Finding("cuda", f"{text} does --attention minipaged.attention:paged_attention")


def _of_driver(facts: Facts) -> Finding:
    newest = f", knows CUDA up to {_dotted(facts.driver_cuda)}" if facts.driver_cuda else ""
    text = f"driver {facts.driver or 'of unknown version'}{newest}"
    return Finding("cuda", f"{text}; torch is built for CUDA {facts.torch_cuda}")


def _of_kernels(facts: Facts) -> Iterator[Finding]:
    missing = [name for name, found in facts.packages.items() if found is None]
    if missing:
        text = f"the kernels need {', '.join(missing)}; until then a CPU is used"
        yield Finding("cuda", text, remedy=INSTALL)
        return
    names = ", ".join(f"{name} {found}" for name, found in facts.packages.items())
    if facts.compiler_cuda is None:
        text = f"{names}, but no libnvvm or nvJitLink: kernels cannot be compiled"
        yield Finding("cuda", text, remedy=INSTALL)
    elif facts.driver_cuda and facts.driver_cuda[0] < facts.compiler_cuda[0]:
        text = f"{names} compile for CUDA {_dotted(facts.compiler_cuda)}, newer than the driver"
        remedy = f"pip install 'numba-cuda[cu{facts.driver_cuda[0]}]>=0.30.4,<0.31'"
        yield Finding("cuda", f"{text} knows: update the driver, or", remedy=remedy)
    else:
        yield Finding("cuda", f"{names} compile kernels for CUDA {_dotted(facts.compiler_cuda)}")
    if facts.ptxas:
        yield Finding("cuda", f"ptxas: {facts.ptxas}")
    else:
        text = "no ptxas: kernels run, and tests of their machine code are skipped"
        yield Finding("cuda", text, remedy=INSTALL_TESTS)


# --- where the facts come from -----------------------------------------------------------------


def has_driver() -> bool:
    """Whether there is a driver of NVIDIA's, whatever else is missing."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _cards(torch: Any) -> tuple[Card, ...]:
    if not torch.cuda.is_available():
        return ()
    found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return tuple(Card(x.name, x.total_memory, (x.major, x.minor)) for x in found)


def _driver() -> str | None:
    text = Path("/proc/driver/nvidia/version").read_text()
    words = text.splitlines()[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def _driver_cuda() -> Version:
    _, number = import_module("cuda.bindings.driver").cuDriverGetVersion()
    return number // 1000, number % 1000 // 10


def _compiler_cuda() -> Version:
    import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvvm")  # raises if it is not there
    return import_module("cuda.bindings.nvjitlink").version()


def _ptxas() -> str | None:
    spec = find_spec("nvidia")
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    found = [str(path) for place in places for path in sorted(place.glob("*/bin/ptxas*"))]
    return found[0] if found else shutil.which("ptxas")


def _quietly(ask: Callable[[], Any]) -> Any:
    """An answer, or None: whatever is broken, the doctor goes on."""
    with suppress(Exception):
        return ask()
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _dotted(pair: Version | None) -> str:
    return "unknown" if pair is None else ".".join(map(str, pair))
