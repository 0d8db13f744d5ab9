"""Chains that are not told when their world changes: what they notice, what they do, and that it is always the same."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CPU, SAME_BYTES, deadly_child, fingerprint, often, once, tiny_config

from disk.config import Config
from disk.errors import ConfigError
from disk.learning.build import skill_parts
from disk.learning.objectives.incremental import farthest
from disk.learning.replay import Replay
from disk.learning.run import train_run
from disk.sharing import dataset
from disk.skills import load
from disk.storage.files import load_stats
from disk.storage.replay import Columns
from disk.tracking.curves import read_changes

CHANGING: dict[str, Any] = {
    "environments": {
        "point": {
            "evolution": {
                "total": 900,
                "changes": [{"what": "actuator", "names": ["east"], "steps": [450], "factors": [0.0]}],
            },
            "conditions": {"whole": 0, "broken": 450},
        }
    },
    "aware": {"share": 0.5, "rate": 0.01},
    "disk": {"past_states": 1_000},
}


def train(config: Config, root: Path, method: str = "disk_aware") -> Path:
    return train_run(config, root, "point", method, 0, None, lambda out: nullcontext())


def about(run: Path) -> list[dict[str, Any]]:
    return [load_stats(run / f"skill{skill:02d}/stats.json") for skill in range(3)]


@pytest.fixture(scope="module")
def aware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose world changes in the middle of its second skill. Read only."""
    return once(tmp_path_factory, "aware", lambda root: train(tiny_config(CHANGING), root)) / "point/disk_aware/seed0"


def test_a_change_in_the_middle_of_a_skill_ends_it_and_the_next_one_gets_its_steps(aware: Path) -> None:
    first, second, third = about(aware)
    assert first["aware"]["probes"] == first["aware"]["changes"] == []
    [change] = second["aware"]["changes"]
    assert change["since"] <= 450 <= change["step"] < 600
    assert change["decision"] == "close"
    assert second["steps"] == change["step"] - 300
    assert second["aware"]["left"] == 300 - second["steps"]
    assert third["steps"] == 300 + second["aware"]["left"]
    assert third["aware"]["changes"] == []
    assert sum(each["steps"] for each in (first, second, third)) == 900


def test_a_data_set_has_the_world_of_each_step_also_after_a_skill_that_ended_early(aware: Path) -> None:
    [change] = about(aware)[1]["aware"]["changes"]
    steps = []
    for skill in range(3):
        for episode in dataset.episodes(aware / f"skill{skill:02d}"):
            own = episode.infos["step"][:, 0]
            alive = np.ones((len(own), 4))
            alive[:, 0] = own < 450
            np.testing.assert_array_equal(episode.infos["actuator"], alive)
            assert all(skill == (0 if step < 300 else 1 if step < change["step"] else 2) for step in own[:-1])
            steps += own[:-1].tolist()
    assert steps == list(range(900))


def test_probes_stay_within_their_share_of_the_steps(aware: Path) -> None:
    spent = 0
    in_all = sum(sum(stats["aware"]["spent"]) for stats in about(aware))
    for stats in about(aware):
        for step, *_, share_of_horizon in stats["aware"]["probes"]:
            spent += round(25 * share_of_horizon)
            assert spent <= 0.5 * step
    assert spent == in_all > 100


def test_the_run_has_a_table_of_its_probes_and_decisions(aware: Path) -> None:
    table = pd.read_csv(aware / "changes.csv", keep_default_na=False)
    probes = [probe for stats in about(aware) for probe in stats["aware"]["probes"]]
    assert table["step"].tolist() == [probe[0] for probe in probes]
    [alarm] = table[table["decision"] != "none"].to_dict("records")
    assert (alarm["decision"], alarm["skill"]) == ("close", 1)
    curves = read_changes(aware)
    assert curves["aware/change"] == {alarm["step"]: 1.0}
    assert len(curves["aware/statistic"]) == table["step"].nunique()


