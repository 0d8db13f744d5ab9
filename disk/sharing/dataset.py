"""The transitions of a chain as a Minari data set: episodes, with the parameters of the world at each step.

Minari is Gymnasium's format for offline learning. A chain's replay holds the observations, actions and σ of each step.
It holds no rewards, since DISk computes them when it samples: rewards are 0 here. The columns of `infos` have a row for
each observation.

| column | of each step |
|---|---|
| `skill`, `step` | the skill that acted, and the global step |
| `sigma` | σ; 0 at an episode's first observation |
| `actuator` | factor of each control; 0 is dead |
| `remove` | 1 for each body, such as a block, that is gone |
| `gravity` | gravity along z |
| `friction`, `mass`, `damping` | the model's value for each geom, body, degree of freedom |

From `actuator` on, a data set has the columns of what its world's evolution changes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from disk.config import SkillJob
from disk.envs import Projected, make
from disk.envs.evolution import Evolving
from disk.envs.worlds import make as make_named
from disk.errors import ArtefactError, ConfigError
from disk.lazy import need
from disk.storage.files import load_stats, load_tensors
from disk.storage.layout import REPLAY, STATS, Run, is_finished


def write_dataset(run: Path, out: Path | None = None, name: str | None = None) -> str:
    """Write the replays of a chain's finished skills below `out`. Return a line that says what was written."""
    place = Run.of(run.resolve())
    skills = [folder for folder in sorted(run.glob("skill[0-9]*")) if is_finished(folder)]
    if not skills:
        raise ArtefactError(f"{run}: has no finished skill of a chain: only chains keep their transitions")
    identity = name or f"disk/{place.env}/{place.method}-seed{place.seed}-v0"
    folder = (out or run / "export/minari").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["MINARI_DATASETS_PATH"] = str(folder)  # read when Minari looks for a data set
    minari = need("minari")
    if (folder / identity).exists():
        raise ArtefactError(f"{folder / identity}: exists; delete it or give another --id")
    buffers = [buffer for skill in skills for buffer in episodes(skill)]
    world = _job(skills[0]).world
    env = make(world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses an author and a link to the code
        minari.create_dataset_from_buffers(
            identity,
            buffers,
            env=_spec(place.env, world.horizon),
            observation_space=env.observation_space,
            action_space=env.action_space,
            algorithm_name=place.method,
            description=__doc__,
            data_format="arrow",
            requirements=["disk-skills"],
        )
    env.close()
    steps = sum(len(buffer) for buffer in buffers)
    return f"{folder / identity}: {len(buffers)} episodes, {steps} steps. Load it with MINARI_DATASETS_PATH={folder}"


def episodes(skill: Path) -> Iterator[Any]:
    """Yield the episodes of a skill's own transitions, in the order in which they began."""
    buffer = need("minari.data_collector").EpisodeBuffer
    job, (rows, _) = _job(skill), load_tensors(skill / REPLAY)
    obs, following, action, sigma = (rows[key].double().numpy() for key in ("obs", "next_obs", "action", "sigma"))
    terminated, turns = rows["terminated"].numpy().astype(bool), job.sac.environments or 1
    # A replay that is full has lost its oldest rows.
    first = _start(skill, job) + int(load_stats(skill / STATS)["steps"]) - len(obs)
    env = make(job.world)
    found = []
    for turn in range(turns):  # environments take turns, a step each
        mine = np.arange(turn, len(obs), turns)
        ends = [*np.flatnonzero((following[mine[:-1]] != obs[mine[1:]]).any(axis=1)) + 1, len(mine)]
        found += [mine[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    for own in sorted(found, key=lambda each: int(each[0])):
        steps = first + np.append(own, own[-1] + turns)
        # A column of single numbers is (T + 1, 1): Minari 0.5 writes (T + 1,) as Arrow, but cannot read it back.
        infos = {"skill": np.full((len(steps), 1), job.skill), "step": steps[:, None], **parameters(env, steps)}
        infos["sigma"] = np.concatenate((np.zeros((1, sigma.shape[1])), sigma[own]))
        yield buffer(
            observations=np.concatenate((obs[own], following[own[-1:]])),
            actions=env.to_native(action[own]).astype(np.float32),
            rewards=np.zeros(len(own)),
            terminations=terminated[own],
            truncations=(own == own[-1]) & ~terminated[own],
            infos=infos,
        )
    env.close()


def parameters(env: Projected, steps: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the world's evolution changes, as it is at each of these steps."""
    evolving, evolution = env.env, env.world.evolution
    if not isinstance(evolving, Evolving) or evolution is None:
        return {}
    removable, model = sorted(evolving.removed(evolution.total)), evolving.model
    read: dict[str, Callable[[int], Any]] = {
        "actuator": lambda step: evolving.control_scale,
        "remove": lambda step: np.isin(removable, evolving.removed(step)),
        "gravity": lambda step: model.opt.gravity[2:],
        "friction": lambda step: model.geom_friction[:, 0],
        "mass": lambda step: model.body_mass,
        "damping": lambda step: model.dof_damping,
    }
    columns: dict[str, list[np.ndarray]] = {change.what: [] for change in evolution.changes}
    for step in map(int, steps):
        evolving.at(step)
        for what, values in columns.items():
            values.append(np.array(read[what](step), dtype=np.float64))
    return {what: np.stack(values) for what, values in columns.items()}


def _job(skill: Path) -> SkillJob:
    return SkillJob.model_validate(load_stats(skill / STATS)["job"])


def _start(skill: Path, job: SkillJob) -> int:
    """Return the global step at which a skill's training began."""
    start = job.start_step or 0
    if job.aware and job.skill:  # a skill that ended early has left its other steps to this one
        start -= int(load_stats(skill.with_name(f"skill{job.skill - 1:02d}") / STATS)["aware"]["left"])
    return start


def _spec(name: str, horizon: int) -> Any:
    """Return the environment that Minari can recover; None for a row that only a preset has."""
    try:
        env = make_named(name, max_episode_steps=horizon)
    except ConfigError:
        return None
    env.close()
    return env.spec
