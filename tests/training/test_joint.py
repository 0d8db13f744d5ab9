"""Skills that are learned together: the same loop as the chain's, with the same promises about interruptions."""

from __future__ import annotations

import csv
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CPU, HOOKED, fingerprint, often, once, run_python, tiny_config
from hypothesis import given
from hypothesis import strategies as st

from disk.config import Config, Runtime
from disk.envs import Projected
from disk.errors import ConfigError, Interrupted, NotFiniteError
from disk.evaluation.run import roll_out
from disk.learning.build import joint_parts
from disk.learning.objectives.diayn import DiaynObjective
from disk.learning.replay import Batch
from disk.learning.run import finish, learn_jointly
from disk.learning.sac import SAC
from disk.learning.training import Training
from disk.seeds import seed_of
from disk.skills import load
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import load_tensors
from disk.storage.replay import Columns

STEPS, SKILLS, SEEDING, HORIZON = 300, 3, 50, 25
ROWS = {  # every way in which policies and turns can be combined
    "shared": {"objective": "diayn", "policies": "shared", "schedule": "uniform"},
    "disjoint": {"objective": "diayn", "policies": "independent", "schedule": "uniform"},
    "growing": {
        "objective": "diayn",
        "policies": "independent",
        "schedule": "curriculum",
        "curriculum": {"certainty": 0.2, "episodes": 3},
    },
    "turns": {"objective": "diayn", "policies": "independent", "schedule": "round_robin"},
}
JOINT = {
    "methods": ROWS,
    "diayn": {"hidden": [16]},
    "environments": {"point": {**HOOKED["environments"]["point"], "snapshots": [100, 210, STEPS], "steps": 100}},
}
FILES = ("skills.safetensors", *(f"snapshots/{step}.safetensors" for step in (100, 210, STEPS)))


def config_of(*changes: dict[str, Any]) -> Config:
    return tiny_config(JOINT, *changes)


def learn(config: Config, method: str, out: Path, seed: int = 0, runtime: Runtime | None = None) -> Path:
    learn_jointly(config.joint_job("point", method, seed), out, runtime or config.runtime)
    return out


def stats(run: Path) -> dict[str, Any]:
    return json.loads((run / "stats.json").read_text())


