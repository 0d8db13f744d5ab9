"""Figures over time: how much the episodes of a skill differ while they run (the paper's normalised variance), and
the curves of training with the terms of each reward. A panel a method, so that any number of them stays readable.
"""

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
from disk.figures.style import (
    FAINT,
    INK,
    LINES,
    PALETTE,
    QUIET,
    method_look,
    method_name,
    nothing,
    save,
    seeds_of,
    style,
    thousands,
)

MOMENTS = 100
"""Steps at which intervals are computed."""
ABREAST = 5
SPEED = "speed"
TERMS: dict[str, dict[str, str]] = {
    "reward": {"reward/mean": "mean of the batch"},
    "what it is made of": {
        "reward/consistency": "$r_c$",
        "reward/diversity": "$r_d$",
        "train/discriminator_accuracy": "discriminator accuracy",
        "train/dynamics_loss": "dynamics loss",
        "train/squared_length": "squared step in φ",
    },
    "entropy": {"train/entropy": "entropy"},
    "mean speed": {SPEED: "|mean σ|"},
}
"""Panels of the training curves: a title, the columns of progress.csv that are drawn if they are there, their names."""


def consistency(runs: Mapping[str, Sequence[tuple[str, pd.DataFrame]]], out: Path, *, env: str) -> None:
    """Normalised variance over time in each condition: (method, rollouts) of every run, one run a seed."""
    methods = list(dict.fromkeys(method for own in runs.values() for method, _ in own))
    conditions = list(runs) or ["nominal"]
    columns, rows = min(ABREAST, max(1, len(methods))), ceil(max(1, len(methods)) / ABREAST)
    with style():
        size = (max(6.6, 1.75 * columns + 0.8), 1.65 * rows * len(conditions) + 1.2)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows * len(conditions), columns, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(f"{env}: how much the episodes of a skill differ")
        for block, condition in enumerate(conditions):
            panels = list(grid[block * rows : (block + 1) * rows].flat)
            curves = {method: _of_seeds(method, runs.get(condition, ())) for method in methods}
            for axes, method in zip(panels, methods, strict=False):
                _variance(axes, method, curves, methods)
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
    """The curve of each seed with any value above zero, which is all that a logarithm shows: (steps, seeds)."""
    curves = [run_consistency(rollouts) for name, rollouts in runs if name == method]
    table = pd.concat([pd.Series(dtype=float), *curves], axis=1).iloc[:, 1:].sort_index()
    table = table[table.index >= 1]
    return table.where(table > 0).dropna(axis="columns", how="all")


def _variance(axes: Axes, method: str, curves: Mapping[str, pd.DataFrame], methods: Sequence[str]) -> None:
    for other, table in curves.items():
        if other != method and table.shape[1]:
            axes.plot(table.index, table.mean(axis=1), color=FAINT, linewidth=0.8, zorder=1.8, rasterized=True)
    own = curves[method]
    if not own.shape[1]:
        nothing(axes, "no value")
        return
    steps = own.index.to_numpy()[np.unique(np.linspace(0, len(own) - 1, MOMENTS).astype(int))]
    mean, low, high = intervals(own.loc[steps].to_numpy().T)
    colour = method_look(method, methods)["color"]
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


def curves(progress: Mapping[str, Sequence[pd.DataFrame]], out: Path, *, env: str) -> None:
    """Training curves from the progress.csv of every run, by method: a row a method, a column a quantity.

    Skills that were learned one after another lie along the axis of global steps, every second one shaded.
    """
    names = list(TERMS)
    rows = max(1, len(progress))
    with style():
        figure = Figure(figsize=(11.0, 1.45 * rows + 1.1), layout="constrained")
        grid = figure.subplots(rows, len(names), squeeze=False, sharex="row")
        figure.suptitle(f"{env}: training curves (every line a seed)")
        for axes, name in zip(grid[0], names, strict=True):
            axes.set_title(name)
        for row, (method, frames) in zip(grid, progress.items(), strict=False):
            placed = [_global(frame) for frame in frames if len(frame)]
            row[0].set_ylabel(f"{method_name(method)}\n{seeds_of(len(placed))}")
            for axes, name in zip(row, names, strict=True):
                thousands(axes)
                _terms(axes, placed, TERMS[name])
        for axes in grid[-1]:
            axes.set_xlabel("environment steps")
        if not progress:
            nothing(grid[0, 0], "no runs")
        shaded = Patch(color="#f0f0f0", label="the first, third, … skill of a chain (of its first seed)")
        figure.legend(handles=[shaded], loc="outside lower center")
        save(figure, out)


def _global(frame: pd.DataFrame) -> pd.DataFrame:
    """With global steps, the skill, and the speed; of a chain, a row without values between skills, for a gap."""
    chain = "skill" in frame
    moved = frame.assign(skill=frame["skill"] if chain else 0, step=frame["time/total_timesteps"])
    last = moved.groupby("skill")["step"].max()
    begins = last.cumsum() - last
    moved["begins"] = moved["skill"].map(begins)
    moved["step"] += moved["begins"]
    sigma = moved[[name for name in ("rollout/sigma_x", "rollout/sigma_y") if name in moved]]
    moved[SPEED] = np.sqrt((sigma**2).sum(axis=1, skipna=False)) if sigma.shape[1] else np.nan
    gaps = pd.DataFrame({"skill": begins.index, "step": begins.to_numpy(), "begins": begins.to_numpy(), "gap": True})
    joined = pd.concat([moved.assign(gap=False), gaps.astype({"skill": moved["skill"].dtype})] if chain else [moved])
    return joined.sort_values(["skill", "step"], kind="stable", ignore_index=True)


def _terms(axes: Axes, frames: Sequence[pd.DataFrame], terms: Mapping[str, str]) -> None:
    there = [name for name in terms if any(name in frame and frame[name].notna().any() for frame in frames)]
    if not there:
        nothing(axes, "not logged")
        return
    begins = np.unique(frames[0]["begins"])
    bounds = [*begins, frames[0]["step"].max()]
    for start, end in zip(bounds[0::2], bounds[1::2], strict=False):
        if len(begins) > 1:
            axes.axvspan(start, end, color="#f0f0f0", linewidth=0, zorder=0.5)
    for place, name in enumerate(there):
        for frame in frames:
            if name in frame:
                few = len(frame) <= 60
                line: dict[str, Any] = {"linestyle": LINES[place], "linewidth": 1.1, "color": PALETTE[2 * place]}
                marks: dict[str, Any] = {"marker": "os^"[place], "markersize": 2.5} if few else {}
                axes.plot(frame["step"], frame[name], rasterized=not few, **line, **marks)
    if len(there) > 1 or len(terms) > 1:
        shown = [
            Line2D([], [], linestyle=LINES[place], color=PALETTE[2 * place], label=terms[name], linewidth=1.1)
            for place, name in enumerate(there)
        ]
        axes.legend(handles=shown, loc="upper right", fontsize=7, handlelength=2.2, borderpad=0.1, labelcolor=QUIET)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.22 * len(there) * (high - low))  # room for the names
