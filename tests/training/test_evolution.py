"""Worlds that change, on the real simulator: what changes when, that the past leaves no trace, and training in them.

The expected values come from elsewhere than the code under test: from Gymnasium's plain robots with controls
zeroed by hand, from models compiled anew, and from the rules as the paper and the configuration state them.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import yaml
from conftest import CPU, fingerprint, learn, often, raw_config, run_python, tiny_config
from gymnasium.envs.mujoco.mujoco_env import expand_model_path
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from disk import config as configuration
from disk.config import Config, World
from disk.envs import Projected, make
from disk.errors import ConfigError, Interrupted
from disk.evaluation.rollout import rollout
from disk.learning.build import skill_parts
from disk.learning.objectives.incremental import IncrementalObjective
from disk.learning.run import learn_jointly, learn_skill
from disk.seeds import seed_of
from disk.skills import load

MINE = """
environments:
  drifting:
    id: disk/Point-v0
    position: {qpos: [0, 1]}
    horizon: 50
    test_horizon: 50
    skills: 2
    steps: 6_000
    first_alpha: 1.0
    evolution:
      total: 100
      changes:
        - {what: damping, names: [x], steps: [20, 60], factors: [0.5, 2.0], ramp: true}
        - {what: mass, names: [robot], steps: [60, 90], factors: [2.0, 3.0], ramp: true}
    conditions: {early: 0}
  mine:
    id: Ant-v5
    kwargs: {include_cfrc_ext_in_observation: false, terminate_when_unhealthy: false}
    position: {qpos: [0, 1]}
    horizon: 50
    test_horizon: 50
    skills: 2
    steps: 6_000
    first_alpha: 3.0
    evolution:
      total: 1_000
      changes:
        - {what: gravity, steps: [100, 400], factors: [1.0, 0.5], ramp: true}
        - {what: gravity, steps: [700], factors: [2.0]}
        - {what: friction, names: [floor], steps: [200, 500], factors: [0.4, 2.0]}
        - {what: friction, names: "*_ankle_geom", steps: [250, 1_000], factors: [0.2, 1.5], ramp: true}
        - {what: mass, names: [torso], steps: [300, 600, 900], factors: [1.0, 3.0, 0.5], ramp: true}
        - {what: mass, names: aux_*, steps: [50, 650], factors: [2.0, 1.0]}
        - {what: damping, names: hip_*, steps: [0, 800], factors: [0.5, 4.0], ramp: true}
        - {what: damping, names: [ankle_1, ankle_3], steps: [450], factors: [3.0]}
        - {what: actuator, names: [ankle_2], steps: [350, 750], factors: [0.3, 1.0], ramp: true}
    conditions: {early: 0, late: 1_000, trained: trained}
