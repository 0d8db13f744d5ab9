"""trajectories.svg: the paths of all methods' skills side by side, the paper's trajectory figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.config import Config, EvaluationJob
from disk.evaluation.metrics import ends, sound
from disk.evaluation.tables import read_rollouts
from disk.figures.style import (
    ORIGIN,
    PALETTE,
    QUIET,
    by_skill,
    first,
    look,
    method_name,
    nothing,
    panels,
    plane,
    plane_scale,
    save,
    skill_key,
    style,
)
from disk.storage.layout import Run, rollouts_of


def draw_trajectories(job: EvaluationJob, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Draw trajectories.svg from the rollouts of runs: the first run of each method."""
    first_of: dict[str, Path] = {}
    for path in rollouts:
        first_of.setdefault(Run.of(path).method, path)
    trajectories(
        {method: read_rollouts(path) for method, path in first_of.items()},
        out,
        title=job.env,
        one_dimensional=len(job.world.position.entries) == 1,
        drawn=drawn,
    )


def draw_run(config: Config, run: Path) -> Path:
    """Draw the paths of one run's skills in its first condition; return the figure."""
    env, out = Run.of(run.resolve()).env, run / "trajectories.svg"
    condition = next(iter(config.environment(env).conditions))
    rollouts = [rollouts_of(run.resolve(), condition)]
    draw_trajectories(config.evaluation_job(env, condition), config.evaluation.drawn, rollouts, out)
    return out


def trajectories(runs: Mapping[str, pd.DataFrame], out: Path, *, title: str, one_dimensional: bool, drawn: int) -> None:
    """Draw a panel of paths for each method, all on one scale, with `drawn` episodes a skill.

    Worlds with one coordinate show the ends of episodes instead, one row a skill in the order learned. A method
    without rollouts keeps an empty panel.
    """
    kept = {method: first(sound(rollouts), drawn) for method, rollouts in runs.items()}
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in runs.values() if len(rollouts)), default=1)
    with style():
        key = 0.3 if one_dimensional else 0.35 + 0.19 * ceil(skills / len(PALETTE))
        line: dict[str, Any] = {"height": 0.5 + 0.14 * skills, "labels": ("final x (m)", "skill")}
        figure, shown = panels(max(1, len(runs)), key, **(line if one_dimensional else {}))
        figure.suptitle(title)
        if not runs:
            nothing(shown[0], "no runs")
        for axes, (method, rollouts) in zip(shown, kept.items(), strict=False):
            axes.set_title(method_name(method))
            if not len(rollouts):
                nothing(axes, "no rollouts")
            elif one_dimensional:
                _line(axes, rollouts)
            else:
                plane(axes, rollouts)
        if one_dimensional:
            _line_scale(shown, skills)
            _line_key(figure)
        else:
            plane_scale(shown, list(kept.values()))
            skill_key(figure, skills)
        save(figure, out)


def _line(axes: Axes, rollouts: pd.DataFrame) -> None:
    points = ends(rollouts)
    start = float(points["start_x"].mean())
    axes.axvline(start, zorder=1, **ORIGIN)
    for skill, own in by_skill(points):
        marks = {**look(skill), "linestyle": ""}
        axes.plot([start, own["x"].mean()], [skill + 1] * 2, color=marks["color"], linewidth=1.0, alpha=0.6)
        axes.plot(own["x"], [skill + 1] * len(own), alpha=0.9, **marks)


def _line_scale(shown: Sequence[Axes], skills: int) -> None:
    every = 1 if skills <= 20 else 5
    rows = [row for row in range(1, skills + 1) if row == 1 or row % every == 0]
    shown[0].set(ylim=(skills + 0.7, 0.3), yticks=rows)  # the first skill on top; the panels share their axes
    for axes in shown:
        axes.locator_params(axis="x", nbins=5)


def _line_key(figure: Figure) -> None:
    end = {**look(0), "linestyle": "", "color": QUIET}
    handles = [Line2D([], [], label="end of an episode", **end), Line2D([], [], label="start", **ORIGIN)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
