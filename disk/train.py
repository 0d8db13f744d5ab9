"""Training: one loop, and what is assembled around it.

`learn_skill` is Algorithm 1 of the paper for one skill, from the files of the earlier skills to its own.
`learn_jointly` makes all skills of a run at once (for now: the random policies).
"""

from __future__ import annotations

import json
import logging
import math
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.checkpoint import Checkpoint, controller_is_gone, stamp
from disk.config import JointJob, Runtime, SkillJob
from disk.envs import Projected, make
from disk.files import ArtefactError, checksum, load_json, save_json, save_text, sweep, whole
from disk.networks import Actor
from disk.objectives.incremental import IncrementalObjective, inverse_mean
from disk.progress import NotFiniteError, Progress
from disk.provenance import code_hash, commit
from disk.replay import Batch, Columns, Replay, inherit, save_shard
from disk.rollout import visits
from disk.sac import SAC
from disk.seeds import EpisodeSeeds, seed_of
from disk.signals import Stopping, until_signal
from disk.skills import Skills, bundle, load

log = logging.getLogger("disk")
CHECKED = ("policy.safetensors", "visits.npy", "replay.safetensors")
"""Files of a skill whose checksums stand in its stats.json."""


class Interrupted(RuntimeError):
    """Training was asked to stop, has saved its state and can go on."""

    def __init__(self, signum: int, where: Path, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} at step {step}; state saved in {where}")
        self.signum = signum


def learn_skill(job: SkillJob, earlier: Sequence[Path], out: Path, runtime: Runtime) -> None:
    """Learn the next skill after the `earlier` ones (their directories, in order) into directory `out`."""
    if len(earlier) != job.skill:
        raise ArtefactError(f"skill {job.skill:02d} needs the {job.skill} skills before it, {len(earlier)} were given")
    _writable(out)
    directory = out.with_name(f"{out.name}.checkpoint")
    checkpoint = Checkpoint(directory, stamp(job.canonical(), _identity(job, earlier)))
    try:
        sweep(out)
        sweep(directory)
        if _finished(out, checkpoint.stamp):  # by the process that this one waited for
            checkpoint.remove()
            return
        training = SkillTraining(job, earlier, runtime, checkpoint)
        training.resume()
        save_json(directory / "job.json", job.model_dump(mode="json"))  # for whoever watches
        with until_signal() as stopping:
            training.run(stopping)
        _write_skill(training, out)
        if not controller_is_gone():
            checkpoint.remove()
    finally:
        checkpoint.close()


