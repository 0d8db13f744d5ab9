"""Data sets: the transitions of a chain, loaded by Minari, with the world as it was at each step."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import minari
import numpy as np
import pytest
import torch
from conftest import TINY, raw_config, tiny_config

from disk.cli import main
from disk.learning.run import train_run
from disk.storage.files import load_tensors

CHANGES = [
    {"what": "actuator", "names": ["east"], "steps": [0, 150], "factors": [0.0, 1.0]},
    {"what": "actuator", "names": ["north"], "steps": [150, 310], "factors": [0.0, 1.0]},
    {"what": "damping", "names": "*", "steps": [100, 500], "factors": [1.0, 2.0], "ramp": True},
]


@pytest.mark.parametrize("turns", [None, 2])
def test_a_data_set_has_every_transition_and_the_world_of_each_step(
    turns: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {**raw_config(TINY)["environments"]["point"], "skills": 2, "evolution": {"total": 600, "changes": CHANGES}}
    config = tiny_config({"environments": {"lame": row}, "sac": {"environments": turns}})
    run = train_run(config, tmp_path, "lame", "disk", 0, None, lambda out: nullcontext())
    assert main(["dataset", str(run), "--out", str(tmp_path / "sets"), "--id", "mine/lame-v0"]) == 0
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    found = minari.load_dataset("mine/lame-v0")
    assert (found.total_episodes, found.total_steps) == (24, 600)
    shards = [load_tensors(run / f"skill{skill:02d}/replay.safetensors")[0] for skill in range(2)]
    obs, action, sigma = (torch.cat([shard[key] for shard in shards]).numpy() for key in ("obs", "action", "sigma"))
    seen = np.zeros(600, dtype=int)
    for episode in found.iterate_episodes():
        steps = episode.infos["step"][:, 0]
        before = steps[:-1]
        seen[before] += 1
        np.testing.assert_array_equal(np.diff(steps), turns or 1)
        np.testing.assert_array_equal(episode.observations[:-1], obs[before])
        np.testing.assert_allclose(episode.actions, 0.5 * (action[before] + 1.0), atol=1e-7)
        np.testing.assert_array_equal(episode.infos["sigma"][1:], sigma[before])
        np.testing.assert_array_equal(episode.infos["skill"], before[0] // 300)
        assert episode.truncations.tolist() == [False] * 24 + [True]
        alive = np.ones((26, 4))
        alive[:, 0], alive[:, 2] = steps >= 150, (steps < 150) | (steps >= 310)
        np.testing.assert_array_equal(episode.infos["actuator"], alive)
        damping = 2.0 * np.interp(steps, [100, 500], [1.0, 2.0])
        np.testing.assert_allclose(episode.infos["damping"], np.stack([damping, damping], axis=1), rtol=1e-12)
    assert (seen == 1).all()
    assert main(["dataset", str(run), "--out", str(tmp_path / "sets"), "--id", "mine/lame-v0"]) == 1


def test_the_environment_of_a_shipped_row_is_recovered_and_other_runs_are_refused(
    small_runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dataset", str(small_runs["disk"]), "--out", str(tmp_path)]) == 0
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.load_dataset("disk/point/disk-seed0-v0").recover_environment()
    assert env.unwrapped.world.id == "disk/Point-v0"
    assert main(["dataset", str(small_runs["diayn"]), "--out", str(tmp_path)]) == 1
    assert "only chains keep their transitions" in capsys.readouterr().err
