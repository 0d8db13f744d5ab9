"""The files of a training: their metadata, and how they are written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from disk.config import JointJob, SkillJob
from disk.envs import Projected, make
from disk.errors import ArtefactError
from disk.evaluation.rollout import episodes, first_states
from disk.learning.convergence import Spending, is_duplicate
from disk.learning.detection import features
from disk.learning.objectives.incremental import IncrementalObjective
from disk.learning.progress import Progress
from disk.networks import Actor
from disk.seeds import EpisodeSeeds, seed_of
from disk.skills import Skills
from disk.storage.files import checksum, save_stats, save_text, whole
from disk.storage.layout import CURVE, POLICY, PROJECTION, REPLAY, SKILLS, STATS, VISITS
from disk.storage.manifest import CHECKED, RESTORE, with_projection
from disk.storage.provenance import code_hash, commit
from disk.storage.replay import save_shard

if TYPE_CHECKING:
    from disk.learning.parts import Parts


def describe(
    env: Projected, job: SkillJob | JointJob, latent_size: int = 0, sees_position: bool = False
) -> dict[str, Any]:
    """Return the metadata of a file of skills."""
    space = env.action_space
    position = {"sees_position": True} if sees_position else {}  # others say nothing of it
    return {
        **position,
        "env": job.env,
        "world": job.world.model_dump(mode="json"),
        "observation_size": env.observation_size + len(job.world.position.entries) * sees_position,
        "action_size": env.action_size,
        "latent_size": latent_size,
        "action_low": space.low.tolist(),  # type: ignore[attr-defined]
        "action_high": space.high.tolist(),  # type: ignore[attr-defined]
        "hidden": list(job.sac.hidden),
        "log_std_bounds": list(job.sac.log_std_bounds),
        "seed": job.seed,
        "config_hash": job.digest(),
    }


def provenance(job: SkillJob | JointJob) -> dict[str, Any]:
    return {
        "config_hash": job.digest(),
        "code_hash": code_hash(),
        "commit": commit(),
        "job": job.model_dump(mode="json"),
    }


def read_visits(folder: Path, sigma_size: int) -> np.ndarray:
    path = folder / VISITS
    try:
        states = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, SyntaxError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}); delete it and run the same command again") from None
    if states.ndim != 2 or states.shape[1] != sigma_size:
        raise ArtefactError(f"{path}: has shape {states.shape}, this world's σ has {sigma_size} numbers. {RESTORE}")
    return np.asarray(states, dtype=np.float32)


def writable(directory: Path) -> None:
    """Raise at the start, not after hours of training, if results cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ArtefactError(
            f"{directory}: cannot be written to: {error.strerror}; make it writable or give another place for results, "
            "then run the same command again"
        ) from None


def write_skill(job: SkillJob, parts: Parts, progress: Progress, stamp: str, inputs: dict[str, str], out: Path) -> None:
    """Write a finished skill's files, and collect its states for 𝒯."""
    objective, replay = parts.objective, parts.replays[0]
    assert isinstance(objective, IncrementalObjective)
    skill = parts.skills()
    skill.save(out / POLICY)
    seeds = [EpisodeSeeds("visits", job.seed, job.skill)]
    last = max(parts.start, parts.start + parts.steps - 1)
    if parts.watch:  # the world as it is now, which the next skill begins in: a reference for its probes
        last = parts.start + parts.steps
    [paths] = episodes(skill, job.world, job.objective.past_states, seeds, last)
    states, collected = first_states(paths, job.objective.past_states), sum(len(path.sigma) - 1 for path in paths)
    reference = np.array([features(path, job.world.horizon) for path in paths])
    with whole(out / VISITS) as file:
        np.save(file, states)
    shard = replay.newest(min(parts.steps, len(replay)))
    save_shard(out / REPLAY, shard, replay.columns, {"env": job.env, "skill": job.skill})
    save_text(out / CURVE, progress.text())
    (consistency, diversity), (alpha, beta) = objective.means(), objective.weights()
    stats = {
        "skill": job.skill,
        "mean_consistency": consistency,
        "mean_diversity": diversity if job.skill else None,
        **({"paid": objective.paid()._asdict()} if job.objective.normaliser == "released" else {}),
        **({"mean_terms": objective.mean_terms()} if job.objective.normaliser == "running" else {}),
        "alpha": alpha,
        "beta": beta if job.skill else None,
        "steps": parts.steps,
        **({} if job.adaptive is None else {"steps_saved": job.steps - parts.steps}),
        **spent(job, parts),
        "collected_steps": collected + parts.collected,
        **({} if parts.watch is None else {"aware": parts.watch.about(reference, parts.steps)}),
        **_normalised(parts),
        **_projected(parts, {"env": job.env, "skill": job.skill}, out),
        **provenance(job),
        "stamp": stamp,
        "inputs": inputs,
        "checksums": {name: checksum(out / name) for name in with_projection(job, *CHECKED)},
        "seconds": round(progress.seconds, 3),
        "cpu_seconds": round(progress.cpu_seconds, 3),
    }
    save_stats(out / STATS, stats)  # last: where it is, the others are


