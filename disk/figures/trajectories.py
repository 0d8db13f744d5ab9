"""Where skills go, in the language of `disk.figures.style`: those of all methods side by side (the paper's trajectory
figure), and those of one run in the order in which they were learned (its ten Ant skills). What is missing (a method
without runs, a skill without a sound episode) leaves its place empty and breaks nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.evaluation.metrics import distance, ends, sound
from disk.figures.style import (
    FAINT,
    ORIGIN,
    PALETTE,
    QUIET,
    START,
    by_skill,
    first,
    look,
    method_name,
    nothing,
    number,
    panels,
    plane,
    plane_key,
    plane_scale,
    save,
    style,
)

MANY = 20
"""Skills from which on more of them are drawn side by side."""


def trajectories(runs: Mapping[str, pd.DataFrame], out: Path, *, title: str, one_dimensional: bool, drawn: int) -> None:
    """Where each method's skills go: a panel a method, all on one scale, `drawn` episodes a skill.

    In worlds with one coordinate: where the episodes end on a line, one row a skill, in the order learned.
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
            plane_key(figure, skills)
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


def order(
    rollouts: pd.DataFrame, out: Path, *, title: str, one_dimensional: bool, drawn: int, steps: Sequence[int] = ()
) -> None:
    """The skills of one run in the order learned, a panel a skill, with all earlier ones in grey behind it.

    `steps` are those that each was trained for. In worlds with one coordinate: the position over time.
    """
    skills = int(rollouts["skill"].max()) + 1 if len(rollouts) else 0
    whole = sound(rollouts)
    kept = first(whole, drawn)
    away = {
        skill: distance(own[["start_x", "start_y"]].to_numpy(), own[["x", "y"]].to_numpy())
        for skill, own in by_skill(ends(whole))
    }
    with style():
        shape: dict[str, Any] = {"height": 1.3, "labels": ("step", "x (m)")} if one_dimensional else {}
        abreast = 5 if skills <= MANY else 8
        figure, shown = panels(max(1, skills), 0.3, abreast=abreast, least=1.8, **shape)
        figure.suptitle(title)
        if not skills:
            nothing(shown[0], "no rollouts")
        for skill, axes in enumerate(shown[:skills]):
            trained = f", {steps[skill]:,} steps" if skill < len(steps) else ""
            gone = f"{number(away[skill])} m" if skill in away else "no sound episode"
            axes.set_title(f"skill {skill + 1}{trained}\n{gone}", fontsize=8.5)
            for other, own in by_skill(kept[kept["skill"] <= skill]):
                _paths(axes, own, other, earlier=other < skill, over_time=one_dimensional)
            if skill not in away:
                nothing(axes, "no rollouts")
        if one_dimensional:
            shown[0].locator_params(nbins=4)
        else:
            plane_scale(shown, [kept])
        _order_key(figure, one_dimensional)
        save(figure, out)


def _paths(axes: Axes, own: pd.DataFrame, skill: int, *, earlier: bool, over_time: bool) -> None:
    lines = {**look(skill), "linestyle": "-"}
    for _, path in own.sort_values("step", kind="stable").groupby("episode"):
        x, y = (path["step"], path["x"]) if over_time else (path["x"], path["y"])
        thin: dict[str, Any] = (
            {"color": FAINT, "linewidth": 0.7} if earlier else {"color": lines["color"], "linewidth": 1.3}
        )
        axes.plot(x, y, rasterized=True, zorder=2.0 if earlier else 2.1, **thin)
        if not earlier:
            axes.plot(x.iloc[-1:], y.iloc[-1:], rasterized=True, zorder=2.2, **lines)
    if not earlier and not over_time:
        axes.plot(*ends(own)[["start_x", "start_y"]].mean(), zorder=4, **START)


def _order_key(figure: Figure, one_dimensional: bool) -> None:
    end = {**look(0), "linestyle": "", "color": QUIET}
    handles = [
        Line2D([], [], label="an episode of the skill", color=PALETTE[0], linewidth=1.3),
        Line2D([], [], label="end of an episode", **end),
        Line2D([], [], label="earlier skills", color=FAINT, linewidth=1.3),
    ]
    if not one_dimensional:
        handles.append(Line2D([], [], label="start", **START))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
