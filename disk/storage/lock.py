"""One controller on a tree of results: two Snakemakes in different directories do not know of each other.

Snakemake's own lock is in the directory it was started in. A second controller elsewhere that writes to the same
results would delete what the first has finished, because it had planned to make it too. So each holds a lock of the
kernel's on the results themselves, shared with those of its own directory, whom Snakemake keeps apart file by file.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import TextIO

from disk.errors import ArtefactError
from disk.storage.files import writing


def claim(results: Path) -> TextIO:
    """Hold the results for controllers of this directory until the file is closed or the process ends."""
    path, place = results / ".controller", f"{Path.cwd()} on {socket.gethostname()}"
    with writing(path):
        results.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(place)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_SH)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH)
    file.seek(0)
    holder = file.read()
    if holder != place:
        file.close()
        raise ArtefactError(
            f"{path}: another Snakemake is at work on these results, started in {holder}: expected {place}. Wait for "
            f"it to end, start this one there, or give other results (process {os.getpid()} has changed nothing)"
        )
    return file
