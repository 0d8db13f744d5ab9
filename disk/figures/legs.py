"""legs.svg: methods side by side under every condition, such as each dead leg, at the end and at the last snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from disk.config import Environment, World
from disk.evaluation.tables import read_rollouts
from disk.figures import scene
from disk.figures.style import PALETTE, WIDTH, method_name, nothing, save, skill_key, style
from disk.storage.layout import Run


def draw_legs(environment: Environment, title: str, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Draw legs.svg from rollouts/{condition}[@{step}].parquet of one run a method.

    Incremental skills are frozen, so their column of the snapshot shows the skills finished by its step.
    """
    final: dict[str, dict[str, pd.DataFrame]] = {}
    taken: dict[str, dict[str, pd.DataFrame]] = {}
    for path in rollouts:
        condition, at, _ = path.stem.partition("@")
        (taken if at else final).setdefault(Run.of(path).method, {})[condition] = read_rollouts(path)
    moments = {name: step for name, step in environment.moments.items() if step != "trained"}
    columns: dict[str, dict[str, pd.DataFrame]] = {}
    last = environment.snapshots[-1] if environment.snapshots else None
    for method, own in final.items():
        if last is not None:
            done = sum(environment.start_of(skill + 1) <= last for skill in range(environment.skills))
            then = taken.get(method, {name: frame[frame["skill"] < done] for name, frame in own.items()})
            said = "" if method in taken else f" ({done} skills)"
            columns[f"{method_name(method)}\nafter {last:,} steps{said}"] = then
        columns[f"{method_name(method)}\nat the end"] = own
    legs(environment.world(), moments, columns, out, title=title, drawn=drawn)


def legs(
    world: World,
    moments: Mapping[str, int],
    columns: Mapping[str, Mapping[str, pd.DataFrame]],
    out: Path,
    *,
    title: str,
    drawn: int,
) -> None:
    """Draw a grid of paths: a row for each condition, a column for each heading.

    `moments` maps conditions to global steps; a column maps conditions to rollouts and may lack some.
    """
    cells = {
        (name, condition): scene.keep(own[condition], drawn) if condition in own else pd.DataFrame()
        for name, own in columns.items()
        for condition in moments
    }
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in cells.values() if len(rollouts)), default=0)
    sketches = {condition: scene.sketch_of(world, step) for condition, step in moments.items()}
    line = len(world.position.entries) == 1
    view = None if line else scene.view_of(list(sketches.values()), list(cells.values()))
    wide, high = max(1, len(columns)), max(1, len(moments))
    with style():
        size = (max(WIDTH, 2.1 * wide + 0.7), 2.05 * high + 1.1 + 0.19 * ceil(skills / len(PALETTE)))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(title)
        for axes, name in zip(grid[0], columns, strict=False):
            axes.set_title(name, fontsize=9)
        for row, (condition, sketch) in zip(grid, sketches.items(), strict=False):
            said = ", ".join(sketch.changes) or condition.replace("_", " ")
            row[0].set_ylabel(f"{said}\n{'x' if line else 'y'} (m)")
            for axes, name in zip(row, columns, strict=False):
                scene.show(axes, sketch, cells[name, condition], view)
        if not cells:
            nothing(grid[0, 0], "no runs")
        for axes in grid.flat:
            scene.frame(axes, view)
        for axes in grid[-1]:
            axes.set_xlabel("step" if line else "x (m)")
        if skills:
            skill_key(figure, skills, start=not line)
        save(figure, out)
