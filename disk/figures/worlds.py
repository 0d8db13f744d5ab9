"""worlds.svg: a changing world at several global steps, with the paths of one run's skills.

It follows the paper's figures of skills among blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd

from disk.config import Environment, World
from disk.evaluation.tables import read_rollouts
from disk.figures import scene
from disk.figures.style import PALETTE, nothing, panels, save, skill_key, style

Panel = tuple[str, int, pd.DataFrame]
"""A label, the global step of the world, and rollouts (columns skill, episode, step, x, y, vx, vy)."""
ABREAST = 5
MOST_PANELS = 5


def draw_worlds(environment: Environment, rollouts: Mapping[str, Path], out: Path, *, title: str, drawn: int) -> None:
    """Draw worlds.svg from the rollouts of one run, given by condition.

    The condition `trained` becomes a panel for the end of some trainings, with the skills learned until then. Every
    other condition is one panel.
    """
    frames = {condition: read_rollouts(path) for condition, path in rollouts.items()}
    worlds(environment.world(), list(panels_of(environment, frames)), out, title=title, drawn=drawn)


def panels_of(environment: Environment, frames: Mapping[str, pd.DataFrame]) -> Iterator[Panel]:
    """Choose the panels: ends of trainings first, then the conditions in the order of their steps."""
    count = min(MOST_PANELS - len(environment.conditions) + 1, environment.skills)
    for condition, step in environment.moments.items():
        if step == "trained":
            for panel in range(1, count + 1):
                skills, frame = environment.skills * panel // count, frames[condition]
                name = "skill 1" if skills == 1 else f"skills 1 to {skills}"
                yield name, environment.last_of(skills - 1), frame[frame["skill"] < skills]
    steps = {condition: step for condition, step in environment.moments.items() if step != "trained"}
    for condition, step in sorted(steps.items(), key=lambda item: item[1]):
        yield condition.replace("_", " "), step, frames[condition]


def worlds(world: World, shown: Sequence[Panel], out: Path, *, title: str, drawn: int) -> None:
    """Draw a world from above at several global steps, with `drawn` episodes a skill, all on one scale.

    Removed blocks are faint outlines. A robot with dead actuators stands at the start, enlarged, with its dead leg or
    thruster dashed and crossed. Worlds with one coordinate show the position over time.
    """
    kept = [scene.keep(rollouts, drawn) for _, _, rollouts in shown]
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in kept if len(rollouts)), default=0)
    sketches = [scene.sketch_of(world, step) for _, step, _ in shown]
    line = len(world.position.entries) == 1
    view = None if line else scene.view_of(sketches, kept)
    rows = ceil(max(1, len(shown)) / ABREAST)
    with style():
        shape: dict[str, Any] = {"height": 1.9, "labels": ("step", "x (m)")} if line else {}
        key = 0.15 + 0.2 * rows + 0.19 * ceil(skills / len(PALETTE))
        figure, grid = panels(max(1, len(shown)), key, abreast=ABREAST, **shape)
        figure.suptitle(title)
        if not shown:
            nothing(grid[0], "no worlds")
        for axes, (label, step, _), sketch, rollouts in zip(grid, shown, sketches, kept, strict=False):
            axes.set_title(f"{label}\n{sketch.words(step)}", fontsize=8.5)
            scene.show(axes, sketch, rollouts, view)
        for axes in grid:
            scene.frame(axes, view)
        if skills:
            skill_key(figure, skills, start=not line)
        save(figure, out)
