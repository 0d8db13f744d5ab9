"""Places on this machine's GPUs: trainings spread over them, `jobs_per_device` on each, and more wait.

A place is a locked file, and the kernel frees the lock when its process ends. DISK_DEVICES (for tests),
CUDA_VISIBLE_DEVICES (set by a user or SLURM) or the driver lists the GPUs. A training sees only its own GPU. Nothing
here imports torch, so a waiting process needs little memory.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from disk.errors import ConfigError
from disk.storage.lock import lock

log = logging.getLogger("disk")


def devices(environment: Mapping[str, str] = os.environ) -> list[str]:
    """List the GPUs that trainings may use, by their names in CUDA_VISIBLE_DEVICES."""
    for name in ("DISK_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in environment:
            found = [part.strip() for part in environment[name].split(",") if part.strip()]
            return [] if found[:1] == ["-1"] else found
    if "SLURM_JOB_ID" in environment:
        return []  # the job asked for none; the node's GPUs, if any, are other jobs'
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],  # noqa: S607  wherever it is installed
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return asked.stdout.split()


def places(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the locks: one per user and machine, or one per SLURM job, which has its own GPUs."""
    job = f"-job{environment['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in environment else ""
    return Path(tempfile.gettempdir(), f"disk-gpus-{os.getuid()}{job}")


@contextmanager
def place(device: str, jobs_per_device: int, poll_seconds: float = 1.0) -> Iterator[None]:
    """Hold a place on a GPU if `device` (as in the configuration) is `auto` or `cuda`. CUDA then sees only that GPU.

    `auto` without a GPU means the CPU. A named device, `cpu` or `cuda:1`, is the user's choice and needs no place.
    """
    if device not in ("auto", "cuda"):
        yield
        return
    found = devices()
    if not found:
        if device == "cuda":
            raise ConfigError("runtime.device: 'cuda', but this machine has no GPU, or this job asked SLURM for none")
        if "SLURM_JOB_ID" in os.environ:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the node's GPUs, if any, are other jobs'
        yield
        return
    name, file = _take(found, jobs_per_device, places(), poll_seconds)
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    log.info("on GPU %s", name)
    try:
        yield
    finally:
        file.close()


def _take(found: list[str], jobs_per_device: int, folder: Path, poll_seconds: float) -> tuple[str, TextIO]:
    """Wait for a free place and lock it. GPUs fill evenly."""
    folder.mkdir(mode=0o700, exist_ok=True)
    waiting = False
    while True:
        for number in range(jobs_per_device):
            for name in found:
                file = lock(folder / f"{name.replace('/', '_')}.{number}")
                if file is not None:
                    return name, file
        if not waiting:
            log.info("%d jobs on each of the GPUs %s; waiting for a place", jobs_per_device, ", ".join(found))
        waiting = True
        time.sleep(poll_seconds)
