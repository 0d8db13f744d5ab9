"""Checkpoints of a training that may be killed at any moment, and the lease that guards them.

A checkpoint is a directory beside the training's outputs that Snakemake does not know of (it deletes
the declared outputs of a failed job):

    lease               locked by the process that trains; names it for whoever comes second
    state.safetensors   networks, optimisers, generators, counters; written whole
    replay.bin          raw replay rows, only ever appended to; replay01.bin, … where policies have replays of their own
    progress.csv        the training curve so far, for whoever wants to watch

It is stamped with a hash of the job and its inputs, and only continued by the very same job.

With DISK_SCRATCH, a directory on the node's own disk, a training works on a copy there, and `disk.scratch` brings the
copy back to the shared directory every so often and when the training ends, however it does short of a SIGKILL.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from disk.files import ArtefactError, load_tensors, save_tensors
from disk.replay import Replay, append_rows, read_rows
from disk.scratch import Scratch

log = logging.getLogger("disk")
FORMAT = 2
"""Of what a training saves. To be raised when that changes: a state of another format is not continued."""


class Lease:
    """An exclusive lock on a directory; the kernel frees it when its process ends, however it ends.

    Where it is taken, the second process waits for the first: after a killed controller that is its
    orphan, which is still training and whose result the second can use.
    """

    def __init__(self, directory: Path, poll_seconds: float = 2.0) -> None:
        self.path = directory / "lease"
        waiting = False
        while True:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                file = self.path.open("a+")
            except (FileExistsError, FileNotFoundError):
                if directory.is_file():
                    raise
                continue  # the previous holder is removing the directory at this moment
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                if not waiting:
                    owner = file.read().strip() or "another process"
                    log.warning("%s: is being written by %s; waiting for it to end", directory, owner)
                waiting = True
                file.close()
                time.sleep(poll_seconds)
                continue
            if self._is_in_place(file):
                break
            file.close()
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        self._file = file

    def _is_in_place(self, file: TextIO) -> bool:
        """Whether the locked file is still the one in the directory, and not one that was removed meanwhile."""
        try:
            return self.path.stat().st_ino == os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        self._file.close()


class Checkpoint:
    """Saves and restores one training. Hold it open for as long as the training runs."""

    def __init__(self, directory: Path, stamp: str, replays: int = 1) -> None:
        self.stamp = stamp
        self._lease = Lease(directory)
        self._scratch = Scratch.of(directory)  # with the lease in hand: nobody else writes what it copies
        self.directory = self._scratch.local if self._scratch else directory
        self._state = self.directory / "state.safetensors"
        self._rows = [
            self.directory / (f"replay{index:02d}.bin" if index else "replay.bin") for index in range(replays)
        ]
        self._saved = [0] * replays  # rows in each of them that the state speaks of

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | str:
        """State and metadata of the last save, or why there is nothing to go on from."""
        if not all(path.exists() for path in (self._state, *self._rows)):
            self._clear()
            return ""
        try:
            tensors, meta = load_tensors(self._state)
        except ArtefactError as error:
            self._clear()
            return f"starting over: {error}"
        if meta.get("stamp") != self.stamp:
            self._clear()
            return f"starting over: {self.directory} was made with other settings or other earlier skills"
        if meta.get("format") != FORMAT:
            self._clear()
            return f"starting over: {self.directory} was saved by another version of this program"
        for path, size in zip(self._rows, meta["bytes"], strict=True):
            if path.stat().st_size < size:
                self._clear()
                return f"starting over: {path} is shorter than its checkpoint says"
        self._saved = meta["rows"]
        return tensors, meta

    def load_replays(self, replays: Sequence[Replay]) -> None:
        for path, saved, replay in zip(self._rows, self._saved, replays, strict=True):
            for each in {path, self._lease.path.with_name(path.name)}:
                os.truncate(each, 4 * replay.columns.width * saved)  # rows that were appended after the last save
            kept = min(saved, replay.capacity)
            replay.added += saved - kept
            replay.extend(read_rows(path, replay.columns, saved - kept, kept))

    def save(
        self,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        replays: Sequence[Replay],
        inherited: Sequence[int],
    ) -> None:
        """Append the new rows, then put the state that speaks of them in place."""
        sizes = []
        for path, saved, replay, before in zip(self._rows, self._saved, replays, inherited, strict=True):
            with path.open("ab") as file:
                append_rows(file, replay, before + saved)
                file.flush()
                os.fsync(file.fileno())
                sizes.append(file.tell())
        own = [replay.added - before for replay, before in zip(replays, inherited, strict=True)]
        about = {"format": FORMAT, "stamp": self.stamp, "rows": own, "bytes": sizes}
        save_tensors(self._state, tensors, {**meta, **about})
        self._saved = own
        if self._scratch:
            self._scratch.saved()

    def remove(self) -> None:
        """The training is done and its outputs are in place.

        In a SLURM job it stays until `clear_finished`: the job can still be killed before Snakemake knows of its end,
        which then deletes the outputs and starts the job again. With the checkpoint that costs seconds.
        """
        if "SLURM_JOB_ID" in os.environ:
            self.close()
            return
        self._clear()
        self._lease.path.unlink()
        with suppress(OSError):  # somebody who waited has put a lease of its own there
            self._lease.path.parent.rmdir()
        self._lease.release()
        if self._scratch:
            self._scratch.remove()

    def close(self) -> None:
        """Let go of it, for a process that goes on from here."""
        try:
            if self._scratch:
                self._scratch.bring_back()
                self._scratch.remove()
        finally:
            self._lease.release()

    def _clear(self) -> None:
        for folder in {self.directory, self._lease.path.parent}:
            for path in folder.iterdir():
                if path.name != "lease":
                    path.unlink()


def clear_finished(outputs: Path) -> None:
    """Remove a checkpoint that was left beside outputs known to be finished: those of a skill, or of a run."""
    directory = outputs.with_name(f"{outputs.name}.checkpoint")
    for state in (directory / "state.safetensors", outputs / "checkpoint/state.safetensors"):
        with suppress(OSError):  # there is none, or somebody else is removing it
            if state.stat().st_mtime_ns > (outputs / "stats.json").stat().st_mtime_ns:
                continue  # of a training since
            with (state.parent / "lease").open("r+") as lease:
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(state.parent)


def stamp(job: str, inputs: Mapping[str, str]) -> str:
    """Identity of a training: its job and the checksums of what it reads."""
    import hashlib

    return hashlib.sha256(json.dumps([job, dict(inputs)], sort_keys=True).encode()).hexdigest()


def controller_is_gone() -> bool:
    """Whether the Snakemake that started this training has been killed.

    Its successor deletes what an unfinished job has written, finished or not, and starts the job again: with
    the checkpoint still there, that costs seconds. A controller holds a lock on the file in DISK_CONTROLLER, which
    is its own: a later controller does not stand in for it.
    """
    path = os.environ.get("DISK_CONTROLLER")
    if not path:
        return False
    try:
        with open(path, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(path))  # a later controller has removed what a dead one left
    except OSError:
        return False
