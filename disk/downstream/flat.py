"""Train a controller without skills: goal-conditioned SAC on the same observations and rewards.

The loop of `disk.learning.loop` trains it. Its objective is the task: the reward is minus the distance to the goal,
computed from the next observation. The scale is that of controllers over skills: -1 at a distance of `size`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config.jobs import HierarchyJob
from disk.config.running import Runtime
from disk.downstream.curve import LIVE, Curve, controller_seed
from disk.downstream.goals import GoalEnv
from disk.learning.artefacts import describe
from disk.learning.build import choose_device
from disk.learning.parts import Parts
from disk.learning.replay import Batch, Replay
from disk.learning.run import finish
from disk.learning.sac import SAC
from disk.learning.schedules import One
from disk.learning.training import Training
from disk.skills import Skills
from disk.storage.checkpoint import Checkpoint
from disk.storage.replay import Columns


class FlatEnv(GoalEnv):
    """A goal environment with the interface of the training loop. `sigma` is the normalised distance."""

    def at(self, step: int) -> None:
        """Do nothing: this environment does not change."""

    @property
    def observation_size(self) -> int:
        """Size of the observation with the way to the goal."""
        return self.native_size + len(self.goal)

    @property
    def action_size(self) -> int:
        return self.env.action_size

    def to_native(self, action: np.ndarray) -> np.ndarray:
        return self.env.to_native(action)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {**info, "sigma": np.array([info["normalised_distance"]])}


class GoalObjective:
    """The task as an objective: the reward is minus the scaled distance to the goal. It also records the curve."""

    def __init__(self, job: HierarchyJob, way: int, live: Path | None = None) -> None:
        assert job.reward_scale is not None
        self.scale, self.way, self.steps = job.size * job.reward_scale, way, job.steps
        self.curve, self._seen = Curve(job, live), 0

    def observe(self, skill: int, sigma: np.ndarray) -> None:
        self.curve.add(float(sigma[0]))
        self._seen += 1
        if self._seen % self.steps == 0:
            self.curve.row(self._seen // self.steps)

    def start(self, sample: Callable[[], Batch]) -> None: ...

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        return {}

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        reward = torch.linalg.vector_norm(batch.next_obs[:, -self.way :], dim=1) * -self.scale
        return reward, {"reward/mean": reward.mean()}

    def state(self) -> dict[str, Tensor]:
        state = self.curve.state()
        return {
            "seen": torch.tensor(self._seen),
            "rows": torch.tensor(state["rows"], dtype=torch.float64).reshape(-1, 2),
            "sum": torch.tensor(state["sum"], dtype=torch.float64),
            "count": torch.tensor(state["count"]),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._seen = int(state["seen"])
        self.curve.load_state({name: state[name].tolist() for name in ("rows", "sum", "count")})


def learn_flat(job: HierarchyJob, runtime: Runtime, checkpoint: Checkpoint) -> tuple[Skills, Curve, float]:
    """Train the controller, or resume its checkpoint. Return its policy, its curve and the seconds of training."""
    assert job.sac is not None
    assert job.replay_capacity is not None
    device = choose_device(runtime.device)
    horizon = job.episode * job.steps
    env = FlatEnv(job.world, job.size, horizon)
    observations, way = env.observation_size, len(env.goal)
    generator = torch.Generator(device).manual_seed(controller_seed(job, "learner"))
    objective = GoalObjective(job, way, checkpoint.directory / LIVE)
    steps = job.decisions * job.steps
    parts = Parts(
        label=f"{job.env} flat {job.hierarchy_seed}",
        seed=controller_seed(job, "episode"),
        steps=steps,
        start=0,
        sac=job.sac,
        envs=[env],  # type: ignore[list-item]
        agents=[SAC(observations, env.action_size, job.sac, generator, device)],
        replays=[Replay(min(job.replay_capacity, steps), Columns(observations, env.action_size, 1), device)],
        objective=objective,
        schedule=One(0),
        meta={"kind": "flat", **describe(env, job)},  # type: ignore[arg-type]
        latents=torch.zeros(1, 0, device=device),
    )
    training = Training(parts, runtime, checkpoint)
    finish(training, job)
    env.close()
    return parts.skills(), objective.curve, training.progress.seconds
