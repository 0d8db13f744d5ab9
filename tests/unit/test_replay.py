"""The replay against a plain list, and shards on the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CPU
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from disk.errors import ArtefactError
from disk.learning.replay import Batch, Replay, inherit
from disk.storage.files import load_tensors
from disk.storage.replay import Columns, append_rows, read_rows, save_shard

COLUMNS = Columns(obs=3, action=2, sigma=2)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(start: int, count: int) -> Tensor:
    """Rows that say which they are: row i holds i + a fraction for each column, and 0 or 1 at the end."""
    made = torch.arange(start, start + count)[:, None] + torch.linspace(0.0, 0.5, COLUMNS.width)
    made[:, -1] = torch.arange(start, start + count) % 2
    return made.float()


def numbers(found: Tensor) -> list[int]:
    return [round(float(value)) for value in found[:, 0]]


def filled(capacity: int, count: int) -> Replay:
    replay = Replay(capacity, COLUMNS, CPU)
    replay.extend(rows(0, count))
    return replay


# ---------------------------------------------------------------- rows and batches


def test_a_batch_gives_back_what_was_added():
    replay = Replay(4, COLUMNS, CPU)
    parts = {
        "obs": np.array([1.0, 2.0, 3.0]),
        "action": np.array([4.0, 5.0]),
        "next_obs": np.array([6.0, 7.0, 8.0]),
        "sigma": np.array([9.0, 10.0]),
    }
    replay.add(parts["obs"], parts["action"], parts["next_obs"], True, parts["sigma"])
    batch = replay.sample(5, generator())
    for name, value in parts.items():
        assert getattr(batch, name).tolist() == [value.tolist()] * 5, name
    assert batch.obs_action.tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0]] * 5
    assert batch.terminated.tolist() == [[1.0]] * 5
    replay.add(parts["obs"], parts["action"], parts["next_obs"], False, parts["sigma"])
    assert replay.newest(1)[0, -1] == 0.0


def test_where_critics_see_sigma_it_stands_behind_both_observations():
    replay = Replay(4, Columns(obs=2, action=1, sigma=2, label=1, sigma_before=2), CPU)
    before, after = np.array([4.0, 5.0]), np.array([9.0, 10.0])
    replay.add(np.array([1.0, 2.0]), np.array([3.0]), np.array([6.0, 7.0]), True, after, 8.0, sigma_before=before)
    batch = replay.sample(1, generator())
    assert batch.obs.tolist() == [[1.0, 2.0]]
    assert batch.critic_obs.tolist() == [[1.0, 2.0, 4.0, 5.0]]
    assert batch.obs_action.tolist() == [[1.0, 2.0, 4.0, 5.0, 3.0]]
    assert batch.action.tolist() == [[3.0]]
    assert batch.next_obs.tolist() == [[6.0, 7.0]]
    assert batch.critic_next_obs.tolist() == [[6.0, 7.0, 9.0, 10.0]]
    assert batch.sigma.tolist() == [[9.0, 10.0]]
    assert (batch.terminated.item(), batch.label.item()) == (1.0, 8.0)


def test_without_the_column_critics_see_observations():
    batch = filled(50, 20).sample(5, generator())
    assert torch.equal(batch.critic_obs, batch.obs)
    assert torch.equal(batch.critic_next_obs, batch.next_obs)


def test_what_was_added_is_a_copy():
    replay, obs = Replay(4, COLUMNS, CPU), np.ones(3)
    replay.add(obs, np.ones(2), obs, False, np.ones(2))
    obs[:] = 7.0
    assert (replay.newest(1)[0, :3] == 1.0).all()


def test_samples_are_uniform_over_what_is_there_and_nothing_else():
    replay = filled(50, 20)
    drawn = numbers(replay.sample(20_000, generator()).obs)
    counts = np.bincount(drawn, minlength=20)
    assert len(counts) == 20
    assert counts.min() > 850
    assert counts.max() < 1150


def test_samples_reach_every_slot_after_a_wrap():
    replay = filled(10, 27)
    assert set(numbers(replay.sample(1000, generator()).obs)) == set(range(17, 27))


def test_sampling_is_reproducible():
    replay = filled(50, 20)
    assert numbers(replay.sample(30, generator(3)).obs) == numbers(replay.sample(30, generator(3)).obs)
    assert numbers(replay.sample(30, generator(3)).obs) != numbers(replay.sample(30, generator(4)).obs)


@given(
    capacity=st.integers(1, 12),
    actions=st.lists(st.tuples(st.sampled_from(["add", "extend"]), st.integers(0, 30)), max_size=12),
    asked=st.integers(0, 40),
)
def test_a_replay_is_a_list_that_forgets_its_oldest(capacity: int, actions: list[tuple[str, int]], asked: int):
    replay, plain = Replay(capacity, COLUMNS, CPU), rows(0, 0)
    for action, count in actions:
        new = rows(len(plain), 1 if action == "add" else count)
        if action == "add":
            batch = Batch(new, COLUMNS)
            parts = [getattr(batch, name)[0].numpy() for name in ("obs", "action", "next_obs", "sigma")]
            replay.add(*parts[:3], bool(batch.terminated[0]), parts[3])
        else:
            replay.extend(new)
        plain = torch.cat((plain, new))
    assert len(replay) == min(len(plain), capacity)
    assert replay.added == len(plain)
    kept = plain[-capacity:] if capacity else plain[:0]
    assert torch.equal(replay.newest(capacity), kept)
    assert torch.equal(replay.newest(asked), kept[len(kept) - min(asked, len(kept)) :])
    for i, row in enumerate(kept, start=len(plain) - len(kept)):
        assert torch.equal(replay.rows[i % capacity], row), "row i is at i modulo the capacity"


# ---------------------------------------------------------------- raw rows of a checkpoint


@given(first=st.integers(0, 20), second=st.integers(0, 20), start=st.integers(0, 40), count=st.integers(1, 40))
def test_appended_rows_are_read_back(tmp_path_factory, first: int, second: int, start: int, count: int):
    path, replay = tmp_path_factory.mktemp("rows") / "replay.bin", Replay(100, COLUMNS, CPU)
    replay.extend(rows(0, 5))  # inherited
    for new in (first, second):
        since = replay.added
        replay.extend(rows(since, new))
        with path.open("ab") as file:
            append_rows(file, replay, since)
    assert path.stat().st_size == (first + second) * COLUMNS.width * 4
    if start + count <= first + second:
        assert torch.equal(read_rows(path, COLUMNS, start, count), rows(5 + start, count))
    else:
        with pytest.raises(ArtefactError, match=r"replay\.bin"):
            read_rows(path, COLUMNS, start, count)


# ---------------------------------------------------------------- shards


def shard(path: Path, start: int, count: int) -> Path:
    save_shard(path, rows(start, count), COLUMNS, {"env": "point", "skill": 0})
    return path


def inherited(paths: list[Path], capacity: int, keep: float = 1.0, seed: int = 0) -> Replay:
    replay = Replay(capacity, COLUMNS, CPU)
    inherit(replay, paths, keep, generator(seed))
    return replay


def test_a_shard_holds_the_columns_by_name_and_gives_the_same_rows_back(tmp_path: Path):
    path = shard(tmp_path / "replay.safetensors", 0, 7)
    tensors, meta = load_tensors(path)
    assert set(tensors) == {"obs", "action", "next_obs", "terminated", "sigma"}
    assert meta == {"env": "point", "skill": 0}
    assert tensors["terminated"].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert torch.equal(tensors["action"], rows(0, 7)[:, 3:5])
    assert torch.equal(inherited([path], 100).newest(100), rows(0, 7))


def test_a_shard_has_the_same_bytes_every_time(tmp_path: Path):
    assert len({shard(tmp_path / f"{i}", 3, 50).read_bytes() for i in range(5)}) == 1


def test_everything_is_inherited_oldest_first(tmp_path: Path):
    paths = [shard(tmp_path / str(i), 10 * i, 10) for i in range(3)]
    replay = inherited(paths, 100)
    assert numbers(replay.newest(100)) == list(range(30))
    replay.extend(rows(30, 5))
    assert numbers(replay.newest(100)) == list(range(35))


@pytest.mark.parametrize("capacity", [1, 5, 10, 15, 25, 29, 30])
def test_beyond_the_capacity_the_newest_are_inherited(tmp_path: Path, capacity: int):
    paths = [shard(tmp_path / str(i), 10 * i, 10) for i in range(3)]
    replay = inherited(paths, capacity)
    assert numbers(replay.newest(100)) == list(range(30 - capacity, 30))
    assert len(replay) == capacity
    replay.extend(rows(30, 1))
    assert numbers(replay.newest(100)) == list(range(31 - capacity, 31)), "the oldest goes first"


def test_a_share_is_drawn_without_replacement_in_order_and_again_the_same(tmp_path: Path):
    paths = [shard(tmp_path / str(i), 40 * i, 40) for i in range(3)]
    kept = numbers(inherited(paths, 1000, keep=0.5).newest(1000))
    assert len(kept) == len(set(kept)) == 60
    assert kept == sorted(kept)
    assert all(5 < sum(40 * i <= row < 40 * (i + 1) for row in kept) < 35 for i in range(3)), "from every shard"
    assert kept == numbers(inherited(paths, 1000, keep=0.5).newest(1000))
    assert kept != numbers(inherited(paths, 1000, keep=0.5, seed=1).newest(1000))
    newest = numbers(inherited(paths, 20, keep=0.5).newest(1000))
    assert newest == kept[-20:]


def test_a_share_of_nothing_inherits_nothing(tmp_path: Path):
    assert len(inherited([shard(tmp_path / "a", 0, 10)], 100, keep=0.0)) == 0
    assert len(inherited([], 100)) == 0
    assert len(inherited([], 100, keep=0.5)) == 0


@given(
    sizes=st.lists(st.integers(1, 9), max_size=4), capacity=st.integers(1, 30), keep=st.sampled_from([0.3, 0.7, 1.0])
)
def test_inheriting_equals_joining_choosing_and_forgetting(tmp_path_factory, sizes, capacity, keep):
    folder = tmp_path_factory.mktemp("shards")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    paths = [shard(folder / str(i), start, size) for i, (start, size) in enumerate(zip(starts, sizes, strict=True))]
    replay = inherited(paths, capacity, keep)
    found, total = replay.newest(1000), sum(sizes)
    assert len(found) == min(round(keep * total), capacity)
    assert replay.added == round(keep * total)
    assert numbers(found) == sorted(set(numbers(found)))
    assert torch.equal(found, rows(0, total)[numbers(found)])
    if keep == 1.0:
        assert numbers(found) == list(range(total))[-capacity:]


def _foreign(path: Path, how: str) -> None:
    shard(path, 0, 10)
    if how == "other world":
        save_shard(path, torch.zeros(10, 12), Columns(obs=4, action=1, sigma=2), {})
    elif how == "a policy":
        save_file({"mlp.weights.0": torch.zeros(2, 2)}, path)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-30])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "no safetensors":
        path.write_bytes(b"x,y\n" * 100)
    elif how == "ragged":
        tensors = load_file(path)
        save_file({**tensors, "sigma": tensors["sigma"][:5].clone()}, path, {"disk": "{}"})
    elif how == "absent":
        path.unlink()


@pytest.mark.parametrize("keep", [1.0, 0.5])
@pytest.mark.parametrize(
    "how", ["other world", "a policy", "truncated", "empty", "no safetensors", "ragged", "absent"]
)  # fmt: skip
def test_a_foreign_or_damaged_shard_is_refused_by_name(tmp_path: Path, how: str, keep: float):
    path = tmp_path / "replay.safetensors"
    _foreign(path, how)
    with pytest.raises(ArtefactError, match=r"replay\.safetensors"):
        inherited([path], 100, keep)
