"""C5: conversations, whose history is sent again with every turn.

The paper's part (section 6.5) is memory: long prompts of which nothing is kept between turns, by
the simulator. What the paper left out is that the engine still knows the history: by the engine.
"""

from __future__ import annotations

from dataclasses import replace

from .claim import Claim, Context, Row, Tolerance
from .conversations import Played, Script, new_engine, play
from .cost import CostModel
from .generators import chat
from .managers import CONTIGUOUS, MANAGERS, MEANING, PAGED, Manager
from .outcome import Setting
from .rates import sustainable_rate
from .simulator import simulate
from .verdicts import counted
from .workload import Workload

PAPER_RATIO = Tolerance.around(2.0, 0.5)
LONGEST = 256  # tokens of a history that is cut at its front, for the bundled model


def measure(context: Context) -> Claim:
    """The paper's workload in the simulator, and conversations with the engine."""
    workload = chat(300 if context.quick else 2000, seed=context.seed)
    batches = {name: _batch(workload, name, context) for name in MANAGERS}
    rows = _batch_rows(batches, context.quick)
    if not context.quick:
        rates = {name: _rate(workload, name, context) for name in MANAGERS}
        rows += [*_rate_rows(rates), _without_prompts(workload, context)]
    script = Script(2, 6) if context.quick else Script()
    whole, found, cut = (_play(context, script, way) for way in ("computed", "found", "cut"))
    cut_share = sum(a.prompt_len == 1024 for a in workload.arrivals) / len(workload)
    return Claim(
        key="chat",
        title="C5 Conversations whose history is sent again",
        said="A chatbot serves twice the requests on the same memory.",
        source="Kwon et al., SOSP 2023, section 6.5 and figure 17",
        rows=(*rows, *_engine_rows(script, whole, found, cut)),
        left_out="the rates that are sustained, and most turns" if context.quick else "",
        notes=(
            MEANING,
            f"Simulated are {counted(len(workload), 'request')}, {workload.source}; "
            f"{100 * cut_share:.0f} % of the prompts are that long. The paper's are ShareGPT's own "
            "conversations, which are not to be had.",
            f"The engine runs the bundled model, {script.num_conversations} conversations of "
            f"{script.num_turns} turns, {script.question_len} tokens asked and "
            f"{script.answer_len} answered in each. The paper kept nothing between turns.",
        ),
        series={
            "batch": batches,
            "computed": {"whole": whole.computed, "found": found.computed, "cut": cut.computed},
            "wall": {"seconds": {"whole": whole.seconds, "found": found.seconds}},
        },
    )


# --- the paper's part: memory ------------------------------------------------------------------


def _batch(workload: Workload, name: str, context: Context) -> float:
    """Sequences computed in a step while others wait."""
    context.tell(f"batch, {name}")
    done = simulate(workload.head(300), Manager(name), setting=Setting(at_once=True))
    return done.queued.mean_running


def _rate(workload: Workload, name: str, context: Context, cost: CostModel | None = None) -> float:
    """Requests per second that it sustains."""
    context.tell(f"requests per second, {name}")
    return sustainable_rate(workload, Manager(name), cost).rate


def _batch_rows(batches: dict[str, float], few: bool) -> list[Row]:
    rows = [Row(f"{name}: sequences in a step", "", batches[name]) for name in MANAGERS]
    return rows + [
        Row(
            f"sequences in a step, {PAGED} / {name}",
            "2 x",
            batches[PAGED] / batches[name],
            "x",
            PAPER_RATIO,
            few=few,
        )
        for name in CONTIGUOUS
    ]


def _rate_rows(rates: dict[str, float]) -> list[Row]:
    why = (
        "a larger batch does not help to compute prompts, and a turn's is long; by the cost model "
        "1,024 tokens take a fifth of a second, and below is the ratio if they took none"
    )
    rows = [Row(f"sustained, {name}", "", rates[name], "requests/s") for name in MANAGERS]
    ratios = [
        Row(f"sustained, {PAGED} / {name}", "2 x", rates[PAGED] / rates[name], "x", PAPER_RATIO)
        for name in CONTIGUOUS
    ]
    return rows + [replace(r, note=why if r.verdict == "differs" else "") for r in ratios]


def _without_prompts(workload: Workload, context: Context) -> Row:
    """The least favourable ratio, as if prompts were computed in no time."""
    free = CostModel(flops_used=1e9)
    paged, oracle = (_rate(workload, name, context, free) for name in (PAGED, "oracle"))
    what = f"sustained, {PAGED} / oracle, if prompts took no time"
    return Row(what, "2 x", paged / oracle, "x", PAPER_RATIO)


# --- what the paper left out: the history is still there -----------------------------------------


def _play(context: Context, script: Script, way: str) -> Played:
    context.tell(f"conversations, history {way}")
    if way == "cut":
        script = replace(script, longest=LONGEST // (2 if context.quick else 1))
    return play(new_engine(prefix_caching=way != "computed"), script, context.seed)


def _engine_rows(script: Script, whole: Played, found: Played, cut: Played) -> list[Row]:
    after = [n for n, sent in zip(cut.found, range(script.num_turns)) if _is_cut(script, cut, sent)]
    sent, known = script.num_sent, script.num_all_known
    return [
        _counted("history computed again: prompt tokens", sum(whole.computed), sent),
        _counted("history found: prompt tokens", sum(found.computed), sent - known),
        _counted("history cut at its front: tokens found", sum(after), 0),
        Row("last turn, history computed again", "", 1e3 * whole.seconds[-1], "ms", wall=True),
        Row("last turn, history found", "", 1e3 * found.seconds[-1], "ms", wall=True),
        Row(
            "last turn, computed again / found",
            "",
            whole.seconds[-1] / found.seconds[-1],
            "x",
            wall=True,
        ),
    ]


def _counted(what: str, measured: int, expected: int) -> Row:
    tolerance = Tolerance.exactly(expected)
    return Row(what, "by counting", measured, tolerance=tolerance, basis="foretold")


def _is_cut(script: Script, cut: Played, turn: int) -> bool:
    """Whether a prompt of this turn lacks its beginning."""
    sent = (cut.computed[turn] + cut.found[turn]) // script.num_conversations
    return sent < script.prompt_len(turn)
