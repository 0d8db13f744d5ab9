"""The protocol for changing worlds: any set of policies, in the same worlds and from the same starts as ours.

A row of envs.yaml fixes the worlds (`conditions`), the length of an episode and the threshold of movers. config.yaml
fixes the number of episodes and their seeds. docs/gymnasium.md has the rules of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from disk.config import World, load
from disk.envs import make
from disk.evaluation.run import roll_out
from disk.lazy import need
from disk.skills import Skills

if TYPE_CHECKING:
    import pandas as pd

Policy = Callable[[np.ndarray], np.ndarray]
"""Takes one observation, returns one action in the environment's bounds."""


def benchmark(
    policies: Skills | Sequence[Policy], env: str, configfile: Sequence[str | Path] = (), threads: int = 1
) -> pd.DataFrame:
    """Roll out policies in every condition of an environment and measure them.

    Returns the table of metrics.csv: condition, skill, metric, value. Skill -1 is the whole set. The condition
    `trained` is left out, because it depends on a training.
    """
    for module in ("pandas", "scipy"):
        need(module)
    import pandas as pd

    from disk.evaluation.metrics import measure

    config = load(*configfile)
    frames = []
    for condition, step in config.environment(env).moments.items():
        if step == "trained":
            continue
        job = config.evaluation_job(env, condition)
        skills = policies if isinstance(policies, Skills) else _Given(policies, job.world)
        frame = measure(roll_out(job, skills, threads), config.measure_job(env))
        frame.insert(0, "condition", condition)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


class _Given(Skills):
    """Policies of any kind, as rollouts ask for actions."""

    def __init__(self, policies: Sequence[Policy], world: World) -> None:
        if not policies:
            raise ValueError("policies: none given: expected at least one")
        env = make(world)
        self.policies, self._world = list(policies), world
        self._low, self._range = env.action_low, env.action_range
        self.meta = {"env": world.id, "observation_size": env.observation_size}
        env.close()

    def __len__(self) -> int:
        return len(self.policies)

    def pick(self, indices: Sequence[int]) -> Skills:
        return _Given([self.policies[index] for index in indices], self._world)

    def actions(self, obs: np.ndarray) -> np.ndarray:
        native = [[policy(row) for row in rows] for policy, rows in zip(self.policies, obs, strict=True)]
        scaled: np.ndarray = 2.0 * (np.asarray(native, dtype=np.float64) - self._low) / self._range - 1.0
        return scaled
