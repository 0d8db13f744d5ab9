"""A world as a page needs it: MuJoCo's XML, how the environment builds its observation, its starts, what can break.

How an observation is built is found by experiment, not by the environment's name: the recipe must reproduce the
observations of the environment itself, in ordinary states and in very fast ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from disk.config import World
from disk.envs import Projected, make
from disk.envs.evolution import Evolving, floor_of, names_of
from disk.errors import ConfigError

CLIPS = (None, 10.0)
"""Bounds of velocities in observations: Gymnasium's Hopper and Walker2d have 10, the others none."""
TRIALS = 12
EXACT = (
    *("qpos0", "qpos_spring", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_subtreemass"),
    *("body_inertia", "body_invweight0", "jnt_pos", "jnt_axis", "jnt_range", "jnt_stiffness", "dof_armature"),
    *("dof_damping", "dof_invweight0", "geom_size", "geom_rbound", "geom_pos", "geom_quat", "geom_friction"),
    *("actuator_gear", "actuator_ctrlrange", "actuator_acc0"),
)
"""Arrays of the compiled model that the page takes over: MuJoCo writes XML with six digits only."""
LIMBS = {"bthigh": "back leg", "fthigh": "front leg", "right_back_leg": "back right leg", "back_leg": "back left leg"}
"""Names for limbs that models call otherwise: HalfCheetah's, and two of Ant's, of which one lacks its side."""


def describe(world: World, step: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything about a world at a global step that its page needs, with one start for each seed."""
    env = make(world, step)
    try:
        xml, spec, model = _compiled(env)
        skip, clip = _observation(env)
        return {
            "xml": xml,
            "exact": {name: np.asarray(getattr(model, name)).ravel().tolist() for name in EXACT},
            "files": _files(env, spec),
            "frameSkip": int(env.unwrapped.frame_skip),  # type: ignore[attr-defined]
            "observation": {"skip": skip, "clip": clip},
            "position": _position(world),
            "floor": floor_of(model),
            "groups": groups(model),
            "blocks": _blocks(env, world, step),
            "broken": _broken(env, model),
            "controls": _controls(model),
            "starts": _starts(env, seeds),
        }
    finally:
        env.close()


def _compiled(env: Projected) -> tuple[str, mujoco.MjSpec, mujoco.MjModel]:
    """The model as it is at first (`env` may have moved blocks already): as XML, before and after compilation."""
    found: Any = env.unwrapped
    if not isinstance(getattr(found, "model", None), mujoco.MjModel):
        raise ConfigError(f"{env.world.id}: is not a MuJoCo environment, so no page can simulate it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # HalfCheetah's file sets its mass in a way that the next MuJoCo will not know
        spec = found.model_spec() if hasattr(found, "model_spec") else mujoco.MjSpec.from_file(found.fullpath)
        model = spec.compile()
        xml = spec.to_xml()
    if any(getattr(model, name) != getattr(found.model, name) for name in ("nq", "nu", "nbody", "ngeom")):
        raise ConfigError(f"{env.world.id}: changes its model after loading it, which a page cannot follow")
    return xml, spec, model


def _files(env: Projected, spec: mujoco.MjSpec) -> dict[str, bytes]:
    """Meshes that the XML names, by the name it gives them."""
    folder = Path(env.unwrapped.fullpath).parent / (spec.meshdir or "")  # type: ignore[attr-defined]
    return {mesh.file: (folder / mesh.file).read_bytes() for mesh in spec.meshes if mesh.file}


def _observation(env: Projected) -> tuple[int, float | None]:
    """How many positions the observation leaves out, and where it clips velocities."""
    unwrapped: Any = env.unwrapped
    rng = np.random.default_rng(0)
    seen = []
    for trial in range(TRIALS):
        env.reset(seed=trial)
        obs, *_ = env.step(env.to_native(rng.uniform(-1.0, 1.0, env.action_size)))
        if trial % 2 and hasattr(unwrapped, "_get_obs"):  # so fast that a bound shows; no step could follow
            unwrapped.set_state(np.array(unwrapped.data.qpos), rng.uniform(-60.0, 60.0, unwrapped.model.nv))
            obs = unwrapped._get_obs()
        seen.append((np.asarray(obs), np.array(unwrapped.data.qpos), np.array(unwrapped.data.qvel)))
    for skip in range(unwrapped.model.nq + 1):
        for clip in CLIPS:
            if all(np.array_equal(obs, _recipe(qpos, qvel, skip, clip)) for obs, qpos, qvel in seen):
                return skip, clip
    raise ConfigError(
        f"{env.world.id}: its observation is not positions followed by velocities, which is all that a page can build "
        "(for Ant set include_cfrc_ext_in_observation: false)"
    )


def _recipe(qpos: np.ndarray, qvel: np.ndarray, skip: int, clip: float | None) -> np.ndarray:
    return np.concatenate((qpos[skip:], qvel if clip is None else np.clip(qvel, -clip, clip)))


def _position(world: World) -> dict[str, Any]:
    source, entries = world.position.source, world.position.entries
    if source == "com":
        return {"source": "com", "entries": ["xyz".index(str(axis)) for axis in entries]}
    if source == "qpos":
        return {"source": "qpos", "entries": list(entries)}
    raise ConfigError(f"{world.id}: its position comes from {source}; a page needs qpos or com")


def groups(model: mujoco.MjModel) -> list[dict[str, Any]]:
    """Actuators that break together: those of one limb; each alone where there is one limb, or none."""
    actuators = names_of(model, "actuator")
    bodies = {index: _actuated(model, index) for index in actuators.values()}
    limbs: dict[int, list[int]] = {}
    for index, body in bodies.items():
        limbs.setdefault(_limb(model, body), []).append(index)
    if len(limbs) > 1:
        found = [(_words(model.body(limb).name or f"limb {limb}"), own, limb) for limb, own in sorted(limbs.items())]
    else:
        found = [(_words(name), [index], bodies[index]) for name, index in actuators.items()]
    alone = len({limb for *_, limb in found}) == len(found)  # else a dead one has no part of the robot to itself
    return [
        {"name": name, "actuators": own, "geoms": _geoms(model, limb, len(limbs) > 1) if alone else []}
        for name, own, limb in found
    ]


def _actuated(model: mujoco.MjModel, actuator: int) -> int:
    if model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT:
        return 1
    return int(model.jnt_bodyid[model.actuator_trnid[actuator, 0]])


def _limb(model: mujoco.MjModel, body: int) -> int:
    """The child of the robot's root that a body hangs from; the root itself for its own joints."""
    root = model.body_rootid[body]
    while body != root and model.body_parentid[body] != root:
        body = model.body_parentid[body]
    return int(body)


def _geoms(model: mujoco.MjModel, limb: int, below: bool) -> list[int]:
    """Geoms of a body and, if asked for, of everything that hangs from it."""
    members = {limb}
    for body in range(limb + 1, model.nbody if below else limb + 1):
        if model.body_parentid[body] in members:
            members.add(body)
    return [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] in members]


def _words(name: str) -> str:
    return LIMBS.get(name, name.replace("_", " "))


def _blocks(env: Projected, world: World, step: int) -> list[dict[str, Any]]:
    """Bodies that the world's evolution removes, in its order, and how deep it puts each."""
    inner = env.env
    if not isinstance(inner, Evolving) or world.evolution is None:
        return []
    gone = inner.removed(world.evolution.total)
    inner.at(world.evolution.total)
    blocks = [{"body": int(body), "z": float(inner.model.body_pos[body, 2])} for body in gone]
    inner.at(step)
    return blocks


def _broken(env: Projected, model: mujoco.MjModel) -> list[int]:
    """Groups that get no control in this world."""
    if not isinstance(env.env, Evolving):
        return []
    scale = env.env.control_scale
    return [i for i, group in enumerate(groups(model)) if all(scale[index] == 0.0 for index in group["actuators"])]


def _controls(model: mujoco.MjModel) -> dict[str, bool]:
    """Which forces of nature there are to change."""
    solid = (model.geom_contype > 0) | (model.geom_conaffinity > 0)
    floor = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    fluid = bool(model.opt.density > 0.0)
    return {
        "gravity": bool(np.any(model.opt.gravity)) and not fluid,  # a swimmer's plane is level
        "friction": bool(np.any(solid & floor)) and not fluid,
        "fluid": fluid,
    }


def _starts(env: Projected, seeds: Sequence[int]) -> list[dict[str, list[float]]]:
    """States of the environment's own resets."""
    data: Any = env.unwrapped.data  # type: ignore[attr-defined]
    starts = []
    for seed in seeds:
        env.reset(seed=seed)
        starts.append({"qpos": data.qpos.tolist(), "qvel": data.qvel.tolist()})
    return starts
