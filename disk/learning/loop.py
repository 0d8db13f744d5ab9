"""Training: one loop, and the two ways in.

`learn_skill` is Algorithm 1 of the paper for one skill, from the files of the earlier skills to its own.
`learn_jointly` learns all skills of a run at once. `disk.learning.build` puts together what the loop works with.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config import HierarchyJob, JointJob, Runtime, Sac, SkillJob
from disk.errors import ArtefactError, Interrupted
from disk.learning.artefacts import writable, write_run, write_skill, write_untrained
from disk.learning.build import Parts, choose_device, joint_parts, skill_parts
from disk.learning.convergence import Spending
from disk.learning.episodes import Lane
from disk.learning.progress import Progress, must_be_finite, to_blame
from disk.learning.replay import Batch
from disk.learning.signals import Stopping, until_signal
from disk.storage.checkpoint import Checkpoint, Pace, stamp
from disk.storage.files import checksum, save_json, sweep, whole
from disk.storage.layout import CHECKPOINT, CURVE, JOB, SKILLS, checkpoint_beside, snapshot_name
from disk.storage.lock import snakemake_is_gone
from disk.storage.manifest import CHECKED, finished, identity, same_chain

log = logging.getLogger("disk")


def learn_skill(job: SkillJob, earlier: Sequence[Path], out: Path, runtime: Runtime) -> None:
    """Learn the next skill after the `earlier` ones (their directories, in order) into directory `out`."""
    if len(earlier) != job.skill:
        raise ArtefactError(f"skill {job.skill:02d} needs the {job.skill} skills before it, {len(earlier)} were given")
    writable(out)
    inputs = identity(job, earlier)
    same_chain(job, earlier, out.parent)
    checkpoint = Checkpoint(checkpoint_beside(out), stamp(job.canonical(), inputs))
    try:
        sweep(out)
        if finished(out, checkpoint.stamp, CHECKED):  # by the process that this one waited for
            checkpoint.remove()
            return
        with to_blame(checkpoint.directory):
            training = Training(skill_parts(job, earlier, choose_device(runtime.device)), runtime, checkpoint)
            training.to_the_end(job)
            write_skill(job, training.parts, training.progress, checkpoint.stamp, inputs, out)
        if not snakemake_is_gone():
            checkpoint.remove()
    finally:
        checkpoint.close()


def learn_jointly(job: JointJob, out: Path, runtime: Runtime) -> None:
    """Learn all skills of a run together into directory `out`; without steps they are the paper's random skills."""
    writable(out)
    if job.steps is None:
        write_untrained(job, out)
        return
    policies = job.skills if job.policies == "independent" else 1
    checkpoint = Checkpoint(out / CHECKPOINT, stamp(job.canonical(), {}), replays=policies)
    try:
        sweep(out)
        if finished(out, checkpoint.stamp, [SKILLS, *map(snapshot_name, job.snapshots or [])]):
            checkpoint.remove()
            return
        with to_blame(checkpoint.directory):
            training = Training(joint_parts(job, choose_device(runtime.device)), runtime, checkpoint)
            training.to_the_end(job)
        snapshots = training.publish(out)
        write_run(job, training.parts, training.progress, checkpoint.stamp, snapshots, out)
        if not snakemake_is_gone():
            checkpoint.remove()
    finally:
        checkpoint.close()


