"""Bars of methods with intervals over seeds, shared by hausdorff.svg and ablations.svg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.figures.catalogue import OURS
from disk.figures.style import INK, QUIET, method_colour, method_name, nothing, number, seeds_of

_INTERVAL: dict[str, Any] = {"color": INK, "linewidth": 1.6, "marker": "|", "markersize": 7}
_SEED: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4, "color": INK, "markerfacecolor": "white"}
PAPER: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 4.5, "color": INK, "clip_on": False}
WHOLE: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.9, "color": INK}


def draw_bars(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any], runs: pd.DataFrame) -> None:
    """Draw a row for each method: the mean, its interval and the seeds. A method without a value keeps its row."""
    beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    for row, method in enumerate(methods):
        bar = bars.get(method)
        if bar is None or not np.isfinite(bar.mean):
            axes.annotate("no value", (1.02, row), color=QUIET, **beside)
            continue
        axes.barh(row, bar.mean, height=0.5, **_bar(method))
        label = number(bar.mean)
        if np.isfinite(bar.ci_low):
            axes.plot([bar.ci_low, bar.ci_high], [row, row], color="white", linewidth=3.2)  # stands out on dark bars
            axes.plot([bar.ci_low, bar.ci_high], [row, row], **_INTERVAL)
            label += f" [{number(bar.ci_low)}, {number(bar.ci_high)}]"
        dots = runs.loc[runs["method"] == method].iloc[:, -1]
        axes.plot(dots, [row] * len(dots), **_SEED)
        axes.annotate(label, (1.02, row), color=INK, **beside)
    if not methods:
        nothing(axes, "no runs")


def _bar(method: str) -> dict[str, Any]:
    """Return the look of a method's bar: its colour, and DISk's is hatched."""
    return {
        "color": method_colour(method),
        "edgecolor": "white",
        "linewidth": 0.6,
        "hatch": "//" if method == OURS else "",
    }


def method_axis(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any]) -> None:
    """Label the rows with methods and their numbers of seeds."""
    counts = [int(bars[method].seeds) if method in bars else 0 for method in methods]
    labels = [f"{method_name(method)}\n{seeds_of(n)}" for method, n in zip(methods, counts, strict=True)]
    axes.set(yticks=range(len(methods)), yticklabels=labels, ylim=(max(1, len(methods)) - 0.4, -0.6))


def marks_key(figure: Figure, *, paper: bool, whole: bool = False) -> None:
    """Add the key of all marks."""
    handles = [
        Line2D([], [], label="95 % bootstrap interval of the mean (five seeds or more)", **_INTERVAL),
        Line2D([], [], label="a seed (mean over its skills)", **_SEED),
    ]
    if paper:
        handles.append(Line2D([], [], label="paper (2.5M–5M steps), read off its figure", **PAPER))
    if whole:
        handles.append(Line2D([], [], label="DISk itself", **WHOLE))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
