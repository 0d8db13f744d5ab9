"""Environments that change: the MuJoCo model as a pure function of the global step.

`Evolving.at(step)` makes the world what it is at that step, whatever it was before: every quantity is
computed from the model's own value, never from its last one. So a skill that is resumed, or run alone on
another machine, sees exactly the world that one long run would have shown it.
"""

from __future__ import annotations

from bisect import bisect_right
from fnmatch import fnmatchcase
from typing import Any

import gymnasium
import mujoco
import numpy as np

from disk.config import Change, Evolution
from disk.errors import ConfigError

KINDS = {"remove": "body", "actuator": "actuator", "friction": "geom", "mass": "body", "damping": "joint"}
"""What the names of a change are names of."""


class Evolving(
    gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray], gymnasium.utils.RecordConstructorArgs
):
    """Apply an evolution. The environment starts at step 0; `at` moves it to another step."""

    def __init__(self, env: gymnasium.Env[Any, Any], evolution: Evolution) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, evolution=evolution)
        gymnasium.Wrapper.__init__(self, env)
        if not isinstance(getattr(env.unwrapped, "model", None), mujoco.MjModel):
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ConfigError(f"evolution: {name} is not a MuJoCo environment, so nothing of it can change")
        self.model: mujoco.MjModel = env.unwrapped.model  # type: ignore[attr-defined]
        self.data: mujoco.MjData = env.unwrapped.data  # type: ignore[attr-defined]
        self._changes = [
            (_dated(change, evolution.seed, index), _ids(self.model, change, f"evolution.changes.{index}"))
            for index, change in enumerate(evolution.changes)
        ]
        self._removals = [
            _removals(self.model, change, ids, evolution.total, f"evolution.changes.{index}")
            for index, (change, ids) in enumerate(self._changes)
        ]
        self._check_removals()
        steps = {step for change, _ in self._changes for step in change.steps}
        self._breaks = sorted(steps | {step for removal in self._removals for step in removal.values()})
        self._ramps = [(c.steps[0], c.steps[-1]) for c, _ in self._changes if c.ramp]
        self._own = {
            name: np.array(getattr(self.model, name))
            for name in ("body_pos", "body_mass", "body_inertia", "geom_friction", "dof_damping")
        }
        self._own_gravity = np.array(self.model.opt.gravity)
        self.control_scale = np.ones(self.model.nu)
        self._index = -1
        self.at(0)

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(action * self.control_scale)

    def at(self, step: int) -> None:
        """Change the model to its state at a global step."""
        index = bisect_right(self._breaks, step)
        ramping = any(start <= step <= end for start, end in self._ramps)
        if index == self._index and not ramping:
            return
        self._index = index
        self._apply(step)

    def signature(self, step: int) -> tuple[Any, ...]:
        """Return a key that is equal for two steps if their worlds are the same."""
        factors = (_factor(change, step) for change, _ in self._changes if change.what != "remove")
        return (*factors, *self.removed(step))

    def removed(self, step: int) -> list[int]:
        """Return the ids of the bodies that are removed at a step."""
        return [body for removal in self._removals for body, when in removal.items() if step >= when]

    def _apply(self, step: int) -> None:
        model, own = self.model, self._own
        for name, value in own.items():
            getattr(model, name)[:] = value
        model.opt.gravity[:] = self._own_gravity
        self.control_scale[:] = 1.0
        for change, ids in self._changes:
            if change.what == "remove":
                continue
            factor = _factor(change, step)
            if change.what == "gravity":
                model.opt.gravity[:] *= factor
            elif change.what == "actuator":
                self.control_scale[ids] *= factor
            elif change.what == "friction":
                model.geom_friction[ids] *= factor
            elif change.what == "mass":
                model.body_mass[ids] *= factor
                model.body_inertia[ids] *= factor
            else:
                model.dof_damping[np.isin(model.dof_jntid, ids)] *= factor
        for body in self.removed(step):
            model.body_pos[body, 2] = _below_the_floor(model, body)
        if any(change.what == "mass" for change, _ in self._changes):
            mujoco.mj_setConst(model, mujoco.MjData(model))  # on data of its own: it would move the robot
        mujoco.mj_forward(model, self.data)

    def _check_removals(self) -> None:
        seen: set[int] = set()
        for index, removal in enumerate(self._removals):
            twice = seen & removal.keys()
            if twice:
                names = ", ".join(self.model.body(body).name for body in sorted(twice))
                raise ConfigError(f"evolution.changes.{index}.names: removed twice: {names}")
            seen |= removal.keys()