"""
RAW = configuration.merge(raw_config(), yaml.safe_load(MINE))
CONFIG = configuration.parse(RAW)
EVOLVING = {name: row.world() for name, row in CONFIG.environments.items() if row.evolution}
TOTALS = {name: CONFIG.environments[name].evolution.total for name in EVOLVING}
LEGS = {1: (2, 3), 2: (4, 5), 3: (6, 7), 4: (0, 1)}
"""The two actuators of each leg of Gymnasium's Ant."""
PHASES = [3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
MILLION = 1_000_000


def evolving(*changes: dict[str, Any], total: int = 100, **row: Any) -> World:
    """A plain ant whose world changes as told."""
    ant = CONFIG.environments["ant"].world().model_dump()
    return World.model_validate({**ant, **row, "evolution": {"total": total, "changes": list(changes)}})


def control_scale(env: Projected) -> np.ndarray:
    return env.get_wrapper_attr("control_scale")


def world_state(env: Projected) -> dict[str, bytes]:
    """Every number of the model, its options and its derived constants, and what controls are multiplied by."""
    model = env.unwrapped.model
    state = {"control_scale": control_scale(env).tobytes()}
    for label, part in (("", model), ("opt.", model.opt), ("stat.", model.stat)):
        for name in dir(part):
            value = None if name.startswith("_") else getattr(part, name)
            if isinstance(value, np.ndarray | int | float) and np.asarray(value).dtype.kind in "biuf":
                state[label + name] = np.asarray(value).tobytes()
    return state


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    assert one.keys() == other.keys()
    return sorted(name for name in one if one[name] != other[name])


def walk(env: Projected, steps: int, seed: int = 3) -> np.ndarray:
    """qpos and qvel after a seeded reset and some seeded actions."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    data, seen = env.unwrapped.data, []
    for _ in range(steps):
        env.step(env.to_native(rng.uniform(-1.0, 1.0, env.action_size)))
        seen.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(seen)


def test_the_compared_state_holds_what_evolutions_touch():
    expected = {"body_pos", "body_mass", "body_inertia", "geom_friction", "dof_damping", "opt.gravity", "control_scale"}
    derived = {"dof_invweight0", "body_invweight0", "body_subtreemass", "actuator_acc0", "stat.meaninertia"}
    assert expected | derived <= world_state(make(EVOLVING["mine"])).keys()


# ---------------------------------------------------------------- a pure function of the step


def edges(world: World) -> list[int]:
    """Steps at which something changes, with their neighbours."""
    assert world.evolution
    total = world.evolution.total
    found = {step for change in world.evolution.changes for step in change.steps} | {0, total}
    if any(change.together for change in world.evolution.changes):
        found |= {total * k // 8 for k in range(9)}
    return sorted({step + d for step in found for d in (-1, 0, 1) if 0 <= step + d <= total})


LONG_LIVED = {name: make(world) for name, world in EVOLVING.items()}


@pytest.mark.parametrize("name", EVOLVING)
@settings(max_examples=20)
@given(data=st.data())
def test_a_world_entered_at_a_step_is_the_one_that_any_path_leads_to(name: str, data: st.DataObject):
    """The long-lived world has all earlier examples behind it as well: forwards, backwards and in mid-episode."""
    world, wanderer = EVOLVING[name], LONG_LIVED[name]
    moment = st.one_of(st.sampled_from(edges(world)), st.integers(0, TOTALS[name]))
    for step in data.draw(st.lists(moment, max_size=5)):
        wanderer.at(step)
        wanderer.step(wanderer.to_native(np.zeros(wanderer.action_size)))
    step = data.draw(moment)
    wanderer.at(step)
    fresh = make(world, step)
    assert differences(world_state(wanderer), world_state(fresh)) == []
    np.testing.assert_array_equal(walk(wanderer, 6), walk(fresh, 6))


def test_from_any_moment_to_any_other_leads_to_the_same_world():
    """All pairs of moments before, at, inside and after ramps, in both directions."""
    world, env = EVOLVING["drifting"], LONG_LIVED["drifting"]
    moments = sorted({*edges(world), 10, 40, 75})
    expected = {step: world_state(make(world, step)) for step in moments}
    wrong = []
    for before in moments:
        for after in moments:
            env.at(before)
            env.at(after)
            if differences(world_state(env), expected[after]):
                wrong.append((before, after))
    assert wrong == []


@pytest.mark.parametrize("name", ["mine", "point_broken"])
def test_a_long_run_leads_step_by_step_to_the_world_entered_directly(name: str):
    env, stride = make(EVOLVING[name]), TOTALS[name] // 1_000
    for step in range(0, TOTALS[name] + 1, stride):
        env.at(step)
        if step % (125 * stride) == 0:
            assert differences(world_state(env), world_state(make(EVOLVING[name], step))) == []


@pytest.mark.parametrize("before", [25, 30, 60])
def test_the_start_of_a_ramp_is_the_same_world_when_it_is_come_back_to(before: int):
    world = evolving({"what": "gravity", "steps": [20, 40], "factors": [1.0, 0.5], "ramp": True})
    env = make(world, before)
    env.at(20)
    assert env.unwrapped.model.opt.gravity[2] == -9.81


@pytest.mark.parametrize("name", ["ant_blocks_even", "ant_broken", "mine", "point_blocks"])
def test_a_change_in_mid_episode_does_not_move_the_robot(name: str):
    env = make(EVOLVING[name])
    walk(env, 12)
    data = env.unwrapped.data
    kept = [np.copy(getattr(data, part)) for part in ("qpos", "qvel", "time", "qacc_warmstart", "ctrl")]
    env.at(TOTALS[name] * 3 // 5)
    for part, before in zip(("qpos", "qvel", "time", "qacc_warmstart", "ctrl"), kept, strict=True):
        np.testing.assert_array_equal(getattr(data, part), before, err_msg=part)


def test_a_world_before_its_changes_is_the_plain_one():
    """Also for masses, whose derived constants are computed anew."""
    changes = [
        {"what": what, "names": names, "steps": [50, 80], "factors": [3.0, 0.5], "ramp": ramp}
        for what, names in (("mass", ["torso"]), ("friction", ["floor"]), ("damping", ["hip_1"]), ("gravity", []))
        for ramp in (False, True)
    ]
    plain, env = make(CONFIG.environments["ant"].world()), make(evolving(*changes), 49)
    ours = {name: value for name, value in world_state(env).items() if name != "control_scale"}
    model, theirs = plain.unwrapped.model, {}
    for label, part in (("", model), ("opt.", model.opt), ("stat.", model.stat)):
        theirs |= {
            key: np.asarray(getattr(part, key[len(label) :])).tobytes()
            for key in ours
            if key.startswith(label) and "." not in key[len(label) :]
        }
    assert differences(ours, theirs) == []
    np.testing.assert_array_equal(walk(env, 20), walk(plain, 20))


# ---------------------------------------------------------------- values


def _model(env: Projected) -> Any:
    return env.unwrapped.model


QUANTITIES: dict[str, tuple[list[str], Callable[[Projected], Any], set[str]]] = {
    "gravity": ([], lambda env: _model(env).opt.gravity[2] / -9.81, {"opt.gravity"}),
    "friction": (["floor"], lambda env: _model(env).geom("floor").friction / [1.0, 0.5, 0.5], {"geom_friction"}),
    "damping": (["hip_1", "ankle_4"], lambda env: _model(env).dof_damping[[6, 13]], {"dof_damping"}),
    "actuator": (["hip_1", "ankle_4"], lambda env: control_scale(env)[[2, 1]], {"control_scale"}),
    "mass": (["torso"], lambda env: _model(env).body("torso").mass / OWN_MASS, {"body_mass", "body_inertia"}),
}
OWN_MASS = make(CONFIG.environments["ant"].world()).unwrapped.model.body("torso").mass.copy()
DERIVED = {
    "dof_invweight0",
    "body_invweight0",
    "body_subtreemass",
    "dof_M0",
    "actuator_acc0",
    "stat.meaninertia",
    "stat.meanmass",
    "stat.meansize",
    "stat.extent",
    "stat.center",
}


@pytest.mark.parametrize("what", QUANTITIES)
def test_steps_hold_their_factor_until_the_next_and_before_the_first_it_is_one(what: str):
    names, value, _ = QUANTITIES[what]
    env = make(evolving({"what": what, "names": names, "steps": [20, 50, 90], "factors": [0.5, 2.0, 0.0]}))
    for step, factor in (
        (0, 1),
        (19, 1),
        (20, 0.5),
        (21, 0.5),
        (49, 0.5),
        (50, 2),
        (89, 2),
        (90, 0),
        (100, 0),
        (5_000, 0),
    ):
        env.at(step)
        np.testing.assert_allclose(value(env), factor, rtol=1e-12, err_msg=f"step {step}")


@pytest.mark.parametrize("what", QUANTITIES)
def test_ramps_are_straight_between_their_steps_flat_beyond_and_one_before(what: str):
    names, value, _ = QUANTITIES[what]
    change = {"what": what, "names": names, "steps": [20, 40, 80], "factors": [0.5, 2.5, 1.5], "ramp": True}
    env = make(evolving(change))
    expected = {
        0: 1,
        19: 1,
        20: 0.5,
        21: 0.6,
        30: 1.5,
        40: 2.5,
        41: 2.475,
        60: 2.0,
        80: 1.5,
        81: 1.5,
        100: 1.5,
        999: 1.5,
    }
    for step, factor in expected.items():
        env.at(step)
        np.testing.assert_allclose(value(env), factor, rtol=1e-12, err_msg=f"step {step}")


@pytest.mark.parametrize("what", QUANTITIES)
def test_a_change_touches_nothing_else(what: str):
    names, _, touched = QUANTITIES[what]
    factor = 2.0 if what == "friction" else 0.5  # a floor's friction counts only if it is the larger one
    env = make(evolving({"what": what, "names": names, "steps": [20], "factors": [factor]}))
    before = world_state(env)
    env.at(20)
    found = set(differences(before, world_state(env)))
    assert touched <= found <= touched | (DERIVED if what == "mass" else set())


def test_only_what_is_named_changes():
    env = make(
        evolving(
            *(
                {"what": what, "names": names, "steps": [20], "factors": [2.0]}
                for what, (names, *_) in QUANTITIES.items()
            )
        )
    )
    model = _model(env)
    own = {name: getattr(model, name).copy() for name in ("geom_friction", "dof_damping", "body_mass", "body_inertia")}
    env.at(20)
    changed = {name: set(np.argwhere(getattr(model, name) != value)[:, 0].tolist()) for name, value in own.items()}
    torso = {model.body("torso").id}
    floor = {model.geom("floor").id}
    assert changed == {"geom_friction": floor, "dof_damping": {6, 13}, "body_mass": torso, "body_inertia": torso}
    assert control_scale(env).tolist() == [1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_heavier_torso_is_the_one_that_a_denser_geom_compiles_to():
    """Masses, inertias and all constants derived from them, against a model made of another material."""
    env = make(evolving({"what": "mass", "names": ["torso"], "steps": [20], "factors": [3.0]}), 20)
    spec = mujoco.MjSpec.from_file(expand_model_path("ant.xml"))
    spec.geom("torso_geom").density *= 3.0
    compiled = spec.compile()
    for name in ("body_mass", "body_inertia", "body_subtreemass", "body_invweight0", "dof_invweight0"):
        np.testing.assert_allclose(getattr(_model(env), name), getattr(compiled, name), rtol=1e-9, err_msg=name)


def test_changes_reach_the_simulation():
    """An ant in the air falls half as far in half the gravity, and a slippery one slides farther."""
    fall = {}
    for step in (0, 50):
        env = make(evolving({"what": "gravity", "steps": [50], "factors": [0.5]}), step)
        env.reset(seed=0)
        data = env.unwrapped.data
        data.qpos[2] = 30.0
        for _ in range(20):
            env.step(np.zeros(8))
        fall[step] = 30.0 - data.qpos[2]
    assert fall[50] / fall[0] == pytest.approx(0.5, abs=0.05)
    slides = {}
    for step in (0, 50):
        env = make(evolving({"what": "friction", "names": "*", "steps": [50], "factors": [0.05]}), step)
        env.reset(seed=0)
        env.unwrapped.data.qvel[0] = 4.0
        for _ in range(40):
            env.step(np.zeros(8))
        slides[step] = env.unwrapped.data.qpos[0]
    assert slides[50] > slides[0] + 1.0


# ---------------------------------------------------------------- broken legs


def dead_actuators(env: Projected) -> set[int]:
    """Actuators that give no force whatever is asked of them; their joints must feel none either."""
    env.reset(seed=0)
    model, data = env.unwrapped.model, env.unwrapped.data
    dead = set(range(model.nu))
    for sign in (1.0, -1.0):
        env.step(np.full(model.nu, 0.7 * sign))
        forces = data.actuator_force.copy()
        joints = data.qfrc_actuator[model.jnt_dofadr[model.actuator_trnid[:, 0]]]
        assert ((forces == 0.0) == (joints == 0.0)).all()
        assert set(np.abs(forces)) <= {0.0, 0.7}
        dead &= set(np.flatnonzero(forces == 0.0).tolist())
    return dead


def test_the_pairs_of_actuators_are_the_legs_of_gymnasiums_ant():
    model = make(EVOLVING["ant_broken"]).unwrapped.model
    for leg, pair in LEGS.items():
        driven = [model.joint(model.actuator_trnid[actuator, 0]).name for actuator in pair]
        assert driven == [f"hip_{leg}", f"ankle_{leg}"]


@pytest.mark.parametrize(("phase", "leg"), list(enumerate(PHASES)))
def test_each_phase_of_a_million_steps_breaks_its_leg_and_no_other(phase: int, leg: int):
    env = LONG_LIVED["ant_broken"]
    for step in (phase * MILLION, phase * MILLION + 1, phase * MILLION + 499_999, (phase + 1) * MILLION - 1):
        env.at(step)
        assert dead_actuators(env) == set(LEGS[leg]), step


def test_the_last_leg_stays_broken_at_the_end():
    for step in (10 * MILLION - 1, 10 * MILLION):
        assert dead_actuators(make(EVOLVING["ant_broken"], step)) == set(LEGS[4])


@pytest.mark.parametrize("leg", LEGS)
def test_each_condition_breaks_the_leg_that_it_is_named_after(leg: int):
    row = CONFIG.environments["ant_broken"]
    assert set(row.conditions) == {"leg1", "leg2", "leg3", "leg4"}
    job = CONFIG.evaluation_job("ant_broken", f"leg{leg}")
    assert isinstance(job.world_steps, int)
    assert dead_actuators(make(job.world, job.world_steps)) == set(LEGS[leg])


@given(step=st.integers(0, 10 * MILLION - 1))
@settings(max_examples=40)
def test_at_any_step_exactly_the_leg_of_its_million_is_broken(step: int):
    env = LONG_LIVED["ant_broken"]
    env.at(step)
    assert set(np.flatnonzero(control_scale(env) == 0.0)) == set(LEGS[PHASES[step // MILLION]])
    assert set(control_scale(env)) == {0.0, 1.0}


def test_each_phase_of_the_paper_trains_two_skills():
    starts = [CONFIG.skill_job("ant_broken", "disk", 0, skill).start_step for skill in range(20)]
    assert starts == [500_000 * skill for skill in range(20)]


def test_a_broken_ant_is_a_plain_one_whose_two_controls_are_zeroed_by_hand():
    actions = np.random.default_rng(1).uniform(-1.0, 1.0, (30, 8))
    for leg, pair in LEGS.items():
        broken = make(EVOLVING["ant_broken"], CONFIG.environments["ant_broken"].conditions[f"leg{leg}"])
        plain = make(CONFIG.environments["ant"].world())
        broken.reset(seed=2)
        plain.reset(seed=2)
        for action in actions:
            chosen = action.copy()
            obs = broken.step(action)[0]
            np.testing.assert_array_equal(action, chosen, err_msg="the caller's action is left alone")
            action[list(pair)] = 0.0
            np.testing.assert_array_equal(obs, plain.step(action)[0])


# ---------------------------------------------------------------- rollouts


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random skills of the broken point world: they use all four thrusters about equally."""
    path = tmp_path_factory.mktemp("untrained") / "skills.safetensors"
    learn_jointly(CONFIG.joint_job("point_broken", "random", 0), path.parent, CONFIG.runtime)
    return path


def test_under_each_condition_the_point_drifts_away_from_its_dead_thruster(untrained: Path):
    drifts = {"no_east": (0, -1), "no_west": (0, 1), "no_north": (1, -1), "no_south": (1, 1)}
    assert set(CONFIG.environments["point_broken"].conditions) == set(drifts)
    skills = load(untrained)
    for condition, (axis, sign) in drifts.items():
        job = CONFIG.evaluation_job("point_broken", condition)
        paths = rollout(skills, job.world, 30, [[1, 2]] * len(skills), job.world_steps)
        ends = np.array([path.position[-1] for episodes in paths for path in episodes])
        assert (ends[:, axis] * sign > 0.5).all()


@pytest.mark.parametrize("steps", [[0, 8_000, 16_000, 24_000], [24_000, 16_000, 0, 8_000]])
@pytest.mark.parametrize("episodes", [2, 40])
def test_skills_may_each_run_in_a_world_of_their_own(untrained: Path, steps: list[int], episodes: int):
    """With 40 episodes the skills take turns in the same simulators."""
    skills, world = load(untrained).pick([0, 1, 2, 3]), EVOLVING["point_broken"]
    seeds = [list(range(episodes))] * 4
    together = rollout(skills, world, 5, seeds, steps)
    for skill, step in enumerate(steps):
        (alone,) = rollout(skills.pick([skill]), world, 5, seeds[:1], step)
        for one, other in zip(alone, together[skill], strict=True):
            np.testing.assert_allclose(one.position, other.position, atol=1e-6)


def test_the_condition_trained_is_each_skills_last_training_step():
    job = CONFIG.evaluation_job("ant_blocks_even", "trained")
    last = np.cumsum([250, 250, 1000, 1000, 500, 500, 500, 500, 250, 250]) * 1_000 - 1
    assert job.world_steps == last.tolist()
    assert CONFIG.evaluation_job("ant_blocks_even", "nominal").world_steps == 5 * MILLION


# ---------------------------------------------------------------- training in them


STEPS, HORIZON, PAST, SEEDING = 150, 25, 200, 20
BROKEN: dict[str, Any] = {
    "environments": {
        "point": {
            "skills": 2,
            "steps": STEPS,
            "sac": {"seed_steps": SEEDING},
            "evolution": {
                "total": 2 * STEPS,
                "changes": [
                    {"what": "actuator", "names": ["east"], "steps": [0, STEPS], "factors": [0.0, 1.0]},
                    {"what": "actuator", "names": ["south"], "steps": [STEPS, 160], "factors": [0.0, 1.0]},
                    {"what": "actuator", "names": ["north"], "steps": [160, 237], "factors": [0.0, 1.0]},
                    {"what": "damping", "names": ["y"], "steps": [200, 280], "factors": [1.0, 3.0], "ramp": True},
                ],
            },
            "conditions": {"first": 0, "trained": "trained"},
        }
    }
}
"""The second skill, steps 150 to 299, sees changes in mid-episode at its steps 10 and 87, and a ramp from 50 to 130."""


@pytest.fixture(scope="module")
def broken() -> Config:
    return tiny_config(BROKEN)


@pytest.fixture(scope="module")
def pair(broken: Config, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two skills learned in that world without interruption. Read only."""
    return learn(broken, tmp_path_factory.mktemp("pair"), range(2))


def by_hand(env: Projected, step: int, action: np.ndarray) -> np.ndarray:
    """What that world at a step makes of an action in the plain one, which is changed here and not by an evolution."""
    env.unwrapped.model.dof_damping[1] = 2.0 * np.interp(step, [200, 280], [1.0, 3.0])
    native = env.to_native(action)
    if step < STEPS:
        native[0] = 0.0
    elif step < 160:
        native[3] = 0.0
    elif step < 237:
        native[2] = 0.0
    return native


def plain_point() -> Projected:
    return make(tiny_config().environments["point"].world())


@pytest.mark.parametrize("skill", [0, 1])
def test_the_replay_keeps_chosen_actions_and_what_the_changing_world_made_of_them(pair: list[Path], skill: int):
    shard, env = load_file(pair[skill] / "replay.safetensors"), plain_point()
    assert len(shard["action"]) == STEPS
    for step in range(STEPS):
        if step % HORIZON == 0:
            obs, _ = env.reset(seed=seed_of("episode", 0, skill, step // HORIZON))
        action = shard["action"][step].numpy()
        next_obs, *_, info = env.step(by_hand(env, skill * STEPS + step, action))
        for name, value in (("obs", obs), ("next_obs", next_obs), ("sigma", info["sigma"])):
            np.testing.assert_array_equal(shard[name][step].numpy(), np.float32(value), err_msg=f"{name} {step}")
        obs = next_obs
    dead = shard["action"][:10, 0 if skill == 0 else 3]
    assert dead.std() > 0.3, "the dead thruster's throttle is stored as it was chosen"
    assert (shard["action"] > -1.0).all(), "-1 would be a closed throttle"


def visits_by_hand(folder: Path, step: int, *seed: int) -> np.ndarray:
    policy, env, states = load(folder / "policy.safetensors"), plain_point(), []
    for episode in range(PAST // HORIZON):
        obs, _ = env.reset(seed=seed_of("visits", 0, *seed, episode))
        for _ in range(HORIZON):
            obs, *_, info = env.step(by_hand(env, step, policy.mode(obs[None, None])[0, 0]))
            states.append(info["sigma"])
    return np.array(states)


def past_of(config: Config, earlier: list[Path]) -> np.ndarray:
    objective = skill_parts(config.skill_job("point", "disk", 0, len(earlier)), earlier, CPU).objective
    assert isinstance(objective, IncrementalObjective)
    assert objective.past is not None
    return objective.past.numpy()


def test_the_past_is_collected_in_the_world_as_it_is_when_a_skill_starts(
    pair: list[Path], tmp_path: Path, broken: Config
):
    found = past_of(broken, pair[:1])
    assert found.shape == (PAST, 2)
    np.testing.assert_allclose(found, visits_by_hand(pair[0], STEPS, 1, 0), rtol=1e-3, atol=1e-4)


def test_under_another_dead_thruster_the_past_is_another(pair: list[Path], tmp_path: Path, broken: Config):
    """The same policy, seen from a start at which north is dead instead of south."""
    changes = [
        {"what": "actuator", "names": ["east"], "steps": [0, STEPS], "factors": [0.0, 1.0]},
        {"what": "actuator", "names": ["north"], "steps": [STEPS], "factors": [0.0]},
    ]
    other = tiny_config(BROKEN, {"environments": {"point": {"evolution": {"changes": changes}}}})
    south_dead, north_dead = past_of(broken, pair[:1]), past_of(other, pair[:1])
    assert south_dead[:, 1].mean() > north_dead[:, 1].mean() + 0.2


def test_a_skills_own_visits_are_those_of_its_last_step(pair: list[Path]):
    for skill, folder in enumerate(pair):
        expected = visits_by_hand(folder, (skill + 1) * STEPS - 1, skill)
        np.testing.assert_allclose(np.load(folder / "visits.npy"), expected, rtol=1e-3, atol=1e-4)


def test_stats_count_the_steps_outside_the_budget(pair: list[Path]):
    for skill, folder in enumerate(pair):
        found = json.loads((folder / "stats.json").read_text())
        assert found["steps"] == STEPS
        assert found["collected_steps"] == PAST * (skill + 1), "its own visits, and 𝒯: every earlier skill's"


def timeless(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    stats = json.loads((folder / "stats.json").read_text())
    return fingerprint(folder), {
        key: value for key, value in stats.items() if key not in ("seconds", "cpu_seconds", "commit")
    }


@pytest.fixture
def second(pair: list[Path], tmp_path: Path) -> Path:
    """A run whose first skill is there and whose second is to be learned."""
    shutil.copytree(pair[0], tmp_path / "skill00")
    return tmp_path


@pytest.mark.parametrize("step", [3, 12, 60, 87, 149])
def test_a_training_stopped_around_a_change_gives_the_same_bytes(
    second: Path, pair: list[Path], broken: Config, monkeypatch: pytest.MonkeyPatch, step: int
):
    """In the episodes of both changes, between them, inside the ramp, and at the last step."""
    observe, seen = IncrementalObjective.observe, []

    def stop(self: IncrementalObjective, *args: Any) -> None:
        observe(self, *args)
        seen.append(1)
        if len(seen) == step + 1:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(IncrementalObjective, "observe", stop)
    with pytest.raises(Interrupted):
        learn(broken, second, range(1, 2))
    assert (second / "skill01.checkpoint").exists()
    learn(broken, second, range(1, 2))
    assert len(seen) == STEPS, "nothing was done twice"
    assert timeless(second / "skill01") == timeless(pair[1])


KILLED = """
import os, signal, sys
from pathlib import Path
from conftest import learn, often, tiny_config
from test_evolution import BROKEN
from disk.learning.objectives.incremental import IncrementalObjective

observe, seen = IncrementalObjective.observe, []
def kill(self, *args):
    observe(self, *args)
    seen.append(1)
    if len(seen) == 94:
        os.kill(os.getpid(), signal.SIGKILL)
IncrementalObjective.observe = kill
config = tiny_config(BROKEN)
learn(config, Path(sys.argv[1]), range(1, 2), runtime=often(config))
"""


def test_a_training_killed_after_a_change_gives_the_same_bytes(second: Path, pair: list[Path], broken: Config):
    """Another process goes on from the last checkpoint, between the two changes, in a world that it enters anew."""
    process = run_python(KILLED, second)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, errors
    assert (second / "skill01.checkpoint").exists()
    assert not (second / "skill01" / "policy.safetensors").exists()
    learn(broken, second, range(1, 2), runtime=often(broken))
    assert timeless(second / "skill01") == timeless(pair[1])


def test_ants_keep_the_torques_they_chose_for_their_broken_leg(tmp_path: Path):
    """Leg 3 and, from step 50 in mid-episode on, leg 4: against a plain ant with controls zeroed by index."""
    changes = [
        {"what": "actuator", "names": ["hip_3", "ankle_3"], "steps": [0, 50], "factors": [0.0, 1.0]},
        {"what": "actuator", "names": ["hip_4", "ankle_4"], "steps": [50], "factors": [0.0]},
    ]
    small = {
        "environments": {
            "ant_broken": {
                "horizon": 20,
                "steps": 120,
                "skills": 1,
                "sac": {"hidden": [16, 16], "batch_size": 16, "seed_steps": 100},
                "evolution": {"total": 120, "changes": changes},
                "conditions": {"leg1": 0, "leg2": 0, "leg3": 0, "leg4": 120},
                "snapshots": [],
            }
        },
        "disk": {"past_states": 20},
        "runtime": {"device": "cpu"},
    }
    config = configuration.parse(configuration.merge(RAW, small))
    learn_skill(config.skill_job("ant_broken", "disk", 0, 0), [], tmp_path / "skill00", config.runtime)
    shard = load_file(tmp_path / "skill00" / "replay.safetensors")
    actions, env = shard["action"], make(config.environments["ant"].world(), horizon=20)
    assert (actions[:100].std(dim=0) > 0.4).all(), "no column is zero: every actuator's torque is the chosen one"
    episode, over = 0, True
    for step in range(120):
        if over:
            obs, _ = env.reset(seed=seed_of("episode", 0, 0, episode))
            episode += 1
        torques = env.to_native(actions[step].numpy())
        torques[list(LEGS[3] if step < 50 else LEGS[4])] = 0.0
        next_obs, _, terminated, truncated, _ = env.step(torques)
        assert torch.equal(shard["obs"][step], torch.from_numpy(np.float32(obs))), step
        assert torch.equal(shard["next_obs"][step], torch.from_numpy(np.float32(next_obs))), step
        obs, over = next_obs, terminated or truncated


def test_adding_a_skill_moves_no_change_and_no_earlier_job():
    """The total is a number of its own."""
    for name, world in EVOLVING.items():
        row = RAW["environments"][name]
        steps = [*row["steps"], 300_000] if isinstance(row["steps"], list) else row["steps"]
        longer = {"environments": {name: {"skills": row["skills"] + 1, "steps": steps}}}
        more = configuration.parse(configuration.merge(RAW, longer))
        assert more.environments[name].world() == world
        for skill in range(row["skills"]):
            before, after = (config.skill_job(name, "disk", 0, skill) for config in (CONFIG, more))
            assert before.canonical() == after.canonical()
        new = more.skill_job(name, "disk", 0, row["skills"])
        assert new.start_step == CONFIG.environments[name].start_of(row["skills"])


def test_a_skill_beyond_the_total_is_learned_in_the_last_world():
    for name, world in EVOLVING.items():
        assert differences(world_state(make(world, TOTALS[name])), world_state(make(world, 3 * TOTALS[name]))) == []


def test_only_evolving_worlds_put_the_step_into_their_jobs():
    """Changing an earlier skill's steps must not retrain later skills of a world that stands still for that alone."""
    assert CONFIG.skill_job("ant", "disk", 0, 3).start_step is None
    assert CONFIG.skill_job("ant_blocks_fast", "disk", 0, 3).start_step == 1_500_000


# ---------------------------------------------------------------- as Gymnasium environments


@pytest.mark.parametrize("name", EVOLVING)
@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
def test_gymnasium_finds_no_fault_at_any_time(name: str):
    """But for its check of closing, which rebuilds an environment from the spec of its id and cannot rebuild ours."""
    for step in (0, TOTALS[name] // 2, TOTALS[name]):
        check_env(make(EVOLVING[name], step), skip_render_check=True, skip_close_check=True)


# ---------------------------------------------------------------- what is refused


def actuator(**changes: Any) -> dict[str, Any]:
    return {"what": "actuator", "names": ["hip_1"], "steps": [5], "factors": [0.0], **changes}


RING = {"id": "disk/BlockedPoint-v0", "kwargs": {"blocks": 12}}
JOINTS = ["hip_1", "ankle_1", "hip_4", "ankle_4"]
REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = {
    "a step beyond the total": ([actuator(steps=[101])], {}, ["changes.0.steps", "101", "beyond", "100"]),
    "the second change's step beyond the total": (
        [actuator(), actuator(names=["hip_2"], steps=[5, 500], factors=[0.0, 1.0])],
        {},
        ["changes.1.steps", "500"],
    ),
    "a fifth leg": ([actuator(names=["hip_5", "ankle_5"])], {}, ["changes.0.names", "actuator", "'hip_5'", *JOINTS]),
    "a pattern that no actuator matches": ([actuator(names="knee_*")], {}, ["changes.0.names", "'knee_*'", *JOINTS]),
    "an unknown body": (
        [{"what": "mass", "names": ["head"], "steps": [5], "factors": [2.0]}],
        {},
        ["body", "'head'", "torso", "aux_4"],
    ),
    "an unknown geom": (
        [{"what": "friction", "names": ["ice"], "steps": [5], "factors": [2.0]}],
        {},
        ["geom", "'ice'", "floor"],
    ),
    "an unknown joint": (
        [{"what": "damping", "names": ["knee"], "steps": [5], "factors": [2.0]}],
        {},
        ["joint", "'knee'", *JOINTS],
    ),
    "an unknown block": ([{"what": "remove", "names": ["block99"], "steps": [5]}], RING, ["'block99'", "block11"]),
    "an unknown kind of change": ([actuator(what="wind")], {}, ["wind", "actuator", "gravity"]),
    "a misspelt key": ([actuator(factor=[1.0])], {}, ["factor", "did you mean 'factors'"]),
    "the same body twice in one change": (
        [{"what": "remove", "names": ["block01", "block02", "block01"], "steps": [5]}],
        RING,
        ["twice", "block01"],
    ),
    "the same body in two changes": (
        [
            {"what": "remove", "names": ["block01"], "steps": [5]},
            {"what": "remove", "names": ["block01"], "steps": [9]},
        ],
        RING,
        ["changes.1.names", "twice", "block01"],
    ),
    "the same body through a pattern": (
        [{"what": "remove", "names": ["block01"], "steps": [5]}, {"what": "remove", "names": "block*", "together": 2}],
        RING,
        ["changes.1.names", "twice", "block01"],
    ),
    "the same body through two patterns": (
        [{"what": "remove", "names": "block0*", "steps": [5]}, {"what": "remove", "names": "block?1", "steps": [9]}],
        RING,
        ["changes.1.names", "twice", "block01"],
    ),
    "a body with joints": (
        [{"what": "remove", "names": ["torso"], "steps": [5]}],
        {},
        ["torso", "not fixed to the world"],
    ),
    "a body on the robot": ([{"what": "remove", "names": ["back_leg"], "steps": [5]}], {}, ["back_leg", "not fixed"]),
    "the world itself": (
        [{"what": "remove", "names": ["world"], "steps": [5]}],
        {},
        ["world", "not fixed to the world"],
    ),
    "fewer factors than steps": ([actuator(steps=[5, 9])], {}, ["as many factors as steps"]),
    "more factors than steps": ([actuator(factors=[0.0, 1.0])], {}, ["as many factors as steps"]),
    "no steps at all": ([actuator(steps=[], factors=[])], {}, ["as many factors as steps"]),
    "a surprise without a seed": ([actuator(steps=[], within=[2, 5])], {}, ["seed: null: changes.0.within"]),
    "a surprise with a step": ([actuator(within=[2, 5])], {}, ["within: [2, 5]", "no steps"]),
    "a surprise in no time": ([actuator(steps=[], within=[5, 5])], {}, ["within: [5, 5]", "ascending"]),
    "a negative factor": ([actuator(factors=[-0.5])], {}, ["factors.0", "-0.5", "greater than or equal to 0"]),
    "an infinite factor": ([actuator(factors=[float("inf")])], {}, ["factors.0", "finite"]),
    "a factor that is no number": ([actuator(factors=[float("nan")])], {}, ["factors.0"]),
    "a negative step": ([actuator(steps=[-5])], {}, ["steps.0", "-5"]),
    "steps out of order": ([actuator(steps=[9, 5], factors=[0.0, 1.0])], {}, ["ascending", "[9, 5]"]),
    "a step given twice": ([actuator(steps=[5, 5], factors=[0.0, 1.0])], {}, ["ascending", "[5, 5]"]),
    "gravity with names": (
        [{"what": "gravity", "names": ["torso"], "steps": [5], "factors": [0.0]}],
        {},
        ["gravity takes no names"],
    ),
    "an actuator without a name": ([actuator(names=[])], {}, ["actuator needs names"]),
    "removal with factors": (
        [{"what": "remove", "names": ["block01"], "steps": [5], "factors": [0.0]}],
        RING,
        ["no factors, ramp or within"],
    ),
    "removal without a time": ([{"what": "remove", "names": ["block01"]}], RING, ["either steps or together"]),
    "removal with two times": (
        [{"what": "remove", "names": ["block01"], "steps": [5], "together": 1}],
        RING,
        ["either steps or together"],
    ),
    "removal with steps for some": (
        [{"what": "remove", "names": ["block01", "block02", "block03"], "steps": [5, 6]}],
        RING,
        ["2 steps", "3"],
    ),
    "removal by pattern with steps for some": (
        [{"what": "remove", "names": "block*", "steps": [1, 2, 3, 4, 5, 6]}],
        RING,
        ["6 steps", "12"],
    ),
    "removal of a number that does not divide the bodies": (
        [{"what": "remove", "names": "block*", "together": 5}],
        RING,
        ["changes.0.together", "5 at a time", "12 bodies"],
    ),
    "no change at all": ([], {}, ["evolution.changes"]),
    "a world that is not MuJoCo's": (
        [{"what": "gravity", "steps": [5], "factors": [0.5]}],
        {"id": "Pendulum-v1", "kwargs": {}, "position": {"observation": [0, 1]}},
        ["evolution", "Pendulum-v1", "not a MuJoCo environment"],
    ),
    "a condition beyond the total": (
        [actuator()],
        {"conditions": {"late": 101}},
        ["conditions.late", "101", "beyond", "100"],
    ),
}


def build(row: dict[str, Any]) -> Projected:
    """What a user's row goes through: the parser, then the simulator."""
    raw = {**RAW, "environments": {**RAW["environments"], "mine": {**RAW["environments"]["ant"], **row}}}
    return make(configuration.parse(raw).environments["mine"].world())


@pytest.mark.parametrize("case", REFUSED)
def test_an_evolution_that_cannot_be_meant_is_refused_with_the_reason(case: str):
    changes, row, words = REFUSED[case]
    with pytest.raises(ConfigError) as refusal:
        build({**row, "evolution": {"total": 100, "changes": changes}})
    message = str(refusal.value)
    assert [word for word in words if word not in message] == [], message
    assert len(message.splitlines()) <= 2, message


def test_the_cases_that_are_refused_differ_from_what_works_only_in_their_fault():
    build(
        {
            "evolution": {
                "total": 100,
                "changes": [actuator(), actuator(names=["hip_2"], steps=[5, 100], factors=[0, 1])],
            }
        }
    )
    build(
        {
            **RING,
            "evolution": {
                "total": 100,
                "changes": [
                    {"what": "remove", "names": ["block01", "block02"], "steps": [9, 5]},
                    {"what": "remove", "names": "block1*", "steps": [100]},
                ],
            },
        }
    )


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"late": "trained"}, ["conditions.late", "'trained'", "evolves"]),
        ({"late": 7}, ["conditions.late", "7", "beyond"]),
        ({"late": "finished"}, ["conditions.late", "finished"]),
        ({"no spaces": 0}, ["no spaces"]),
        ({}, ["conditions"]),
    ],
    ids=["trained", "a step", "unknown", "a name for no file", "none"],
)
def test_conditions_of_a_world_that_stands_still_are_refused_with_the_reason(
    conditions: dict[str, Any], words: list[str]
):
    with pytest.raises(ConfigError) as refusal:
        build({"conditions": conditions})
    assert [word for word in words if word not in str(refusal.value)] == [], refusal.value


