"""One policy that acts in several worlds by turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import learn, tiny_config
from safetensors.torch import load_file

from disk.config import Config
from disk.errors import ConfigError
from disk.seeds import seed_of

LANES = 3


@pytest.fixture(scope="module")
def several() -> Config:
    return tiny_config({"environments": {"point": {"sac": {"environments": LANES}}}})


@pytest.fixture(scope="module")
def skill(several: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learn(several, tmp_path_factory.mktemp("lanes"), range(1))[0]


def test_worlds_are_stepped_in_turn(skill: Path, several: Config):
    replay = load_file(skill / "replay.safetensors")
    obs, then = replay["obs"].numpy(), replay["next_obs"].numpy()
    assert len(obs) == several.skill_job("point", "disk", 0, 0).steps  # steps of all worlds together
    horizon = several.environment("point").horizon
    goes_on = [(then[row] == obs[row + LANES]).all() for row in range(len(obs) - LANES)]
    ends = [(row // LANES + 1) % horizon == 0 for row in range(len(obs) - LANES)]
    assert goes_on == [not over for over in ends]
    assert not any((then[row] == obs[row + 1]).all() for row in range(len(obs) - 1))


def test_no_two_worlds_start_alike(skill: Path, several: Config):
    from disk.envs import make

    obs = load_file(skill / "replay.safetensors")["obs"].numpy()
    world = several.environment("point").world()
    horizon, env = several.environment("point").horizon, make(world)
    rounds = len(obs) // (LANES * horizon)
    starts = [obs[LANES * horizon * episode + lane] for episode in range(rounds) for lane in range(LANES)]
    expected = [env.reset(seed=seed_of("episode", 0, 0, number))[0] for number in range(len(starts))]
    assert len(starts) > LANES
    assert np.array_equal(starts, np.asarray(expected, dtype=np.float32))
    assert len(np.unique(starts, axis=0)) == len(starts)


def test_one_world_is_what_there_was_before_the_option():
    plain, one = tiny_config(), tiny_config({"sac": {"environments": None}})
    assert plain.skill_job("point", "disk", 0, 1).canonical() == one.skill_job("point", "disk", 0, 1).canonical()
    assert "environments" not in plain.skill_job("point", "disk", 0, 1).canonical()


@pytest.mark.parametrize("method", ["disk_parallel", "diayn_disjoint"])
def test_several_policies_cannot_share_worlds(method: str):
    with pytest.raises(ConfigError, match=rf"methods\.{method}: 2 environments: expected one policy"):
        tiny_config({"methods": {method: {"sac": {"environments": 2}}}}).joint_job("point", method, 0)


def test_keys_that_are_no_longer_used_are_accepted_with_a_warning_and_change_no_job(caplog: pytest.LogCaptureFixture):
    older = tiny_config({"sac": {"overlap": True}, "runtime": {"scratch": "$TMPDIR", "scratch_minutes": 5.0}})
    assert [record.args[0] for record in caplog.records] == ["overlap", "scratch", "scratch_minutes"]
    assert (
        older.skill_job("point", "disk", 0, 0).canonical() == tiny_config().skill_job("point", "disk", 0, 0).canonical()
    )
