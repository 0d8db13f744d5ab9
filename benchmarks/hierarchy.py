"""Low-level steps a second of skills at work on the Ant, beside those of Gymnasium's bare Ant.

    python benchmarks/hierarchy.py                     minutes
    python benchmarks/hierarchy.py --decisions 100     the same ratios, seconds

Freshly initialised skills of the paper's size are chosen at random, and the bare Ant simulates the very same actions
from the same starts, without a policy. CPU seconds of one thread, in alternating rounds; rates are of each one's best.

    skill_env     disk.SkillEnv around the bare Ant
    goal_env      disk.SkillEnv around disk.GoalEnv, whose position, distance and reward come with every step
    lanes         eight worlds with goals at once, as PPO is trained in, and their actions computed together
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import disk
from disk import config
from disk.downstream.vec_env import SkillVecEnv
from disk.learning.run import train_run

STEPS, EPISODE = 10, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=400, help="in each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/bench/hierarchy.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    settings = config.load()
    with tempfile.TemporaryDirectory() as root:
        skills = disk.load(train_run(settings, Path(root), "ant", "random", 0, None, lambda _: nullcontext()))
    job = settings.hierarchy_job("ant", "random", 0, 0).model_copy(update={"environments": 8})
    choices = np.random.default_rng(0).integers(len(skills), size=arguments.decisions)

    def ant() -> gymnasium.Env[Any, Any]:
        return gymnasium.make(
            job.world.id, max_episode_steps=STEPS * EPISODE, disable_env_checker=True, **job.world.kwargs
        )

    plain = disk.SkillEnv(ant(), skills, STEPS)
    goals = disk.SkillEnv(disk.GoalEnv("ant"), skills, STEPS)
    together = SkillVecEnv(job, skills)
    bare, episodes = ant(), record(plain, choices)
    contenders: dict[str, Callable[[], None]] = {
        "bare": lambda: replay(bare, episodes),
        "skill_env": lambda: decide(plain, choices),
        "goal_env": lambda: decide(goals, choices),
        "lanes": lambda: decide_together(together, choices),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, contender in contenders.items():
            start = time.process_time()
            contender()
            seconds[name].append(time.process_time() - start)
    steps = STEPS * arguments.decisions
    rates = {name: steps / min(each) for name, each in seconds.items()}
    result = {"steps": steps, "rounds": arguments.rounds, "rates": rates}
    result["of_bare"] = {name: rate / rates["bare"] for name, rate in rates.items()}
    for name, rate in rates.items():
        print(f"{name:10} {rate:8.0f} steps/s  {100 * rate / rates['bare']:5.1f} % of the bare Ant's")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


def decide(env: disk.SkillEnv, choices: np.ndarray) -> None:
    for index, choice in enumerate(choices):
        if index % EPISODE == 0:
            env.reset(seed=index)
        env.step(choice)


def decide_together(envs: SkillVecEnv, choices: np.ndarray) -> None:
    envs.reset()
    for start in range(0, len(choices), envs.num_envs):
        envs.step(choices[start : start + envs.num_envs])


def record(env: disk.SkillEnv, choices: np.ndarray) -> list[list[np.ndarray]]:
    """The actions of `decide`, episode by episode."""
    episodes: list[list[np.ndarray]] = []
    step = env.env.step

    def recorded(action: np.ndarray) -> Any:
        episodes[-1].append(action.copy())
        return step(action)

    env.env.step = recorded  # type: ignore[method-assign]
    for index, choice in enumerate(choices):
        if index % EPISODE == 0:
            env.reset(seed=index)
            episodes.append([])
        env.step(choice)
    env.env.step = step  # type: ignore[method-assign]
    return episodes


def replay(env: gymnasium.Env[Any, Any], episodes: list[list[np.ndarray]]) -> None:
    for index, actions in enumerate(episodes):
        env.reset(seed=index * EPISODE)
        for action in actions:
            env.step(action)


if __name__ == "__main__":
    main()
