"""What it costs to see the earlier skills anew in a world that changes: 𝒯 of an `ant_broken` skill.

    python benchmarks/past.py                      the twentieth skill: 19 × 10,000 states, minutes
    python benchmarks/past.py --states 1000        the same ratio, seconds

Freshly initialised skills are rolled out by `disk.evaluation.rollout.visits`, as training does at its start, and beside
that the same episodes are simulated with the same actions by Gymnasium's bare Ant, one after another and
without a policy. Both in CPU seconds of one thread, in alternating rounds; prints the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import gymnasium
import numpy as np
import torch

from disk import config
from disk.config import World
from disk.envs import make
from disk.envs.evolution import Evolving
from disk.evaluation.rollout import visits
from disk.learning.run import train_run
from disk.seeds import EpisodeSeeds
from disk.skills import Skills, load

Episode = tuple[int, np.ndarray]
"""Seed of the reset, and actions (T, A) as the simulator gets them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skill", type=int, default=19, help="counted from 0 (default: %(default)s)")
    parser.add_argument("--states", type=int, default=10_000, help="of each earlier skill (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench/past.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    settings = config.load()
    environment = settings.environment("ant_broken")
    world, step = environment.world(), environment.start_of(arguments.skill)
    with tempfile.TemporaryDirectory() as root:
        run = train_run(settings, Path(root), "ant_broken", "random", 0, None, lambda _: nullcontext())
        skills = load(run).pick(range(arguments.skill))
    seeds = [EpisodeSeeds("visits", 0, arguments.skill, earlier) for earlier in range(arguments.skill)]
    episodes = record(skills, world, step, arguments.states, seeds)

    ours, bare, collected = [], [], 0
    for _ in range(arguments.rounds):
        start = time.process_time()
        _, collected = visits(skills, world, arguments.states, seeds, step)
        ours.append(time.process_time() - start)
        start = time.process_time()
        simulate(episodes, world)
        bare.append(time.process_time() - start)
    steps = sum(len(actions) for _, actions in episodes)
    result = {
        "skill": arguments.skill,
        "steps": collected,
        "seconds": statistics.median(ours),
        "bare_steps": steps,
        "bare_seconds": statistics.median(bare),
        "ratio": (statistics.median(ours) / collected) / (statistics.median(bare) / steps),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def record(skills: Skills, world: World, step: int, states: int, seeds: list[EpisodeSeeds]) -> list[Episode]:
    """Episodes of all skills as the simulator sees them."""
    env = make(world, step)
    assert isinstance(env.env, Evolving)
    episodes: list[Episode] = []
    for skill in range(len(skills)):
        seen, picked = 0, skills.pick([skill])
        for seed in seeds[skill]:
            obs, _ = env.reset(seed=seed)
            actions, over = [], False
            while not over:
                action = env.to_native(picked.mode(obs[None, None].astype(np.float32))[0, 0])
                actions.append(action * env.env.control_scale)
                obs, _, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
            episodes.append((seed, np.array(actions)))
            seen += len(actions)
            if seen >= states:
                break
    return episodes


def simulate(episodes: list[Episode], world: World) -> None:
    env = gymnasium.make(world.id, max_episode_steps=world.horizon, disable_env_checker=True, **world.kwargs)
    for seed, actions in episodes:
        env.reset(seed=seed)
        for action in actions:
            env.step(action)


if __name__ == "__main__":
    main()
