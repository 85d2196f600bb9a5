"""C8: making room by recomputing or by swapping, against the size of blocks.

By the simulator, on the paper's machine as a cost model knows it, and on this one: the real cache
copies blocks to another, the real model computes the same tokens again. Paper: sections 4.5 and
7.3, figure 19.
"""

from __future__ import annotations

import time
from statistics import median

from minipaged.cache import KVCache
from minipaged.engine.llm import LLM

from . import real
from .claim import Claim, Context, Row, Tolerance
from .cost import CostModel, Load
from .generators import Lengths, drawn, sharegpt_like
from .managers import PAPER_NUM_SLOTS, Manager
from .outcome import Outcome, Setting
from .simulator import simulate
from .verdicts import counted
from .workload import Workload

BLOCK_SIZES = (1, 4, 16, 64, 256)
NUM_TOKENS = 256  # of the sequence that has to leave, and comes back
WAYS = ("recompute", "swap")
PAPER_MOST = 1.2  # recomputing takes at most so many times what swapping takes (section 7.3)
COMPARABLE = 0.25  # share of the whole time by which the two may differ and be called comparable


def measure(context: Context) -> Claim:
    """What it costs to leave and come back, alone and under load."""
    alone = {size: _alone(size) for size in BLOCK_SIZES}
    rows = _alone_rows(alone)
    workload = sharegpt_like(100 if context.quick else 200, seed=context.seed)
    sizes = BLOCK_SIZES[2:3] if context.quick else BLOCK_SIZES[1:]
    loaded = {size: _under_load(workload, size, context) for size in sizes}
    rows += _load_rows(loaded, context.quick)
    rows += _engine_rows(context)
    return Claim(
        key="preemption",
        title="C8 Preemption by recomputing and by swapping",
        said="Recomputing costs the same for every block size, swapping is slow with small blocks.",
        source="Kwon et al., SOSP 2023, sections 4.5 and 7.3, figure 19",
        rows=tuple(rows),
        left_out="half of the load, and all block sizes under it but 16" if context.quick else "",
        notes=_notes(workload),
        series={
            "sweep": {
                "block_size": list(alone),
                "recompute": [times["recompute"] for times in alone.values()],
                "swap": [times["swap"] for times in alone.values()],
            },
            "under_load": {
                size: {way: outcome.seconds for way, outcome in outcomes.items()}
                for size, outcomes in loaded.items()
            },
        },
    )


# --- on the paper's machine ----------------------------------------------------------------------


