"""consistency.svg: how much the episodes of a skill differ over time, the paper's normalised variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from disk.evaluation.metrics import intervals, run_consistency
from disk.evaluation.tables import read_rollouts
from disk.figures.style import (
    FAINT,
    INK,
    NOMINAL,
    PALETTE,
    WIDTH,
    method_colour,
    method_name,
    nothing,
    save,
    seeds_of,
    style,
)
from disk.storage.layout import Run

MOMENTS = 100
"""Number of steps at which intervals are computed."""
ABREAST = 5


def draw_consistency(env: str, rollouts: Sequence[Path], out: Path) -> None:
    """Draw consistency.svg from the rollouts of all runs in all conditions."""
    runs: dict[str, list[tuple[str, pd.DataFrame]]] = {}
    for path in rollouts:
        runs.setdefault(path.stem, []).append((Run.of(path).method, read_rollouts(path)))
    consistency(runs, out, env=env)


def consistency(runs: Mapping[str, Sequence[tuple[str, pd.DataFrame]]], out: Path, *, env: str) -> None:
    """Draw the variance over time, a panel for each method and condition.

    `runs` maps each condition to the method and the rollouts of every run in it.
    """
    methods = list(dict.fromkeys(method for own in runs.values() for method, _ in own))
    conditions = list(runs) or [NOMINAL]
    columns, rows = min(ABREAST, max(1, len(methods))), ceil(max(1, len(methods)) / ABREAST)
    with style():
        size = (max(WIDTH, 1.75 * columns + 0.8), 1.65 * rows * len(conditions) + 1.2)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows * len(conditions), columns, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(f"{env}: how much the episodes of a skill differ")
        for block, condition in enumerate(conditions):
            panels = list(grid[block * rows : (block + 1) * rows].flat)
            curves = {method: _of_seeds(method, runs.get(condition, ())) for method in methods}
            for axes, method in zip(panels, methods, strict=False):
                _variance(axes, method, curves)
                where = f"\n{condition.replace('_', ' ')}" if len(conditions) > 1 else ""
                axes.set_title(f"{method_name(method)}, {seeds_of(curves[method].shape[1])}{where}", fontsize=8.5)
            for spare in panels[max(1, len(methods)) :]:
                spare.remove()
            for lowest in panels[: max(1, len(methods))][-columns:]:
                lowest.tick_params(labelbottom=True)
                lowest.set_xlabel("step")
            panels[0].set_ylabel("normalised variance")
        if not methods:
            nothing(grid[0, 0], "no runs")
        elif any(axes.get_lines() for axes in figure.axes):
            grid[0, 0].set_yscale("log")
        _variance_key(figure)
        save(figure, out)


def _of_seeds(method: str, runs: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return the curves of all seeds, (steps, seeds). Values of zero are left out: a logarithm cannot show them."""
    curves = [run_consistency(rollouts) for name, rollouts in runs if name == method]
    table = pd.concat([pd.Series(dtype=float), *curves], axis=1).iloc[:, 1:].sort_index()
    table = table[table.index >= 1]
    return table.where(table > 0).dropna(axis="columns", how="all")


def _variance(axes: Axes, method: str, curves: Mapping[str, pd.DataFrame]) -> None:
    for other, table in curves.items():
        if other != method and table.shape[1]:
            axes.plot(table.index, table.mean(axis=1), color=FAINT, linewidth=0.8, zorder=1.8, rasterized=True)
    own = curves[method]
    if not own.shape[1]:
        nothing(axes, "no value")
        return
    steps = own.index.to_numpy()[np.unique(np.linspace(0, len(own) - 1, MOMENTS).astype(int))]
    mean, low, high = intervals(own.loc[steps].to_numpy().T)
    colour = method_colour(method)
    if own.shape[1] > 1:
        axes.fill_between(steps, low, high, color=colour, alpha=0.3, linewidth=0, zorder=2)
        axes.plot(own.index, own, color=INK, linewidth=0.4, alpha=0.7, zorder=2.1)
    axes.plot(steps, mean, color="white", linewidth=3.0, zorder=2.2)
    axes.plot(steps, mean, color=colour, linewidth=1.8, zorder=2.3)


def _variance_key(figure: Figure) -> None:
    handles: list[Any] = [
        Line2D([], [], color=PALETTE[0], linewidth=1.8, label="mean over skills and seeds (lower is better)"),
        Patch(color=PALETTE[0], alpha=0.3, label="95 % bootstrap interval (five seeds or more)"),
        Line2D([], [], color=INK, linewidth=0.4, label="a seed"),
        Line2D([], [], color=FAINT, linewidth=0.8, label="the other methods"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
