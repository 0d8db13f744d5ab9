"""Recalling stored skills: one batch over skills × episodes × conditions, beside Gymnasium's environments in a loop.

The plain loop is Gymnasium's environment and one action at a time. `Gymnasium, batched policies` has our products and
Gymnasium's environments, which was our path before. Steps per CPU-second, one core; contenders take turns.

    python benchmarks/recall.py pretrained/ant pretrained/ant_broken pretrained/ant_blocks_even --world ant_broken
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from turns import Said, machine, save

from disk.envs import make
from disk.envs.batch import Loop
from disk.evaluation import rollout as rollouts
from disk.evaluation.library import Library


def plain(library: Library) -> int:
    """Run everything one environment and one action at a time. Return the steps."""
    taken = 0
    env = make(library.world, horizon=library.horizon)
    for skills in library.runs.values():
        for step in library.conditions.values():
            for skill in skills:
                for seed in library.seeds:
                    env.at(step)
                    obs, _ = env.reset(seed=seed)
                    over = False
                    while not over:
                        obs, _, terminated, truncated, _ = env.step(skill.act(obs))
                        taken, over = taken + 1, terminated or truncated
    return taken


def ours(library: Library) -> int:
    vars(library).pop("paths", None)  # computed again
    return sum(len(path.position) - 1 for skills in library.paths.values() for paths in skills for path in paths)


def looped(library: Library) -> int:
    """Run ours on Gymnasium's environments."""
    lanes, rollouts.lanes = rollouts.lanes, Loop  # type: ignore[assignment]
    try:
        return ours(library)
    finally:
        rollouts.lanes = lanes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--world", required=True)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench/recall.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    library = Library(asked.runs, asked.world, episodes=asked.episodes)
    contenders: dict[str, Callable[[Library], int]] = {
        "plain loop": plain,
        "Gymnasium, batched policies": looped,
        "mujoco.batch": ours,
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(asked.rounds):
        for name, run in contenders.items():
            start = time.process_time()
            steps = run(library)
            seconds[name].append(time.process_time() - start)
            rates[name].append(steps / seconds[name][-1])
    rows: Said = {}
    for name, own in rates.items():
        ratio = median(np.array(own) / np.array(rates["plain loop"]))
        rows[name] = {"steps_per_cpu_second": median(own), "cpu_seconds": median(seconds[name]), "times_plain": ratio}
        print(f"{name:30}{median(own):10.0f} steps/s{median(seconds[name]):10.1f} s{ratio:8.2f} ×")
    skills, conditions = sum(map(len, library.runs.values())), len(library.conditions)
    size = {"skills": skills, "conditions": conditions, "episodes": asked.episodes, "rounds": asked.rounds}
    save(asked.out, {"machine": machine(), **size, "world": asked.world, "contenders": rows})


if __name__ == "__main__":
    main()
