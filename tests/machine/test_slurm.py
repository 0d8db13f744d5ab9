"""The workflow on a real SLURM, disturbed in every way that a cluster disturbs it; see slurm/one-node.sh."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import PROJECT, raw_config

from disk import config as configuration
from disk.learning.run import train_run

SKILLS, SECONDS = 4, 0.03
CONFIG: dict[str, Any] = {
    "seeds": [0, 1],
    "runs": [{"envs": ["point"], "methods": ["disk"]}, {"envs": ["point"], "methods": ["diayn"], "seeds": [0]}],
    "environments": {
        "point": {
            "id": "slow_point:slow_point/SlowPoint-v0",
            "skills": SKILLS,
            "steps": 400,
            "horizon": 25,
            "sac": {"hidden": [16, 16], "batch_size": 32, "seed_steps": 50},
        }
    },
    "methods": {
        "diayn": {"steps": {"point": 4_500}}
    },  # 135 seconds: more than the minute, and the half that SLURM adds
    "diayn": {"hidden": [16]},
    "disk": {"past_states": 50, "past_batch": 32},
    "tracking": {"enabled": False},
    "runtime": {"device": "cpu"},
}
RUNS = [("disk", 0), ("disk", 1), ("diayn", 0)]
TARGETS = [f"results/point/{method}/seed{seed}/skills.safetensors" for method, seed in RUNS]


class Node:
    """A one-node SLURM, and a copy of the workflow to run on it."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.project = folder, project
        self.controllers: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        paths = os.pathsep.join([str(PROJECT), str(PROJECT / "tests")])
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        slow = {"PYTHONPATH": paths, "SLOW_POINT": str(SECONDS)}
        self.environment = {**os.environ, "PATH": programs, "SLURM_NODE_PORT": port, **slow}
        said = self._script("start")
        for assignment in shlex.split(said.removeprefix("export ")):
            name, _, value = assignment.partition("=")
            self.environment[name] = value
        for name in ("workflow", "config", "profiles"):
            shutil.copytree(PROJECT / name, project / name)
        shutil.copy(PROJECT / "Snakefile", project)
        (project / "slurm").symlink_to("profiles/slurm")
        (project / "slow.yaml").write_text(yaml.safe_dump(CONFIG))

    def _script(self, command: str) -> str:
        script = [str(PROJECT / "tests/slurm/one-node.sh"), command, str(self.folder)]
        return subprocess.run(script, env=self.environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def stop(self) -> None:
        for controller in self.controllers:
            controller.kill()
            controller.wait()
        self._script("stop")

    def run(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.environment, cwd=self.project, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def snakemake(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "snakemake", *arguments, "--profile", "slurm", "--configfile", "slow.yaml"]
        with log.open("wb") as file:
            self.controllers.append(
                subprocess.Popen(
                    command, cwd=self.project, env=self.environment, stdout=file, stderr=file, start_new_session=True
                )
            )
        return self.controllers[-1]

    def job(self, word: str) -> str | None:
        """The running job whose rule and wildcards hold this word."""
        for line in self.run("squeue", "-h", "-t", "R", "-o", "%i %k").splitlines():
            number, _, about = line.partition(" ")
            if word in about:
                return number
        return None

    def training(self, pattern: str) -> Path:
        """Wait until a training is in its loop; its checkpoint's folder."""
        return Path(until(lambda: next((self.project / "results/point").glob(f"{pattern}/job.json"), None))).parent

    def disturb(self, seed: int, how: list[str]) -> None:
        """Do this to whichever skill of a chain trains now. One that ends before it is hit leaves it to the next."""

        def hit() -> bool:
            skill = self.training(f"disk/seed{seed}/skill*.checkpoint").name.removesuffix(".checkpoint")
            number = self.job(f"train_skill_wildcards_point_disk_{seed}_{skill[-2:]}")
            if number is None:
                return False
            subprocess.run([*how, number], env=self.environment, check=False)
            log, done = self.project / f"logs/point/disk/seed{seed}/{skill}.log", f"disk/seed{seed}/{skill}/stats.json"
            until(lambda: "stopped by SIGTERM" in said(log) or (self.project / "results/point" / done).exists())
            return "stopped by SIGTERM" in said(log)

        until(hit)


def until(condition: Callable[[], Any], seconds: float = 900.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.2)
    return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's path may have 107 letters
    node = Node(folder, tmp_path)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.needs("slurm")
def test_whatever_a_cluster_does_to_its_jobs_the_policies_are_those_of_a_local_run(node: Node, tmp_path: Path) -> None:
    """Two chains and a joint method; scancel, requeue, both preemptions, a short walltime, a dead controller."""
    command = [
        *TARGETS,
        *("--set-resources", "train_joint:runtime=1", "train_joint:slurm_partition=fragile"),
        *("--slurm-init-seconds-before-status-checks", "2", "--retries", "20"),
    ]
    first, log = node.snakemake(tmp_path / "first.log", *command), node.project / "logs"
    # One skill is cancelled, one put back into the queue.
    node.disturb(0, ["scancel"])
    node.disturb(1, ["scontrol", "requeue"])
    # Somebody more important takes the whole node: the joint method is cancelled, whatever else runs is requeued.
    node.training("diayn/seed0/checkpoint")
    node.run("sbatch", "--partition=high", "--cpus-per-task=8", "--output=/dev/null", "--wrap=true")
    until(lambda: "stopped by SIGTERM" in said(log / "point/diayn/seed0/joint.log"))
    # The controller dies while two jobs run, which go on without it; the same command goes on with them.
    node.training("disk/seed*/skill0[1-3].checkpoint")
    first.kill()
    first.wait()
    second = node.snakemake(tmp_path / "second.log", *command)
    assert second.wait(timeout=1500) == 0, said(tmp_path / "second.log")

    assert compare(node, RUNS) == 2 * (2 * SKILLS + 1) + 1, "policies and replays, and a file for each run"
    assert "TIMEOUT" in said(tmp_path / "first.log") + said(tmp_path / "second.log")
    assert not list(node.project.rglob("*checkpoint/*")), "finished trainings leave nothing behind"


@pytest.mark.needs("slurm")
def test_a_whole_target_in_one_allocation_that_is_too_short_for_it(node: Node) -> None:
    """The batch script saves before its time is up, puts itself back into the queue, and ends with the same bytes."""
    options = ["--parsable", "--time=3", "--signal=B:TERM@90", "--cpus-per-task=1", "--mem=100"]
    script = [str(PROJECT / "profiles/slurm/in-one-allocation.sh"), *TARGETS[:2], "--configfile", "slow.yaml"]
    number = node.run("sbatch", *options, *script).strip()
    until(lambda: number not in node.run("squeue", "-h", "-o", "%i").split(), 1500.0)
    log = said(node.project / f"in-one-allocation.{number}.log")
    assert "out of time: back into the queue" in log, log
    assert compare(node, RUNS[:2]) == 2 * (2 * SKILLS + 1), log


def compare(node: Node, runs: list[tuple[str, int]]) -> int:
    """How many files a local training of these runs leaves; every byte of them must be in the node's results."""
    config, root = configuration.parse(raw_config(CONFIG)), node.project / "local"
    for method, seed in runs:
        train_run(config, root, "point", method, seed, None, lambda out: nullcontext())
    local = {path.relative_to(root): path for path in root.rglob("*.safetensors")}
    for name, path in local.items():
        assert (node.project / "results" / name).read_bytes() == path.read_bytes(), name
    return len(local)


def said(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_without_slurm_a_dry_run_plans_and_a_real_one_says_what_is_missing(tmp_path: Path) -> None:
    for name in ("workflow", "config", "profiles", "Snakefile"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / "slurm").symlink_to("profiles/slurm")
    (tmp_path / "bin").mkdir()
    for program in ("bash", "sh", "which"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    environment = {**os.environ, "PATH": str(tmp_path / "bin"), "PYTHONPATH": str(PROJECT)}

    def snakemake(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    code, output = snakemake("-n", "results/ant_broken/hausdorff.csv")
    assert code == 0, output
    assert "train_skill            60" in output
    code, output = snakemake("-n", "results/ant/downstream.csv")
    assert code == 0, output
    asked: dict[str, set[int]] = {}
    for block in output.split("\nrule ")[1:]:
        if found := re.search(r"runtime=(\d+)", block):
            asked.setdefault(block.split(":")[0], set()).add(int(found[1]))
    assert min(asked["train_flat"]) > 480, "hours: the profile's 60 minutes are for rollouts and figures"
    assert 60 < min(asked["train_hierarchy"]) < 240
    code, output = snakemake("results/ant/disk/seed0/skill00/policy.safetensors")
    assert code != 0
    assert [line for line in output.splitlines() if "no sbatch here" in line] == [
        "--profile slurm: there is no sbatch here. Run it on a login node of a cluster, or with --cores 2 instead"
    ]
    assert "Traceback" not in output
    assert not list((tmp_path / "results").rglob("*.safetensors"))
