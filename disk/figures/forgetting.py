"""forgetting.svg: how far each skill gets in each world, right after its training and at the end of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from disk.figures.style import INK, WIDTH, method_name, nothing, save, seeds_of, style

MOST_NUMBERED = (10, 6)
"""Most skills and conditions for which the cells carry numbers."""
HEAT = {
    "distance_after_training": "right after training",
    "distance_final": "at the end",
    "change": "change",
}


def forgetting(table: pd.DataFrame, out: Path, *, env: str) -> None:
    """Draw heat maps of the distance in each condition: right after training, at the end, and the change.

    Each method has a row with means over seeds. The change is the mean over the seeds that have both distances. Cells
    without a value are hatched.
    """
    table = table.assign(change=table["distance_final"] - table["distance_after_training"])
    methods, conditions = list(dict.fromkeys(table["method"])), list(dict.fromkeys(table["condition"]))
    skills = np.arange(int(table["skill"].max()) + 1 if len(table) else 1)
    finite = table[list(HEAT)].abs().replace(np.inf, np.nan).max()
    furthest, change = (float(np.nanmax([*values, 0.0])) or 1.0 for values in (finite.iloc[:2], finite.iloc[2:]))
    digits = 2 if furthest < 10 else 1 if furthest < 100 else 0
    scales = [("viridis", Normalize(0, furthest))] * 2 + [("PuOr", Normalize(-change, change))]
    numbered = len(skills) <= MOST_NUMBERED[0] and len(conditions) <= MOST_NUMBERED[1]
    with style(), mpl.rc_context({"axes.grid": False, "hatch.linewidth": 0.5}):
        height = 0.5 + len(skills) * (0.19 if numbered else 0.13)
        width = max(WIDTH, 0.8 + 3 * len(conditions) * (0.5 if numbered else 0.35))
        size = (width, height * max(1, len(methods)) + 1.2)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(max(1, len(methods)), 3, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(f"{env}: what skills forget (distance from the start)")
        for axes, name in zip(grid[0], HEAT.values(), strict=True):
            axes.set_title(name)
        for row, method in zip(grid, methods, strict=False):
            own = table[table["method"] == method]
            seeds = own["seed"].nunique()
            row[0].set_ylabel(f"{method_name(method)} ({seeds_of(seeds)})\nskill")
            for axes, column, (colours, scale) in zip(row, HEAT, scales, strict=True):
                means = own.pivot_table(index="skill", columns="condition", values=column, dropna=False)
                values = means.reindex(index=skills, columns=conditions).to_numpy(dtype=float)
                _heat(axes, values, mpl.colormaps[colours], scale, digits if numbered else None)
        if not methods:
            nothing(grid[0, 1], "no runs")
        _heat_axes(grid, conditions, len(skills), (width - 0.8) / 3)
        bar: dict[str, Any] = {"location": "bottom", "aspect": 25, "shrink": 0.8, "fraction": 0.08}
        for columns, (colours, scale), label in ((slice(2), scales[0], "distance (m)"), (2, scales[2], "change (m)")):
            figure.colorbar(mpl.cm.ScalarMappable(scale, colours), ax=grid[-1, columns], label=label, **bar)
        save(figure, out)


def _heat(axes: Axes, values: np.ndarray, colours: Any, scale: Normalize, digits: int | None) -> None:
    axes.patch.set(facecolor="#efefef", edgecolor="#bdbdbd", hatch="////")  # shows through where a cell has no value
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=scale, edgecolor="white", linewidth=0.5)
    if digits is None:
        return
    for (skill, condition), value in np.ndenumerate(values):
        if np.isfinite(value):
            light = np.dot(colours(scale(value))[:3], (0.2126, 0.7152, 0.0722)) > 0.5
            place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5}
            number = f"{round(value, digits) + 0.0:.{digits}f}"  # no "-0.0"
            axes.text(condition + 0.5, skill + 0.5, number, color=INK if light else "white", **place)


def _heat_axes(grid: np.ndarray, conditions: Sequence[str], skills: int, width: float) -> None:
    """Label the axes. `width` is a heat map's, in inches: names that are too long for it are turned."""
    shown = [skill for skill in range(skills) if skills <= 20 or skill == 0 or (skill + 1) % 5 == 0]
    tight = 0.08 * max(map(len, conditions), default=0) * len(conditions) > width
    turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if tight else {}
    for axes in grid.flat:
        axes.set(xlim=(0, max(1, len(conditions))), ylim=(skills, 0))  # the first skill on top
        axes.set_yticks([skill + 0.5 for skill in shown], [str(skill + 1) for skill in shown])
        axes.set_xticks(np.arange(len(conditions)) + 0.5, [name.replace("_", " ") for name in conditions], **turned)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
