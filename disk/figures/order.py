"""order.svg: the skills of one run in the order learned, the paper's figure of ten Ant skills."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.config import EvaluationJob
from disk.evaluation.metrics import distance, ends, sound
from disk.evaluation.tables import read_rollouts
from disk.figures.style import (
    FAINT,
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
    plane_scale,
    save,
    style,
)
from disk.storage.layout import Run

MANY = 20
"""With more skills than this, panels are smaller."""


def draw_order(job: EvaluationJob, drawn: int, steps: Sequence[int], rollouts: Path, out: Path) -> None:
    """Draw order.svg from the rollouts of one run."""
    run = Run.of(rollouts)
    order(
        read_rollouts(rollouts),
        out,
        title=f"{job.env}: skills of {method_name(run.method)} in the order learned, seed {run.seed}",
        one_dimensional=len(job.world.position.entries) == 1,
        drawn=drawn,
        steps=steps,
    )


def order(
    rollouts: pd.DataFrame, out: Path, *, title: str, one_dimensional: bool, drawn: int, steps: Sequence[int] = ()
) -> None:
    """Draw one panel for each skill in the order learned, with all earlier skills in grey behind it.

    `steps` holds the training steps of each skill. Worlds with one coordinate show the position over time.
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
