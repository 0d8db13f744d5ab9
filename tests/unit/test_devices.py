"""Places on GPUs: never too many on one, none left behind by the dead. The GPUs are pretended: DISK_DEVICES."""

from __future__ import annotations

import random
import select
import subprocess
import time
from pathlib import Path

import pytest
from conftest import run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from disk.errors import ConfigError
from disk.storage.devices import devices, place, places

HOLD = """
import os, sys
from disk.storage.devices import place
with place("auto", int(sys.argv[1]), poll_seconds=0.01):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""


class Job:
    """A process that holds a place until it is let go or killed."""

    def __init__(self, folder: Path, per_device: int, names: str = "0,1") -> None:
        environment = {"TMPDIR": str(folder), "DISK_DEVICES": names}
        self.process: subprocess.Popen[str] = run_python(HOLD, per_device, env=environment)
        self.device = ""

    def look(self) -> str:
        """The GPU it is on; nothing while it waits."""
        assert self.process.stdout is not None
        if not self.device and select.select([self.process.stdout], [], [], 0.0)[0]:
            self.device = self.process.stdout.readline().strip()
        return self.device

    def end(self, kill: bool) -> None:
        if kill:
            self.process.kill()
        self.process.communicate()


def settle(jobs: list[Job], placed: int) -> list[str]:
    """Wait until so many jobs have a place, and a little longer for one too many."""
    deadline = time.monotonic() + 60
    while sum(bool(job.look()) for job in jobs) < placed:
        assert time.monotonic() < deadline, [job.look() for job in jobs]
        time.sleep(0.02)
    time.sleep(0.1)
    return [job.look() for job in jobs]


def test_eight_jobs_on_two_gpus_with_three_each_never_exceed_it_and_a_killed_job_frees_its_place(tmp_path: Path):
    draw, jobs = random.Random(0), [Job(tmp_path, 3) for _ in range(8)]
    try:
        while jobs:
            on = settle(jobs, min(len(jobs), 6))
            assert max(on.count("0"), on.count("1")) <= 3
            assert sum(map(bool, on)) == min(len(jobs), 6), "no place stays empty while somebody waits"
            leaver = draw.choice([job for job in jobs if job.device])
            leaver.end(kill=draw.random() < 0.5)
            jobs.remove(leaver)
    finally:
        for job in jobs:
            job.end(kill=True)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), st.integers(1, 3), st.data())
@settings(max_examples=30)
def test_places_are_filled_evenly_and_found_again(tmp_path_factory, names: list[str], per_device: int, data) -> None:
    """In one process, where flock tells two openings apart like two processes."""
    from disk.storage.devices import _take

    folder = tmp_path_factory.mktemp("places")
    held = []
    for _ in range(data.draw(st.integers(1, 12))):
        if held and (len(held) == len(names) * per_device or data.draw(st.booleans())):
            held.pop(data.draw(st.integers(0, len(held) - 1)))[1].close()
            continue
        held.append(_take(names, per_device, folder, 0.01))
        counts = [sum(name == each for each, _ in held) for name in names]
        assert max(counts) <= per_device
        if len(held) == len(names) * per_device:
            assert min(counts) == per_device
    for _, file in held:
        file.close()


def test_which_gpus_there_are_is_what_slurm_or_the_user_has_said(monkeypatch: pytest.MonkeyPatch):
    assert devices({"CUDA_VISIBLE_DEVICES": "2, 3"}) == ["2", "3"]
    assert devices({"CUDA_VISIBLE_DEVICES": "MIG-1/2,GPU-ab"}) == ["MIG-1/2", "GPU-ab"]
    assert devices({"CUDA_VISIBLE_DEVICES": ""}) == devices({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    assert devices({"SLURM_JOB_ID": "7"}) == [], "a job that asked for none"
    assert devices({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1"}) == ["1"]
    assert places({"SLURM_JOB_ID": "7"}) != places({"SLURM_JOB_ID": "8"}), "GPU 0 of one job is not that of another"
    monkeypatch.setenv("PATH", "")
    assert devices({}) == [], "no driver"


def test_without_a_gpu_auto_is_the_cpu_and_cuda_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("DISK_DEVICES", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with place("auto", 1), place("cpu", 1), place("cuda:1", 1):
        assert not list(tmp_path.iterdir()), "nobody needs a place"
    with pytest.raises(ConfigError, match=r"runtime\.device: 'cuda'.*no GPU"), place("cuda", 1):
        pass