def timeless(run: Path) -> tuple[dict[str, str], dict[str, Any], list[dict[str, str]]]:
    """All that must be equal when a training is repeated, interrupted or not."""
    kept = {
        key: value for key, value in stats(run).items() if key not in ("seconds", "cpu_seconds", "commit", "code_hash")
    }
    with (run / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    curve = [{k: v for k, v in row.items() if k not in ("time/time_elapsed", "time/fps")} for row in rows]
    return fingerprint(run, FILES), kept, curve


def sometimes_over(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Ends an episode by what the robot does, so that episodes of different worlds are over at different times."""
    return (*result[:2], bool(result[0][0] > 0.45), *result[3:])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of every row. Read only."""
    from conftest import HookedPoint

    def make(folder: Path) -> None:
        HookedPoint.on_step = sometimes_over
        for method in ROWS:
            learn(config_of(), method, folder / method)
        HookedPoint.on_step = None

    root = once(tmp_path_factory, "joint", make)
    return {method: root / method for method in ROWS}


every_row = pytest.mark.parametrize("method", list(ROWS))


# ---------------------------------------------------------------- what it leaves behind


@every_row
def test_a_run_leaves_its_files_and_nothing_else(runs: dict[str, Path], method: str):
    found = {path.relative_to(runs[method]).as_posix() for path in runs[method].rglob("*") if path.is_file()}
    assert found == {*FILES, "stats.json", "progress.csv"}
    assert not (runs[method] / "checkpoint").exists()
    about, job = stats(runs[method]), config_of().joint_job("point", method, 0)
    assert [about["steps"], about["config_hash"]] == [STEPS, job.digest()]
    assert about["checksums"] == fingerprint(runs[method], FILES)


@every_row
def test_skills_of_every_method_have_the_same_form(runs: dict[str, Path], method: str):
    skills = load(runs[method])
    assert len(skills) == SKILLS
    obs = np.array([0.3, -0.2])
    actions = [skill.act(obs) for skill in skills]
    assert all(not np.allclose(actions[i], actions[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    if method == "shared":
        assert skills.which.tolist() == [0, 0, 0]
        assert torch.equal(skills.latent, torch.eye(SKILLS))
    else:
        assert skills.which.tolist() == [0, 1, 2]
        assert skills.latent.shape == (SKILLS, 0)


@every_row
def test_the_curve_covers_the_whole_training(runs: dict[str, Path], method: str):
    curve = timeless(runs[method])[2]
    steps = [int(row["time/total_timesteps"]) for row in curve]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS
    names = {"train/actor_loss", "train/discriminator_accuracy", "reward/mean", "rollout/ep_len_mean"}
    assert names <= curve[-1].keys()
    assert all(np.isfinite(float(row["reward/mean"])) for row in curve if row["reward/mean"])


# ---------------------------------------------------------------- what it computes


def replayed(config: Config, method: str, where: Path) -> Training:
    """A training that has run to its end, with all that it has in memory."""
    job = config.joint_job("point", method, 0)
    policies = 1 if job.policies == "shared" else job.skills
    checkpoint = Checkpoint(where / "checkpoint", "stamp", replays=policies)
    training = Training(joint_parts(job, CPU), config.runtime, checkpoint)
    finish(training, job)
    checkpoint.close()
    return training


@pytest.mark.parametrize("precision", [None, "onednn"])
def test_the_objectives_network_multiplies_as_the_precision_says(
    precision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    found: dict[str, set[str]] = {"update": set(), "reward": set(), "act": set()}

    def record(kind: type, name: str) -> None:
        own = getattr(kind, name)

        def recorded(self: Any, *given: Any, **named: Any) -> Any:
            found[name].add(torch.get_float32_matmul_precision())
            return own(self, *given, **named)

        monkeypatch.setattr(kind, name, recorded)

    record(DiaynObjective, "update")
    record(DiaynObjective, "reward")
    record(SAC, "act")
    learn(config_of({"environments": {"point": {"sac": {"precision": precision}}}}), "shared", tmp_path / "run")
    inside = "medium" if precision else "highest"
    assert found == {"update": {inside}, "reward": {inside}, "act": {"highest"}}


def test_one_skill_acts_for_an_episode_and_the_shared_policy_is_told_which(tmp_path: Path, hooked: Any):
    training = replayed(config_of(), "shared", tmp_path)
    (replay,) = training.parts.replays
    labels = Batch(replay.newest(STEPS), replay.columns).label[:, 0].reshape(-1, HORIZON)
    assert (labels == labels[:, :1]).all()
    assert labels[:, 0].tolist() == [seed_of("schedule", 0, episode) % SKILLS for episode in range(STEPS // HORIZON)]
    seen = training.parts.as_seen(training.parts.sample(0))
    assert torch.equal(seen.obs[:, 2:].argmax(1).float(), seen.label[:, 0])
    assert torch.equal(seen.next_obs[:, 2:], seen.obs[:, 2:])
    assert torch.equal(seen.obs_action, torch.cat((seen.obs, seen.action), dim=1))


def test_policies_of_their_own_have_replays_of_their_own(tmp_path: Path, hooked: Any):
    for method in ("disjoint", "turns"):
        parts = replayed(config_of(), method, tmp_path / method).parts
        assert sum(map(len, parts.replays)) == STEPS
        for skill, replay in enumerate(parts.replays):
            assert (Batch(replay.newest(STEPS), replay.columns).label == skill).all()
            assert parts.agents[skill].updates == max(0, len(replay) - SEEDING)


def test_they_share_nothing_but_the_discriminator(tmp_path: Path):
    """Updating one skill changes its networks and the discriminator, and nothing of the others."""
    parts = joint_parts(config_of().joint_job("point", "disjoint", 0), CPU)
    storages = [tensor.data_ptr() for agent in parts.agents for tensor in agent.state().values() if tensor.numel()]
    assert len(storages) == len(set(storages))
    first = [agent.actor.mlp.weights[0] for agent in parts.agents]
    assert not torch.allclose(first[0], first[1])
    for replay in parts.replays:
        replay.extend(torch.randn(40, replay.columns.width))
        replay.rows[:40, replay.columns.parts["label"]] = float(parts.replays.index(replay))
    before = [{name: value.clone() for name, value in agent.state().items()} for agent in parts.agents]
    model = {name: value.clone() for name, value in parts.objective.state().items()}
    batch = parts.sample(1)
    parts.objective.update(lambda: parts.sample_all(batch, 1))
    parts.agents[1].update(batch, parts.objective.reward(batch, 0.0)[0])
    for skill, agent in enumerate(parts.agents):
        same = all(
            torch.equal(value, before[skill][name]) for name, value in agent.state().items() if name in before[skill]
        )
        assert same == (skill != 1)
    assert not all(torch.equal(value, parts.objective.state()[name]) for name, value in model.items())


def test_the_discriminator_learns_from_all_skills_alike(tmp_path: Path):
    parts = joint_parts(config_of().joint_job("point", "disjoint", 0), CPU)
    for skill, size in ((0, 10), (2, 90)):  # the second has not acted yet
        parts.replays[skill].extend(torch.full((size, parts.replays[0].columns.width), float(skill)))
    mixed = parts.sample_all(parts.sample(0), 0)
    assert sorted(set(mixed.label[:, 0].tolist())) == [0.0, 2.0]
    assert int((mixed.label == 0).sum()) == int((mixed.label == 2).sum()) == 16


def test_each_policy_begins_with_uniform_actions_of_its_own(tmp_path: Path, hooked: Any):
    parts = replayed(config_of(), "turns", tmp_path).parts
    firsts = [Batch(replay.newest(100), replay.columns).action[:SEEDING] for replay in parts.replays]
    for actions in firsts:
        assert float(actions.abs().max()) <= 1.0
        assert float(actions.std()) == pytest.approx(0.577, abs=0.08)
    assert not torch.allclose(firsts[0], firsts[1])


@every_row
def test_every_step_is_taken_in_the_world_of_its_global_step(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch, hooked: Any
):
    """The n-th step of all is taken in the world of step n, whichever skill takes it."""
    taken: list[tuple[int, int]] = []
    current: dict[int, int] = {}
    at, step = Projected.at, Projected.step

    def spy_at(self: Projected, when: int) -> None:
        current[id(self)] = when
        at(self, when)

    def spy_step(self: Projected, action: np.ndarray) -> Any:
        taken.append((id(self), current[id(self)]))
        return step(self, action)

    monkeypatch.setattr(Projected, "at", spy_at)
    monkeypatch.setattr(Projected, "step", spy_step)
    hooked.on_step = sometimes_over
    learn(config_of(), method, tmp_path)
    assert [when for _, when in taken] == list(range(STEPS))
    worlds = len({world for world, _ in taken})
    assert worlds == (SKILLS if method == "turns" else 1)


def test_in_an_evolving_world_a_change_shows_in_the_transitions(tmp_path: Path, hooked: Any):
    """With all thrusters dead from step 150 on, actions stop having an effect at exactly that step."""
    change = {"what": "actuator", "names": ["east", "north", "west", "south"], "steps": [150], "factors": [0.0]}
    evolving = {"environments": {"point": {"evolution": {"total": STEPS, "changes": [change]}}}}
    parts = replayed(config_of(evolving), "shared", tmp_path).parts
    batch = Batch(parts.replays[0].newest(STEPS), parts.replays[0].columns)
    slower = batch.next_obs.norm(dim=1) < batch.obs.norm(dim=1)  # friction alone
    assert slower[150:].all()
    assert not slower[:150].all()


# ---------------------------------------------------------------- the same again


@every_row
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    runs: dict[str, Path], tmp_path: Path, method: str, hooked: Any
):
    hooked.on_step = sometimes_over
    assert timeless(learn(config_of(), method, tmp_path / "same")) == timeless(runs[method])
    other = learn(config_of(), method, tmp_path / "other", seed=1)
    assert not set(fingerprint(other, FILES).values()) & set(fingerprint(runs[method], FILES).values())


def once_at(step: int, act: Callable[[], Any], worlds: int = 1) -> Callable[[int, tuple[Any, ...]], tuple[Any, ...]]:
    """`sometimes_over`, and something that happens at a training step, counted from 0, after each world was tried."""

    def hook(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if count == step + 1 + worlds:
            act()
        return sometimes_over(count, result)

    return hook


@every_row
@pytest.mark.parametrize("step", [20, 105, 180, STEPS - 1])
def test_a_stop_saves_and_the_rerun_gives_the_same_bytes(
    runs: dict[str, Path], tmp_path: Path, method: str, hooked: Any, step: int
):
    """Among the seed steps, after a snapshot, in the middle, at the very last step."""
    worlds = SKILLS if method == "turns" else 1
    hooked.on_step = once_at(step, lambda: signal.raise_signal(signal.SIGTERM), worlds)
    with pytest.raises(Interrupted, match="SIGTERM"):
        learn(config_of(), method, tmp_path)
    assert not (tmp_path / "skills.safetensors").exists()
    assert not (tmp_path / "snapshots").exists(), "snapshots are published at the end"
    saved = load_tensors(tmp_path / "checkpoint" / "state.safetensors")[1]["step"]
    assert step < saved <= step + worlds * HORIZON
    hooked.on_step, hooked.steps = sometimes_over, 0
    learn(config_of(), method, tmp_path)
    assert hooked.steps <= STEPS - saved + worlds * (1 + HORIZON), "what was done is not done again"
    assert timeless(tmp_path) == timeless(runs[method])
    assert not (tmp_path / "checkpoint").exists()


def test_a_world_in_the_middle_of_an_episode_is_brought_back_as_it_was_at_each_step(tmp_path: Path, hooked: Any):
    """Thrusters that lose force with every step: actions alone would lead the robots somewhere else."""
    change = {"what": "actuator", "names": ["east", "north"], "steps": [0, STEPS], "factors": [1.0, 0.0], "ramp": True}
    config = config_of({"environments": {"point": {"evolution": {"total": STEPS, "changes": [change]}}}})
    hooked.on_step = sometimes_over
    straight = timeless(learn(config, "turns", tmp_path / "straight"))
    hooked.steps, hooked.on_step = 0, once_at(130, lambda: signal.raise_signal(signal.SIGTERM), SKILLS)
    with pytest.raises(Interrupted):
        learn(config, "turns", tmp_path / "broken")
    lanes = load_tensors(tmp_path / "broken/checkpoint/state.safetensors")[1]["lanes"]
    assert sum(length > 0 for _, length in lanes) >= 1
    hooked.on_step = sometimes_over
    assert timeless(learn(config, "turns", tmp_path / "broken")) == straight


@every_row
def test_a_crash_goes_on_from_the_last_checkpoint(runs: dict[str, Path], tmp_path: Path, method: str, hooked: Any):
    def crash() -> None:
        raise ZeroDivisionError("crash")

    for step in (60, 150, 40):  # counted from where each of them goes on
        hooked.steps, hooked.on_step = 0, once_at(step, crash, SKILLS if method == "turns" else 1)
        with pytest.raises(ZeroDivisionError):
            learn(config_of(), method, tmp_path, runtime=often(config_of()))
    hooked.on_step = sometimes_over
    learn(config_of(), method, tmp_path)
    assert timeless(tmp_path) == timeless(runs[method])


KILL = """
import os, random, signal, sys, time
from pathlib import Path
import conftest
from test_joint import config_of, learn, sometimes_over

config, method, root = config_of(), sys.argv[1], Path(sys.argv[2])
conftest.HookedPoint.on_step = sometimes_over
kills = 0

def child(calls_left):
    return conftest.deadly_child(calls_left, lambda: learn(config, method, root, runtime=conftest.often(config)))

calls = 3
while True:
    code = os.waitstatus_to_exitcode(os.waitpid(child(calls), 0)[1])
    if code == 0:
        break
    if code != -signal.SIGKILL:
        sys.exit(1)
    kills, calls = kills + 1, calls + 2
print(kills)
"""


@pytest.mark.slow
@every_row
def test_kills_at_any_write_give_the_same_bytes(runs: dict[str, Path], tmp_path: Path, method: str):
    """SIGKILL before the third write to the disk, then the fifth, …, until one process gets through."""
    process = run_python(KILL, method, tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert int(out) >= 6, "too few writes were hit to mean anything"
    assert timeless(tmp_path) == timeless(runs[method])
    assert not (tmp_path / "checkpoint").exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_checkpoint_of_other_settings_is_not_continued(
    runs: dict[str, Path], tmp_path: Path, hooked: Any, caplog: pytest.LogCaptureFixture
):
    other = config_of({"diayn": {"learning_rate": 0.01}})
    hooked.on_step = once_at(150, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        learn(other, "shared", tmp_path)
    hooked.on_step = sometimes_over
    learn(config_of(), "shared", tmp_path)
    assert "restarts from step 0" in caplog.text
    assert timeless(tmp_path) == timeless(runs["shared"])


def test_a_finished_run_is_not_trained_again(runs: dict[str, Path], tmp_path: Path, hooked: Any):
    run = Path(shutil.copytree(runs["shared"], tmp_path / "run"))
    learn(config_of(), "shared", run)
    assert hooked.steps == 0
    (run / FILES[1]).unlink()
    hooked.on_step = sometimes_over
    learn(config_of(), "shared", run)
    assert timeless(run) == timeless(runs["shared"]), "a lost snapshot comes back"


def test_a_bad_observation_stops_training_at_its_step(tmp_path: Path, hooked: Any):
    def spoil(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        return (np.array([np.nan, 0.0]), *result[1:]) if count == 112 else result

    hooked.on_step = spoil
    with pytest.raises(NotFiniteError, match="step 110"):
        learn(config_of(), "shared", tmp_path, runtime=often(config_of()))
    assert load_tensors(tmp_path / "checkpoint" / "state.safetensors")[1]["step"] == 100


# ---------------------------------------------------------------- snapshots


@every_row
def test_a_snapshot_is_the_skills_as_they_are_after_that_many_steps(
    runs: dict[str, Path], tmp_path: Path, method: str, hooked: Any
):
    """The same as a training's result whose budget ends there."""
    hooked.on_step = sometimes_over
    shorter = config_of({"methods": {method: {"steps": 210}}, "environments": {"point": {"snapshots": []}}})
    expected = load_tensors(learn(shorter, method, tmp_path) / "skills.safetensors")[0]
    found = load_tensors(runs[method] / "snapshots/210.safetensors")[0]
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    last = load_tensors(runs[method] / "skills.safetensors")[0]
    assert not all(torch.equal(found[name], tensor) for name, tensor in last.items())
    assert (runs[method] / f"snapshots/{STEPS}.safetensors").read_bytes() == (
        runs[method] / "skills.safetensors"
    ).read_bytes()
    assert not (tmp_path / "snapshots").exists()


def test_snapshots_of_other_settings_are_gone_after_a_new_training(runs: dict[str, Path], tmp_path: Path, hooked: Any):
    run = Path(shutil.copytree(runs["shared"], tmp_path / "run"))
    learn(config_of({"environments": {"point": {"snapshots": [50]}}}), "shared", run)
    assert [path.name for path in (run / "snapshots").iterdir()] == ["50.safetensors"]


# ---------------------------------------------------------------- the random skills


def test_random_skills_are_networks_that_learned_nothing(tmp_path: Path, hooked: Any):
    run = learn(config_of(), "random", tmp_path)
    assert len(load(run)) == SKILLS
    assert stats(run)["steps"] == 0
    assert {path.name for path in run.iterdir()} == {"skills.safetensors", "stats.json", "progress.csv"}
    assert hooked.steps <= 1, "the world is tried out, and nobody acts"


def test_sampled_random_skills_are_the_same_networks_with_noise(tmp_path: Path):
    config = config_of()
    modes, sampled = (learn(config, method, tmp_path / method) for method in ("random", "random_sampled"))
    assert load(modes).meta.get("acts") is None
    assert load(sampled).meta["acts"] == "sample"
    for name, weights in load(modes).actor.state_dict().items():
        assert torch.equal(weights, load(sampled).actor.state_dict()[name])
    job = config.evaluation_job("point")
    still, noisy, again = (roll_out(job, load(run)) for run in (modes, sampled, sampled))
    pd.testing.assert_frame_equal(noisy, again)
    pd.testing.assert_frame_equal(noisy, roll_out(job, load(sampled), threads=2))
    apart = [frame.groupby(["skill", "episode"]).last()[["x", "y"]].std().max() for frame in (still, noisy)]
    assert apart[1] > 2 * apart[0]


def test_only_untrained_policies_sample_and_no_controller_takes_them():
    with pytest.raises(ConfigError, match="acts is for objective none"):
        config_of({"methods": {"shared": {**ROWS["shared"], "acts": "sample"}}})
    with pytest.raises(ConfigError, match=r"methods\.random_sampled\.acts"):
        config_of().hierarchy_job("point", "random_sampled", 0, 0)


# ---------------------------------------------------------------- batches


@given(st.integers(0, 4), st.integers(1, 5), st.integers(0, 3), st.integers(0, 1))
def test_a_batch_given_a_latent_has_it_behind_both_observations(label: int, obs: int, latent: int, before: int):
    columns = Columns(obs, 2, 1, label, sigma_before=before)
    batch, z = Batch(torch.randn(6, columns.width), columns), torch.randn(6, latent)
    seen = batch.given(z)
    assert torch.equal(seen.obs, torch.cat((batch.obs, z), dim=1))
    assert torch.equal(seen.next_obs, torch.cat((batch.next_obs, z), dim=1))
    sigma_before = batch.critic_obs[:, obs:]
    assert torch.equal(seen.obs_action, torch.cat((batch.obs, z, sigma_before, batch.action), dim=1))
    assert torch.equal(seen.critic_next_obs, torch.cat((batch.next_obs, z, batch.sigma[:, :before]), dim=1))
    for name in ("action", "sigma", "terminated", "label"):
        assert torch.equal(getattr(seen, name), getattr(batch, name))
