"""Training end to end on the tiny point world: what it computes, and that nothing can be lost or mixed up."""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, HOOKED, SAME_BYTES, fingerprint, learn, often, run_python, tiny_config
from safetensors.torch import load_file

from disk.config import Config
from disk.envs import make
from disk.errors import ArtefactError, Interrupted, NotFiniteError
from disk.learning.build import skill_parts
from disk.learning.run import learn_skill
from disk.learning.training import Training
from disk.seeds import seed_of
from disk.skills import load
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import load_json, load_tensors, save_json, save_tensors
from disk.storage.lock import Lease
from disk.storage.replay import Columns, save_shard

FILES = {*SAME_BYTES, "stats.json", "progress.csv"}
STEPS, SEEDING, HORIZON, PAST = 300, 50, 25, 200


def stats(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "stats.json").read_text())


def curve(folder: Path) -> list[dict[str, str]]:
    """progress.csv without what the clock says."""
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("time/time_elapsed", "time/fps")} for row in rows]


def timeless(folder: Path) -> tuple[dict[str, str], dict[str, Any], list[dict[str, str]]]:
    """All that must be equal when a training is repeated, interrupted or not."""
    kept = {
        key: value
        for key, value in stats(folder).items()
        if key not in ("seconds", "cpu_seconds", "commit", "code_hash")
    }
    return fingerprint(folder), kept, curve(folder)


def training_of(config: Config, earlier: list[Path], where: Path, method: str = "disk") -> Training:
    """A training that is set up but not run."""
    job = config.skill_job("point", method, 0, len(earlier))
    return Training(skill_parts(job, earlier, CPU), config.runtime, Checkpoint(where / "skill.checkpoint", "stamp"))


# ---------------------------------------------------------------- what it leaves behind


def test_a_skill_leaves_its_files_and_nothing_else(chain: list[Path]):
    for folder in chain:
        assert {path.name for path in folder.iterdir()} == FILES
    assert {path.name for path in chain[0].parent.iterdir()} == {folder.name for folder in chain}


def test_stats_say_what_was_done(chain: list[Path], tiny: Config):
    for skill, folder in enumerate(chain):
        found = stats(folder)
        job = tiny.skill_job("point", "disk", 0, skill)
        assert [found["skill"], found["steps"], found["config_hash"]] == [skill, STEPS, job.digest()]
        assert found["collected_steps"] == PAST
        assert found["code_hash"]
        assert found["seconds"] > 0


def test_the_curve_covers_the_training_and_agrees_with_the_stats(chain: list[Path]):
    for folder in chain:
        rows = curve(folder)
        steps = np.array([0, *(int(row["time/total_timesteps"]) for row in rows)])
        assert steps[-1] == STEPS
        assert (np.diff(steps) > 0).all()
        updates = np.diff(np.maximum(steps, SEEDING))
        for column, key in (("reward/consistency", "mean_consistency"), ("reward/diversity", "mean_diversity")):
            mean = np.average([float(row[column]) for row in rows], weights=updates)
            assert mean == pytest.approx(stats(folder)[key] or 0.0, rel=1e-5)
        names = {"train/actor_loss", "train/critic_loss", "train/ent_coef", "rollout/ep_len_mean", "reward/mean"}
        assert names <= rows[0].keys()
        assert all(np.isfinite(float(value)) for row in rows for value in row.values())


# ---------------------------------------------------------------- what it computes