def _dated(change: Change, seed: int | None, index: int) -> Change:
    """Return a change with its step drawn, if it has a range to draw it from."""
    if change.within is None or seed is None:
        return change
    low, high = change.within
    return change.model_copy(update={"steps": [int(np.random.default_rng([seed, index]).integers(low, high))]})


def _factor(change: Change, step: int) -> float:
    """Return a change's factor at a step: 1 before its first step, then steps or straight lines."""
    index = bisect_right(change.steps, step)
    if not change.ramp:
        return change.factors[index - 1] if index else 1.0
    return float(np.interp(step, change.steps, change.factors)) if index else 1.0


def _ids(model: mujoco.MjModel, change: Change, where: str) -> list[int]:
    """Return the ids that a change names, in the model's order for a pattern. Refuse unknown names."""
    if change.what == "gravity":
        return []
    known = names_of(model, KINDS[change.what])
    if isinstance(change.names, str):
        found = [index for name, index in known.items() if fnmatchcase(name, change.names)]
        if not found:
            raise ConfigError(
                f"{where}.names: {change.names!r} matches no {KINDS[change.what]}; there are: {', '.join(known)}"
            )
        return found
    for name in change.names:
        if name not in known:
            raise ConfigError(
                f"{where}.names: no {KINDS[change.what]} is called {name!r}; there are: {', '.join(known)}"
            )
    return [known[name] for name in change.names]


def names_of(model: mujoco.MjModel, kind: str) -> dict[str, int]:
    """Return the names of all bodies, geoms, joints or actuators.

    What has no name is called by its kind and number, but an actuator by its joint: Ant's have no names.
    """
    count = {"body": model.nbody, "geom": model.ngeom, "joint": model.njnt, "actuator": model.nu}[kind]
    names = {}
    for index in range(count):
        name = getattr(model, kind)(index).name
        if not name and kind == "actuator" and model.actuator_trntype[index] == mujoco.mjtTrn.mjTRN_JOINT:
            name = model.joint(model.actuator_trnid[index, 0]).name
        names[name or f"{kind}{index}"] = index
    return names


def _removals(model: mujoco.MjModel, change: Change, ids: list[int], total: int, where: str) -> dict[int, int]:
    """Return, for each body that a change removes, its first step without it."""
    if change.what != "remove":
        return {}
    for body in ids:
        if body == 0 or model.body_parentid[body] != 0 or model.body_jntnum[body]:
            name = model.body(body).name
            raise ConfigError(f"{where}.names: {name!r} is not fixed to the world: it cannot be removed from it")
    count = len(ids)
    if change.together is None:
        if len(change.steps) not in (1, count):
            raise ConfigError(f"{where}.steps: {len(change.steps)} steps for {count} bodies: give one, or one each")
        steps = change.steps if len(change.steps) > 1 else change.steps * count
    else:
        # removed(t) = n·⌊count·t / (n·T)⌋ reaches i·n at the first t with count·t ≥ i·n·T
        n = change.together
        if count % n:
            raise ConfigError(f"{where}.together: {n} at a time do not come out even with {count} bodies")
        steps = [-(-(n * (i // n + 1) * total) // count) for i in range(count)]
    return dict(zip(ids, steps, strict=True))


def floor_of(model: mujoco.MjModel) -> float:
    """Return the height of the lowest horizontal plane; 0 if there is none."""
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    return float(min(model.geom_pos[planes, 2], default=0.0))


def _below_the_floor(model: mujoco.MjModel, body: int) -> float:
    """Return a height at which no part of a body reaches the floor."""
    first = model.body_geomadr[body]
    reach = [
        float(model.geom_rbound[geom] + np.linalg.norm(model.geom_pos[geom]))
        for geom in range(first, first + model.body_geomnum[body])
    ]
    return floor_of(model) - max(reach, default=0.0) - 1.0
