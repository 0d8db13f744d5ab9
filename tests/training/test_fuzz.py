"""Random input: configurations, files of every kind, schedules of change. Refused by name, or right; nothing else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CPU, TINY, raw_config, tiny_config
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from disk import config as configuration
from disk.config import Config
from disk.config.environments import Evolution
from disk.envs import make
from disk.envs.evolution import Evolving
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.tables import read_csv, read_rollouts, save_csv, save_rollouts
from disk.learning.artefacts import read_visits
from disk.learning.replay import Replay, inherit
from disk.skills import load
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import checksum, load_stats, load_tensors
from disk.storage.manifest import CHECKED, identity, is_done, read_stats
from disk.storage.replay import Columns

RAW = raw_config(TINY)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.just(10**12),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["../x", "<script>", "5e5", "auto", "point", "disk", "tanh", "trained"]),
    st.lists(st.integers(-1, 2), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(-1, 2), max_size=2),
)


def places(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in a configuration, to its leaves."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else []
    return [found for key, value in items for found in ((*prefix, key), *places(value, (*prefix, key)))]


PLACES = places({key: value for key, value in RAW.items() if key != "pathvars"})


def changed(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    tree = json.loads(json.dumps(RAW))
    at = tree
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return tree


def plans(config: Config) -> None:
    """Every job of every run can be told: what Snakemake asks when it plans."""
    for group in config.runs:
        for env in group.envs:
            for method in group.methods:
                if config.method(method).incremental:
                    for skill in range(config.environment(env).skills):
                        if config.owner_of(method, skill) == method:
                            assert json.loads(config.skill_job(env, method, 0, skill).canonical())
                else:
                    assert json.loads(config.joint_job(env, method, 0).canonical())
                for condition in config.environment(env).conditions:
                    config.evaluation_job(env, condition, method)


def check(raw: dict[str, Any]) -> None:
    try:
        config = configuration.parse(raw)
    except ConfigError as error:
        faults = str(error).splitlines()[1:]
        assert any(fault.startswith(tuple(configuration.model().model_fields)) and ": " in fault for fault in faults), (
            str(error)
        )
        return
    plans(config)


@given(path=st.sampled_from(PLACES), value=ODD)
@settings(max_examples=50)
def test_a_configuration_with_anything_anywhere_is_refused_with_a_path_or_plans(path: tuple[Any, ...], value: Any):
    check(changed(path, lambda at, key: at.__setitem__(key, value)))


@given(path=st.sampled_from([path for path in PLACES if isinstance(path[-1], str)]), name=st.text(max_size=8))
@settings(max_examples=25)
def test_a_configuration_without_a_key_or_with_another_is_refused_with_a_path_or_plans(
    path: tuple[Any, ...], name: str
):
    check(changed(path, lambda at, key: at.pop(key)))
    check(changed(path, lambda at, key: at.__setitem__(name, at.pop(key))))


# ---------------------------------------------------------------- files


class Corruption:
    """What may happen to a file: bits flipped, bytes overwritten, an end cut off or added, parts moved."""

    def __init__(self, how: str, where: float, data: bytes) -> None:
        self.how, self.where, self.data = how, where, data

    def __repr__(self) -> str:
        return f"{self.how} at {self.where} with {self.data!r}"

    def __call__(self, content: bytes) -> bytes:
        at = int(self.where * len(content))
        if self.how == "flip":
            return content[:at] + bytes([content[at] ^ (1 << self.data[0] % 8)]) + content[at + 1 :]
        if self.how == "overwrite":
            return content[:at] + self.data + content[at + len(self.data) :]
        if self.how == "cut":
            return content[:at]
        return content[:at] + self.data + content[at:]


CORRUPTION = st.builds(
    Corruption,
    st.sampled_from(["flip", "overwrite", "cut", "insert"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=12),
)


def same(one: Any, two: Any) -> bool:
    return bool(one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one))


@given(corruption=CORRUPTION)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", ["policy.safetensors", "replay.safetensors", "visits.npy", "stats.json"])
def test_a_corrupted_file_of_a_skill_is_refused_or_the_same(
    chain: list[Path], tmp_path: Path, name: str, corruption: Corruption
):
    folder = tmp_path / "skill00"
    shutil.copytree(chain[0], folder, dirs_exist_ok=True)
    path, tiny = folder / name, tiny_config()
    whole = path.read_bytes()
    path.write_bytes(corruption(whole))
    assume(path.read_bytes() != whole)
    job = tiny.skill_job("point", "disk", 0, 1)
    try:
        found = identity(job, [folder])
    except ArtefactError as error:
        assert str(folder) in str(error)
    else:
        # What training does not read, or what its result does not depend on.
        assert name == "stats.json"
        assert found == identity(job, [chain[0]])
        original = load_stats(chain[0] / "stats.json")
        lasting = {
            key: original[key] for key in original if key not in ("seconds", "cpu_seconds", "commit", "code_hash")
        }
        assert lasting.items() <= read_stats(folder).items()
    if name != "stats.json":
        assert not is_done(folder, load_stats(chain[0] / "stats.json")["stamp"], CHECKED)
    for read_file in (load, load_tensors) if name.endswith("safetensors") else ():
        try:
            read_file(path)
        except ArtefactError as error:
            assert str(path) in str(error)
        else:
            assert same(load_tensors(path)[0], load_tensors(chain[0] / name)[0])


@given(content=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_place_of_a_file_are_refused(tmp_path: Path, content: bytes):
    for name in ("policy.safetensors", "replay.safetensors", "visits.npy", "stats.json"):
        (tmp_path / name).write_bytes(content)
    replay = Replay(5, Columns(1, 1, 1), CPU)
    for read in (
        lambda: load(tmp_path / "policy.safetensors"),
        lambda: inherit(replay, [tmp_path / "replay.safetensors"], 1.0, torch.Generator()),
        lambda: read_visits(tmp_path, 2),
        lambda: read_stats(tmp_path),
    ):
        with pytest.raises(ArtefactError):
            read()


COLUMNS = Columns(obs=2, action=1, sigma=1)
STATE = {"weights": torch.arange(6.0).reshape(2, 3), "counter": torch.tensor(7)}


def saved_checkpoint(directory: Path) -> torch.Tensor:
    checkpoint, replay = Checkpoint(directory, "stamp"), Replay(9, COLUMNS, CPU)
    checkpoint.load()
    for count in (4, 3, 6):  # the last of them overwrites some of the first
        replay.extend(torch.randn(count, COLUMNS.width))
        snapshot = directory / "snapshot5.safetensors"
        snapshot.write_bytes(b"a snapshot")
        checkpoint.save(STATE, {"step": replay.added}, [replay], [0], {snapshot.name: checksum(snapshot)})
    checkpoint.close()
    return replay.newest(9)


@given(corruption=CORRUPTION, name=st.sampled_from(["state.safetensors", "replay.bin", "snapshot5.safetensors"]))
@settings(max_examples=50)
def test_a_corrupted_checkpoint_starts_over_or_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, corruption: Corruption, name: str
):
    directory = tmp_path_factory.mktemp("fuzz") / "c"
    rows = saved_checkpoint(directory)
    (directory / name).write_bytes(corruption((directory / name).read_bytes()))
    checkpoint = Checkpoint(directory, "stamp")
    found = checkpoint.load()
    if isinstance(found, str):
        assert "restarts from step 0" in found
        assert str(directory) in found
        assert [path.name for path in directory.iterdir()] == ["lease"]
    else:
        replay = Replay(9, COLUMNS, CPU)
        checkpoint.load_replays([replay])
        assert found[1]["step"] == replay.added == 13
        assert same(found[0], STATE)
        assert torch.equal(replay.newest(9), rows)
    checkpoint.close()


@given(corruption=CORRUPTION)
@settings(max_examples=50)
def test_corrupted_rollouts_are_refused(tmp_path_factory: pytest.TempPathFactory, corruption: Corruption):
    path = tmp_path_factory.mktemp("fuzz") / "nominal.parquet"
    save_rollouts(pd.DataFrame({"skill": [0, 1], "x": [0.5, np.pi]}), path)
    whole = path.read_bytes()
    path.write_bytes(corruption(whole))
    assume(path.read_bytes() != whole)
    with pytest.raises(ArtefactError, match=re.escape(str(path))):
        read_rollouts(path)


@given(corruption=CORRUPTION)
@settings(max_examples=50)
def test_a_corrupted_csv_table_is_refused_or_has_its_columns_and_types(
    tmp_path_factory: pytest.TempPathFactory, corruption: Corruption
):
    path = tmp_path_factory.mktemp("fuzz") / "metrics.csv"
    frame = pd.DataFrame({"condition": "nominal", "skill": [0, 1], "metric": "spread", "value": [0.5, np.pi]})
    save_csv(frame, path)
    path.write_bytes(corruption(path.read_bytes()))
    try:
        found = read_csv(path)
    except ArtefactError as error:
        assert str(path) in str(error)
    else:
        assert found.dtypes.to_dict() == frame.dtypes.to_dict()


# ---------------------------------------------------------------- schedules of change

WHOLE = st.integers(0, 1000)
CHANGE = st.fixed_dictionaries(
    {"what": st.sampled_from(["remove", "actuator", "gravity", "friction", "mass", "damping"])},
    optional={
        "names": st.sampled_from([["east"], ["block0", "block1"], "block*", ["nobody"], []]),
        "steps": st.lists(st.integers(-1, 1000), max_size=4),
        "factors": st.lists(st.floats(-0.5, 3), max_size=4),
        "ramp": st.booleans(),
        "together": st.integers(0, 20),
    },
)
GOOD = st.builds(
    lambda steps, factors, ramp, together: [
        {"what": "actuator", "names": ["east"], "steps": sorted(steps), "factors": factors[: len(steps)], "ramp": ramp},
        {"what": "remove", "names": "block*", "together": together},
    ],
    st.lists(WHOLE, min_size=1, max_size=4, unique=True),
    st.lists(st.floats(0, 3), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from([1, 2, 4, 8, 16]),  # of 16 blocks
)


def world_with(changes: list[dict[str, Any]], total: int) -> Any:
    row = {"evolution": {"total": total, "changes": changes}, "conditions": {"nominal": 0}}
    return tiny_config({"environments": {"point_blocks": row}}).environments["point_blocks"].world()


@given(changes=st.lists(CHANGE, min_size=1, max_size=3), total=st.integers(-1, 1000))
@settings(max_examples=30)
def test_any_schedule_of_change_is_refused_by_name_or_says_what_the_world_is(changes: list[dict[str, Any]], total: int):
    try:
        world = world_with(changes, total)
        env = make(world)
    except ConfigError as error:
        assert re.search(r"evolution|changes|names|nobody|total|conditions", str(error)), str(error)
        return
    lasting(env)
    env.close()


@given(changes=GOOD, steps=st.lists(WHOLE, min_size=2, max_size=6))
@settings(max_examples=8)
def test_what_a_world_is_at_a_step_does_not_depend_on_how_one_got_there(
    changes: list[dict[str, Any]], steps: list[int]
):
    there, fresh = make(world_with(changes, 1000)), make(world_with(changes, 1000))
    for step in steps:
        there.at(step)
    fresh.at(steps[-1])
    one, two = (env.unwrapped.model for env in (there, fresh))
    np.testing.assert_array_equal(one.body_pos, two.body_pos)
    np.testing.assert_array_equal(one.actuator_gainprm, two.actuator_gainprm)
    assert isinstance(there.env, Evolving)
    assert isinstance(fresh.env, Evolving)
    assert there.env.signature(steps[-1]) == fresh.env.signature(steps[-1])
    for env in (there, fresh):
        env.close()


def lasting(env: Any) -> None:
    """Asked twice, at any step, it says the same."""
    for step in (0, 1, 999, 10**9):
        assert env.env.signature(step) == env.env.signature(step)


def test_an_evolution_is_read_back_as_it_was_written():
    evolution = Evolution.model_validate({"total": 9, "changes": [{"what": "gravity", "steps": [1], "factors": [0.5]}]})
    assert Evolution.model_validate_json(evolution.model_dump_json()) == evolution