def _normalised(parts: Parts) -> dict[str, Any]:
    return {} if parts.normaliser is None else {"normaliser": parts.normaliser.about()}


def _projected(parts: Parts, meta: dict[str, Any], out: Path) -> dict[str, Any]:
    """Write φ, if it was learned. Return the seconds that this took, for stats.json."""
    if parts.projection is None:
        return {}
    parts.projection.network.save(out / PROJECTION, meta)
    return {"projection_seconds": round(parts.projection.seconds, 3)}


def spent(job: SkillJob, parts: Parts) -> dict[str, Any]:
    """Return how a skill with a budget spent its steps, and the r_d that later skills are compared with."""
    spending = parts.settling
    if not isinstance(spending, Spending):
        return {}
    consistency, diversity = spending.final(parts.steps)
    return {
        "most_steps": spending.cap,
        "attempts": spending.attempt + 1,
        "ended": spending.ended,
        "duplicate": is_duplicate(spending.config, diversity, spending.others),
        "own_consistency": consistency,
        "own_diversity": diversity if job.skill else None,
    }


def write_run(job: JointJob, parts: Parts, progress: Progress, stamp: str, snapshots: Iterable[str], out: Path) -> None:
    """Write skills that were learned together, with their curve, stats and the checksums of their snapshots."""
    parts.skills().save(out / SKILLS)
    save_text(out / CURVE, progress.text())
    stats = {
        "steps": job.steps,
        **_normalised(parts),
        **_projected(parts, {"env": job.env}, out),
        **provenance(job),
        "stamp": stamp,
        "checksums": {name: checksum(out / name) for name in with_projection(job, SKILLS, *snapshots)},
        "seconds": round(progress.seconds, 3),
        "cpu_seconds": round(progress.cpu_seconds, 3),
    }
    save_stats(out / STATS, stats)


def write_untrained(job: JointJob, out: Path) -> None:
    """Write freshly initialised policies, the paper's random skills."""
    env = make(job.world)
    generator = torch.Generator().manual_seed(seed_of("learner", job.seed, 0))
    sizes = (env.observation_size, env.action_size, job.sac.hidden, job.sac.log_std_bounds)
    actor = Actor(*sizes, copies=job.skills, generator=generator)
    meta = describe(env, job) | ({"acts": job.acts} if job.acts else {})  # others say nothing of it
    Skills(actor, torch.arange(job.skills), torch.zeros(job.skills, 0), meta).save(out / SKILLS)
    save_text(out / CURVE, "time/total_timesteps\n")
    sums = {SKILLS: checksum(out / SKILLS)}
    save_stats(out / STATS, {"steps": 0, **provenance(job), "checksums": sums, "seconds": 0.0, "cpu_seconds": 0.0})
