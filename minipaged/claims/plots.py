"""What each figure shows: a claim's series onto axes; knows no theme and no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .occupancy import CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Mapping[str, Any]
Colours = Sequence[str]

HATCHES = ("", "//", "--", "xx", "\\\\")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STROKES = ("-", "--", "-.", ":")
WAYS = {  # of the attention kernel to read K and V
    "contiguous": "contiguous",
    "identity": "blocks in order",
    "permuted": "blocks permuted",
    "torch": "torch on contiguous",
}
LEAST_LABELLED = 6.0  # per cent of a bar below which there is no room for a number


def waste(figure: Figure, series: Series, colours: Colours) -> None:
    """What the pool's slots do, per workload and manager: stacked bars that add up to 100."""
    bars: Mapping[str, Mapping[str, Mapping[str, float]]] = series["bars"]
    figure.set_size_inches(8, 0.9 + sum(0.55 + 0.38 * len(each) for each in bars.values()))
    ratios = [len(each) + 1 for each in bars.values()]
    rows = figure.subplots(len(bars), 1, sharex=True, squeeze=False, height_ratios=ratios)
    for axes, (workload, managers) in zip(rows[:, 0], bars.items()):
        _stacked(axes, managers, colours)
        axes.set_title(workload)
    rows[-1, 0].set_xlabel("% of the pool, while requests wait")
    handles, names = rows[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(CLASSES))


def _stacked(axes: Axes, managers: Mapping[str, Mapping[str, float]], colours: Colours) -> None:
    names, left = list(managers), [0.0] * len(managers)
    for (key, label), hatch, colour in zip(CLASSES.items(), HATCHES, colours):
        widths = [managers[name][key] for name in names]
        drawn = axes.barh(names, widths, left=left, label=label, color=colour, hatch=hatch)
        texts = [f"{w:.0f}" if w >= LEAST_LABELLED else "" for w in widths]
        paper = axes.get_facecolor()
        for text in axes.bar_label(drawn, texts, label_type="center"):
            text.set_bbox({"facecolor": paper, "edgecolor": "none", "pad": 1.0})
        left = [a + b for a, b in zip(left, widths)]
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def throughput(figure: Figure, series: Series, colours: Colours) -> None:
    """Sequences in a step, over time."""
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    for i, (name, curve) in enumerate(series["batch"].items()):
        _line(axes, i, colours, curve["time"], curve["running"], name, sparse=True)
    axes.set_xlabel("simulated seconds")
    axes.set_ylabel("sequences in a step")
    axes.set_title(str(series.get("workload", "")))
    axes.legend()


def sharing(figure: Figure, series: Series, colours: Colours) -> None:
    """Blocks saved, per way to decode and number of sequences; the paper's values as marks."""
    panels: Mapping[str, Mapping[str, float]] = series["savings"]
    figure.set_size_inches(8, 3.6)
    columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for i, (axes, (name, savings)) in enumerate(zip(columns[0], panels.items())):
        axes.bar(
            list(savings), list(savings.values()), color=colours[i], hatch=HATCHES[i + 1], width=0.6
        )
        said = series.get("paper", {}).get(name, {})
        axes.scatter(
            list(said), list(said.values()), marker="D", color=colours[-1], zorder=3, label="paper"
        )
        axes.set_title(name)
        axes.set_xlabel("sequences per request")
    columns[0, 0].set_ylabel("blocks saved, %")
    columns[0, -1].legend()


