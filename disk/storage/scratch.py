"""A checkpoint on the node's own disk, for clusters whose shared file system is slow.

DISK_SCRATCH names a directory of the node, say $TMPDIR. The training appends to its replay, saves its state and
writes its curve there. What it saved is brought back to the shared directory every DISK_SCRATCH_MINUTES, when the
training stops on a signal or an error, and when it ends; only a node that dies, or a SIGKILL, costs what came since.
Bringing back keeps the shared checkpoint whole at every moment, in the order that `Checkpoint.save` keeps: first the
new rows of the replays, then the state that speaks of them. A training begins from the shared copy, never from what
some job left on the node.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

from disk.storage.files import whole
from disk.storage.layout import STATE

log = logging.getLogger("disk")


class Scratch:
    """A directory on the node's disk that stands in for `shared`, of which the caller holds the lease."""

    def __init__(self, shared: Path, root: Path, minutes: float) -> None:
        self.shared, self._minutes = shared, minutes
        self.local = Path(tempfile.mkdtemp(prefix="disk-", dir=root))
        for path in shared.iterdir():
            if path.name != "lease" and not path.name.endswith(".tmp"):
                shutil.copyfile(path, self.local / path.name)
        self._unsaved = False
        self._next = time.monotonic() + 60.0 * minutes

    @classmethod
    def of(cls, shared: Path) -> Scratch | None:
        """As the environment says; where the node has no such directory, the shared one is used."""
        name = os.environ.get("DISK_SCRATCH")
        if not name:
            return None
        if not os.access(name, os.W_OK | os.X_OK):
            log.warning("runtime.scratch: %s: no such directory here, or not writable; using %s", name, shared)
            return None
        return cls(shared, Path(name), float(os.environ.get("DISK_SCRATCH_MINUTES", "30")))

    def saved(self) -> None:
        """The training has saved; bring it back if it is time."""
        self._unsaved = True
        if time.monotonic() >= self._next:
            self.bring_back()

    def bring_back(self) -> None:
        if not self._unsaved:
            return
        state = self.local / STATE
        for path in sorted(self.local.iterdir()):
            if path.suffix == ".bin":
                _append_new(path, self.shared / path.name)
            elif path != state and not path.name.endswith(".tmp"):
                _copy(path, self.shared / path.name)
        _copy(state, self.shared / state.name)
        self._unsaved = False
        self._next = time.monotonic() + 60.0 * self._minutes

    def remove(self) -> None:
        self._unsaved = False
        shutil.rmtree(self.local, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file, whole(target) as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
    shutil.copystat(source, target)  # by its time it is told whether a curve or the outputs are newer


def _append_new(source: Path, target: Path) -> None:
    """Rows are only ever appended, so what the target has of them is the source's beginning."""
    with source.open("rb") as file, target.open("ab") as copy:
        file.seek(copy.tell())
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        os.fsync(copy.fileno())
