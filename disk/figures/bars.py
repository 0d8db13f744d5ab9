"""Bars with intervals over seeds: how far apart each method's skills end (the paper's figure of skill quality), and
what becomes of DISk without one of its parts (its ablations). The seeds are dots, and their number stands beside the
name. A method without a value keeps its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.evaluation.metrics import PAPER_HAUSDORFF, MeasuredRun, summarise
from disk.figures.style import INK, NOMINAL, QUIET, method_name, nothing, number, save, seeds_of, style

DISTANCES = {"hausdorff": "mean Hausdorff distance", "isolation": "mean isolation"}
COUNTED = {"distinct": "distinct movers"}
ABLATED = {
    "hausdorff": "mean Hausdorff distance (m), higher is better",
    "isolation": "mean isolation (m), higher is better",
    "movers": "movers, higher is better",
    "distinct": "distinct movers, higher is better",
    "coverage": "coverage (unit bins), higher is better",
    "consistency": "normalised variance, lower is better",
}
OURS = "disk"

_INTERVAL: dict[str, Any] = {"color": INK, "linewidth": 1.6, "marker": "|", "markersize": 7}
_SEED: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4, "color": INK, "markerfacecolor": "white"}
_PAPER: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 4.5, "color": INK, "clip_on": False}
_WHOLE: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.9, "color": INK}


def hausdorff(hausdorff_table: pd.DataFrame, summary: pd.DataFrame, out: Path, *, env: str) -> None:
    """How far apart each method's skills end: bars of the mean with its interval, the seeds as dots.

    One row of panels a condition (snapshots taken during training are left out). Isolation stands beside the
    Hausdorff distance, which one far skill is enough to raise, and the number of movers that can be told apart, where
    they are counted. The paper's values, where it has any for this world, are marks of their own: they come from longer
    training.
    """
    methods = list(dict.fromkeys([*summary["method"], *hausdorff_table["method"]]))
    conditions = dict.fromkeys([*summary["condition"], *hausdorff_table["condition"]])
    final = [condition for condition in conditions if "@" not in condition] or [*conditions] or [NOMINAL]
    with style():
        shown = DISTANCES | {metric: label for metric, label in COUNTED.items() if (summary["metric"] == metric).any()}
        size = (2.2 + 3.2 * len(shown), (0.55 + 0.4 * max(1, len(methods))) * len(final) + 1.1)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(final), len(shown), squeeze=False, sharex="col", sharey="row")
        figure.suptitle(f"{env}: how far apart skills end")
        for row, condition in zip(grid, final, strict=True):
            runs = hausdorff_table[hausdorff_table["condition"] == condition]
            for axes, (metric, label) in zip(row, shown.items(), strict=True):
                chosen = summary[(summary["condition"] == condition) & (summary["metric"] == metric)]
                bars = {bar.method: bar for bar in chosen.itertuples()}
                # The table of skills knows nothing of what is counted for a run as a whole.
                seeds = runs if metric in runs else pd.DataFrame(columns=["method", "seed", metric])
                _bars(axes, methods, bars, seeds.groupby(["method", "seed"])[metric].mean().reset_index())
                axes.set_title(label if len(final) == 1 else f"{label}, {condition}")
                if metric == "hausdorff":
                    _method_axis(axes, methods, bars)
                    _paper(axes, methods, env)
        for axes, metric in zip(grid[-1], shown, strict=True):
            axes.set(xlim=(0, None), xlabel="skills" if metric in COUNTED else "metres")
        for axes in grid.flat:
            axes.tick_params(axis="y", length=0)
        _marks(figure, paper=bool(PAPER_HAUSDORFF.get(env, {}).keys() & set(methods)))
        save(figure, out)


def _bars(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any], runs: pd.DataFrame) -> None:
    beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    for row, method in enumerate(methods):
        bar = bars.get(method)
        if bar is None or not np.isfinite(bar.mean):
            axes.annotate("no value", (1.02, row), color=QUIET, **beside)
            continue
        axes.barh(row, bar.mean, height=0.5, **_bar(method))
        label = number(bar.mean)
        if np.isfinite(bar.ci_low):
            axes.plot([bar.ci_low, bar.ci_high], [row, row], **_INTERVAL)
            label += f" [{number(bar.ci_low)}, {number(bar.ci_high)}]"
        dots = runs.loc[runs["method"] == method].iloc[:, -1]
        axes.plot(dots, [row] * len(dots), **_SEED)
        axes.annotate(label, (1.02, row), color=INK, **beside)
    if not methods:
        nothing(axes, "no runs")


def _bar(method: str) -> dict[str, Any]:
    """DISk and its variants stand out, by hatching too."""
    ours = method.partition("_")[0] == OURS
    return {
        "color": "#a9cdf0" if ours else "#dcdcdc",
        "edgecolor": QUIET,
        "linewidth": 0.6,
        "hatch": "//" if ours else "",
    }


def _method_axis(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any]) -> None:
    counts = [int(bars[method].seeds) if method in bars else 0 for method in methods]
    labels = [f"{method_name(method)}\n{seeds_of(n)}" for method, n in zip(methods, counts, strict=True)]
    axes.set(yticks=range(len(methods)), yticklabels=labels, ylim=(max(1, len(methods)) - 0.4, -0.6))


def _paper(axes: Axes, methods: Sequence[str], env: str) -> None:
    for method, value in PAPER_HAUSDORFF.get(env, {}).items():
        if method in methods:
            row = methods.index(method) + 0.38  # below the bar, where it hides nothing
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [row, row], color=INK, linewidth=0.8)
            axes.plot(value.mean, row, **_PAPER)


def _marks(figure: Figure, *, paper: bool, whole: bool = False) -> None:
    handles = [
        Line2D([], [], label="95 % bootstrap interval of the mean (five seeds or more)", **_INTERVAL),
        Line2D([], [], label="a seed (mean over its skills)", **_SEED),
    ]
    if paper:
        handles.append(Line2D([], [], label="paper (2.5M–5M steps), read off its figure", **_PAPER))
    if whole:
        handles.append(Line2D([], [], label="DISk itself", **_WHOLE))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def ablations(runs: Sequence[MeasuredRun], out: Path, *, env: str, condition: str) -> None:
    """DISk and its variants in one condition: bars of each measure, with DISk itself as a line through them."""
    ours = [(method, seed, frame[frame["condition"] == condition]) for method, seed, frame in runs]
    summary = summarise(ours)
    values = [
        frame.groupby("metric")["value"].mean().reset_index().assign(method=method, seed=seed)
        for method, seed, frame in ours
    ]
    of_runs = pd.concat(values) if values else pd.DataFrame(columns=["metric", "value", "method", "seed"])
    methods = sorted(dict.fromkeys(method for method, _, _ in ours), key=lambda method: method != OURS)
    with style():
        shown = {metric: label for metric, label in ABLATED.items() if (summary["metric"] == metric).any()} or ABLATED
        rows = -(-len(shown) // 2)
        figure = Figure(figsize=(9.2, (0.55 + 0.4 * max(1, len(methods))) * rows + 1.1), layout="constrained")
        grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
        world = "" if condition == NOMINAL else f", {condition.replace('_', ' ')}"
        figure.suptitle(f"{env}: DISk and what becomes of it when a part is changed{world}")
        for axes, (metric, label) in zip(grid.flat, shown.items(), strict=False):
            chosen = summary[summary["metric"] == metric]
            bars: dict[Any, Any] = {bar.method: bar for bar in chosen.itertuples()}
            own = of_runs[of_runs["metric"] == metric]
            _bars(axes, methods, bars, own[["method", "seed", "value"]])
            if OURS in bars and np.isfinite(bars[OURS].mean):
                axes.axvline(bars[OURS].mean, zorder=1.5, **_WHOLE)
            axes.set_title(label)
            axes.set(xlim=(0, None))
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=5)
        bars = {bar.method: bar for bar in summary[summary["metric"] == "hausdorff"].itertuples()}
        for axes in grid[:, 0]:
            _method_axis(axes, methods, bars)
        _marks(figure, paper=False, whole=bool(bars))
        save(figure, out)
