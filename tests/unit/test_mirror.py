"""Which trainings MLflow mirrors while they run."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path

import pytest

from disk.config import Tracking
from disk.tracking.mirror import Sidecar, watching

SQLITE, SERVER = "sqlite:///results/mlflow.db", "http://127.0.0.1:9"


def tracking(uri: str) -> Tracking:
    return Tracking(enabled=True, uri=uri, live_after_seconds=60.0, interval_seconds=1.0)


def test_jobs_of_slurm_do_not_share_an_sqlite_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    caplog.set_level(logging.INFO, "disk")
    assert isinstance(watching(tmp_path, tracking(SQLITE)), Sidecar), "outside SLURM"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert isinstance(watching(tmp_path, tracking(SERVER)), Sidecar)
    assert caplog.text == ""
    assert isinstance(watching(tmp_path, tracking(SQLITE)), nullcontext)
    assert caplog.text.count("\n") == 1
    assert "`rule track` brings this to MLflow afterwards" in caplog.text
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)
    assert isinstance(watching(tmp_path, tracking(SQLITE)), Sidecar), "the variable wins"