class Training:
    """The state of a training, and its loop."""

    def __init__(self, parts: Parts, runtime: Runtime, checkpoint: Checkpoint) -> None:
        self.parts, self.runtime, self.checkpoint = parts, runtime, checkpoint
        self.lanes = [Lane(env, turn) for turn, env in enumerate(parts.envs)]
        # A thread that simulates while this one learns; both let go of Python's lock where they compute.
        self.pool = ThreadPoolExecutor(1, "simulation") if parts.sac.overlap else None
        device = parts.latents.device
        self.progress = Progress(checkpoint.directory / CURVE, runtime.log_every, parts.steps, parts.label, device)
        self.step = 0
        self.taken: dict[str, str] = {}
        """Snapshots in the checkpoint, and their checksums."""

    def to_the_end(self, job: SkillJob | JointJob | HierarchyJob) -> None:
        """Go on from where an earlier process of this job stopped, if one did, and train until the budget is used."""
        sweep(self.checkpoint.directory)
        self.resume()
        save_json(self.checkpoint.directory / JOB, job.model_dump(mode="json"))  # for whoever watches
        try:
            with until_signal() as stopping:
                self.run(stopping)
        finally:
            if self.pool:
                self.pool.shutdown()

    def run(self, stopping: Stopping) -> None:
        parts, sac = self.parts, self.parts.sac
        pace = Pace(60.0 * self.runtime.checkpoint_minutes)
        while self.step < parts.steps:
            lane = self.lanes[self.step % len(self.lanes)]
            if lane.outcome is None:
                self._set_out(lane, self.step)
            index = parts.agent_of(lane.skill)
            agent, replay, objective = parts.agents[index], parts.replays[index], parts.objective
            done = replay.added - parts.inherited[index]  # steps that this policy has taken
            seen = lane.arrive(parts, self.step)
            known = parts.known_by(lane.skill, lane.latent)
            replay.add(seen.obs, seen.action, seen.next_obs, seen.terminated, seen.sigma, known, seen.origin)
            parts.observe(lane.skill, self.step, seen.sigma)
            self.progress.observe(seen.sigma)
            over = seen.terminated or seen.truncated
            following = self.step + len(self.lanes)  # this lane's next step: simulated while the policy learns
            if self.pool and not over and following < parts.steps:
                self._set_out(lane, following)
            metrics: dict[str, Tensor] = {}
            for of_model, of_policy in plan(done, sac):
                if of_policy and agent.updates == 0:
                    objective.start(partial(parts.sample, index))
                batch = parts.sample(index)
                if of_model:
                    metrics |= objective.update(partial(parts.sample_all, batch, index))
                if of_policy:
                    batch = parts.relabelled(batch)
                    reward, terms = objective.reward(batch, progress=parts.progress(self.step))
                    metrics |= terms
                    metrics |= agent.update(parts.as_seen(batch), reward)
                    self.progress.update(self.step, metrics)
                    if parts.settling:
                        parts.settling.see(self.step, terms)
            self.step += 1
            if self.step in parts.snapshots:
                self._take_snapshot()
            if over or self.step == parts.steps:
                self._stop_if_settled()
                self._end(lane)
                if pace.due() or stopping.signum or self.step == parts.steps:
                    self._save()
                    pace.saved()
                if stopping.signum:
                    raise Interrupted(stopping.signum, self.checkpoint.directory, self.step)
        self.progress.close()

    def _set_out(self, lane: Lane, step: int) -> None:
        """Choose the lane's action of a step, and take it."""
        lane.env.at(self.parts.start + step)
        obs = lane.begin(self.parts, step) if lane.obs is None else lane.obs
        action, origin = self._act(lane, obs)
        if not np.isfinite(action).all():
            self.progress.check()  # a loss that went wrong before it says more
            must_be_finite("action", action, step)
        lane.set_out(action, origin, self.pool)

    def _act(self, lane: Lane, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """An action and, for objectives that ask for it, how it came about."""
        index = self.parts.agent_of(lane.skill)
        agent, taken = self.parts.agents[index], self.parts.replays[index].added - self.parts.inherited[index]
        if taken < self.parts.sac.seed_steps and self.parts.sac.seed_actions is None:
            drawn = torch.rand(lane.env.action_size, generator=agent.generator, device=agent.device)
            return (2.0 * drawn - 1.0).cpu().numpy(), None
        seen = np.concatenate((obs, lane.latent))
        if self.parts.replays[0].columns.origin:
            return agent.act_on_record(seen)
        return agent.act(seen), None

    def _stop_if_settled(self) -> None:
        """A skill that has converged has used its budget, unless it is tried again."""
        settling = self.parts.settling
        if settling is None or not settling.done(self.step):
            return
        if isinstance(settling, Spending) and settling.again(self.step):
            log.info("step %d: a duplicate of an earlier skill; trying again from other weights", self.step)
            self.parts.start_over(settling.attempt)
        else:
            self.parts.steps = self.progress.total = self.step

    def _end(self, lane: Lane) -> None:
        replay = self.parts.replays[self.parts.agent_of(lane.skill)]
        self.parts.schedule.finished(lambda: Batch(replay.newest(lane.length).to(replay.rows.device), replay.columns))
        lane.episode += 1
        lane.obs = None
        self.progress.episode(self.step, lane.length)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one of this very job."""
        found = self.checkpoint.load()
        if isinstance(found, str):
            if found:
                log.warning(found)
            return
        try:
            self._restore(*found)
        except (LookupError, TypeError, ValueError) as error:  # whole, but made by somebody else
            raise ArtefactError(
                f"{self.checkpoint.directory}: is not a checkpoint of this training ({error!r}); delete it and run the "
                "same command again"
            ) from error
        tensors, meta = found
        for lane, (_, length) in zip(self.lanes, meta["lanes"], strict=True):
            if length:
                lane.rejoin(self.parts, self.step, length)
            under_way = _part(tensors, _numbered("lane", lane.turn))
            if under_way:
                lane.env.at(self.parts.start + self.step + (lane.turn - self.step) % len(self.lanes))
                lane.set_out(under_way["action"].numpy(), _numpy(under_way.get("origin")), self.pool)
        self._stop_if_settled()
        log.info("going on from step %d of %d (%s)", self.step, self.parts.steps, self.checkpoint.directory)

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        parts = self.parts
        self.step, self.taken = meta["step"], dict(meta["files"])
        self.checkpoint.load_replays(parts.replays)
        for index, agent in enumerate(parts.agents):
            agent.load_state(_part(tensors, _numbered("agent", index)))
            agent.generator.set_state(tensors[_numbered("generator", index)])
        parts.objective.load_state(_part(tensors, "objective"))
        parts.schedule.load_state(_part(tensors, "schedule"))
        if parts.settling:
            parts.settling.load_state(_part(tensors, "settling"))
        if parts.normaliser:
            parts.normaliser.load_state(_part(tensors, "normaliser"))
        self.progress.load_state(_part(tensors, "progress"), meta["progress"], self.step)
        for lane, (episode, _) in zip(self.lanes, meta["lanes"], strict=True):
            lane.episode = episode

    def _save(self) -> None:
        self.progress.check()
        parts = self.parts
        curve, values = self.progress.state()
        tensors: dict[str, Tensor] = {}
        named = {"objective": parts.objective.state(), "schedule": parts.schedule.state(), "progress": curve}
        if parts.settling:
            named["settling"] = parts.settling.state()
        if parts.normaliser:
            named["normaliser"] = parts.normaliser.state()
        for index, agent in enumerate(parts.agents):
            tensors[_numbered("generator", index)] = agent.generator.get_state()
            named[_numbered("agent", index)] = agent.state()
        for lane in self.lanes:
            if lane.action is not None:  # chosen already, and not in the replay yet
                parts_of_it = {"action": lane.action, "origin": lane.origin}
                named[_numbered("lane", lane.turn)] = {
                    key: torch.from_numpy(value) for key, value in parts_of_it.items() if value is not None
                }
        for name, part in named.items():
            tensors |= {f"{name}/{key}": value for key, value in part.items()}
        lanes = [[lane.episode, 0 if lane.obs is None else lane.length] for lane in self.lanes]
        meta = {"step": self.step, "lanes": lanes, "progress": values}
        self.checkpoint.save(tensors, meta, parts.replays, parts.inherited, self.taken)

    def _snapshot(self, step: int) -> Path:
        """Where a snapshot waits for the end of the training, so that a failed job does not lose it."""
        return self.checkpoint.directory / f"snapshot{step}.safetensors"

    def _take_snapshot(self) -> None:
        path = self._snapshot(self.step)
        self.parts.skills().save(path)
        self.taken[path.name] = checksum(path)

    def publish(self, out: Path) -> list[str]:
        """Copy the snapshots to where they belong, and remove those of other settings; the names of the copies."""
        names = {snapshot_name(step): self._snapshot(step) for step in self.parts.snapshots}
        for name, path in names.items():
            if checksum(path) != self.taken[path.name]:
                raise ArtefactError(
                    f"{path}: is damaged: its checksum is {checksum(path)}, expected {self.taken[path.name]}. Delete "
                    f"{path.parent} and run the same command again"
                )
            with path.open("rb") as kept, whole(out / name) as file:
                shutil.copyfileobj(kept, file)
        for other in out.glob("snapshots/*"):
            if other.relative_to(out).as_posix() not in names:
                other.unlink()
        return list(names)


def plan(done: int, sac: Sac) -> list[tuple[bool, bool]]:
    """The updates after a policy's step (counted from 0): each of the objective's model, of the policy, or of both."""
    bout = sac.iteration
    if done < sac.seed_steps:
        return []
    if bout is None:
        ratio = sac.updates_per_step
        return [(True, True)] * (math.floor((done + 1) * ratio) - math.floor(done * ratio))
    if (done + 1 - sac.seed_steps) % bout.steps:
        return []
    return [(True, False)] * bout.model_updates + [(False, True)] * bout.policy_updates


def _numbered(name: str, index: int) -> str:
    return f"{name}{index}" if index else name


def _part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}/")}


def _numpy(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.numpy()
