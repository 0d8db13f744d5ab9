"""downstream.svg: the distance to goals while a controller learns to use skills, the paper's downstream figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from disk.evaluation.metrics import intervals
from disk.figures.style import INK, method_look, method_name, nothing, panels, save, style, thousands

MOMENTS = 60
"""Number of steps at which means and intervals are computed."""
COLUMNS = ("low_level_step", "normalised_distance")


def downstream(curves: Mapping[str, Mapping[str, Sequence[pd.DataFrame]]], out: Path, *, title: str) -> None:
    """Draw a panel for each world and a line for each method: the mean over controllers and its interval.

    `curves` maps worlds and methods to one frame for each controller, with columns decision, low_level_step and
    normalised_distance. Beyond the end of the shortest run the mean is over the remaining ones.
    """
    methods = list(dict.fromkeys(method for own in curves.values() for method in own))
    with style():
        labels = ("environment steps", "distance to the goal / at the start")
        figure, shown = panels(max(1, len(curves)), 0.5, height=2.4, labels=labels)
        figure.suptitle(title)
        if not curves:
            nothing(shown[0], "no runs")
        for axes, (world, own) in zip(shown, curves.items(), strict=False):
            if len(curves) > 1:  # one world alone is named by the title
                axes.set_title(world.replace("_", " "))
            axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.5)
            drawn = [_curve(axes, method, frames, methods) for method, frames in own.items()]
            if not any(drawn):
                nothing(axes, "no runs")
            thousands(axes)
        shown[0].set_ylim(0, None)
        counts = {m: [len(own[m]) for own in curves.values() if m in own] for m in methods}
        handles = [
            Line2D([], [], label=f"{method_name(m)} ({_runs(counts[m])})", linewidth=1.5, **method_look(m, methods))
            for m in methods
        ]
        handles.append(Line2D([], [], color=INK, linewidth=0.8, linestyle=(0, (4, 2)), label="no nearer"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
        save(figure, out)


def _runs(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    number = str(high) if low == high else f"{low}–{high}"
    return f"{number} run{'' if number == '1' else 's'}"


def _curve(axes: Axes, method: str, frames: Sequence[pd.DataFrame], methods: Sequence[str]) -> bool:
    kept = [frame[list(COLUMNS)].replace([np.inf, -np.inf], np.nan).dropna() for frame in frames]
    kept = [frame.sort_values(COLUMNS[0], kind="stable") for frame in kept if len(frame)]
    if not kept:
        return False
    known = [frame.to_numpy().T for frame in kept]
    steps = np.unique(np.linspace(min(x[0] for x, _ in known), max(x[-1] for x, _ in known), MOMENTS))
    values = np.array([np.interp(steps, x, y, left=np.nan, right=np.nan) for x, y in known])
    mean, low, high = intervals(values)
    look: dict[str, Any] = method_look(method, methods)
    if len(kept) > 1:
        axes.fill_between(steps, low, high, color=look["color"], alpha=0.25, linewidth=0, zorder=2)
    every = max(1, len(steps) // 6)
    axes.plot(steps, mean, linewidth=1.5, markevery=(methods.index(method) % every, every), zorder=2.5, **look)
    return True