class SkillTraining:
    """The state of one skill's training, and its loop."""

    def __init__(self, job: SkillJob, earlier: Sequence[Path], runtime: Runtime, checkpoint: Checkpoint) -> None:
        self.job, self.runtime, self.checkpoint = job, runtime, checkpoint
        self.device = choose_device(runtime.device)
        self.generator = torch.Generator(self.device).manual_seed(seed_of("learner", job.seed, job.skill))
        self.start = job.start_step or 0
        self.env = make(job.world, self.start)
        self.columns = Columns(self.env.observation_size, self.env.action_size, self.env.sigma_size)
        self.collected = 0
        """Steps outside the budget, for 𝒯."""
        self.agent = SAC(self.env.observation_size, self.env.action_size, job.sac, self.generator, self.device)
        self.objective = self._objective(earlier)
        self.replay = self._replay(earlier)
        self.inherited = self.replay.added
        label = f"{job.env} seed {job.seed} skill {job.skill:02d}"
        live = checkpoint.directory / "progress.csv"
        self.progress = Progress(live, runtime.log_every, job.steps, label, self.device)
        self.step = self.episode = 0

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one of this very job."""
        found = self.checkpoint.load()
        if isinstance(found, str):
            if found:
                log.warning(found)
            return
        tensors, meta = found
        self.step, self.episode = meta["step"], meta["episode"]
        self.checkpoint.load_replay(self.replay, self.columns)
        self.agent.load_state(_part(tensors, "agent"))
        self.objective.load_state(_part(tensors, "objective"))
        self.progress.load_state(_part(tensors, "progress"), meta["progress"], self.step)
        self.generator.set_state(tensors["generator"])
        log.info("going on from step %d of %d (%s)", self.step, self.job.steps, self.checkpoint.directory)

    def run(self, stopping: Stopping) -> None:
        job, env, replay, agent, objective = self.job, self.env, self.replay, self.agent, self.objective
        next_save = time.monotonic() + 60.0 * self.runtime.checkpoint_minutes
        while self.step < job.steps:
            # Seeded by its place in the training: no simulator state needs saving between episodes.
            env.at(self.start + self.step)
            obs, _ = env.reset(seed=seed_of("episode", job.seed, job.skill, self.episode))
            _must_be_finite("first observation", obs, self.step)
            started, over = self.step, False
            while not over and self.step < job.steps:
                env.at(self.start + self.step)
                seeding = self.step < job.sac.seed_steps
                action = self._uniform_action() if seeding else agent.act(obs)
                next_obs, _, terminated, truncated, info = env.step(env.to_native(action))
                over = terminated or truncated
                _must_be_finite("observation", next_obs, self.step)
                _must_be_finite("sigma", info["sigma"], self.step)
                replay.add(obs, action, next_obs, terminated, info["sigma"])
                objective.observe(job.skill, info["sigma"])
                self.progress.observe(info["sigma"])
                obs = next_obs
                for _ in range(0 if seeding else self._updates_due()):
                    if agent.updates == 0:
                        objective.start(self._sample)
                    batch = self._sample()
                    metrics = dict(objective.update(batch))
                    reward, terms = objective.reward(batch, progress=self.step / job.steps)
                    metrics |= terms
                    metrics |= agent.update(batch, reward)
                    self.progress.update(self.step, metrics)
                self.step += 1
            self.episode += 1
            self.progress.episode(self.step, self.step - started)
            if time.monotonic() >= next_save or stopping.signum or self.step == job.steps:
                self._save()
                next_save = time.monotonic() + 60.0 * self.runtime.checkpoint_minutes
            if stopping.signum:
                raise Interrupted(stopping.signum, self.checkpoint.directory, self.step)
        self.progress.close()

    def _sample(self) -> Batch:
        return self.replay.sample(self.job.sac.batch_size, self.generator)

    def _updates_due(self) -> int:
        ratio = self.job.sac.updates_per_step
        return math.floor((self.step + 1) * ratio) - math.floor(self.step * ratio)

    def _uniform_action(self) -> np.ndarray:
        drawn = torch.rand(self.env.action_size, generator=self.generator, device=self.device)
        return (2.0 * drawn - 1.0).cpu().numpy()

    def _objective(self, earlier: Sequence[Path]) -> IncrementalObjective:
        config, size = self.job.objective, self.env.sigma_size
        past: Tensor | None = None
        alpha, bonus = self.job.first_alpha or 0.0, self.job.alive_bonus or 0.0
        beta: float | None = 0.0
        if earlier:
            past = torch.from_numpy(np.concatenate(self._past(earlier)))
            before = _read_stats(earlier[-1])
            alpha = config.alpha * inverse_mean(before["mean_consistency"], config.mean_floor)
            if before["mean_diversity"] is not None:
                beta = config.beta * inverse_mean(before["mean_diversity"], config.mean_floor)
            else:
                beta = config.beta if config.second_beta == "one" else None  # None: measured at the first update
        return IncrementalObjective(config, size, past, alpha, beta, bonus, self.generator, self.device)

    def _past(self, earlier: Sequence[Path]) -> list[np.ndarray]:
        """𝒯: states of each earlier skill. Stored with the skill where the world stands still, else seen anew."""
        if self.job.start_step is None:
            return [_read_visits(folder, self.env.sigma_size) for folder in earlier]
        skills = bundle([folder / "policy.safetensors" for folder in earlier])
        seeds = [EpisodeSeeds("visits", self.job.seed, self.job.skill, skill) for skill in range(len(earlier))]
        states, collected = visits(skills, self.job.world, self.job.objective.past_states, seeds, self.start)
        self.collected += collected
        return states

    def _replay(self, earlier: Sequence[Path]) -> Replay:
        keep = self.job.replay_keep
        shards = [] if keep is None else [folder / "replay.safetensors" for folder in earlier]
        room = sum(_read_stats(folder)["steps"] for folder in earlier) if shards else 0
        replay = Replay(min(self.job.replay_capacity, room + self.job.steps), self.columns, self.device)
        inherit(replay, shards, 1.0 if keep is None else keep, self.generator)
        return replay

    def _save(self) -> None:
        self.progress.check()
        curve, values = self.progress.state()
        tensors = {"generator": self.generator.get_state()}
        for name, part in (("agent", self.agent.state()), ("objective", self.objective.state()), ("progress", curve)):
            tensors |= {f"{name}/{key}": value for key, value in part.items()}
        meta = {"step": self.step, "episode": self.episode, "progress": values}
        self.checkpoint.save(tensors, meta, self.replay, self.inherited)


def _write_skill(training: SkillTraining, out: Path) -> None:
    job, env = training.job, training.env
    skill = Skills(
        training.agent.actor.cpu(),
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, 0),
        {**describe(env, job.env, job), "skill": job.skill},
    )
    skill.save(out / "policy.safetensors")
    seeds = [EpisodeSeeds("visits", job.seed, job.skill)]
    last = max(training.start, training.start + job.steps - 1)
    [states], collected = visits(skill, job.world, job.objective.past_states, seeds, last)
    with whole(out / "visits.npy") as file:
        np.save(file, states)
    shard = training.replay.newest(min(job.steps, len(training.replay)))
    save_shard(out / "replay.safetensors", shard, training.columns, {"env": job.env, "skill": job.skill})
    save_text(out / "progress.csv", training.progress.text())
    consistency, diversity = training.objective.means()
    stats = {
        "skill": job.skill,
        "mean_consistency": consistency,
        "mean_diversity": diversity if job.skill else None,
        "alpha": training.objective.alpha,
        "beta": training.objective.beta if job.skill else None,
        "steps": job.steps,
        "collected_steps": collected + training.collected,
        **_provenance(job),
        "stamp": training.checkpoint.stamp,
        "checksums": {name: checksum(out / name) for name in CHECKED},
        "seconds": round(training.progress.seconds, 3),
    }
    save_json(out / "stats.json", stats)  # last: where it is, the others are


def _provenance(job: SkillJob | JointJob) -> dict[str, Any]:
    return {
        "config_hash": job.digest(),
        "code_hash": code_hash(),
        "commit": commit(),
        "job": job.model_dump(mode="json"),
    }


def learn_jointly(job: JointJob, out: Path) -> None:
    """Freshly initialised policies, the paper's random skills, into the file `out`."""
    _writable(out.parent)
    env = make(job.world)
    generator = torch.Generator().manual_seed(seed_of("learner", job.seed, 0))
    sizes = (env.observation_size, env.action_size, job.sac.hidden, job.sac.log_std_bounds)
    actor = Actor(*sizes, copies=job.skills, generator=generator)
    save_json(out.with_name("stats.json"), {"steps": 0, **_provenance(job), "seconds": 0.0})
    Skills(actor, torch.arange(job.skills), torch.zeros(job.skills, 0), describe(env, job.env, job)).save(out)


