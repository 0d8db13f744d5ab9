"""The state of a training: how it is saved into a checkpoint, restored from one, and ended."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from disk.config import Runtime
from disk.errors import ArtefactError
from disk.learning.convergence import Spending
from disk.learning.episodes import Episode
from disk.learning.parts import Parts
from disk.learning.progress import Progress
from disk.learning.replay import Batch
from disk.storage.checkpoint import Checkpoint, Pace, below
from disk.storage.files import checksum, whole
from disk.storage.layout import CURVE, snapshot_name

log = logging.getLogger("disk")


class Training:
    """All that changes while the loop runs."""

    def __init__(self, parts: Parts, runtime: Runtime, checkpoint: Checkpoint) -> None:
        self.parts, self.checkpoint = parts, checkpoint
        self.episodes = [Episode(env, turn) for turn, env in enumerate(parts.envs)]
        device = parts.latents.device
        self.progress = Progress(checkpoint.directory / CURVE, runtime.log_every, parts.steps, parts.label, device)
        self.step = 0
        self.taken: dict[str, str] = {}
        """Snapshots in the checkpoint, and their checksums."""
        self._pace = Pace(60.0 * runtime.checkpoint_minutes)

    def look_around(self) -> None:
        """Look for a change of the world, and end a skill that cannot finish as it began."""
        watch = self.parts.watch
        if watch is not None:
            closes = watch.look(self.step)
            self.parts.notice()
            if closes:
                self.parts.steps = self.progress.total = self.step

    def end_skill_if_settled(self) -> None:
        """End a skill that has converged, or try it again if it is a duplicate."""
        self.look_around()
        settling = self.parts.settling
        if settling is None or not settling.done(self.step):
            return
        if isinstance(settling, Spending) and settling.again(self.step):
            log.info("step %d: a duplicate of an earlier skill; trying again from other weights", self.step)
            self.parts.start_over(settling.attempt)
        else:
            self.parts.steps = self.progress.total = self.step

    def end(self, episode: Episode) -> None:
        """End an episode."""
        replay, length = self.parts.replays[self.parts.agent_of(episode.skill)], episode.length
        self.parts.schedule.finished(lambda: Batch(replay.newest(length).to(replay.rows.device), replay.columns))
        episode.end()
        self.progress.episode(self.step, length)

    def resume(self) -> None:
        """Restore the checkpoint, if this job has saved one."""
        found = self.checkpoint.load()
        if isinstance(found, str):
            if found:
                log.warning(found)
            return
        with self.checkpoint.restoring():
            self._restore(*found)
        for episode, (_, length) in zip(self.episodes, found[1]["lanes"], strict=True):
            if length:
                episode.rejoin(self.parts, self.step, length)
        self.end_skill_if_settled()
        log.info("resuming at step %d of %d (%s)", self.step, self.parts.steps, self.checkpoint.directory)

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        parts = self.parts
        self.step, self.taken = meta["step"], dict(meta["files"])
        self.checkpoint.load_replays(parts.replays)
        for index, agent in enumerate(parts.agents):
            agent.load_state(below(tensors, _numbered("agent", index) + "/"))
            agent.generator.set_state(tensors[_numbered("generator", index)])
        parts.objective.load_state(below(tensors, "objective/"))
        parts.schedule.load_state(below(tensors, "schedule/"))
        if parts.settling:
            parts.settling.load_state(below(tensors, "settling/"))
        if parts.watch:
            parts.watch.load_state(below(tensors, "watch/"))
        if parts.normaliser:
            parts.normaliser.load_state(below(tensors, "normaliser/"))
        if parts.projection:
            parts.projection.load_state(below(tensors, "projection/"))
        self.progress.load_state(below(tensors, "progress/"), meta["progress"], self.step)
        for episode, (number, _) in zip(self.episodes, meta["lanes"], strict=True):
            episode.number = number

    def save_if_due(self, now: bool = False) -> None:
        """Save at the end of an episode, if the next one might end too late, or `now`."""
        if self._pace.due() or now:
            self._save()
            self._pace.saved()

    def _save(self) -> None:
        self.progress.check()
        parts = self.parts
        curve, values = self.progress.state()
        tensors: dict[str, Tensor] = {}
        named = {"objective": parts.objective.state(), "schedule": parts.schedule.state(), "progress": curve}
        if parts.settling:
            named["settling"] = parts.settling.state()
        if parts.watch:
            named["watch"] = parts.watch.state()
        if parts.normaliser:
            named["normaliser"] = parts.normaliser.state()
        if parts.projection:
            named["projection"] = parts.projection.state()
        for index, agent in enumerate(parts.agents):
            tensors[_numbered("generator", index)] = agent.generator.get_state()
            named[_numbered("agent", index)] = agent.state()
        for name, part in named.items():
            tensors |= {f"{name}/{key}": value for key, value in part.items()}
        lanes = [[episode.number, 0 if episode.obs is None else episode.length] for episode in self.episodes]
        meta = {"step": self.step, "lanes": lanes, "progress": values}
        self.checkpoint.save(tensors, meta, parts.replays, parts.inherited, self.taken)

    def _snapshot(self, step: int) -> Path:
        """Return where a snapshot waits for the end of the training, so that a failed job does not lose it."""
        return self.checkpoint.directory / f"snapshot{step}.safetensors"

    def take_snapshot(self) -> None:
        path = self._snapshot(self.step)
        self.parts.skills().save(path)
        self.taken[path.name] = checksum(path)

    def publish(self, out: Path) -> list[str]:
        """Copy the snapshots into the run, and remove those of other settings. Return the names of the copies."""
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


def _numbered(name: str, index: int) -> str:
    return f"{name}{index}" if index else name
