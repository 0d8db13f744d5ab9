"""Normalised observations: measured by hand, folded into saved skills, the same bytes after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, SAME_BYTES, deadly_child, fingerprint, tiny_config
from safetensors.torch import load_file

from disk.config import Config, Measured
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.learning.build import joint_parts, skill_parts
from disk.learning.episodes import Episode
from disk.learning.normaliser import BIAS, WEIGHT, Normaliser, measure, read
from disk.learning.run import learn_jointly, learn_skill
from disk.seeds import seed_of
from disk.skills import load

CHAIN = {"objective": "disk", "policies": "independent", "schedule": "incremental", "normalise": True}
SMALL = {"hidden": [16], "learning_rate": 0.003}


def config_of(**changes: Any) -> Config:
    rows = {"chain": CHAIN, "warm_chain": {**CHAIN, "warm": "last"}}
    return tiny_config({"methods": rows, "metra": SMALL, "normaliser": {"steps": 500}, **changes})


def learn_chain(config: Config, root: Path, method: str = "chain", skills: int = 2) -> list[Path]:
    folders = [root / f"skill{skill:02d}" for skill in range(skills)]
    for skill, folder in enumerate(folders):
        learn_skill(config.skill_job("point", method, 0, skill), folders[:skill], folder, config.runtime)
    return folders


def test_mean_and_deviation_are_those_of_random_steps():
    """By hand: three steps of a seeded world with seeded actions, and the floor where nothing moves."""
    world = config_of().environment("point").world()
    found = measure(world, 7, Measured(steps=3, episode=2, floor=1e-9), {"sees_position": True})
    env, random, rows = make(world), np.random.default_rng(seed_of("normaliser", 7)), []
    for episode, steps in ((0, 2), (1, 1)):
        obs, info = env.reset(seed=seed_of("normaliser", 7, episode))
        rows.append([*obs, *info["position"]])
        for _ in range(steps):
            obs, _, _, _, info = env.step(env.to_native(random.uniform(-1.0, 1.0, env.action_size)))
            rows.append([*obs, *info["position"]])
    assert len(rows) == 5
    assert found.mean == pytest.approx(np.mean(rows, axis=0), abs=1e-12)
    assert found.deviation == pytest.approx(np.std(rows, axis=0), abs=1e-12)
    assert found.steps == 3
    assert (measure(world, 7, Measured(steps=3, episode=9, floor=50.0), {}).deviation == [50.0, 50.0]).all()


def test_a_folded_skill_does_on_raw_observations_what_it_learned_on_normalised_ones():
    parts = joint_parts(config_of().joint_job("point", "metra", 0), CPU)
    parts.normaliser = Normaliser(np.array([3.0, -1.0, 20.0, 0.5]), np.array([0.2, 5.0, 40.0, 0.01]))
    raw = np.random.default_rng(0).normal([3.0, -1.0, 20.0, 0.5], [0.2, 5.0, 40.0, 0.01], (64, 4))
    skills = parts.skills()
    latent = parts.latents[1].expand(64, -1)
    seen = torch.cat((torch.from_numpy(parts.normaliser(raw)).float(), latent), dim=1)
    expected = parts.agents[0].actor.mode(seen[None])[0].detach().numpy()
    assert skills.pick([1]).mode(raw[None])[0] == pytest.approx(expected, abs=1e-5)
    assert np.abs(expected).max() > 0.01


def test_unfolding_is_the_way_back():
    normaliser = Normaliser(np.array([3.0, -1.0]), np.array([0.2, 5.0]))
    skills = skill_parts(config_of().skill_job("point", "chain", 0, 0), [], CPU).skills()
    before = {name: value.clone() for name, value in skills.actor.state_dict().items()}
    after = normaliser.unfolded(normaliser.fold(skills).actor.state_dict())
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.allclose(value, after[name], atol=1e-5)
    assert not torch.allclose(before[WEIGHT], skills.actor.state_dict()[WEIGHT], atol=1e-3)
    assert skills.actor.state_dict()[BIAS].abs().max() > 1e-3


def test_the_replay_holds_normalised_observations_and_positions():
    parts = joint_parts(config_of().joint_job("point", "metra", 0), CPU)
    assert parts.normaliser is not None
    episode = Episode(parts.envs[0])
    episode.begin(parts, 0)
    first, native = episode.obs, episode.env.to_native(np.array([1.0, -1.0, 0.5, 0.0]))
    obs, _, _, _, info = episode.env.step(native)
    then = parts.seen(obs, info)
    env = make(config_of().environment("point").world())
    obs, info = env.reset(seed=seed_of("episode", 0, 0, 0))
    raw = np.concatenate((obs, info["position"]))
    assert first == pytest.approx((raw - parts.normaliser.mean) / parts.normaliser.deviation)
    obs, _, _, _, info = env.step(env.to_native(np.array([1.0, -1.0, 0.5, 0.0])))
    raw = np.concatenate((obs, info["position"]))
    assert then == pytest.approx((raw - parts.normaliser.mean) / parts.normaliser.deviation)


def test_a_row_of_envs_may_give_it():
    given = {"mean": [1.0, 2.0, 3.0, 4.0], "deviation": [1.0, 2.0, 1.0, 2.0]}
    config = config_of(environments={"point": {"normaliser": given}})
    metra = joint_parts(config.joint_job("point", "metra", 0), CPU).normaliser
    chain = skill_parts(config.skill_job("point", "chain", 0, 0), [], CPU).normaliser
    assert metra is not None
    assert chain is not None
    assert (metra.mean.tolist(), metra.steps) == ([1.0, 2.0, 3.0, 4.0], 0)
    assert chain.deviation.tolist() == [1.0, 2.0], "a chain sees no position"
    short = config_of(environments={"point": {"normaliser": {"mean": [1.0], "deviation": [1.0]}}})
    with pytest.raises(ConfigError, match=r"environments\.point\.normaliser: 1 numbers: expected 4"):
        joint_parts(short.joint_job("point", "metra", 0), CPU)


def test_faults_are_named():
    with pytest.raises(ConfigError, match="mean has 2 numbers and deviation 1"):
        config_of(environments={"point": {"normaliser": {"mean": [1.0, 2.0], "deviation": [1.0]}}})
    with pytest.raises(ConfigError, match="objective none learns nothing: leave out normalise"):
        tiny_config({"methods": {"random": {"normalise": True}}})
    fork = {"objective": "disk", "policies": "independent", "schedule": "incremental"}
    with pytest.raises(ConfigError, match=r"methods\.forked\.normalise: None: expected True, as chain has it"):
        tiny_config({"methods": {"chain": CHAIN, "forked": {**fork, "fork": {"from": "chain", "after": 1}}}})
    with pytest.raises(ArtefactError, match="normaliser is None, not a mean"):
        read({}, "skill00")


def test_methods_without_it_have_the_jobs_that_they_had():
    plain, off = tiny_config(), tiny_config({"methods": {"disk": {"normalise": False}}})
    job = plain.skill_job("point", "disk", 0, 1)
    assert "normaliser" not in job.canonical()
    assert job.canonical() == off.skill_job("point", "disk", 0, 1).canonical()
    assert "normaliser" not in plain.joint_job("point", "diayn", 0).canonical()


def test_all_skills_of_a_chain_share_the_first_ones(tmp_path: Path):
    config = config_of()
    folders = learn_chain(config, tmp_path)
    stats = [json.loads((folder / "stats.json").read_text()) for folder in folders]
    assert [each["normaliser"]["steps"] for each in stats] == [500, 0], "measured once, and counted apart"
    assert stats[0]["normaliser"]["mean"] == stats[1]["normaliser"]["mean"]
    world = config.environment("point").world()
    measured = measure(world, 0, config.normaliser, {})
    assert stats[0]["normaliser"]["mean"] == measured.mean.tolist()
    rows = load_file(folders[0] / "replay.safetensors")["next_obs"]
    assert rows[:50].std(0).tolist() == pytest.approx([1.0, 1.0], abs=0.5), "random steps have deviation 1"
    assert load(folders[0] / "policy.safetensors").meta.keys() == load(folders[1] / "policy.safetensors").meta.keys()


def test_a_warm_start_is_unfolded(tmp_path: Path):
    config = config_of()
    [first] = learn_chain(config, tmp_path, "warm_chain", skills=1)
    parts = skill_parts(config.skill_job("point", "warm_chain", 0, 1), [first], CPU)
    saved, raw = load(first / "policy.safetensors"), np.random.default_rng(1).normal(size=(1, 20, 2))
    assert parts.skills().mode(raw) == pytest.approx(saved.mode(raw), abs=1e-5)


@pytest.mark.parametrize(("method", "calls"), [("metra", 3), ("metra", 9), ("metra_relabel", 9), ("dads_scaled", 9)])
def test_a_killed_run_leaves_the_same_bytes(method: str, calls: int, tmp_path: Path):
    """SIGKILL in the middle of a save, and once more from what it left."""
    import os

    config = config_of(runtime={"checkpoint_minutes": 0.001})
    job, names = config.joint_job("point", method, 0), ("skills.safetensors",)
    learn_jointly(job, tmp_path / "whole", config.runtime)
    _, status = os.waitpid(deadly_child(calls, lambda: learn_jointly(job, tmp_path / "killed", config.runtime)), 0)
    assert os.WIFSIGNALED(status)
    learn_jointly(job, tmp_path / "killed", config.runtime)
    assert fingerprint(tmp_path / "killed", names) == fingerprint(tmp_path / "whole", names)
    stats = [json.loads((tmp_path / name / "stats.json").read_text()) for name in ("whole", "killed")]
    assert stats[0].get("normaliser") == stats[1].get("normaliser")
    if method != "dads_scaled":
        assert stats[0]["normaliser"]["steps"] == 500


def test_a_resumed_training_goes_on_with_the_normaliser_of_its_checkpoint(tmp_path: Path):
    """Measured again on another machine it may differ in its last bits."""
    from disk.learning.training import Training
    from disk.storage.checkpoint import Checkpoint

    config = config_of()
    job = config.joint_job("point", "metra", 0)
    for resumed in (False, True):
        checkpoint = Checkpoint(tmp_path, "stamp")
        training = Training(joint_parts(job, CPU), config.runtime, checkpoint)
        assert training.parts.normaliser is not None
        if resumed:
            training.resume()
            assert training.parts.normaliser.mean.tolist() == [9.0, 8.0, 7.0, 6.0]
        else:
            training.parts.normaliser.mean = np.array([9.0, 8.0, 7.0, 6.0])
            training._save()
        checkpoint.close()


def test_a_chain_leaves_the_same_bytes_twice(tmp_path: Path):
    once, again = (learn_chain(config_of(), tmp_path / name, skills=2) for name in ("once", "again"))
    for one, other in zip(once, again, strict=True):
        assert fingerprint(one, SAME_BYTES) == fingerprint(other, SAME_BYTES)
