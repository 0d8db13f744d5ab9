"""curves.svg: training curves of all methods, with the terms of their rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from disk.figures.style import LINES, PALETTE, QUIET, method_name, nothing, save, seeds_of, style, thousands
from disk.storage.layout import Run

SPEED = "speed"
TERMS: dict[str, dict[str, str]] = {
    "reward": {"reward/mean": "mean of the batch"},
    "terms of the reward": {
        "reward/consistency": "$r_c$",
        "reward/diversity": "$r_d$",
        "train/discriminator_accuracy": "discriminator accuracy",
        "train/dynamics_loss": "dynamics loss",
        "train/squared_length": "squared step in φ",
    },
    "entropy": {"train/entropy": "entropy"},
    "mean speed": {SPEED: "|mean σ|"},
}
"""Titles of the panels, the columns of progress.csv drawn in each, and the names of these columns."""
SHADE = "#f0f0f0"


def draw_curves(env: str, progress: Sequence[Path], out: Path) -> None:
    """Draw curves.svg from the progress.csv of all runs."""
    runs: dict[str, list[pd.DataFrame]] = {}
    for path in progress:
        try:
            frame = pd.read_csv(path)
        except pd.errors.EmptyDataError:  # a training without a single update
            frame = pd.DataFrame()
        runs.setdefault(Run.of(path).method, []).append(frame)
    curves(runs, out, env=env)


def curves(progress: Mapping[str, Sequence[pd.DataFrame]], out: Path, *, env: str) -> None:
    """Draw training curves: a row for each method, a column for each quantity, a line for each seed.

    Skills of a chain follow each other along the axis of global steps, every second one shaded.
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
        shaded = Patch(color=SHADE, label="the first, third, … skill of a chain (of its first seed)")
        figure.legend(handles=[shaded], loc="outside lower center")
        save(figure, out)


def _global(frame: pd.DataFrame) -> pd.DataFrame:
    """Add global steps, the skill and the speed; a chain gets an empty row between skills, which leaves a gap."""
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
            axes.axvspan(start, end, color=SHADE, linewidth=0, zorder=0.5)
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
