"""Rollouts: trajectories of skills under deterministic actions, or under sampled ones if their file says so.

All measures and figures come from rollouts, and so does 𝒯. Episodes of several skills advance together, with one
batched forward pass per step. Several processes (`disk.evaluation.workers`) may share the episodes. Each passes a full
batch forward, with zeros for the others' episodes, because the last bits of a product depend on its shape. So the
numbers do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from disk.config import World
from disk.envs.batch import Batch, Loop, lanes
from disk.errors import LARGEST, must_be_finite
from disk.skills import Skills, shown

if TYPE_CHECKING:
    import pandas as pd

LANES = 64
"""Most environments that exist at a time."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Positions and projected states of one episode; row t is the state after t steps."""

    position: np.ndarray  # (T + 1, D)
    sigma: np.ndarray  # (T + 1, D)


def rollout(
    skills: Skills, world: World, horizon: int, seeds: Sequence[Sequence[int]], steps: int | Sequence[int] = 0
) -> list[list[Trajectory]]:
    """Run each skill once from each of its seeds. All skills have the same number of seeds.

    `steps` selects the world: one global step for all skills, or one for each.
    """
    episodes = range(len(seeds[0]))
    found = share(skills, world, horizon, seeds, steps)
    return [[found[skill, episode] for episode in episodes] for skill in range(len(skills))]


def share(
    skills: Skills,
    world: World,
    horizon: int,
    seeds: Sequence[Sequence[int]],
    steps: int | Sequence[int] = 0,
    *,
    of: int = 1,
    mine: int = 0,
) -> dict[tuple[int, int], Trajectory]:
    """Run every `of`-th of these episodes, from number `mine` on. Return them by skill and episode."""
    episodes = len(seeds[0])
    worlds = [steps] * len(skills) if isinstance(steps, int) else list(steps)
    simulations = lanes(world, horizon)
    together = max(1, LANES // episodes)  # skills
    done: dict[tuple[int, int], Trajectory] = {}
    for first in range(0, len(skills), together):
        group = range(first, min(first + together, len(skills)))
        picked = skills.pick(list(group))
        for start in range(0, episodes, LANES):
            starts = [list(seeds[skill][start : start + LANES]) for skill in group]
            every = [(i, j) for i in range(len(starts)) for j in range(len(starts[0]))]
            grid = every[mine::of]
            found = _together(picked, simulations, grid, starts, horizon, [worlds[skill] for skill in group])
            done |= {(first + i, start + j): trajectory for (i, j), trajectory in zip(grid, found, strict=True)}
    simulations.close()
    return done


def _together(
    skills: Skills,
    simulations: Batch | Loop,
    grid: list[tuple[int, int]],
    seeds: list[list[int]],
    horizon: int,
    steps: list[int],
) -> list[Trajectory]:
    if not grid:
        return []
    i, j = np.array(grid).T
    first = simulations.begin([steps[a] for a, _ in grid], [seeds[a][b] for a, b in grid])
    obs = np.zeros((len(seeds), len(seeds[0]), skills.observation_size), dtype=np.float32)
    position, sigma = (
        np.full((len(grid), horizon + 1, each.shape[1]), np.nan) for each in (first.position, first.sigma)
    )
    obs[i, j] = shown(skills.meta, first.obs, {"position": first.position})
    position[:, 0], sigma[:, 0] = first.position, first.sigma
    length, running = np.full(len(grid), horizon), np.arange(len(grid))
    for t in range(1, horizon + 1):
        actions = skills.actions(obs)
        now = simulations.step(running, actions[i[running], j[running]])
        seen = shown(skills.meta, now.obs, {"position": now.position}).astype(np.float32)
        for row in seen[~(abs(seen) <= LARGEST).all(axis=1)]:
            must_be_finite("observation of a rollout", row, t)
        obs[i[running], j[running]] = seen
        position[running, t], sigma[running, t] = now.position, now.sigma
        length[running[now.over]] = t
        running = running[~now.over]
        if not len(running):
            break
    return [Trajectory(position[n, : end + 1], sigma[n, : end + 1]) for n, end in enumerate(length)]


def visits(
    skills: Skills, world: World, count: int, seeds: Sequence[Sequence[int]], step: int = 0
) -> tuple[list[np.ndarray], int]:
    """Return σ of the first `count` states that each skill visits in the world of a step, and the steps this took."""
    found = episodes(skills, world, count, seeds, step)
    return [first_states(own, count) for own in found], sum(_states(own) for own in found)


def episodes(
    skills: Skills, world: World, count: int, seeds: Sequence[Sequence[int]], step: int = 0
) -> list[list[Trajectory]]:
    """Run each skill in the world of a step until it has visited `count` states. `seeds` must hold enough seeds."""
    found: list[list[Trajectory]] = [[] for _ in skills]
    short = list(range(len(skills)))
    while short:
        wanted = max(-(-(count - _states(found[i])) // world.horizon) for i in short)
        starts = [seeds[i][len(found[i]) : len(found[i]) + wanted] for i in short]
        for i, paths in zip(short, rollout(skills.pick(short), world, world.horizon, starts, step), strict=True):
            found[i] += paths
        short = [i for i in short if _states(found[i]) < count]
    return found


def first_states(paths: Sequence[Trajectory], count: int) -> np.ndarray:
    """Return σ of the first `count` states after the starts of episodes."""
    return np.concatenate([path.sigma[1:] for path in paths])[:count].astype(np.float32)


def _states(paths: Sequence[Trajectory]) -> int:
    return sum(len(path.sigma) - 1 for path in paths)


def table(trajectories: list[list[Trajectory]]) -> pd.DataFrame:
    """Tabulate trajectories: columns skill, episode, step, x, y, vx, vy. In worlds of one coordinate y and vy are 0."""
    import pandas as pd

    frames = []
    for skill, episodes in enumerate(trajectories):
        for episode, trajectory in enumerate(episodes):
            position, sigma = planar(trajectory.position), planar(trajectory.sigma)
            frames.append(
                pd.DataFrame(
                    {
                        "skill": skill,
                        "episode": episode,
                        "step": np.arange(len(position)),
                        "x": position[:, 0],
                        "y": position[:, 1],
                        "vx": sigma[:, 0],
                        "vy": sigma[:, 1],
                    }
                )
            )
    return pd.concat(frames, ignore_index=True)


def planar(values: np.ndarray) -> np.ndarray:
    """Return positions or velocities in the plane, (T, 2). Those of one coordinate get a second one, 0."""
    return values if values.shape[1] == 2 else np.column_stack([values[:, 0], np.zeros(len(values))])