def test_an_unknown_condition_is_refused_and_the_known_are_named():
    with pytest.raises(ConfigError, match=r"leg5.*leg1, leg2, leg3, leg4"):
        CONFIG.evaluation_job("ant_broken", "leg5")


def cheetah(*changes: dict[str, Any]) -> World:
    """A HalfCheetah whose friction changes; its floor and its body have the same friction, 0.4."""
    row = CONFIG.environments["halfcheetah"].world().model_dump()
    return World.model_validate({**row, "evolution": {"total": 100, "changes": list(changes)}})


def friction(names: Any, *factors: float) -> dict[str, Any]:
    return {"what": "friction", "names": names, "steps": list(range(1, len(factors) + 1)), "factors": list(factors)}


def contact_friction(env: Projected, step: int) -> float:
    """The sliding friction that MuJoCo itself gives to the contacts of a robot that has fallen to the floor."""
    env.at(step)
    robot = env.unwrapped
    robot.data.qpos[1] = -0.3
    mujoco.mj_forward(robot.model, robot.data)
    assert robot.data.ncon > 0
    return float(max(contact.friction[0] for contact in robot.data.contact))


def test_a_change_of_friction_that_no_contact_notices_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"evolution.changes.0.names: \['floor'\]: no contact notices this friction"):
        make(cheetah(friction(["floor"], 0.2)))
    with pytest.raises(ConfigError, match=r"evolution.changes.1"):
        make(cheetah(friction("*", 3.0), friction(["floor"], 0.9)))
    plain = contact_friction(make(CONFIG.environments["halfcheetah"].world()), 0)
    for names, factors in ((["floor"], (0.2, 2.0)), ("*", (0.5,))):
        env = make(cheetah(friction(names, *factors)))
        assert contact_friction(env, 0) == pytest.approx(plain)
        assert contact_friction(env, len(factors)) == pytest.approx(factors[-1] * plain)
    apart = make(cheetah(friction(["floor"], 0.2), friction("[!f]*", 0.2), friction("f[!l]*", 0.2)))
    assert contact_friction(apart, 1) == pytest.approx(0.2 * plain), "each change counts, since all are needed"


def test_a_surprise_comes_at_the_step_that_the_worlds_own_seed_draws():
    changes = [actuator(steps=[], within=[20, 90])]
    steps = []
    for seed in (1, 1, 2):
        env: Any = build({"evolution": {"total": 100, "seed": seed, "changes": changes}}).env
        [step] = [step for step in range(100) if env.signature(step) != env.signature(step - 1)]
        env.at(step - 1)
        assert env.control_scale.tolist() == [1.0] * 8
        env.at(step)
        assert env.control_scale.tolist().count(0.0) == 1
        steps.append(step)
    assert 20 <= min(steps) < max(steps) < 90
    assert steps[0] == steps[1] != steps[2]
    with pytest.raises(ConfigError, match="101 is beyond the total of 100"):
        build({"evolution": {"total": 100, "seed": 1, "changes": [actuator(steps=[], within=[20, 101])]}})
