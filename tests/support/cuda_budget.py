"""What each kernel may cost in machine code, and the page that says what it does cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from minipaged_cuda.compile import compile_ptx
from minipaged_cuda.machine_code import Report, report
from minipaged_cuda.operations.arguments import specialise
from minipaged_cuda.plan import (
    AttentionSizes,
    Card,
    CopySizes,
    Launch,
    WriteSizes,
    plan_attention,
    plan_copy,
    plan_merge_states,
    plan_write,
)

from .generated import refreshed
from .planted import ROOT

PAGE = ROOT / "docs" / "pages" / "explanation" / "machine-code.md"
HEAD = (
    *("kernel", "sm", "registers", "shared memory", "instructions"),
    *("of these in the hot loop", "LDG.128 there", "HMMA there", "bytes loaded per instruction"),
)
TOOLS = ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc")

Arch = tuple[int, int]
Archs = tuple[Arch, ...]
ALL_ARCHS: Archs = ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
QUICK: Archs = ((8, 0), (9, 0), (10, 0), (12, 0))
PAIR: Archs = ((9, 0), (12, 0))  # the oldest and the newest part of the compiler
FP8_ARCHS: Archs = ((8, 9), (9, 0))
ADA: Archs = ((8, 9),)
HOPPER: Archs = ((9, 0),)


@dataclass(frozen=True)
class Budget:
    """One kernel as a launch plan would have it, and what it may cost.

    Attributes:
        what: It is, in a few words.
        plan: The launch on a card.
        archs: Compute capabilities on the page.
        quick: Those that are tested by default.
        registers: A thread may have.
        loop: Instructions that the hot loop may have.
        loads: Loads of 16 bytes that the hot loop has; None where a compiler may unroll it.
        products: Matrix products that the hot loop has.
    """

    what: str
    plan: Callable[[Card], Launch]
    archs: Archs
    registers: int
    loop: int
    loads: int | None = None
    products: int = 0
    quick: Archs = ()


def attention(
    head_dim: int, group: int, *, kernel: str = "attention", splits: int = 1, **sizes: object
) -> Callable[[Card], Launch]:
    """The plan of 8 sequences with 8 kv heads."""
    options: dict = {"query_type": "bfloat16", "cache_type": "bfloat16", "one_query": True} | sizes
    batch = AttentionSizes(8, 8, 8 * group, 8, head_dim, 16, 256, **options)
    return lambda card: plan_attention(batch, card, kernel=kernel, num_splits=splits).attend


EVERYTHING = frozenset({"CAUSAL", "WINDOW", "SOFTCAP", "ALIBI", "SINKS", "SCALES"})
PROMPTS = attention(128, 4, one_query=False)
OPTIONS = attention(128, 4, flags=EVERYTHING)
FP8 = {"cache_type": "float8_e4m3fn"}
PRODUCTION = (
    Budget("D 128, group 4", attention(128, 4), ALL_ARCHS, 168, 320, 16, 32, quick=QUICK),
    Budget("D 128, group 1", attention(128, 1), HOPPER, 168, 320, 16, 32),
    Budget("D 128, group 8", attention(128, 8), HOPPER, 168, 320, 16, 32),
    Budget("D 128, group 16", attention(128, 16), HOPPER, 184, 360, 16, 32),
    Budget("D 128, group 4, in splits", attention(128, 4, splits=4), HOPPER, 168, 320, 16, 32),
    Budget("D 128, group 4, prompts", PROMPTS, PAIR, 200, 400, 16, 32),
    Budget("D 128, group 4, every option", OPTIONS, HOPPER, 168, 460, 16, 32),
    Budget("D 128, group 4, e4m3", attention(128, 4, **FP8), FP8_ARCHS, 176, 320, 8, 32, quick=ADA),
    Budget("D 64, group 4", attention(64, 4), PAIR, 136, 260, 8, 16),
    Budget("D 256, group 4", attention(256, 4), PAIR, 255, 460, 32, 64, quick=HOPPER),
    Budget("D 256, group 4, e4m3", attention(256, 4, **FP8), HOPPER, 255, 540, 16, 64),
)


def merge(card: Card) -> Launch:
    """What puts the splits of a decode step together."""
    sizes = AttentionSizes(8, 8, 32, 8, 128, 16, 256, query_type="bfloat16", cache_type="bfloat16")
    launch = plan_attention(sizes, card, kernel="attention", num_splits=4).merge
    assert launch is not None
    return launch


WRITE = WriteSizes(8, 8, 128, 128, 16, "bfloat16", "bfloat16", 2)
WRITE_FP8 = WriteSizes(8, 8, 128, 128, 16, "bfloat16", "float8_e4m3fn", 1, is_scaled=True)
COPY = CopySizes(4, 32, 1, 1, 16 * 8 * 128, 2, is_aligned=True, has_values=True)
OTHERS = (
    Budget("decode_v0", attention(128, 4, kernel="decode_v0"), PAIR, 255, 220, 0),
    Budget("decode_v1", attention(128, 4, kernel="decode_v1"), PAIR, 48, 130, 0),
    Budget("decode_v2", attention(128, 4, kernel="decode_v2"), PAIR, 64, 110, 0),
    Budget("decode_v3", attention(128, 4, kernel="decode_v3"), PAIR, 160, 300, 2),
    Budget("merge", merge, PAIR, 48, 220),
    Budget("merge_states", lambda _: plan_merge_states(64, 128, "bfloat16"), PAIR, 40, 100),
    Budget("write_kv", lambda card: plan_write(WRITE, card), PAIR, 48, 120),
    Budget("write_kv to e4m3", lambda card: plan_write(WRITE_FP8, card), PAIR, 48, 140),
    Budget("copy_blocks", lambda _: plan_copy(COPY), PAIR, 32, 0, quick=((9, 0),)),
)


# --- what they cost ----------------------------------------------------------------------------


@cache
def measure(budget: Budget, arch: Arch) -> Report:
    """The machine code of the kernel that a plan would launch."""
    chosen = specialise(budget.plan(Card(arch, 132)))
    return report(compile_ptx(chosen, arch), arch)


def in_loop(found: Report, mnemonic: str, modifier: str = "") -> int:
    """Instructions of a kind in the hot loop."""
    parts = [instruction.opcode.split(".") for instruction in found.code.hot_loop]
    return sum(p[0] == mnemonic and (not modifier or modifier in p) for p in parts)


def row(budget: Budget, arch: Arch) -> str:
    """A line of the page."""
    found = measure(budget, arch)
    loaded = 32 * sum(instruction.loaded_bytes for instruction in found.code.hot_loop)
    cells = (
        budget.what,
        f"{arch[0]}{arch[1]}",
        found.registers,
        found.shared_bytes,
        found.num_instructions,
        found.hot_loop_len or "",
        in_loop(found, "LDG", "128") or "",
        in_loop(found, "HMMA") or "",
        f"{loaded / found.hot_loop_len:.1f}" if found.hot_loop_len else "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def table(budgets: Iterable[Budget]) -> str:
    """All lines of some kernels."""
    lines = [row(budget, arch) for budget in budgets for arch in budget.archs]
    return "\n".join([f"| {' | '.join(HEAD)} |", f"| {' | '.join(['---'] * len(HEAD))} |", *lines])


def tools() -> str:
    """What made the machine code."""
    return ", ".join(f"{name} {_version(name)}" for name in TOOLS)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(none)"


def refresh() -> None:
    """Compile everything and write the page anew; it takes some minutes."""
    regions = {
        "tools": tools,
        "production": lambda: table(PRODUCTION),
        "others": lambda: table(OTHERS),
    }
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), regions), "utf-8")
