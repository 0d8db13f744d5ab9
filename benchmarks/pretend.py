"""Earlier skills that nobody trained: the files of a chain, written by the functions that write the real ones.

Policies are untrained and transitions made up, but sizes, formats and checksums are those of a chain at the paper's
scale, so that the twentieth skill finds what it would find after nineteen others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from disk import config as configuration
from disk.config import Config, SkillJob
from disk.envs import make
from disk.learning.artefacts import describe
from disk.networks import Actor
from disk.skills import Skills
from disk.storage.files import checksum, save_stats, save_text, whole
from disk.storage.manifest import CHECKED
from disk.storage.replay import Columns, save_shard


def long_chain(env: str, skills: int, steps: int) -> Config:
    """The project's configuration, with a chain of so many skills of so many steps each in one environment."""
    settings = configuration.load()
    longer = {"skills": skills, "steps": steps, "conditions": {"nominal": 0}, "snapshots": []}
    changed = settings.environments[env].model_copy(update=longer)
    return settings.model_copy(update={"environments": {**settings.environments, env: changed}})


def write_skill(job: SkillJob, folder: Path) -> None:
    env = make(job.world)
    columns = Columns(env.observation_size, env.action_size, env.sigma_size)
    generator = torch.Generator().manual_seed(job.skill)
    folder.mkdir(parents=True)
    actor = Actor(columns.obs, columns.action, job.sac.hidden, job.sac.log_std_bounds, 1, generator)
    meta = {**describe(env, job), "skill": job.skill}
    Skills(actor, torch.zeros(1, dtype=torch.int64), torch.zeros(1, 0), meta).save(folder / "policy.safetensors")
    rows = torch.randn(job.steps, columns.width, generator=generator)
    rows[:, columns.parts["action"]].tanh_()
    rows[:, columns.parts["terminated"]] = (rows[:, columns.parts["terminated"]] > 2.5).float()
    save_shard(folder / "replay.safetensors", rows, columns, {"env": job.env, "skill": job.skill})
    with whole(folder / "visits.npy") as file:
        states = torch.randn(job.objective.past_states, columns.sigma, generator=generator)
        np.save(file, states.numpy())
    save_text(folder / "progress.csv", "time/total_timesteps\n")
    stats = {
        "skill": job.skill,
        "steps": job.steps,
        "mean_consistency": 0.5,
        "mean_diversity": 0.5 if job.skill else None,
        "checksums": {name: checksum(folder / name) for name in CHECKED},
    }
    save_stats(folder / "stats.json", stats)


def write_chain(settings: Config, env: str, method: str, skills: int, run: Path) -> list[Path]:
    """Directories of the first `skills` skills of a run, written where they are missing."""
    folders = [run / f"skill{skill:02d}" for skill in range(skills)]
    for skill, folder in enumerate(folders):
        if not (folder / "stats.json").exists():
            write_skill(settings.skill_job(env, method, 0, skill), folder)
    return folders
