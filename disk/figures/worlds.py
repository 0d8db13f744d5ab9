"""Figures of worlds that change, in the language of `disk.figures.style`: the world from above at several global
steps, with the paths of skills over it (the paper's figures of skills among blocks), and methods side by side with
each leg dead in turn. What a world looks like at a step is read from its model, never from its configuration: a
figure shows the world that the skills were in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

import mujoco
import numpy as np
import pandas as pd
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Circle

from disk.config import World
from disk.envs import make
from disk.envs.evolution import Evolving, floor_of, names_of
from disk.envs.point import PointEnv
from disk.evaluation.metrics import sound
from disk.figures.style import INK, QUIET, WIDTH, first, nothing, plane, plane_key, save, style

Panel = tuple[str, int, pd.DataFrame]
"""A label, the global step whose world is drawn, and rollouts in it (columns skill, episode, step, x, y, vx, vy)."""
ABREAST = 5
"""Drawings side by side."""
RUNAWAY = 1.5
"""Paths may leave the view further out than this times the distance that 98 % of all positions keep within."""
DEAD = "#e0002b"
PRESENT, REMOVED = "present", "removed"

_BLOCK: dict[str, dict[str, Any]] = {
    PRESENT: {"facecolor": "#dcd6cc", "edgecolor": "#a79f92", "linewidth": 0.7, "zorder": 1.2},
    REMOVED: {"fill": False, "edgecolor": "#d2d2d2", "linewidth": 0.5, "linestyle": (0, (3, 3)), "zorder": 1.1},
}


@dataclass(frozen=True, slots=True)
class _Limb:
    """A leg, or a thruster (drawn as an arrow), and the direction it points or pushes to."""

    direction: tuple[float, float]
    dead: bool
    thruster: bool


@dataclass(frozen=True, slots=True)
class _Sketch:
    """What is drawn of a world: round bodies (x, y, radius) that are there or were, the robot, what of it is dead."""

    blocks: dict[str, list[tuple[float, float, float]]]
    limbs: list[_Limb]
    dead: list[str]

    def words(self, step: int) -> str:
        there, gone = len(self.blocks[PRESENT]), len(self.blocks[REMOVED])
        said = [f"step {step:,}"]
        if there + gone:
            said.append(f"{there} of {there + gone} blocks")
        if self.dead:
            said.append(f"{', '.join(self.dead)} dead")
        return fill(", ".join(said), 36)


def worlds(world: World, panels: Sequence[Panel], out: Path, *, title: str, drawn: int) -> None:
    """A world from above at several global steps, and `drawn` episodes a skill over it, all on one scale.

    Blocks that are gone are faint outlines. Where actuators die, the robot stands at the start, larger than it is,
    with its dead leg or thruster dashed and crossed; other robots' dead actuators are named.
    """
    kept = [_sound(rollouts, drawn) for _, _, rollouts in panels]
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in kept if len(rollouts)), default=0)
    sketches = [_sketch(world, step) for _, step, _ in panels]
    centre, half = _view(sketches, kept)
    with style():
        figure, grid = _grid(len(panels), 0.35 + 0.19 * ceil(skills / 10))
        figure.suptitle(title)
        if not panels:
            nothing(grid[0], "no worlds")
        for axes, (label, step, _), sketch, rollouts in zip(grid, panels, sketches, kept, strict=False):
            axes.set_title(f"{label}\n{sketch.words(step)}", fontsize=8.5)
            _scene(axes, sketch, rollouts, centre, half)
        for axes in grid:
            _frame(axes, centre, half)
        if skills:
            plane_key(figure, skills)
        save(figure, out)


def legs(
    world: World,
    moments: Mapping[str, int],
    columns: Mapping[str, Mapping[str, pd.DataFrame]],
    out: Path,
    *,
    title: str,
    drawn: int,
) -> None:
    """Methods side by side (a column each, by its heading) in the worlds of several conditions (a row each).

    `moments` are the conditions and their global steps; a column has rollouts by condition, of those that there are.
    """
    cells = {
        (name, condition): _sound(own[condition], drawn) if condition in own else pd.DataFrame()
        for name, own in columns.items()
        for condition in moments
    }
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in cells.values() if len(rollouts)), default=0)
    sketches = {condition: _sketch(world, step) for condition, step in moments.items()}
    centre, half = _view(list(sketches.values()), list(cells.values()))
    wide, high = max(1, len(columns)), max(1, len(moments))
    with style():
        size = (max(WIDTH, 2.1 * wide + 0.7), 2.05 * high + 1.1 + 0.19 * ceil(skills / 10))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True)
        figure.suptitle(title)
        for axes, name in zip(grid[0], columns, strict=False):
            axes.set_title(name, fontsize=9)
        for row, (condition, sketch) in zip(grid, sketches.items(), strict=False):
            said = f"{', '.join(sketch.dead)} dead" if sketch.dead else condition.replace("_", " ")
            row[0].set_ylabel(f"{said}\ny (m)")
            for axes, name in zip(row, columns, strict=False):
                _scene(axes, sketch, cells[name, condition], centre, half)
        if not cells:
            nothing(grid[0, 0], "no runs")
        for axes in grid.flat:
            _frame(axes, centre, half)
        for axes in grid[-1]:
            axes.set_xlabel("x (m)")
        if skills:
            plane_key(figure, skills)
        save(figure, out)


def _sound(rollouts: pd.DataFrame, drawn: int) -> pd.DataFrame:
    return first(sound(rollouts), drawn) if len(rollouts) else rollouts


def _scene(axes: Axes, sketch: _Sketch, rollouts: pd.DataFrame, centre: np.ndarray, half: float) -> None:
    _blocks(axes, sketch)
    _robot(axes, sketch.limbs, 0.24 * half)
    if len(rollouts):
        plane(axes, rollouts)
        _say_who_left(axes, rollouts, centre, half)
    else:
        _remark(axes, "no rollouts")


def _frame(axes: Axes, centre: np.ndarray, half: float) -> None:
    axes.set(xlim=centre[0] + np.array([-half, half]), ylim=centre[1] + np.array([-half, half]), aspect="equal")
    axes.locator_params(nbins=5)


def _sketch(world: World, step: int) -> _Sketch:
    env = make(world, step)
    robot, scale = env.unwrapped, env.env.control_scale if isinstance(env.env, Evolving) else np.ones(0)
    env.close()
    blocks: dict[str, list[tuple[float, float, float]]] = {PRESENT: [], REMOVED: []}
    model = getattr(robot, "model", None)
    if not isinstance(model, mujoco.MjModel):
        return _Sketch(blocks, [], [])
    data = mujoco.MjData(model)  # the pose of the model itself, without the noise of a reset
    mujoco.mj_kinematics(model, data)
    fixed = model.body_weldid[model.geom_bodyid] == 0
    floor = floor_of(model)
    for geom in np.flatnonzero(fixed & (model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE)):
        (x, y, z), radius = data.geom_xpos[geom], model.geom_size[geom, 0]
        blocks[PRESENT if z + radius > floor else REMOVED].append((float(x), float(y), float(radius)))
    names = {index: name for name, index in names_of(model, "actuator").items()}
    dead = {i: names.get(i, f"actuator {i}") for i, factor in enumerate(scale.tolist()) if factor == 0.0}
    breaks = any(change.what == "actuator" for change in (world.evolution.changes if world.evolution else ()))
    limbs, said = [], list(dead.values())
    if breaks and (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT).all():
        if isinstance(robot, PointEnv):
            limbs = _thrusters(model, data, dead)
        elif isinstance(robot, AntEnv):
            limbs, said = _legs(model, data, dead)
    return _Sketch(blocks, limbs, said)


def _thrusters(model: mujoco.MjModel, data: mujoco.MjData, dead: dict[int, str]) -> list[_Limb]:
    limbs = []
    for index in range(model.nu):
        push = data.xaxis[model.actuator_trnid[index, 0]] * np.sign(model.actuator_gear[index, 0])
        limbs.append(_Limb((float(push[0]), float(push[1])), index in dead, thruster=True))
    return limbs


def _legs(model: mujoco.MjModel, data: mujoco.MjData, dead: dict[int, str]) -> tuple[list[_Limb], list[str]]:
    """Legs, and what to call the dead ones. A leg is what is named alike: `hip_3` and `ankle_3` are leg 3."""
    legs: dict[str, list[int]] = {}
    for name, index in names_of(model, "actuator").items():
        legs.setdefault(name.rpartition("_")[2], []).append(index)
    limbs: list[_Limb] = []
    said: list[str] = []
    for leg, actuators in sorted(legs.items()):
        bodies = model.jnt_bodyid[model.actuator_trnid[actuators, 0]]
        away = data.xpos[bodies, :2] - data.xpos[model.body_rootid[bodies[0]], :2]
        x, y = away[np.linalg.norm(away, axis=1).argmax()]
        broken = [dead[index] for index in actuators if index in dead]
        limbs.append(_Limb((float(x), float(y)), bool(broken), thruster=False))
        said += [f"leg {leg}"] if len(broken) == len(actuators) else broken
    return limbs, said


def _view(sketches: Sequence[_Sketch], kept: Sequence[pd.DataFrame]) -> tuple[np.ndarray, float]:
    """Centre and half the side of a square with all blocks and all paths, but for the far ends of runaways."""
    circles = [np.array(circle) for sketch in sketches for each in sketch.blocks.values() for circle in each]
    corners = [circle[:2] + sign * circle[2] for circle in circles for sign in (-1, 1)]
    paths = np.concatenate([np.zeros((1, 2)), *(rollouts[["x", "y"]].to_numpy() for rollouts in kept if len(rollouts))])
    reach = np.linalg.norm(paths, axis=1)
    paths = paths[reach <= RUNAWAY * np.percentile(reach, 98)]
    points = np.array([*paths, *corners])
    low, high = points.min(axis=0), points.max(axis=0)
    widest = float((high - low).max())
    return (low + high) / 2, 0.55 * widest if widest else 1.0


def _grid(count: int, key: float) -> tuple[Figure, list[Axes]]:
    columns = min(ABREAST, max(1, count))
    rows = max(1, ceil(count / columns))
    side = min(3.3, max(2.3, WIDTH / columns))
    size = (max(WIDTH, side * columns + 0.5), (side + 0.45) * rows + key + 0.4)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.055))
    grid = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for spare in grid[max(1, count) :]:
        spare.remove()
    panels = grid[: max(1, count)]
    for lowest in panels[-columns:]:  # of its column, also where the last row is not full
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("x (m)")
    for left in panels[::columns]:
        left.set_ylabel("y (m)")
    return figure, panels


def _blocks(axes: Axes, sketch: _Sketch) -> None:
    for state, circles in sketch.blocks.items():
        for x, y, radius in circles:
            axes.add_patch(Circle((x, y), radius, label=state, **_BLOCK[state]))


def _robot(axes: Axes, limbs: Sequence[_Limb], size: float) -> None:
    """Drawn over the paths, set off from them in white, and under the mark of the start."""
    for limb in sorted(limbs, key=lambda limb: limb.dead):  # the dead ones on top
        x, y = np.array(limb.direction) / max(float(np.hypot(*limb.direction)), 1e-9) * size
        look: dict[str, Any] = {"color": DEAD if limb.dead else INK, "zorder": 3.6}
        axes.plot([0, x], [0, y], color="white", linewidth=4.5, zorder=3.4)
        axes.plot([0, x], [0, y], linewidth=1.7, linestyle=(0, (1.6, 0.8)) if limb.dead else "-", **look)
        if limb.thruster:
            axes.plot(x, y, marker=(3, 0, float(np.degrees(np.arctan2(y, x))) - 90), markersize=5.5, **look)
        if limb.dead:
            cross: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 5.5, "zorder": 3.6}
            axes.plot(1.3 * x, 1.3 * y, color="white", markeredgewidth=4, **cross)
            axes.plot(1.3 * x, 1.3 * y, color=DEAD, markeredgewidth=1.8, label="dead", **cross)
    if limbs:
        axes.add_patch(Circle((0, 0), 0.26 * size, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=3.8))


def _say_who_left(axes: Axes, rollouts: pd.DataFrame, centre: np.ndarray, half: float) -> None:
    outside = (np.abs(rollouts[["x", "y"]].to_numpy() - centre) > half).any(axis=1)
    count = len(rollouts.loc[outside, ["skill", "episode"]].drop_duplicates())
    if count:
        _remark(axes, f"{count} path{'' if count == 1 else 's'} beyond the view")


def _remark(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.03, text, transform=axes.transAxes, ha="center", color=QUIET, fontsize=7.5, zorder=5)