def describe(env: Projected, name: str, job: SkillJob | JointJob) -> dict[str, Any]:
    """What a file of skills says of itself."""
    space = env.action_space
    return {
        "env": name,
        "world": job.world.model_dump(mode="json"),
        "observation_size": env.observation_size,
        "action_size": env.action_size,
        "latent_size": 0,
        "action_low": space.low.tolist(),  # type: ignore[attr-defined]
        "action_high": space.high.tolist(),  # type: ignore[attr-defined]
        "hidden": list(job.sac.hidden),
        "log_std_bounds": list(job.sac.log_std_bounds),
        "seed": job.seed,
        "config_hash": job.digest(),
    }


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def _identity(job: SkillJob, earlier: Sequence[Path]) -> dict[str, str]:
    """Checksums of what training reads from earlier skills; a damaged file is found here, not hours later."""
    found: dict[str, str] = {}
    for skill, folder in enumerate(earlier):
        policy, stats = load(folder / "policy.safetensors"), _read_stats(folder)
        for key, wanted in (("env", job.env), ("skill", skill), ("seed", job.seed)):
            if policy.meta.get(key) != wanted:
                raise ArtefactError(f"{folder}: its policy is of {key} {policy.meta.get(key)!r}, not {wanted!r}")
        for name in _read_from_earlier(job):
            path = folder / name
            is_, expected = checksum(path), stats.get("checksums", {}).get(name)
            if is_ != expected:
                raise ArtefactError(
                    f"{path}: is damaged, or not of this skill: its checksum is {is_}, stats.json has {expected}. "
                    "Restore it, or delete it and run the same command again"
                )
            found[f"{folder.name}/{name}"] = is_
        found["before"] = json.dumps([stats["mean_consistency"], stats["mean_diversity"]])
    return found


def _read_from_earlier(job: SkillJob) -> list[str]:
    """Which files of each earlier skill this training reads."""
    read = {"visits.npy": job.start_step is None, "replay.safetensors": job.replay_keep is not None}
    return [name for name in CHECKED if read.get(name, True)]


def _finished(out: Path, expected: str) -> bool:
    try:
        stats = load_json(out / "stats.json")
        return stats.get("stamp") == expected and all((out / name).exists() for name in (*CHECKED, "progress.csv"))
    except ArtefactError:
        return False


def _read_visits(folder: Path, sigma_size: int) -> np.ndarray:
    path = folder / "visits.npy"
    try:
        states = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}); delete it and run the same command again") from None
    if states.ndim != 2 or states.shape[1] != sigma_size:
        raise ArtefactError(f"{path}: has shape {states.shape}, this world's σ has {sigma_size} numbers")
    return np.asarray(states, dtype=np.float32)


def _must_be_finite(what: str, values: np.ndarray, step: int) -> None:
    with np.errstate(over="ignore"):
        if not np.isfinite(np.asarray(values, dtype=np.float32)).all():
            raise NotFiniteError(f"{what} is {values} at step {step}; the last good checkpoint is kept")


def _read_stats(folder: Path) -> dict[str, Any]:
    """An earlier skill's stats.json, with the numbers that training takes from it."""
    path = folder / "stats.json"
    stats = load_json(path)
    for key in ("mean_consistency", "mean_diversity", "steps"):
        first = key == "mean_diversity" and stats.get("skill") == 0  # the first skill has nothing to be far from
        value = stats.get(key)
        if not (isinstance(value, int | float) and math.isfinite(value)) and not (first and value is None):
            raise ArtefactError(f"{path}: {key} is {value!r}, not a number; restore it, or delete it and run again")
    return stats


def _part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}/")}


def _writable(directory: Path) -> None:
    """Say at the start, not after hours of training, that results cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ArtefactError(f"{directory}: cannot be written to: {error.strerror}") from None
