"""What some tests need of the machine. Where it is missing they are skipped with the reason, unless DISK_REQUIRE
names it (`DISK_REQUIRE=slurm,chromium,gl,node,wasm`, as .ci/run does): then that is a failure."""

from __future__ import annotations

import ctypes.util
import os
import shutil

import pytest

PROGRAMS = {
    "slurm": ("slurmctld", "slurmd", "sbatch", "munged"),
    "chromium": ("chromium", "chromedriver"),
    "node": ("node",),
}
PACKAGES = {
    "slurm": "slurmctld slurmd slurm-client munge",
    "chromium": "chromium chromium-driver",
    "gl": "libegl1 libgl1-mesa-dri",
    "node": "nodejs",
}


def missing(name: str) -> str | None:
    """Why a need cannot be met here; None: it can."""
    if name == "wasm":
        from disk.show import physics

        return None if physics.available() else f"no MuJoCo for browsers: {physics.HINT}"
    if name == "gl":
        found = any(ctypes.util.find_library(library) for library in ("EGL", "OSMesa"))
        lacking = [] if found else ["EGL or OSMesa"]
    else:
        path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
        lacking = [program for program in PROGRAMS[name] if shutil.which(program, path=path) is None]
    return f"no {', '.join(lacking)}: apt-get install {PACKAGES[name]}" if lacking else None


def require(name: str) -> None:
    """Skip or fail the running test, unless the machine has what it needs."""
    reason = missing(name)
    if reason is None:
        return
    if name in os.environ.get("DISK_REQUIRE", "").split(","):
        pytest.fail(f"DISK_REQUIRE asks for {name}, but there is {reason}", pytrace=False)
    pytest.skip(reason)