def test_after_a_change_the_next_skill_sees_the_new_world_alone(aware: Path) -> None:
    config = tiny_config(CHANGING)
    folders = [aware / "skill00", aware / "skill01"]
    parts = skill_parts(config.skill_job("point", "disk_aware", 0, 2), folders, CPU)
    [change] = about(aware)[1]["aware"]["changes"]
    assert parts.start == change["step"]
    parts.notice()
    assert parts.replays[0].since == min(change["since"], change["step"] - 32)  # a whole batch is left in any case
    own = torch.from_numpy(parts.watch.past[1])  # type: ignore[union-attr]
    assert torch.equal(parts.objective.past[1000:], own)  # type: ignore[attr-defined]
    stored = load_stats(folders[0] / "stats.json")["aware"]["reference"]
    assert parts.watch.detector.references[0].tolist()[: len(stored)] != stored  # type: ignore[union-attr]


@pytest.mark.parametrize("writes", [23, 61])
def test_killed_and_resumed_a_run_decides_the_same_and_leaves_the_same_bytes(
    aware: Path, tmp_path: Path, writes: int
) -> None:
    config = tiny_config(CHANGING)
    config = config.model_copy(update={"runtime": often(config)})
    _, status = os.waitpid(deadly_child(writes, lambda: train(config, tmp_path)), 0)
    assert os.WIFSIGNALED(status)
    run = train(config, tmp_path)
    for skill in ("skill00", "skill01", "skill02"):
        assert fingerprint(run / skill) == fingerprint(aware / skill)
        assert load_stats(run / skill / "stats.json")["aware"] == load_stats(aware / skill / "stats.json")["aware"]
    assert (run / "changes.csv").read_bytes() == (aware / "changes.csv").read_bytes()


def test_in_a_world_that_stands_still_skills_are_those_of_disk(chain: list[Path], tmp_path: Path) -> None:
    run = train(tiny_config({"aware": {"share": 0.2}}), tmp_path)
    assert sum(len(stats["aware"]["probes"]) for stats in about(run)) >= 2
    for skill, told in enumerate(chain):
        folder = run / f"skill{skill:02d}"
        assert load_stats(folder / "stats.json")["aware"]["changes"] == []
        mine, theirs = (load(each / "policy.safetensors").actor.state_dict() for each in (folder, told))
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
        rest = SAME_BYTES[1:]
        assert fingerprint(folder, rest) == fingerprint(told, rest)


def test_forgotten_rows_leave_the_batches_but_for_their_share() -> None:
    replay = Replay(100, Columns(1, 1, 1), CPU)
    replay.extend(torch.arange(60.0)[:, None].expand(-1, 5))
    generator = torch.Generator().manual_seed(0)
    replay.forget(40, 0.25, 8)
    drawn = replay.sample(400, generator).obs[:, 0]
    assert drawn.min() >= 0
    assert int((drawn < 40).sum()) == 100
    replay.forget(59, 0.0, 8)
    assert set(replay.sample(200, generator).obs[:, 0].tolist()) == set(map(float, range(52, 60)))
    replay.inherited = 56
    batch = replay.sample(40, generator, own=30)
    assert batch.own == 30
    assert batch.obs[:30, 0].min() >= 56
    assert set(batch.obs[30:, 0].tolist()) <= {52.0, 53.0, 54.0, 55.0}


def test_a_recalled_start_is_the_skill_that_stays_farthest_from_the_others() -> None:
    near = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    assert farthest([near, near + 1.0, near + 9.0, near], 3) == 2
    assert farthest([near], 3) == 0


def test_a_skill_may_start_from_the_recalled_one(chain: list[Path]) -> None:
    config = tiny_config({"methods": {"disk_recall": {"like": "disk", "warm": "recall"}}})
    parts = skill_parts(config.skill_job("point", "disk_recall", 0, 2), chain[:2], CPU)
    assert parts.objective.past is not None  # type: ignore[attr-defined]
    chosen = farthest(list(parts.objective.past.view(2, -1, 2)), 3)  # type: ignore[attr-defined]
    model = load(chain[chosen] / "policy.safetensors").actor.state_dict()
    assert all(torch.equal(value, model[name]) for name, value in parts.agents[0].actor.state_dict().items())


@pytest.mark.parametrize("row", [{"budget": True}, {"adaptive": True}, {"own_share": 0.5}, {"schedule": "round_robin"}])
def test_what_an_aware_chain_cannot_have_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="aware"):
        tiny_config({"methods": {"mine": {"like": "disk_aware", **row}}})
