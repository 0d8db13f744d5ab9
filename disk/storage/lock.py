"""Locks on files. The kernel frees a lock when its process ends, however it ends.

| lock | file | holder |
|---|---|---|
| lease | `{checkpoint}/lease` | the process that trains |
| claim | `{results}/.controller` | every Snakemake that was started in one directory |
| alive | `.snakemake/locks/alive*` | every Snakemake, so that its successor and its trainings know of its death |
| GPU place | `disk-gpus-{user}/{gpu}.{n}` (`disk.storage.devices`) | a training on that GPU |
| store | `mlflow.db.lock` (`disk.tracking.store`) | whoever creates the database or an experiment |
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import TextIO

from disk.errors import ArtefactError
from disk.storage.files import writing
from disk.storage.layout import LEASE

log = logging.getLogger("disk")
ALIVE = "DISK_CONTROLLER"
"""Environment variable by which a Snakemake tells its trainings which file it holds a lock on."""


def lock(path: Path, shared: bool = False, wait: bool = False, create: bool = True) -> TextIO | None:
    """Open and lock a file until it is closed. Return None if another process has it and `wait` is False."""
    file = path.open("a+" if create else "r+")  # NFS wants a file to be readable for a shared lock
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        file.close()
        return None
    return file


def share(file: TextIO) -> None:
    """Turn an exclusive lock into one that others may share."""
    fcntl.flock(file, fcntl.LOCK_SH)


def sign(file: TextIO, text: str) -> None:
    """Write into a locked file who holds it."""
    file.truncate(0)
    file.write(text)
    file.flush()


def holder(path: Path) -> str | None:
    """Return what the holder of a lock wrote about itself; None if nobody holds it."""
    try:
        free = lock(path, shared=True, create=False)
        if free is None:
            return path.read_text().strip() or "another process"
    except OSError:  # the file is gone
        return None
    free.close()
    return None


class Lease:
    """An exclusive lock on a directory, for one training.

    A second process waits for the first. After a killed Snakemake the first is its orphan: it is still training, and
    the second can use its result.
    """

    def __init__(self, directory: Path, poll_seconds: float = 2.0) -> None:
        self.path = directory / LEASE
        with writing(self.path):
            self._file = self._wait(directory, poll_seconds)
            sign(self._file, f"process {os.getpid()} on {socket.gethostname()}\n")

    def _wait(self, directory: Path, poll_seconds: float) -> TextIO:
        waiting = False
        while True:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                file = lock(self.path)
            except (FileExistsError, FileNotFoundError):
                if directory.is_file():
                    raise
                continue  # the previous holder is removing the directory at this moment
            if file is None:
                if not waiting:
                    owner = holder(self.path) or "another process"
                    log.warning("%s: is being written by %s; waiting for it to end", directory, owner)
                waiting = True
                time.sleep(poll_seconds)
            elif self._is_in_place(file):
                return file
            else:
                file.close()

    def _is_in_place(self, file: TextIO) -> bool:
        """Return True if the locked file is still the one in the directory. The previous holder may have removed it."""
        try:
            return self.path.stat().st_ino == os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        self._file.close()


def claim(results: Path) -> TextIO:
    """Hold a tree of results for the Snakemakes of this directory, until the file is closed or the process ends.

    Snakemake's own lock is in the directory it was started in. A second Snakemake, started elsewhere on the same
    results, would delete what the first has finished, because it planned to make it too.
    """
    path, place = results / ".controller", f"{Path.cwd()} on {socket.gethostname()}"
    with writing(path):
        results.mkdir(parents=True, exist_ok=True)
        file = lock(path)
        if file is not None:
            sign(file, place)
            share(file)
        else:
            file = lock(path, shared=True, wait=True)
    assert file is not None
    file.seek(0)
    found = file.read()
    if found != place:
        file.close()
        raise ArtefactError(
            f"{path}: another Snakemake is at work on these results, started in {found}: expected {place}. Wait for "
            f"it to end, start this one there, or give other results (process {os.getpid()} has changed nothing)"
        )
    return file


@cache
def stay_alive(folder: Path) -> tuple[TextIO, TextIO]:
    """Hold the locks that say this Snakemake lives, and remove what a killed one left behind in `folder`.

    A process that asks again gets the locks that it has: it would wait for itself for ever.
    All living Snakemakes share the lock `alive`. Whoever gets it alone knows that Snakemake's own lock files belong to
    the dead. A second lock is this process's own: its trainings look at it (`snakemake_is_gone`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    alive = lock(folder / "alive")
    if alive is not None:
        for left in [*folder.glob("[0-9]*.lock"), *folder.glob("alive-*")]:
            left.unlink()
        share(alive)
    else:
        alive = lock(folder / "alive", shared=True, wait=True)
    own = lock(folder / f"alive-{socket.gethostname()}-{os.getpid()}", wait=True)
    assert alive is not None
    assert own is not None
    os.environ[ALIVE] = os.path.abspath(own.name)
    return alive, own


def snakemake_is_gone() -> bool:
    """Return True if the Snakemake that started this training has been killed.

    Its successor deletes what an unfinished job has written and starts the job again. With the checkpoint still there,
    that costs seconds. A later Snakemake does not stand in for the dead one.
    """
    path = os.environ.get(ALIVE)
    if not path:
        return False
    try:
        file = lock(Path(path), create=False)
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(path))  # a later Snakemake has removed what a dead one left
    except OSError:
        return False
    if file is not None:
        file.close()
    return file is not None
