"""Skills on the disk and in the hand: what was trained is what acts, and no damaged file is taken for one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_config
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import load_file, save_file

import disk
from disk.envs import make
from disk.errors import ArtefactError
from disk.learning.run import learn_jointly
from disk.networks import Actor
from disk.sharing.export import export
from disk.skills import Skill, Skills, bundle, load
from disk.storage.files import load_tensors, save_tensors

META: dict[str, Any] = {
    "env": "point",
    "world": {"id": "disk/Point-v0", "position": {"qpos": [0, 1]}, "horizon": 25},
    "observation_size": 2,
    "action_size": 4,
    "latent_size": 0,
    "action_low": [0.0, 0.0, 0.0, 0.0],
    "action_high": [1.0, 1.0, 1.0, 1.0],
    "hidden": [8, 8],
    "log_std_bounds": [-5.0, 2.0],
    "seed": 0,
    "config_hash": "abc",
}


def skills_of(count: int, seed: int = 0, **meta: Any) -> Skills:
    described = {**META, **meta}
    inputs = described["observation_size"] + described["latent_size"]
    generator = torch.Generator().manual_seed(seed)
    actor = Actor(inputs, described["action_size"], described["hidden"], (-5.0, 2.0), count, generator)
    latent = torch.randn(count, described["latent_size"], generator=generator)
    return Skills(actor.requires_grad_(False), torch.arange(count), latent, described)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "skill00" / "policy.safetensors"
    skills_of(1).save(path)
    return path


OBS = np.random.default_rng(0).normal(size=(20, 2))


# ---------------------------------------------------------------- acting


def test_an_action_is_the_mode_of_the_network_in_the_worlds_bounds():
    skills = skills_of(3, action_low=[-2.0] * 4, action_high=[6.0] * 4)
    for i in range(3):
        weights, biases = skills.actor.mlp.weights, skills.actor.mlp.biases
        x = torch.tensor(OBS, dtype=torch.float32)
        for layer in range(3):
            x = x @ weights[layer][i] + biases[layer][i]
            x = x.relu() if layer < 2 else x
        np.testing.assert_allclose(skills[i].act(OBS), 2.0 + 4.0 * x[:, :4].tanh().numpy(), rtol=1e-4, atol=1e-5)


@given(arrays(np.float64, 2, elements=st.floats(-1e6, 1e6)))
def test_actions_are_inside_the_points_own_bounds(obs: np.ndarray):
    action = SEVERAL[1].act(obs)
    assert action.shape == (4,)
    assert action.dtype == np.float32
    assert POINT.action_space.contains(action)


SEVERAL = skills_of(3)
POINT = make(SEVERAL.world)


def test_one_observation_and_a_batch_of_them_give_the_same_actions():
    batch = SEVERAL[2].act(OBS)
    assert batch.shape == (20, 4)
    np.testing.assert_allclose(np.array([SEVERAL[2].act(obs) for obs in OBS]), batch, rtol=1e-5, atol=1e-6)


def test_acting_is_deterministic_and_does_not_mind_lists_or_32_bits():
    first = SEVERAL[0].act(OBS[0])
    assert (SEVERAL[0].act(OBS[0]) == first).all()
    assert (SEVERAL[0].act(OBS[0].tolist()) == first).all()
    assert (SEVERAL[0].act(OBS[0].astype(np.float32)) == first).all()


@pytest.mark.parametrize("shape", [(3,), (1,), (), (5, 3), (2, 5, 2)])
def test_observations_of_another_size_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"\(2,\)"):
        SEVERAL[0].act(np.zeros(shape))


def test_skills_are_a_sequence():
    assert len(SEVERAL) == len(list(SEVERAL)) == 3
    assert all(isinstance(skill, Skill) for skill in SEVERAL)
    assert (SEVERAL[-1].act(OBS) == SEVERAL[2].act(OBS)).all()
    assert [skill.index for skill in SEVERAL[1:]] == [1, 2]
    with pytest.raises(IndexError, match="there are"):
        SEVERAL[3]


def test_sampled_actions_are_the_policys_distribution():
    """Over many observations of one kind: tanh(μ + std·ε), with ε normal."""
    skills = skills_of(1, acts="sample", hidden=[8])
    obs = (0.1 * np.random.default_rng(1).normal(size=(1, 4000, 2))).astype(np.float32)  # no tanh saturates
    mean, raw = skills.actor.mlp(torch.from_numpy(obs)).numpy().reshape(4000, 2, 4).swapaxes(0, 1)
    std = np.exp(-5.0 + 0.5 * 7.0 * (np.tanh(raw) + 1.0))
    noise = (np.arctanh(skills.actions(obs)[0].astype(np.float64)) - mean) / std
    assert np.abs(noise.mean(axis=0)).max() < 0.06
    assert np.abs(noise.std(axis=0) - 1).max() < 0.06
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.06


def test_the_observation_alone_decides_what_is_sampled():
    skills = skills_of(3, acts="sample")
    together = skills.actions(np.broadcast_to(OBS, (3, *OBS.shape)))
    np.testing.assert_allclose(together[1], skills.pick([1]).actions(OBS[None])[0], atol=1e-6)
    np.testing.assert_allclose(skills[1].act(OBS[:5]), skills[1].act(OBS)[:5], atol=1e-6)
    assert np.abs(together - skills.mode(np.broadcast_to(OBS, (3, *OBS.shape)))).max() > 0.1
    assert np.abs(together[1, 0] - together[1, 1]).max() > 0.01


def test_skills_that_sample_are_no_choice_for_controllers_and_are_not_exported(tmp_path: Path):
    skills = skills_of(2, acts="sample")
    with pytest.raises(ArtefactError, match="controller's choice acts by modes"):
        disk.SkillEnv(make(skills.world), skills)
    skills.save(tmp_path / "skills.safetensors")
    with pytest.raises(ArtefactError, match="exported model acts by modes"):
        export(tmp_path, "torchscript")


def test_different_skills_act_differently():
    actions = [skill.act(OBS) for skill in SEVERAL]
    assert all(np.abs(actions[i] - actions[j]).max() > 0.01 for i in range(3) for j in range(i))


def test_picked_skills_are_the_same_skills():
    picked = SEVERAL.pick([2, 0])
    np.testing.assert_allclose(picked[0].act(OBS), SEVERAL[2].act(OBS), atol=1e-6)
    np.testing.assert_allclose(picked[1].act(OBS), SEVERAL[0].act(OBS), atol=1e-6)


def test_all_skills_at_once_equal_one_at_a_time():
    together = SEVERAL.to_native(SEVERAL.mode(np.broadcast_to(OBS, (3, *OBS.shape))))
    for i in range(3):
        np.testing.assert_allclose(together[i], SEVERAL[i].act(OBS), rtol=1e-5, atol=1e-6)


def test_a_shared_network_with_latents_gives_each_skill_its_own_latent():
    one = skills_of(1, latent_size=2)
    latent = torch.tensor([[0.0, 0.0], [3.0, -1.0], [0.0, 0.0]])
    shared = Skills(one.actor, torch.zeros(3, dtype=torch.int64), latent, one.meta)
    actions = [skill.act(OBS) for skill in shared]
    np.testing.assert_allclose(actions[0], actions[2], atol=1e-6)
    assert np.abs(actions[0] - actions[1]).max() > 0.01


# ---------------------------------------------------------------- saving and loading


def test_loaded_skills_act_like_the_saved_ones(tmp_path: Path):
    SEVERAL.save(tmp_path / "skills.safetensors")
    for loaded in (load(tmp_path), load(tmp_path / "skills.safetensors"), disk.load(str(tmp_path))):
        assert len(loaded) == 3
        assert loaded.meta == SEVERAL.meta
        for i in range(3):
            assert (loaded[i].act(OBS) == SEVERAL[i].act(OBS)).all()
    assert load(tmp_path).world.horizon == 25


def test_saving_gives_the_same_bytes_and_metadata_is_one_sorted_key(tmp_path: Path):
    contents = set()
    for i in range(5):
        SEVERAL.save(tmp_path / str(i))
        contents.add((tmp_path / str(i)).read_bytes())
    load(tmp_path / "0").save(tmp_path / "again")
    contents.add((tmp_path / "again").read_bytes())
    assert len(contents) == 1
    data = contents.pop()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert list(header["__metadata__"]) == ["disk"]
    text = header["__metadata__"]["disk"]
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_a_directory_without_a_file_of_skills_says_what_it_has_instead(tmp_path: Path, policy: Path):
    with pytest.raises(ArtefactError, match=r"skills\.safetensors.*skill00"):
        load(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ArtefactError, match="no finished skill"):
        load(empty)
    with pytest.raises(ArtefactError, match="nowhere"):
        load(tmp_path / "nowhere")


def _rewrite(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Save a file of skills again, its tensors or metadata changed."""

    def rewrite(path: Path) -> None:
        tensors, meta = load_tensors(path)
        change(tensors, meta)
        save_tensors(path, tensors, meta)

    return rewrite


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated in the weights": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "truncated in the header": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a policy\n" * 50),
    "a directory": _directory,
    "other safetensors": lambda path: save_file({"weight": torch.zeros(3)}, path),
    "without metadata": lambda path: save_file(load_file(path), path),
    "a replay": lambda path: save_tensors(path, {"obs": torch.zeros(5, 2)}, {"env": "point", "skill": 0}),
    "metadata of something else": _rewrite(lambda tensors, meta: (meta.clear(), meta.update(hello="world"))),
    "other sizes": _rewrite(lambda tensors, meta: meta.update(hidden=[8, 9])),
    "sizes in words": _rewrite(lambda tensors, meta: meta.update(observation_size="two")),
    "no world": _rewrite(lambda tensors, meta: meta.pop("world")),
    "no bounds of actions": _rewrite(lambda tensors, meta: meta.pop("action_low")),
    "NaN": _rewrite(lambda tensors, meta: tensors["mlp.weights.1"].view(-1)[:1].fill_(float("nan"))),
    "a skill without an actor": _rewrite(lambda tensors, meta: tensors.update(which=torch.tensor([4]))),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_or_foreign_file_is_refused_by_name(policy: Path, how: str):
    DAMAGES[how](policy)
    with pytest.raises(ArtefactError, match=r"skill00/policy\.safetensors"):
        load(policy)