def test_the_replay_is_what_the_world_did(chain: list[Path], tiny: Config):
    """The stored actions, from the episodes' own seeds in a fresh world, give the stored transitions."""
    for skill in (0, 2):
        shard, env = load_file(chain[skill] / "replay.safetensors"), make(tiny.environments["point"].world())
        assert len(shard["obs"]) == STEPS
        for step in range(STEPS):
            if step % HORIZON == 0:
                obs, _ = env.reset(seed=seed_of("episode", 0, skill, step // HORIZON))
            next_obs, _, _, truncated, info = env.step(env.to_native(shard["action"][step].numpy()))
            for name, value in (("obs", obs), ("next_obs", next_obs), ("sigma", info["sigma"])):
                np.testing.assert_array_equal(shard[name][step].numpy(), np.float32(value), err_msg=f"{name} {step}")
            obs = next_obs
            assert truncated == ((step + 1) % HORIZON == 0)
        assert (shard["terminated"] == 0).all(), "a time limit is no end"


def test_actions_are_uniform_for_the_seed_steps_only(chain: list[Path]):
    actions = load_file(chain[1] / "replay.safetensors")["action"]
    other = load_file(chain[2] / "replay.safetensors")["action"]
    assert actions.abs().max() <= 1.0
    seeding = torch.cat((actions[:SEEDING], other[:SEEDING])).flatten()
    # 400 numbers, uniform on [-1, 1]: mean 0 ± 0.03, standard deviation 0.577 ± 0.013, and no heap at the edges.
    assert abs(float(seeding.mean())) < 0.1
    assert float(seeding.std()) == pytest.approx(0.577, abs=0.06)
    assert float((seeding.abs() > 0.9).float().mean()) < 0.2
    drawn = {tuple(row) for each in (actions, other) for row in each[:SEEDING].tolist()}
    assert len(drawn) == 2 * SEEDING, "each skill draws its own"


def test_visits_are_what_the_mode_action_leads_to(chain: list[Path], tiny: Config):
    for skill in (0, 1):
        policy, env = load(chain[skill] / "policy.safetensors")[0], make(tiny.environments["point"].world())
        states = []
        for episode in range(PAST // HORIZON):
            obs, _ = env.reset(seed=seed_of("visits", 0, skill, episode))
            for _ in range(HORIZON):
                obs, *_, info = env.step(policy.act(obs))
                states.append(info["sigma"])
        found = np.load(chain[skill] / "visits.npy")
        assert found.shape == (PAST, 2)
        np.testing.assert_allclose(found, states, rtol=1e-3, atol=1e-4)


def test_the_first_skill_is_weighted_by_its_environments_alpha(chain: list[Path], tiny: Config):
    first, environment = stats(chain[0]), tiny.environments["point"]
    assert first["alpha"] == environment.first_alpha
    assert first["beta"] is None
    assert first["mean_diversity"] is None
    for row in curve(chain[0]):
        expected = environment.alive_bonus - environment.first_alpha * float(row["reward/consistency"])
        assert float(row["reward/mean"]) == pytest.approx(expected, rel=1e-5)


def test_alpha_and_beta_are_the_inverse_raw_means_of_the_skill_before(chain: list[Path]):
    one, two, three = map(stats, chain)
    assert two["alpha"] == pytest.approx(1.0 / one["mean_consistency"], rel=1e-9)
    assert three["alpha"] == pytest.approx(1.0 / two["mean_consistency"], rel=1e-9)
    assert three["beta"] == pytest.approx(1.0 / two["mean_diversity"], rel=1e-9)


def test_the_second_skills_beta_comes_from_the_replay_at_its_first_update(chain: list[Path]):
    """Against an average over the very replay and 𝒯 that were there, with neighbours among 64 random states."""
    replay = torch.cat(
        (
            load_file(chain[0] / "replay.safetensors")["sigma"],
            load_file(chain[1] / "replay.safetensors")["sigma"][: SEEDING + 1],
        )
    )
    past, rng = torch.from_numpy(np.load(chain[0] / "visits.npy")), np.random.default_rng(0)
    means = []
    for _ in range(100):
        sample = past[rng.integers(len(past), size=64)]
        distances = (replay[:, None] - sample[None]).square().sum(-1).sqrt().sort(dim=1).values
        means.append(float(distances[:, 2].mean()))
    assert stats(chain[1])["beta"] == pytest.approx(1.0 / np.mean(means), rel=0.15)


@pytest.mark.parametrize(
    ("change", "skill", "key", "expected"),
    [
        ({"alpha": 0.5}, 1, "alpha", lambda one, two: 0.5 / one["mean_consistency"]),
        ({"beta": 3.0}, 2, "beta", lambda one, two: 3.0 / two["mean_diversity"]),
        ({"mean_floor": 100.0}, 2, "alpha", lambda one, two: 0.01),
        ({"mean_floor": 100.0}, 2, "beta", lambda one, two: 0.01),
        ({"second_beta": "one", "beta": 3.0}, 1, "beta", lambda one, two: 3.0),
        ({"second_beta": "replay"}, 1, "beta", lambda one, two: None),
    ],
)
def test_weights_and_floor_of_the_settings_are_used(
    chain: list[Path],
    tmp_path: Path,
    change: dict[str, Any],
    skill: int,
    key: str,
    expected: Callable[[dict[str, Any], dict[str, Any]], float | None],
):
    objective = training_of(tiny_config({"disk": change}), chain[:skill], tmp_path).parts.objective
    value = expected(stats(chain[0]), stats(chain[1]))
    assert getattr(objective, key) == (value if value is None else pytest.approx(value))


def test_a_chain_with_the_released_normaliser_pays_for_inconsistency(tmp_path: Path):
    config = tiny_config({"disk": {"anneal": "signed", "normaliser": "released"}})
    chain = learn(config, tmp_path, range(3))
    one, two, three = map(stats, chain)
    assert one["paid"]["consistency"] == pytest.approx(-one["alpha"] * one["mean_consistency"])
    assert two["alpha"] == pytest.approx(1.0 / one["paid"]["consistency"])
    assert two["alpha"] < 0
    assert two["beta"] == pytest.approx(1.0)
    assert three["alpha"] == pytest.approx(1.0 / two["paid"]["consistency"])
    assert three["paid"]["updates"] == 3 * one["paid"]["updates"] == 3 * (STEPS - SEEDING)
    parent = learn(tiny_config(), tmp_path / "parent", range(1))  # as in a fork from a chain of another kind
    with pytest.raises(ArtefactError, match="has no `paid`"):
        learn_skill(config.skill_job("point", "disk", 0, 1), parent, tmp_path / "skill08", config.runtime)
    with pytest.raises(ArtefactError, match=r"normaliser 'released', the next one has None"):
        learn_skill(tiny_config().skill_job("point", "disk", 0, 1), chain[:1], tmp_path / "skill09", config.runtime)


def test_the_past_is_all_earlier_skills_the_newest_included(chain: list[Path], tmp_path: Path, tiny: Config):
    past = training_of(tiny, chain[:2], tmp_path).parts.objective.past
    assert past is not None
    expected = np.concatenate([np.load(folder / "visits.npy") for folder in chain[:2]])
    np.testing.assert_array_equal(past.numpy(), expected)


def test_the_replay_begins_with_all_earlier_skills(chain: list[Path], tmp_path: Path, tiny: Config):
    training = training_of(tiny, chain[:2], tmp_path)
    (replay,) = training.parts.replays
    assert [len(replay)] == training.parts.inherited == [2 * STEPS]
    expected = torch.cat([load_file(folder / "replay.safetensors")["sigma"] for folder in chain[:2]])
    found = replay.newest(2 * STEPS)[:, replay.columns.parts["sigma"]]
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("change", "inherited"),
    [
        ({"methods": {"disk": {"reuse_replay": False}}}, 0),
        ({"methods": {"disk": {"replay_keep": 0.25}}}, STEPS // 2),
        ({"environments": {"point": {"replay_capacity": 70}}}, 70),
    ],
)
def test_the_replay_can_be_fresh_thinned_or_full(
    chain: list[Path], tmp_path: Path, change: dict[str, Any], inherited: int
):
    assert len(training_of(tiny_config(change), chain[:2], tmp_path).parts.replays[0]) == inherited


def test_each_skill_and_seed_starts_from_networks_of_its_own(chain: list[Path], tmp_path: Path, tiny: Config):
    first = training_of(tiny, [], tmp_path / "a").parts.agents[0].actor.mlp.weights[0]
    second = training_of(tiny, chain[:1], tmp_path / "b").parts.agents[0].actor.mlp.weights[0]
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(("ratio", "updates"), [(1.0, 250), (0.1, 25), (2.0, 500)])
def test_updates_follow_the_ratio_after_the_seed_steps(tmp_path: Path, hooked: Any, ratio: float, updates: int):
    """Stopped in the last episode, the checkpoint tells how often the learner was updated."""
    config = tiny_config(HOOKED, {"environments": {"point": {"sac": {"updates_per_step": ratio}}}})
    hooked.on_step = at_step(STEPS - 3, lambda result: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        learn(config, tmp_path, range(1))
    tensors, _ = load_tensors(tmp_path / "skill00.checkpoint" / "state.safetensors")
    assert int(tensors["agent/updates"]) == updates


def test_termination_is_stored_and_begins_a_new_episode(tmp_path: Path, hooked: Any):
    ends = {7, 30, 31, 90}

    def terminate(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*result[:2], count - 2 in ends, *result[3:])

    hooked.on_step = terminate
    (folder,) = learn(tiny_config(HOOKED), tmp_path, range(1))
    shard = load_file(folder / "replay.safetensors")
    assert shard["terminated"].nonzero().flatten().tolist() == sorted(ends)
    breaks = (shard["next_obs"][:-1] != shard["obs"][1:]).any(1).nonzero().flatten()
    starts, step = [], 0
    while step < STEPS:
        step = min([end + 1 for end in ends if end >= step] + [step + HORIZON])
        starts.append(step - 1)
    assert breaks.tolist() == [end for end in starts if end < STEPS - 1]


# ---------------------------------------------------------------- the same again


def test_the_same_seed_gives_the_same_bytes(chain: list[Path], tmp_path: Path, tiny: Config):
    again = learn(tiny, tmp_path, range(2))
    for before, after in zip(chain, again, strict=False):
        assert timeless(before) == timeless(after)


def test_another_seed_gives_another_skill(chain: list[Path], tmp_path: Path, tiny: Config):
    (other,) = learn(tiny, tmp_path, range(1), seed=1)
    assert not set(fingerprint(other).values()) & set(fingerprint(chain[0]).values())


def test_a_new_skill_leaves_the_files_of_the_earlier_ones_alone(chain: list[Path], tmp_path: Path, tiny: Config):
    folders = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in chain[:2]]
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    learn(tiny, tmp_path, range(2, 3))
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before
    assert files == [path for folder in folders for path in sorted(folder.iterdir())]
    assert timeless(tmp_path / "skill02") == timeless(chain[2])


def test_a_longer_chain_gives_the_same_first_skills(chain: list[Path], tmp_path: Path):
    config = tiny_config({"environments": {"point": {"skills": 5, "steps": [300, 300, 300, 400, 500]}}})
    (first,) = learn(config, tmp_path, range(1))
    assert timeless(first) == timeless(chain[0])


# ---------------------------------------------------------------- interruptions


def at_step(step: int, act: Callable[[tuple[Any, ...]], Any]) -> Callable[[int, tuple[Any, ...]], tuple[Any, ...]]:
    """A hook that does something once, at a training step counted from 0; the world is tried out by one step before."""

    def hook(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        changed = act(result) if count == step + 2 else None
        return result if changed is None else changed

    return hook


SHORT = {"environments": {"point": {"id": HOOKED["environments"]["point"]["id"], "steps": 150}}}


@pytest.fixture(scope="module")
def short() -> Config:
    return tiny_config(SHORT)


@pytest.fixture(scope="module")
def uninterrupted(short: Config, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return learn(short, tmp_path_factory.mktemp("uninterrupted"), range(2))


@pytest.fixture
def second(uninterrupted: list[Path], tmp_path: Path) -> Path:
    """A run whose first skill is there and whose second is to be learned."""
    shutil.copytree(uninterrupted[0], tmp_path / "skill00")
    return tmp_path


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [10, 49, 77, 149])
def test_a_stop_by_signal_saves_and_the_rerun_gives_the_same_bytes(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, step: int, signum: signal.Signals
):
    """Among the seed steps, at the first update, in the middle and at the very last step."""
    handler = signal.getsignal(signum)
    hooked.on_step = at_step(step, lambda result: signal.raise_signal(signum))
    with pytest.raises(Interrupted, match=signum.name) as caught:
        learn(short, second, range(1, 2))
    assert caught.value.signum == signum
    assert signal.getsignal(signum) is handler
    assert not (second / "skill01" / "policy.safetensors").exists()
    saved = load_tensors(second / "skill01.checkpoint" / "state.safetensors")[1]["step"]
    assert saved == min(-(-(step + 1) // HORIZON) * HORIZON, 150)
    hooked.on_step, hooked.steps = None, 0
    learn(short, second, range(1, 2))
    assert hooked.steps < 150 - saved + PAST + 50, "what was done is not done again"
    assert timeless(second / "skill01") == timeless(uninterrupted[1])
    assert not (second / "skill01.checkpoint").exists()


def test_many_stops_give_the_same_bytes(second: Path, uninterrupted: list[Path], short: Config, hooked: Any):
    for _ in range(150 // HORIZON):
        hooked.steps, hooked.on_step = 0, at_step(3, lambda result: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            learn(short, second, range(1, 2))
    hooked.on_step = None
    learn(short, second, range(1, 2))
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


@pytest.mark.parametrize("step", [20, 60, 130])
def test_a_crash_goes_on_from_the_last_checkpoint(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, step: int
):
    def crash(result: tuple[Any, ...]) -> None:
        raise ZeroDivisionError("crash")

    hooked.on_step = at_step(step, crash)
    with pytest.raises(ZeroDivisionError):
        learn(short, second, range(1, 2), runtime=often(short))
    hooked.on_step, hooked.steps = None, 0
    learn(short, second, range(1, 2))
    assert hooked.steps < 150 - step + HORIZON + PAST + 50
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


def test_saving_often_changes_nothing(second: Path, uninterrupted: list[Path], short: Config):
    learn(short, second, range(1, 2), runtime=often(short))
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


def test_a_replay_smaller_than_a_skill_survives_an_interruption(tmp_path: Path, hooked: Any):
    """The ring has been overwritten more than once since the last save."""
    config = tiny_config(SHORT, {"environments": {"point": {"replay_capacity": 40}}})
    (straight,) = learn(config, tmp_path / "straight", range(1))
    assert len(load_file(straight / "replay.safetensors")["obs"]) == 40
    hooked.steps, hooked.on_step = 0, at_step(120, lambda result: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        learn(config, tmp_path / "broken", range(1))
    hooked.on_step = None
    (broken,) = learn(config, tmp_path / "broken", range(1))
    assert timeless(broken) == timeless(straight)


def test_in_a_thread_training_leaves_signals_to_others(uninterrupted: list[Path], short: Config, tmp_path: Path):
    handler = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=learn, args=(short, tmp_path, range(1)))
    thread.start()
    thread.join()
    assert timeless(tmp_path / "skill00") == timeless(uninterrupted[0])
    assert signal.getsignal(signal.SIGTERM) is handler


KILL = """
import os, random, signal, sys, time
from pathlib import Path
import conftest
from test_train import SHORT

config, kind, root = conftest.tiny_config(SHORT), sys.argv[1], Path(sys.argv[2])
runtime, kills, patience = conftest.often(config), 0, 0.02
random.seed(0)
while True:
    writes_left = kills + 1 if kind == "write" else 0
    pid = conftest.deadly_child(writes_left, lambda: conftest.learn(config, root, range(1, 2), runtime=runtime))
    if kind == "moment":
        time.sleep(random.uniform(0, patience))
        patience *= 1.5
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        break
    if code != -signal.SIGKILL:
        sys.exit(1)
    kills += 1
print(kills)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("moment", 3), ("write", 12)])
def test_kills_at_any_moment_give_the_same_bytes(second: Path, uninterrupted: list[Path], kind: str, least: int):
    """SIGKILL after ever longer waits; or before the first write to the disk, the second, …; until one gets through."""
    process = run_python(KILL, kind, second)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert int(out) >= least, "too few kills to mean anything"
    assert timeless(second / "skill01") == timeless(uninterrupted[1])
    assert {path.name for path in (second / "skill01").iterdir()} == FILES, "no half-written file is left behind"
    assert not (second / "skill01.checkpoint").exists()


def test_a_checkpoint_of_other_settings_is_not_continued_and_that_is_said(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, caplog: pytest.LogCaptureFixture
):
    other = tiny_config(SHORT, {"disk": {"second_beta": "one"}})  # a setting of this skill alone
    hooked.on_step = at_step(100, lambda result: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        learn(other, second, range(1, 2))
    hooked.on_step = None
    learn(short, second, range(1, 2))
    assert "restarts from step 0" in caplog.text
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another first skill of the same seed."""
    config = tiny_config(SHORT, {"environments": {"point": {"first_alpha": 3.0}}})
    return learn(config, tmp_path_factory.mktemp("stranger"), range(1))[0]


def test_a_checkpoint_over_another_earlier_skill_is_not_continued(
    second: Path, stranger: Path, short: Config, hooked: Any, caplog: pytest.LogCaptureFixture
):
    for step in (60, 3):
        hooked.steps, hooked.on_step = 0, at_step(step, lambda result: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            learn(short, second, range(1, 2))
        shutil.copytree(stranger, second / "skill00", dirs_exist_ok=True)
    assert "restarts from step 0" in caplog.text


@pytest.mark.parametrize("name", [*SAME_BYTES, "stats.json"])
def test_an_earlier_skill_with_a_file_of_another_one_is_refused(second: Path, stranger: Path, short: Config, name: str):
    """Each file is whole, and they do not belong together."""
    shutil.copy(stranger / name, second / "skill00" / name)
    with pytest.raises(ArtefactError, match="skill00/"):
        learn(short, second, range(1, 2))


def test_runtime_settings_do_not_part_a_training_from_its_checkpoint(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="disk")
    hooked.on_step = at_step(100, lambda result: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        learn(short, second, range(1, 2))
    hooked.on_step = None
    runtime = short.runtime.model_copy(update={"checkpoint_minutes": 3.0})
    learn(short, second, range(1, 2), runtime=runtime)
    assert "resuming at step 125 of 150" in caplog.text
    assert fingerprint(second / "skill01") == fingerprint(uninterrupted[1])


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_finished_skill_that_lost_a_file_gets_it_back(
    uninterrupted: list[Path], short: Config, second: Path, name: str
):
    """`delete it and run the same command again` is what a damaged file's message says."""
    shutil.copytree(uninterrupted[1], second / "skill01")
    (second / "skill01" / name).unlink()
    learn(short, second, range(1, 2))
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


def test_an_orphan_leaves_its_checkpoint_so_that_its_successor_need_not_train(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, monkeypatch: pytest.MonkeyPatch
):
    """A new controller deletes the outputs that the killed one's job has written, and starts the job again."""
    monkeypatch.setenv("DISK_CONTROLLER", str(second / "nobody holds this"))
    learn(short, second, range(1, 2))
    assert timeless(second / "skill01") == timeless(uninterrupted[1])
    shutil.rmtree(second / "skill01")
    monkeypatch.delenv("DISK_CONTROLLER")
    hooked.steps = 0
    learn(short, second, range(1, 2))
    assert hooked.steps < PAST + 50, "the visits again, and no training"
    assert timeless(second / "skill01") == timeless(uninterrupted[1])
    assert not (second / "skill01.checkpoint").exists()


# ---------------------------------------------------------------- two processes

ONE = """
import sys
from pathlib import Path
import conftest
from test_train import SHORT
config = conftest.tiny_config(SHORT)
print("ready", flush=True)
conftest.learn(config, Path(sys.argv[1]), range(1, 2))
"""


@pytest.mark.slow
def test_a_twin_waits_for_the_first_and_takes_its_result(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, caplog: pytest.LogCaptureFixture
):
    twins: list[Any] = []

    def start(result: tuple[Any, ...]) -> None:
        twins.append(run_python(ONE, second))
        assert twins[0].stdout.readline() == "ready\n"
        time.sleep(1.0)

    hooked.on_step = at_step(60, start)
    learn(short, second, range(1, 2))
    when = (second / "skill01" / "policy.safetensors").stat().st_mtime_ns
    _, err = twins[0].communicate(timeout=60)
    assert twins[0].returncode == 0, err
    assert "waiting" in err
    assert f"process {os.getpid()} " in err
    assert (second / "skill01" / "policy.safetensors").stat().st_mtime_ns == when, "it was not trained again"
    assert timeless(second / "skill01") == timeless(uninterrupted[1])
    assert not (second / "skill01.checkpoint").exists()


@pytest.mark.slow
def test_a_twin_that_waits_can_be_stopped(second: Path):
    lease = Lease(second / "skill01.checkpoint")
    twin = run_python(ONE, second)
    assert twin.stdout is not None
    assert twin.stdout.readline() == "ready\n"
    time.sleep(1.5)
    assert twin.poll() is None
    twin.terminate()
    try:
        twin.communicate(timeout=10)
    finally:
        twin.kill()
        lease.release()
    assert twin.returncode != 0


# ---------------------------------------------------------------- numbers that are not finite


def spoilt_obs(value: float) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return lambda result: (np.array([value, 0.0]), *result[1:])


def spoilt_info(value: float) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return lambda result: (*result[:4], {**result[4], "x_position": value})


def assert_last_checkpoint_is_good(folder: Path, step: int) -> None:
    """It is the one before the bad step, and no number in it is NaN or infinite."""
    tensors, meta = load_tensors(folder / "state.safetensors")
    assert meta["step"] == step // HORIZON * HORIZON
    assert all(torch.isfinite(t).all() for name, t in tensors.items() if t.is_floating_point() and "beta" not in name)
    rows = np.fromfile(folder / "replay.bin", dtype=np.float32)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300], ids=["nan", "inf", "too large for 32 bits"])
@pytest.mark.parametrize("step", [30, 110], ids=["seeding", "learning"])
def test_a_bad_observation_stops_training_at_its_step_and_keeps_the_last_good_checkpoint(
    second: Path, uninterrupted: list[Path], short: Config, hooked: Any, value: float, step: int
):
    hooked.on_step = at_step(step, spoilt_obs(value))
    with pytest.raises(NotFiniteError, match=f"step {step}"):
        learn(short, second, range(1, 2), runtime=often(short))
    assert_last_checkpoint_is_good(second / "skill01.checkpoint", step)
    hooked.on_step = None
    learn(short, second, range(1, 2))
    assert timeless(second / "skill01") == timeless(uninterrupted[1])


@pytest.mark.parametrize("step", [30, 110], ids=["seeding", "learning"])
def test_a_bad_projection_stops_training_at_its_step(tmp_path: Path, hooked: Any, step: int):
    """σ is checked like an observation: a NaN in BUF is the farthest neighbour, so no reward need ever show it."""
    place = {"position": {"qpos": None, "info": ["x_position", "y_position"]}}
    config = tiny_config(SHORT, {"environments": {"point": place}})
    hooked.on_step = at_step(step, spoilt_info(np.nan))
    with pytest.raises(NotFiniteError, match=f"step {step}"):
        learn(config, tmp_path, range(1), runtime=often(config))
    assert_last_checkpoint_is_good(tmp_path / "skill00.checkpoint", step)


def test_a_bad_first_observation_of_an_episode_stops_training(tmp_path: Path, short: Config, hooked: Any):
    # Reset 1 is the try-out's, so reset 3 begins the second episode, whose random actions do not show it.
    hooked.on_reset = lambda count, obs: np.array([np.nan, 0.0]) if count == 3 else obs
    with pytest.raises(NotFiniteError, match=f"step {HORIZON}"):
        learn(short, tmp_path, range(1), runtime=often(short))
    assert_last_checkpoint_is_good(tmp_path / "skill00.checkpoint", HORIZON)


def test_a_diverging_loss_stops_training_with_its_name_before_anything_is_saved(tmp_path: Path, hooked: Any):
    """A learning rate at which the critics explode: no mock, and every observation is fine."""
    config = tiny_config(SHORT, {"environments": {"point": {"sac": {"learning_rate": 1e12}}}})
    runtime = often(config).model_copy(update={"log_every": 10_000})  # no row of the curve finds it first
    with pytest.raises(NotFiniteError, match=r"(train|reward)/\w+ is (nan|-?inf) at step \d+"):
        learn(config, tmp_path, range(1), runtime=runtime)
    tensors, _ = load_tensors(tmp_path / "skill00.checkpoint" / "state.safetensors")
    assert all(torch.isfinite(t).all() for name, t in tensors.items() if t.is_floating_point() and "beta" not in name)
    assert not (tmp_path / "skill00" / "policy.safetensors").exists()


# ---------------------------------------------------------------- inputs that cannot be used


@pytest.mark.parametrize("given", [0, 1, 3])
def test_the_wrong_number_of_earlier_skills_is_refused(chain: list[Path], tmp_path: Path, tiny: Config, given: int):
    job = tiny.skill_job("point", "disk", 0, 2)
    with pytest.raises(ArtefactError, match=f"skill 02 needs the 2 skills before it, {given}"):
        learn_skill(job, chain[:given], tmp_path / "out", tiny.runtime)


def test_earlier_skills_in_the_wrong_order_are_refused(chain: list[Path], tmp_path: Path, tiny: Config):
    job = tiny.skill_job("point", "disk", 0, 2)
    with pytest.raises(ArtefactError, match="skill0"):
        learn_skill(job, [chain[1], chain[0]], tmp_path / "skill02", tiny.runtime)


def test_earlier_skills_of_another_world_are_refused(chain: list[Path], tmp_path: Path, tiny: Config):
    folder = Path(shutil.copytree(chain[0], tmp_path / "skill00"))
    tensors, meta = load_tensors(folder / "policy.safetensors")
    save_tensors(folder / "policy.safetensors", tensors, {**meta, "env": "ant"})
    with pytest.raises(ArtefactError, match=r"skill00.*'ant'.*'point'"):
        learn_skill(tiny.skill_job("point", "disk", 0, 1), [folder], tmp_path / "skill01", tiny.runtime)


def _edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def edit(path: Path) -> None:
        content = load_json(path)
        change(content)
        save_json(path, content)

    return edit


FAULTS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "policy truncated": ("policy.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-20])),
    "policy empty": ("policy.safetensors", lambda path: path.write_bytes(b"")),
    "policy absent": ("policy.safetensors", lambda path: path.unlink()),
    "visits truncated": ("visits.npy", lambda path: path.write_bytes(path.read_bytes()[:-20])),
    "visits empty": ("visits.npy", lambda path: path.write_bytes(b"")),
    "visits absent": ("visits.npy", lambda path: path.unlink()),
    "visits of another width": ("visits.npy", lambda path: np.save(path, np.zeros((10, 3), np.float32))),
    "visits none": ("visits.npy", lambda path: np.save(path, np.zeros((0, 2), np.float32))),
    "visits NaN": ("visits.npy", lambda path: np.save(path, np.full((10, 2), np.nan, np.float32))),
    "visits of objects": ("visits.npy", lambda path: np.save(path, np.array([[{}, {}]]), allow_pickle=True)),
    "replay truncated": ("replay.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-20])),
    "replay empty": ("replay.safetensors", lambda path: path.write_bytes(b"")),
    "replay absent": ("replay.safetensors", lambda path: path.unlink()),
    "replay of another world": (
        "replay.safetensors",
        lambda path: save_shard(path, torch.zeros(9, 10), Columns(3, 1, 2), {"env": "x"}),
    ),
    "stats truncated": ("stats.json", lambda path: path.write_text(path.read_text()[:-20])),
    "stats absent": ("stats.json", lambda path: path.unlink()),
    "stats without a mean": ("stats.json", _edit(lambda content: content.pop("mean_consistency"))),
    "stats without steps": ("stats.json", _edit(lambda content: content.pop("steps"))),
    "stats with text": ("stats.json", _edit(lambda content: content.update(mean_consistency="much"))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_of_an_earlier_skill_is_refused_by_name(
    chain: list[Path], tmp_path: Path, tiny: Config, fault: str
):
    folder = Path(shutil.copytree(chain[0], tmp_path / "skill00"))
    name, damage = FAULTS[fault]
    damage(folder / name)
    with pytest.raises(ArtefactError) as caught:
        learn_skill(tiny.skill_job("point", "disk", 0, 1), [folder], tmp_path / "skill01", tiny.runtime)
    assert f"skill00/{name}" in str(caught.value)
    assert not (tmp_path / "skill01" / "policy.safetensors").exists()


def test_without_reuse_no_replay_is_needed(chain: list[Path], tmp_path: Path):
    config = tiny_config({"methods": {"disk": {"reuse_replay": False}}, "environments": {"point": {"steps": 60}}})
    folder = Path(shutil.copytree(chain[0], tmp_path / "skill00"))
    (folder / "replay.safetensors").unlink()
    learn(config, tmp_path, range(1, 2))
    assert stats(tmp_path / "skill01")["beta"] > 0


@pytest.mark.parametrize("where", ["under a file", "in /proc", "a file"])
def test_a_place_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, short: Config, hooked: Any, where: str
):
    (tmp_path / "file").write_text("")
    out = {
        "under a file": tmp_path / "file" / "skill00",
        "in /proc": Path("/proc/disk/skill00"),
        "a file": tmp_path / "file",
    }
    with pytest.raises(ArtefactError, match="cannot be written") as caught:
        learn_skill(short.skill_job("point", "disk", 0, 0), [], out[where], short.runtime)
    assert str(out[where]) in str(caught.value)
    assert hooked.steps == 0


def test_training_runs_where_it_is_told_to():
    from disk.learning.build import choose_device

    assert choose_device("cpu") == CPU
    assert choose_device("auto").type in ("cpu", "cuda")
