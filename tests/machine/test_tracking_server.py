"""Trainings that log to one MLflow server while it is away for a while: they do not wait, and nothing is missing."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import PROJECT, tiny_config
from test_tracking import client, points, runs, until

from disk.tracking.mirror import mirror

TRAININGS, AWAY, STEPS, SECONDS = 8, 30.0, 3_000, 0.2
STEP, ELAPSED = "time/total_timesteps", "time/time_elapsed"


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """`mlflow server` over SQLite, as in docs/clusters.md, until the block ends."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/artefacts",
    ]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: _answers(port), seconds=600)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def rows(path: Path) -> list[dict[str, float]]:
    with path.open(newline="") as file:
        return [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.campaign
def test_eight_trainings_log_to_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    uri, root = f"http://127.0.0.1:{port}", tmp_path / "results"
    world = {"id": "slow_point:slow_point/SlowPoint-v0", "steps": STEPS}
    config = tiny_config({"environments": {"point": world}, "runtime": {"log_every": 25}})
    tracking = {"enabled": True, "uri": uri, "live_after_seconds": 0.0, "interval_seconds": 2.0}
    runtime = json.dumps({"runtime": config.runtime.model_dump(), "tracking": tracking})
    paths = os.pathsep.join([str(PROJECT), str(PROJECT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "DISK_RUNTIME": runtime, "SLOW_POINT": str(SECONDS)}
    environment["SLOW_POINT_UNTIL"] = str(tmp_path / "back")
    environment.pop("MLFLOW_TRACKING_URI", None)
    skills = [root / f"point/disk/seed{seed}/skill00" for seed in range(TRAININGS)]
    live = [skill.with_name("skill00.checkpoint") / "progress.csv" for skill in skills]
    trainings: list[subprocess.Popen[bytes]] = []
    try:
        with server(tmp_path, port):
            for seed, skill in enumerate(skills):
                job = config.skill_job("point", "disk", seed, 0).canonical()
                command = [sys.executable, "-m", "disk", "train-skill", "--job", job]
                trainings.append(subprocess.Popen([*command, "--out", f"{skill}/policy.safetensors"], env=environment))
            until(lambda: len(logged(uri)) == TRAININGS, seconds=400)
        before = [int(line[-1][STEP]) for line in map(rows, live)]
        time.sleep(AWAY)
        assert all(int(rows(path)[-1][STEP]) > step for path, step in zip(live, before, strict=True)), (
            "a training waited"
        )
        with server(tmp_path, port):
            (tmp_path / "back").touch()  # now the rest without sleeping
            for training in trainings:
                assert training.wait(timeout=300) == 0
            mirror(root, uri)
            shown = {key: run for key, run in runs(uri).items() if key.endswith("skill00")}
            assert len(shown) == TRAININGS
            for seed, skill in enumerate(skills):
                curve = rows(skill / "progress.csv")
                run = shown[f"point/disk/seed{seed}/skill00"]
                for metric in set(curve[0]) - {STEP}:
                    expected = [(int(row[STEP]), row[metric]) for row in curve if math.isfinite(row[metric])]
                    assert points(uri, run, metric) == expected, f"{metric} of seed {seed}"
                gaps = [after[ELAPSED] - row[ELAPSED] for row, after in pairwise(curve)]
                assert max(gaps) < AWAY, "a training waited for the server"
    finally:
        for training in trainings:
            training.kill()


def logged(uri: str) -> list[str]:
    """Skills of which the server has a point."""
    found = client(uri).search_experiments()
    all_runs = client(uri).search_runs([each.experiment_id for each in found])
    return [run.info.run_id for run in all_runs if ELAPSED in run.data.metrics]