def test_a_flipped_bit_anywhere_is_noticed(policy: Path):
    """Weights included: nobody sees a wrong weight, and the chain builds on it."""
    data = bytearray(policy.read_bytes())
    unnoticed, crashed = [], []
    for position in range(0, len(data), max(1, len(data) // 400)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        policy.write_bytes(damaged)
        try:
            load(policy)
            unnoticed.append(position)
        except Exception as error:
            if not isinstance(error, ArtefactError) or "policy.safetensors" not in str(error):
                crashed.append((position, repr(error)))
    assert not crashed
    assert not unnoticed, f"{len(unnoticed)} of about 400 flips were loaded as if nothing had happened"


# ---------------------------------------------------------------- bundles


def policies(folder: Path, count: int, **meta: Any) -> list[Path]:
    paths = [folder / f"skill{i:02d}" / "policy.safetensors" for i in range(count)]
    for i, path in enumerate(paths):
        skills_of(1, seed=i, skill=i, config_hash=f"hash{i}", **meta).save(path)
    return paths


def test_a_bundle_is_the_skills_in_the_order_given(tmp_path: Path):
    paths = policies(tmp_path, 3)
    for order in ([0, 1, 2], [2, 0, 1]):
        bundle([paths[i] for i in order]).save(tmp_path / "skills.safetensors")
        together = load(tmp_path)
        assert len(together) == 3
        for place, i in enumerate(order):
            np.testing.assert_allclose(together[place].act(OBS), load(paths[i])[0].act(OBS), atol=1e-6)
        assert together.meta["config_hash"] == [f"hash{i}" for i in order]


@pytest.mark.parametrize(
    "other",
    [
        {"env": "ant"},
        {"hidden": [4, 8]},
        {"observation_size": 3},
        {"action_high": [2.0] * 4},
        {"world": {**META["world"], "kwargs": {"reset_noise_scale": 0.5}}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_skills_that_do_not_belong_together_are_not_bundled(tmp_path: Path, other: dict[str, Any]):
    one, two = policies(tmp_path / "one", 1)[0], policies(tmp_path / "two", 1, **other)[0]
    with pytest.raises(ArtefactError, match=next(iter(other))) as caught:
        bundle([one, two])
    assert str(two) in str(caught.value)
    assert str(one) in str(caught.value)


def test_a_missing_or_damaged_policy_in_a_bundle_is_named(tmp_path: Path):
    paths = policies(tmp_path, 3)
    paths[1].write_bytes(paths[1].read_bytes()[:50])
    with pytest.raises(ArtefactError, match=r"skill01/policy\.safetensors"):
        bundle(paths)
    shutil.rmtree(paths[1].parent)
    with pytest.raises(ArtefactError, match=r"skill01/policy\.safetensors"):
        bundle(paths)


# ---------------------------------------------------------------- random skills


def test_random_skills_are_the_same_for_the_same_seed_and_all_different(tmp_path: Path):
    config = tiny_config()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        learn_jointly(config.joint_job("point", "random", seed), tmp_path / name, config.runtime)
    read = {name: (tmp_path / name / "skills.safetensors").read_bytes() for name in "abc"}
    assert read["a"] == read["b"] != read["c"]
    skills = load(tmp_path / "a")
    assert len(skills) == 3
    actions = [skill.act(OBS) for skill in skills]
    assert all(np.abs(actions[i] - actions[j]).max() > 0.01 for i in range(3) for j in range(i))


def test_trained_skills_load_from_their_run(chain: list[Path], tmp_path: Path):
    bundle([folder / "policy.safetensors" for folder in chain]).save(tmp_path / "skills.safetensors")
    skills = disk.load(tmp_path)
    assert [len(skills), skills.meta["env"]] == [3, "point"]
    env = make(skills.world)
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(skills[2].act(obs))