def hit_rate(figure: Figure, series: Series, colours: Colours) -> None:
    """Prompt tokens found, by the size of the pool: the engine's pool and the best possible."""
    curves: Mapping[str, Mapping[str, list[float]]] = series["hit_rate"]
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    for i, (workload, curve) in enumerate(curves.items()):
        for j, (key, name) in enumerate({"best": "at best", "engine": "the engine"}.items()):
            label = f"{workload}, {name}"
            _line(axes, 2 * i + j, colours, curve["num_blocks"], curve[key], label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("blocks of the pool (one piece of 512 tokens each)")
    axes.set_ylabel("prompt tokens found, %")
    axes.legend()


def block_size(figure: Figure, series: Series, colours: Colours) -> None:
    """Waste, batch and the kernel's time by tokens per block."""
    sweep: Mapping[str, Mapping[str, list[float]]] = series["sweep"]
    kernel = series.get("wall", {}).get("kernel_ms")
    figure.set_size_inches(8, 3.4)
    panels = list(figure.subplots(1, 3 if kernel else 2, squeeze=False)[0])
    names = {"waste": "held and empty, %", "batch": "sequences in a step"}
    for axes, (key, label) in zip(panels, names.items()):
        for i, (workload, curve) in enumerate(sweep.items()):
            _line(axes, i, colours, curve["block_size"], curve[key], workload)
        axes.set_title(label)
    if kernel:
        _line(panels[2], 4, colours, kernel["block_size"], kernel["ms"], "")
        panels[2].set_title("the kernel, ms (wall time)")
    for axes in panels:
        _by_block_size(axes)
    panels[0].legend()


def preemption(figure: Figure, series: Series, colours: Colours) -> None:
    """Seconds to come back, recomputed or swapped, by tokens per block."""
    sweep: Mapping[str, list[float]] = series["sweep"]
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    for i, name in enumerate(("recompute", "swap")):
        _line(axes, i, colours, sweep["block_size"], sweep[name], name)
    axes.set_ylabel("seconds to leave and come back")
    axes.set_ylim(bottom=0)
    _by_block_size(axes)
    axes.legend()


def chat(figure: Figure, series: Series, colours: Colours) -> None:
    """Prompt tokens computed, turn by turn."""
    names = {
        "whole": "history computed again",
        "cut": "history cut at its front",
        "found": "history found",
    }
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    for i, (key, name) in enumerate(names.items()):
        computed = series["computed"][key]
        _line(axes, i, colours, range(1, len(computed) + 1), computed, name)
    axes.set_xlabel("turn")
    axes.set_ylabel("prompt tokens computed")
    axes.legend()


def kernel(figure: Figure, series: Series, colours: Colours) -> None:
    """Milliseconds of one attention step, per shape and way to keep K and V."""
    shapes: list[dict[str, Any]] = series["wall"]["kernel"]
    figure.set_size_inches(8, 4)
    axes, ways = figure.subplots(), list(shapes[0]["ms"])
    for i, way in enumerate(ways):
        places = [x + (i - (len(ways) - 1) / 2) / (len(ways) + 1) for x in range(len(shapes))]
        heights = [shape["ms"][way] for shape in shapes]
        width = 1 / (len(ways) + 1)
        axes.bar(places, heights, width, label=WAYS[way], color=colours[i], hatch=HATCHES[i])
    axes.set_xticks(range(len(shapes)), [f"{s['num_seqs']} x {s['context']}" for s in shapes])
    axes.set_xlabel("sequences x keys of each")
    axes.set_ylabel("ms, one thread (wall time)")
    axes.legend()


PLOTS: dict[str, Callable[[Figure, Series, Colours], None]] = {
    "waste": waste,
    "throughput": throughput,
    "sharing": sharing,
    "chat": chat,
    "block_size": block_size,
    "kernel": kernel,
    "hit_rate": hit_rate,
    "preemption": preemption,
}


def _line(
    axes: Axes,
    i: int,
    colours: Colours,
    x: Sequence[float],
    y: Sequence[float],
    label: str,
    sparse: bool = False,
) -> None:
    """The i-th line: its own colour, stroke and marker; ``sparse`` marks only some points."""
    axes.plot(
        x,
        y,
        label=label,
        color=colours[i % len(colours)],
        linestyle=STROKES[i % len(STROKES)],
        marker=MARKERS[i % len(MARKERS)],
        markevery=max(1, len(x) // 12) if sparse else 1,
    )


def _by_block_size(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("tokens per block")
