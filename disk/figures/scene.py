"""The world under the paths: blocks, a broken robot and the changes at a global step.

`worlds.svg` and `legs.svg` share it. A sketch is read from the environment at that step, so a figure shows the world
that the skills acted in. Worlds with one coordinate are drawn as position over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import mujoco
import numpy as np
import pandas as pd
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from disk.config import World
from disk.envs import make
from disk.envs.evolution import Evolving, floor_of, names_of
from disk.envs.point import PointEnv
from disk.evaluation.metrics import sound
from disk.figures.style import INK, QUIET, first, over_time, plane

RUNAWAY = 1.5
"""The view leaves out positions beyond this multiple of the distance that covers 98 % of them."""
DEAD = "#e0002b"
PRESENT, REMOVED = "present", "removed"
View = tuple[np.ndarray, float]
"""Centre and half the side of the square in view."""

_BLOCK: dict[str, dict[str, Any]] = {
    PRESENT: {"facecolor": "#dcd6cc", "edgecolor": "#a79f92", "linewidth": 0.7, "zorder": 1.2},
    REMOVED: {"fill": False, "edgecolor": "#d2d2d2", "linewidth": 0.5, "linestyle": (0, (3, 3)), "zorder": 1.1},
}


@dataclass(frozen=True, slots=True)
class _Limb:
    """A leg or a thruster, and the direction in which it points or pushes."""

    direction: tuple[float, float]
    dead: bool
    thruster: bool


@dataclass(frozen=True, slots=True)
class Sketch:
    """The drawn parts of a world: round blocks (x, y, radius), the robot's limbs, and all changes in words."""

    blocks: dict[str, list[tuple[float, float, float]]]
    limbs: list[_Limb]
    changes: list[str]
    """Dead actuators and scaled quantities, such as `leg 3 dead` and `gravity × 0.2`."""

    def words(self, step: int) -> str:
        there, gone = len(self.blocks[PRESENT]), len(self.blocks[REMOVED])
        blocks = [f"{there} of {there + gone} blocks"] if there + gone else []
        return fill(", ".join([f"step {step:,}", *blocks, *self.changes]), 36)


def sketch_of(world: World, step: int) -> Sketch:
    """Read the world at a global step from its model."""
    env = make(world, step)
    robot, evolving = env.unwrapped, env.env
    env.close()
    blocks: dict[str, list[tuple[float, float, float]]] = {PRESENT: [], REMOVED: []}
    model = getattr(robot, "model", None)
    if not isinstance(model, mujoco.MjModel):
        return Sketch(blocks, [], [])
    data = mujoco.MjData(model)  # the model's own pose, without the noise of a reset
    mujoco.mj_kinematics(model, data)
    fixed = model.body_weldid[model.geom_bodyid] == 0
    floor = floor_of(model)
    for geom in np.flatnonzero(fixed & (model.geom_type == mujoco.mjtGeom.mjGEOM_SPHERE)):
        (x, y, z), radius = data.geom_xpos[geom], model.geom_size[geom, 0]
        blocks[PRESENT if z + radius > floor else REMOVED].append((float(x), float(y), float(radius)))
    if not isinstance(evolving, Evolving):
        return Sketch(blocks, [], [])
    names = {index: name for name, index in names_of(model, "actuator").items()}
    dead = {int(i): names.get(int(i), f"actuator {i}") for i in np.flatnonzero(evolving.control_scale == 0.0)}
    breaks = any(change.what == "actuator" for change in (world.evolution.changes if world.evolution else ()))
    limbs, broken = [], list(dead.values())
    if breaks and (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT).all():
        if isinstance(robot, PointEnv):
            limbs = _thrusters(model, data, dead)
        elif isinstance(robot, AntEnv):
            limbs, broken = _legs(model, data, dead)
    said = [f"{', '.join(broken)} dead"] if broken else []
    return Sketch(blocks, limbs, [*said, *_scaled(world, evolving, step)])


def _scaled(world: World, evolving: Evolving, step: int) -> list[str]:
    """Name the quantities whose factor is not 1; dead actuators are named elsewhere."""
    changes = [c for c in world.evolution.changes if c.what != "remove"] if world.evolution else []
    said = []
    for change, factor in zip(changes, evolving.signature(step), strict=False):
        names = change.names if isinstance(change.names, str) else ", ".join(change.names)
        quantity = {"gravity": "gravity", "actuator": names}.get(change.what, f"{change.what} of {names}")
        if factor != 1.0 and not (change.what == "actuator" and factor == 0.0):
            said.append(f"{quantity} × {factor:.3g}")
    return said


def _thrusters(model: mujoco.MjModel, data: mujoco.MjData, dead: dict[int, str]) -> list[_Limb]:
    limbs = []
    for index in range(model.nu):
        push = data.xaxis[model.actuator_trnid[index, 0]] * np.sign(model.actuator_gear[index, 0])
        limbs.append(_Limb((float(push[0]), float(push[1])), index in dead, thruster=True))
    return limbs


def _legs(model: mujoco.MjModel, data: mujoco.MjData, dead: dict[int, str]) -> tuple[list[_Limb], list[str]]:
    """Return the legs and the names of the dead ones. Actuators with one suffix are one leg: `hip_3` and `ankle_3`."""
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


def view_of(sketches: Sequence[Sketch], kept: Sequence[pd.DataFrame]) -> View:
    """Return a square with all blocks and all paths, except the far ends of runaways."""
    circles = [np.array(circle) for sketch in sketches for each in sketch.blocks.values() for circle in each]
    corners = [circle[:2] + sign * circle[2] for circle in circles for sign in (-1, 1)]
    paths = np.concatenate([np.zeros((1, 2)), *(rollouts[["x", "y"]].to_numpy() for rollouts in kept if len(rollouts))])
    reach = np.linalg.norm(paths, axis=1)
    paths = paths[reach <= RUNAWAY * np.percentile(reach, 98)]
    points = np.array([*paths, *corners])
    low, high = points.min(axis=0), points.max(axis=0)
    widest = float((high - low).max())
    return (low + high) / 2, 0.55 * widest if widest else 1.0


def keep(rollouts: pd.DataFrame, drawn: int) -> pd.DataFrame:
    """Return the first `drawn` sound episodes of each skill."""
    return first(sound(rollouts), drawn) if len(rollouts) else rollouts


def show(axes: Axes, sketch: Sketch, rollouts: pd.DataFrame, view: View | None) -> None:
    """Draw a world and the paths in it from above; without a view, draw the position over time."""
    if view:
        _blocks(axes, sketch)
        _robot(axes, sketch.limbs, 0.24 * view[1])
    if not len(rollouts):
        _remark(axes, "no rollouts")
    elif view:
        plane(axes, rollouts)
        _say_who_left(axes, rollouts, *view)
    else:
        over_time(axes, rollouts)


def frame(axes: Axes, view: View | None) -> None:
    """Set the limits of a panel."""
    if view:
        (x, y), half = view
        axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half), aspect="equal")
    axes.locator_params(nbins=5)


def _blocks(axes: Axes, sketch: Sketch) -> None:
    for state, circles in sketch.blocks.items():
        for x, y, radius in circles:
            axes.add_patch(Circle((x, y), radius, label=state, **_BLOCK[state]))


def _robot(axes: Axes, limbs: Sequence[_Limb], size: float) -> None:
    """Draw the limbs over the paths, with a white outline, and under the mark of the start."""
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
