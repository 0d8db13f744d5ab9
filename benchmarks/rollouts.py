"""Evaluating skills: our rollouts beside the loop that everybody writes, one environment and one action at a time.

The plain loop is Gymnasium's environment and a torch policy, nothing of ours around them. Ours has one process,
two, and two threads instead, for the reason why it has processes. All of them run the same policies from the same
starts and take turns, so that whatever else the machine does disturbs them alike. Ants do not end when they fall
here: every episode has all its steps. Times are by the clock.

    python benchmarks/rollouts.py                          # 20 skills, 10 episodes, 500 steps: about ten minutes
    python benchmarks/rollouts.py --horizon 100 --rounds 5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from turns import Said, machine, save

from disk.config import World, load
from disk.envs import make
from disk.evaluation.rollout import share
from disk.evaluation.workers import rollout_with
from disk.networks import Actor
from disk.skills import Skills

TARGET = 1.5
"""Two processes are to be so many times as fast as the plain loop."""
Paths = list[list[np.ndarray]]


def untrained(env: str, count: int) -> tuple[Skills, World]:
    """Policies of the size that the configuration trains, and a world that no episode leaves early."""
    config = load()
    row = config.environment(env)
    lasting = {"terminate_when_unhealthy": False} if env.startswith("ant") else {}
    world = row.world().model_copy(update={"kwargs": {**row.kwargs, **lasting}})
    made = make(world)
    hidden, bounds = config.sac_of(env, "disk").hidden, config.sac.log_std_bounds
    actor = Actor(made.observation_size, made.action_size, hidden, bounds, count).requires_grad_(False)
    sizes = {"observation_size": made.observation_size, "action_size": made.action_size, "latent_size": 0}
    limits = {"action_low": made.action_low.tolist(), "action_high": (made.action_low + made.action_range).tolist()}
    meta: dict[str, Any] = {**sizes, **limits, "hidden": hidden, "log_std_bounds": bounds, "env": env}
    return Skills(actor, torch.arange(count), torch.zeros(count, 0), meta), world


def plain_policies(skills: Skills) -> list[nn.Module]:
    """The same policies, as anybody would write one."""
    policies = []
    layers = skills.actor.mlp.layers
    for skill in range(len(skills)):
        parts: list[nn.Module] = []
        for weight, bias in layers:
            linear = nn.Linear(weight.shape[1], weight.shape[2])
            linear.weight.data, linear.bias.data = weight[skill].T.contiguous(), bias[skill, 0].clone()
            parts += [linear, nn.ReLU()]
        policies.append(nn.Sequential(*parts[:-1]))
    return policies


@torch.inference_mode()
def plain(skills: Skills, world: World, horizon: int, seeds: list[int]) -> Paths:
    """One environment, one step at a time."""
    env = gymnasium.make(world.id, max_episode_steps=horizon, **world.kwargs)
    low, high = (np.asarray(skills.meta[f"action_{side}"]) for side in ("low", "high"))
    size = int(skills.meta["action_size"])
    paths: Paths = []
    for policy in plain_policies(skills):
        paths.append([])
        for seed in seeds:
            obs, _ = env.reset(seed=seed)
            path, over = [env.unwrapped.data.qpos[:2].copy()], False  # type: ignore[attr-defined]
            while not over:
                mean = policy(torch.as_tensor(obs, dtype=torch.float32))[:size]
                action = low + (torch.tanh(mean).numpy() + 1.0) * 0.5 * (high - low)
                obs, _, terminated, truncated, _ = env.step(action)
                path.append(env.unwrapped.data.qpos[:2].copy())  # type: ignore[attr-defined]
                over = terminated or truncated
            paths[-1].append(np.array(path))
    env.close()
    return paths


def threads(count: int, skills: Skills, world: World, horizon: int, seeds: list[list[int]]) -> Paths:
    """What our processes do, by threads of one process."""
    with ThreadPoolExecutor(count) as pool:
        found = [pool.submit(share, skills, world, horizon, seeds, of=count, mine=mine) for mine in range(count)]
        paths = {place: path.position for each in found for place, path in each.result().items()}
    return [[paths[skill, episode] for episode in range(len(seeds[0]))] for skill in range(len(skills))]


def compare(found: dict[str, Paths]) -> int:
    """See that all of them did the same; how many steps that was."""
    usual, one = (np.array(found[name]) for name in ("plain loop", "ours, 1 process"))
    for name in ("ours, 2 processes", "ours, 2 threads"):
        if not np.array_equal(np.array(found[name]), one):
            raise SystemExit(f"{name}: not the numbers of one process")
    # A batch rounds its last bits differently from one action, and contacts make much of that: only at first.
    if not np.allclose(usual[:, :, :5], one[:, :, :5], atol=1e-3):
        raise SystemExit("the plain loop does not run the same policies from the same starts")
    return int(one.shape[0] * one.shape[1] * (one.shape[2] - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure rollouts beside a plain loop.")
    parser.add_argument("--env", default="ant")
    parser.add_argument("--skills", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench/rollouts.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    skills, world = untrained(asked.env, asked.skills)
    own = list(range(1000, 1000 + asked.episodes))
    seeds, horizon = [own] * asked.skills, asked.horizon

    def ours(workers: int) -> Paths:
        made = rollout_with(workers, skills, world, horizon, seeds)
        return [[path.position for path in each] for each in made]

    contenders: dict[str, Callable[[], Paths]] = {
        "plain loop": lambda: plain(skills, world, horizon, own),
        "ours, 1 process": lambda: ours(1),
        "ours, 2 processes": lambda: ours(2),
        "ours, 2 threads": lambda: threads(2, skills, world, horizon, seeds),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    steps = 0
    for _ in range(asked.rounds):
        found: dict[str, Paths] = {}
        for name, run in contenders.items():
            start = time.perf_counter()
            found[name] = run()
            seconds[name].append(time.perf_counter() - start)
        steps = compare(found)
    rollouts = asked.skills * asked.episodes
    size = f"{asked.env}: {asked.skills} skills × {asked.episodes} episodes × {horizon} steps"
    print(f"{size}, {asked.rounds} rounds; the median, and the best\n")
    print(f"{'':22}{'rollouts/s':>18}{'steps/s':>18}{'of the plain loop':>22}")
    rows: Said = {}
    usual = seconds["plain loop"]
    for name, own_seconds in seconds.items():
        ratios = [theirs / mine for theirs, mine in zip(usual, own_seconds, strict=True)]
        row = {
            "rollouts_per_second": {"median": rollouts / median(own_seconds), "best": rollouts / min(own_seconds)},
            "steps_per_second": {"median": steps / median(own_seconds), "best": steps / min(own_seconds)},
            "times_the_plain_loop": {"median": median(ratios), "best": min(usual) / min(own_seconds)},
        }
        rows[name] = {**row, "seconds": [round(each, 3) for each in own_seconds]}
        shown = [f"{each['median']:.2f} {each['best']:9.2f}" for each in row.values()]
        print(f"{name:22}{shown[0]:>18}{shown[1]:>18}{shown[2]:>22}")
    print(f"\ntarget: two processes at least {TARGET} times as fast as the plain loop")
    save(asked.out, {"machine": machine(), "size": vars(asked) | {"out": None}, "target": TARGET, "contenders": rows})


if __name__ == "__main__":
    main()