def _alone(block_size: int, cost: CostModel | None = None) -> dict[str, float]:
    """Seconds for one sequence to leave and come back, beside what a step takes anyhow."""
    cost = cost or CostModel()
    nobody = cost.seconds(Load(0, 0, 0))
    num_blocks = -(-NUM_TOKENS // block_size)
    return {
        "recompute": cost.seconds(Load(NUM_TOKENS, NUM_TOKENS, 1)) - nobody,
        "swap": cost.swap_seconds(2 * num_blocks, block_size),
    }


def _alone_rows(alone: dict[int, dict[str, float]]) -> list[Row]:
    rows = [
        Row(f"{NUM_TOKENS} tokens, blocks of {size}, {way}", "", 1000 * seconds, "ms")
        for size in (1, 16, 256)
        for way, seconds in alone[size].items()
    ]
    recomputed = {times["recompute"] for times in alone.values()}
    small, large = alone[BLOCK_SIZES[0]]["swap"], alone[BLOCK_SIZES[-1]]["swap"]
    most = max(times["recompute"] / times["swap"] for times in alone.values())
    return [
        *rows,
        Row(
            "recompute, slowest block size / fastest",
            "the same for all",
            max(recomputed) / min(recomputed),
            "x",
            Tolerance.around(1.0, 0.01),
        ),
        Row(
            f"swap, blocks of {BLOCK_SIZES[0]} / of {BLOCK_SIZES[-1]}",
            "small blocks cost far more",
            small / large,
            "x",
            Tolerance.at_least(2.0),
        ),
        Row(
            "recompute / swap, the largest of all block sizes",
            f"never more than {PAPER_MOST:g}",
            most,
            "x",
            Tolerance.at_most(PAPER_MOST),
            note="both times are the cost model's, and change in proportion to the share of the "
            "peak that products reach and to the bus, neither of which the paper tells",
        ),
    ]


def _under_load(workload: Workload, block_size: int, context: Context) -> dict[str, Outcome]:
    manager = Manager("paged", PAPER_NUM_SLOTS // block_size, block_size)
    outcomes = {}
    for way in WAYS:
        context.tell(f"{workload.name}, blocks of {block_size}, {way}")
        setting = Setting(at_once=True, preemption=way)
        outcomes[way] = simulate(workload, manager, setting=setting)
    return outcomes


def _load_rows(loaded: dict[int, dict[str, Outcome]], few: bool) -> list[Row]:
    rows = []
    for size, outcomes in loaded.items():
        recompute, swap = outcomes["recompute"], outcomes["swap"]
        comparable = 16 <= size <= 64
        rows += [
            Row(f"under load, blocks of {size}: preemptions", "", recompute.num_preemptions),
            Row(
                f"under load, blocks of {size}: time, recompute / swap",
                "comparable from 16 to 64" if comparable else "",
                recompute.seconds / swap.seconds,
                "x",
                Tolerance.around(1.0, COMPARABLE) if comparable else None,
                few=few,
            ),
        ]
    return rows


# --- on this machine -----------------------------------------------------------------------------


def _engine_rows(context: Context) -> list[Row]:
    model = real.bundled()
    context.tell("the real engine, recompute and swap")
    rows = _same_answers_rows(model, context)
    context.tell("the real cache and model, one sequence")
    rounds = 3 if context.quick else 9
    sizes = BLOCK_SIZES[::2]
    swapped = {size: swap_seconds(size, model, rounds) for size in sizes}
    rows += [
        Row(
            f"this machine, blocks of {size}: to swap out and in",
            "",
            1000 * seconds,
            "ms",
            wall=True,
        )
        for size, seconds in swapped.items()
    ]
    seconds = recompute_seconds(model, rounds)
    what = "this machine: to recompute"
    return [*rows, Row(what, "", 1000 * seconds, "ms", wall=True)]


def swap_seconds(block_size: int, model: real.Model, rounds: int) -> float:
    """To copy a sequence's blocks into another cache and back, by ``KVCache.swap_blocks``."""
    config, num_blocks = model.config, -(-NUM_TOKENS // block_size)
    shape = config.num_layers, 4 * num_blocks, block_size, config.num_kv_heads, config.head_dim
    device, host = KVCache(*shape), KVCache(*shape)
    out = [(4 * i, i) for i in range(num_blocks)]  # scattered here, together there
    back = [(there, here) for here, there in out]
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        device.swap_blocks(host, out)
        host.swap_blocks(device, back)
        times.append(time.perf_counter() - begin)
    return median(times)


def recompute_seconds(model: real.Model, rounds: int) -> float:
    """To compute the same tokens again: one step of the engine, as a prompt."""
    llm = LLM(model, device="cpu", num_blocks=64, prefix_caching=False)
    prompt = [1 + i % (llm.config.vocab_size - 1) for i in range(NUM_TOKENS)]
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        llm.generate(prompt, real.greedy(1))
        times.append(time.perf_counter() - begin)
    return median(times)


def _same_answers_rows(model: real.Model, context: Context) -> list[Row]:
    """A pool too small for everybody: what leaves comes back and says what it would have said."""
    lengths, count = (Lengths(40, 0.5), Lengths(40, 0.5)), 6 if context.quick else 12
    workload = drawn("short", lengths, count, 1.0, context.seed, 256)
    params = [real.greedy(arrival.output_len) for arrival in workload.arrivals]
    answers, rows = {}, []
    for name, num_blocks, way in (
        ("enough room", 256, "recompute"),
        ("recompute", 2 * count, "recompute"),
        ("swap", 2 * count, "swap"),
    ):
        manager = Manager("paged", num_blocks, max_len=256)
        llm = real.engine(manager, model, preemption=way)
        outputs = llm.generate(real.prompts(workload, llm.config.vocab_size), params)
        answers[name] = [out.outputs[0].token_ids for out in outputs]
        if name != "enough room":
            again, moved = llm.stats.tokens_recomputed, llm.stats.blocks_swapped
            what = f"real engine, {name}: "
            rows += [
                Row(what + "preemptions", "", llm.stats.num_preemptions),
                Row(what + "tokens computed again", "", again),
                Row(what + "blocks moved", "", moved),
                Row(
                    what + "answers that changed",
                    "none",
                    sum(a != b for a, b in zip(answers[name], answers["enough room"])),
                    tolerance=Tolerance.exactly(0),
                    basis="foretold",
                ),
            ]
    return rows


def _notes(workload: Workload) -> tuple[str, ...]:
    cost = CostModel()
    return (
        f"The paper's machine is a cost model with a bus of {cost.bus_bandwidth / 1e9:g} GB/s and "
        f"{1e6 * cost.per_transfer:g} microseconds to begin each of the "
        f"{cost.transfers_per_block} transfers of a block; recomputing is one more prompt.",
        "Both ways preempt the same sequences, as whom it hits is a matter of memory.",
        f"On this machine a sequence of {NUM_TOKENS} tokens leaves and comes back; device and host "
        "are one, so that swapping is a copy in memory.",
        f"Under load are {counted(len(workload), 'request')} of {workload.name} lengths, "
        f"{workload.source}.",
    )
