"""Checkpoints on a node's own disk: the same bytes, nothing left there, and what survives when the node does not."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import HOOKED, deadly_child, fingerprint, learn, often, tiny_config

from disk.config import Config
from disk.errors import Interrupted
from disk.storage.checkpoint import verify
from disk.storage.files import load_tensors


@pytest.fixture
def config() -> Config:
    return tiny_config(HOOKED)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setenv("DISK_SCRATCH", str(folder))
    monkeypatch.setenv("DISK_SCRATCH_MINUTES", "1000")
    return folder


def stop_at(step: int) -> Any:
    def stop(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if count == step:
            signal.raise_signal(signal.SIGTERM)
        return result

    return stop


def test_a_stopped_training_goes_on_elsewhere_with_the_same_bytes(
    config: Config, chain: list[Path], scratch: Path, tmp_path: Path, hooked: Any
):
    out, steps = tmp_path / "run", 0
    hooked.on_step = stop_at(110)
    with pytest.raises(Interrupted):
        learn(config, out, range(1), runtime=often(config))
    assert not list(scratch.iterdir()), "nothing stays on the node"
    shared = out / "skill00.checkpoint"
    _, meta = load_tensors(shared / "state.safetensors")
    steps = meta["step"]
    assert steps == 125, "it was brought back at the end of the episode"
    assert (shared / "replay.bin").stat().st_size == meta["bytes"][0]
    verify(shared, meta)
    assert {path.name for path in shared.iterdir()} >= {"progress.csv", "job.json"}, "for whoever watches"
    hooked.on_step = None
    learn(config, out, range(2), runtime=often(config))
    assert not list(scratch.iterdir())
    assert not list(out.glob("*.checkpoint"))
    for skill in range(2):
        straight = tmp_path / "straight"
        os.environ.pop("DISK_SCRATCH", None)
        learn(config, straight, range(skill, skill + 1))
        assert fingerprint(out / f"skill{skill:02d}") == fingerprint(straight / f"skill{skill:02d}")


@pytest.mark.parametrize("minutes", ["1000", "1e-9"])
def test_a_node_that_dies_costs_what_came_since_the_last_copy(
    config: Config, scratch: Path, tmp_path: Path, minutes: str, monkeypatch: pytest.MonkeyPatch
):
    """SIGKILL before the n-th write, for many n, each on a node of its own; the shared copy is whole every time."""
    monkeypatch.setenv("DISK_SCRATCH_MINUTES", minutes)
    out, kills, writes = tmp_path / "run", 0, 5
    resumed = 0
    while True:
        child = deadly_child(writes, lambda: learn(config, out, range(1), runtime=often(config)))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills, writes = kills + 1, writes + 17
        resumed += (out / "skill00.checkpoint/state.safetensors").exists()
        for left in scratch.iterdir():  # as a cluster does when a job is over
            for path in left.iterdir():
                path.unlink()
            left.rmdir()
    assert kills >= 3
    assert bool(resumed) == (minutes != "1000"), "what was not brought back is gone with the node"
    monkeypatch.delenv("DISK_SCRATCH")
    learn(config, tmp_path / "straight", range(1))
    assert fingerprint(out / "skill00") == fingerprint(tmp_path / "straight/skill00")


def test_without_the_directory_training_says_so_and_works_beside_its_results(
    config: Config, scratch: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    scratch.rmdir()
    caplog.set_level(logging.WARNING, logger="disk")
    learn(config, tmp_path / "run", range(1))
    assert f"runtime.scratch: {scratch}" in caplog.text
    assert (tmp_path / "run/skill00/policy.safetensors").exists()
