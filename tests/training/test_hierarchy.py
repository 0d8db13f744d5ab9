"""Skills at work: worlds with goals, skills as actions, and controllers that survive being killed."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import run_python, tiny_config
from gymnasium.utils.env_checker import check_env

import disk
from disk import config as configuration
from disk.config import Config
from disk.downstream.run import downstream_table, learn_hierarchy, read_curves
from disk.downstream.skill_env import Performers
from disk.envs import make
from disk.errors import ArtefactError, ConfigError, Interrupted

WORK = {
    "hierarchy": {"decisions": 6144, "steps": 2, "episode": 16, "every": 1024, "environments": 8, "seeds": [0]},
}


@pytest.fixture(scope="module")
def runs(small_runs: dict[str, Path]) -> dict[str, Path]:
    return small_runs


class Script(gymnasium.Env[np.ndarray, np.ndarray]):
    """The point robot's spaces, rewards that no float sums up exactly in another order, and an end where it is told."""

    def __init__(self, ends: int = 0, truncates: int = 0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (4,))
        self.ends, self.truncates, self.steps = ends, truncates, 0
        self.actions: list[np.ndarray] = []
        self.seen: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.steps += 1
        return (
            self._obs(),
            0.1 * self.steps**3,
            self.steps == self.ends,
            self.steps == self.truncates,
            {"t": self.steps},
        )

    def _obs(self) -> np.ndarray:
        self.seen.append(np.array([np.sin(self.steps), 0.3 * self.steps], dtype=np.float32))
        return self.seen[-1]


# ---------------------------------------------------------------- SkillEnv


def test_a_decision_runs_the_skill_for_its_steps_and_sums_their_rewards(runs: dict[str, Path]) -> None:
    inner, skills = Script(), disk.load(runs["random"])
    env = disk.SkillEnv(inner, skills, steps=10)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(2)
    expected = 0.0
    for t in range(1, 11):
        expected += 0.1 * t**3
    assert reward == expected  # exactly
    assert (terminated, truncated, info["steps"], info["t"]) == (False, False, 10, 10)
    assert np.array_equal(obs, inner.seen[-1])
    wanted = skills[2].act(np.stack(inner.seen[:10]))
    assert np.abs(np.stack(inner.actions) - wanted).max() < 1e-6


@pytest.mark.parametrize(("inner", "flags"), [(Script(ends=3), (True, False)), (Script(truncates=3), (False, True))])
def test_an_end_inside_a_skill_ends_the_decision(inner: Script, flags: Any, runs: dict[str, Path]) -> None:
    env = disk.SkillEnv(inner, disk.load(runs["random"]))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(0)
    assert (terminated, truncated) == flags
    assert reward == 0.1 * 1 + 0.1 * 8 + 0.1 * 27
    assert info["steps"] == inner.steps == 3


@pytest.mark.parametrize("method", ["random", "diayn", "metra"])
def test_skills_act_as_they_do_by_themselves_whoever_they_act_beside(method: str, runs: dict[str, Path]) -> None:
    """Alone or with others, in NumPy or in torch: the same actions, bit by bit in the first case."""
    skills = disk.load(runs[method])
    performers = Performers(skills)
    seen = np.random.default_rng(0).normal(scale=2.0, size=(64, skills.observation_size))
    chosen = np.arange(64) % len(skills)
    performers.choose(chosen)
    together = performers.act(seen)
    for index, skill in enumerate(chosen):
        performers.choose([skill])
        assert np.array_equal(performers.act(seen[index : index + 1])[0], together[index])
        assert np.abs(skills[int(skill)].act(seen[index]) - together[index]).max() < 1e-6


def test_metras_skills_are_shown_the_position(runs: dict[str, Path]) -> None:
    skills, inner = disk.load(runs["metra"]), make(configuration.load().environment("point").world())
    for env in (
        disk.SkillEnv(gymnasium.make("disk/Point-v0"), skills, 3),
        disk.SkillEnv(disk.GoalEnv("point"), skills, 3),
    ):
        obs, info = env.reset(seed=4)
        assert env.action_space.n == len(skills)
        after = env.step(1)
        # The same by hand, in a world of its own.
        inner.reset(seed=4)
        data = inner.unwrapped.data  # type: ignore[attr-defined]
        data.qpos[:], data.qvel[:] = info["position"], obs[:2]
        seen = np.concatenate((obs[:2], info["position"]))
        for _ in range(3):
            obs, _, _, _, info = inner.step(skills[1].act(seen))
            seen = np.concatenate((obs, info["position"]))
        assert np.abs(after[0][:2] - obs).max() < 1e-5
        assert np.abs(after[4]["position"] - info["position"]).max() < 1e-5


@pytest.mark.filterwarnings("ignore:.*Box observation space (maximum|minimum) value is.*infinity")
def test_both_environments_are_clean_and_work_with_sb3_and_in_vectors(runs: dict[str, Path], recwarn: Any) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env as check_for_sb3

    skills = disk.load(runs["random"])
    for env in (disk.GoalEnv("point"), disk.SkillEnv(disk.GoalEnv("point"), skills)):
        check_env(env, skip_render_check=True)
    check_for_sb3(disk.SkillEnv(disk.GoalEnv("point"), skills))
    assert not [str(w.message) for w in recwarn if "infinity" not in str(w.message)]
    PPO("MlpPolicy", disk.SkillEnv(disk.GoalEnv("point"), skills, 1), n_steps=32, batch_size=32).learn(64)
    many = gymnasium.vector.SyncVectorEnv([lambda: disk.SkillEnv(disk.GoalEnv("point"), skills)] * 3)
    obs, _ = many.reset(seed=1)
    _, rewards, *_ = many.step(np.array([0, 1, 2]))
    assert obs.shape == (3, 4)
    assert (rewards < 0).all()


def test_skills_of_another_environment_are_refused_with_both_sizes(runs: dict[str, Path]) -> None:
    skills = disk.load(runs["random"])
    with pytest.raises(ArtefactError, match=r"point, with observations of size 2; .* of size 17"):
        disk.SkillEnv(gymnasium.make("HalfCheetah-v5"), skills)
    with pytest.raises(ArtefactError, match=r"size 2; .* of size 27"):
        disk.SkillEnv(disk.GoalEnv("ant"), skills)


# ---------------------------------------------------------------- GoalEnv


def test_the_goal_is_in_the_observation_and_changes_with_the_seed() -> None:
    env = disk.GoalEnv("point")
    goals = []
    for seed in range(200):
        obs, info = env.reset(seed=seed)
        assert np.allclose(obs[2:], (info["goal"] - info["position"]) / 5.0)
        assert info["distance"] == pytest.approx(np.linalg.norm(info["goal"] - info["position"]))
        goals.append(info["goal"])
    again = env.reset(seed=3)[1]["goal"]
    assert np.array_equal(again, goals[3])
    assert len({tuple(goal) for goal in goals}) == 200
    spread = np.stack(goals)
    assert (np.abs(spread) <= 5.0).all()
    assert (spread.max(0) > 4.5).all()
    assert (spread.min(0) < -4.5).all()
    obs, info = env.reset(seed=0, options={"goal": [3.0, 4.0]})
    obs, reward, _, _, info = env.step(np.array([1.0, 0.0, 0.0, 0.0]))
    assert reward == -info["distance"] == pytest.approx(-np.linalg.norm([3.0, 4.0] - info["position"]))
    assert info["normalised_distance"] == pytest.approx(info["distance"] / 5.0, rel=1e-6)


def test_the_ant_never_ends_before_its_time_however_it_falls() -> None:
    """The row of envs.yaml sees to it; without, an end is refused instead of paid for."""
    env, generator = disk.GoalEnv("ant_blocks_even", horizon=300), np.random.default_rng(0)
    obs, info = env.reset(seed=0)
    assert obs.shape == (29,)
    assert env.env.world.id == "Ant-v5"  # the plain one, for skills learned among blocks
    assert (np.abs(info["goal"]) <= 15.0).all()
    env.env.unwrapped.data.qvel[2:6] = [9.0, 30.0, 30.0, 0.0]  # thrown and spun: higher than is healthy
    ends = [env.step(generator.uniform(-1.0, 1.0, 8))[2:4] for _ in range(300)]
    assert not any(terminated for terminated, _ in ends)
    assert [truncated for _, truncated in ends] == [False] * 299 + [True]
    mortal = disk.GoalEnv(configuration.load().environment("ant").world(), size=15.0)
    mortal.reset(seed=0)
    mortal.env.unwrapped.data.qvel[2] = 30.0
    with pytest.raises(ConfigError, match="terminate_when_unhealthy"):
        any(mortal.step(np.zeros(8))[3] for _ in range(300))


def test_worlds_with_one_coordinate_have_goals_too() -> None:
    env = disk.GoalEnv("halfcheetah", size=20.0)
    obs, info = env.reset(seed=1)
    assert obs.shape == (18,)
    assert info["distance"] == pytest.approx(abs(info["goal"][0] - info["position"][0]))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hierarchy": {"every": 1000}}, "every: 1000: expected a multiple of 128"),
        ({"hierarchy": {"decisions": 6145}}, "decisions: 6145: expected a multiple of every, 1024"),
        ({"hierarchy": {"environments": 3, "every": 48, "decisions": 48}}, "expected a divisor of 2048"),
        ({"hierarchy": {"sac": {"hiden": [3]}}}, "hierarchy.sac.hiden"),
        ({"environments": {"point": {"downstream": {"env": "pint"}}}}, "give either env"),
        ({"environments": {"hopper": {"downstream": {"env": "pint"}}}}, "'pint' is unknown"),
        ({"runs": [{"envs": ["hopper"], "methods": ["random"], "hierarchy": True}]}, "hopper.downstream.size: missing"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        tiny_config(WORK, change)


# ---------------------------------------------------------------- controllers

METHODS = ["random", "metra", "flat"]


def settings_of(**runtime: float) -> Config:
    changed = {"runtime": runtime, "environments": {"point": {"sac": {"seed_steps": 100, "updates_per_step": 0.02}}}}
    return tiny_config(WORK, changed)


def train(method: str, runs: dict[str, Path], out: Path, config: Config | None = None) -> Path:
    config = config or settings_of()
    skills = None if method == "flat" else runs[method] / "skills.safetensors"
    learn_hierarchy(config.hierarchy_job("point", method, 0, 0), skills, out, config.runtime)
    return out


def contents(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.parent.iterdir()}
    about = json.loads(out.with_suffix(".json").read_text())
    return found | {f"{out.stem}.json": {key: about[key] for key in ("stamp", "checksums", "decisions", "job")}}


@pytest.fixture(scope="module")
def straight(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Uninterrupted trainings."""
    root = tmp_path_factory.mktemp("straight")
    return {method: train(method, runs, root / f"point/{method}/seed0/hierarchy/seed0.csv") for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_stopped_again_and_again_a_controller_gives_the_same_bytes(
    method: str, runs: dict[str, Path], straight: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stops, count = tmp_path / "hierarchy/seed0.csv", 0, 0
    step = disk.GoalEnv.step

    def stopping(self: Any, action: np.ndarray) -> Any:
        nonlocal count
        count += 1
        if count == 5000:
            signal.raise_signal(signal.SIGTERM)
        return step(self, action)

    monkeypatch.setattr(disk.GoalEnv, "step", stopping)
    drawn = np.random.get_state()[1].copy()  # type: ignore[union-attr]
    while True:
        count = 0
        try:
            train(method, runs, out)
            break
        except Interrupted:
            stops += 1
            assert stops < 10
    assert stops >= 2
    assert np.array_equal(np.random.get_state()[1], drawn), "the caller's generators are not touched"
    assert contents(out) == contents(straight[method])


KILL = """
import os, signal, sys
from pathlib import Path
import conftest
from test_hierarchy import settings_of, train

out, runs = Path(sys.argv[1]), {"random": Path(sys.argv[2])}
kills, calls = 0, 4
while True:
    pid = conftest.deadly_child(calls, lambda: train("random", runs, out, settings_of(checkpoint_minutes=1e-9)))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 0:
        break
    if code != -signal.SIGKILL:
        sys.exit(1)
    kills, calls = kills + 1, calls + 7
print(kills)
"""


def test_killed_at_its_writes_a_controller_goes_on_and_gives_the_same_bytes(
    runs: dict[str, Path], straight: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "hierarchy/seed0.csv"
    process = run_python(KILL, out, runs["random"])
    printed, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert int(printed) >= 2
    assert contents(out) == contents(straight["random"])


def test_a_curve_has_both_axes_and_the_table_a_row_for_each_controller(straight: dict[str, Path]) -> None:
    frame = pd.read_csv(straight["random"])
    assert list(frame.columns) == ["decision", "low_level_step", "normalised_distance"]
    assert list(frame["decision"]) == list(range(1024, 6145, 1024))
    assert (frame["low_level_step"] == 2 * frame["decision"]).all()
    assert frame["normalised_distance"].between(0.5, 1.5).all()
    assert list(pd.read_csv(straight["flat"])["decision"]) == list(frame["decision"])  # the same grid
    table = downstream_table(list(straight.values()), threshold=2.0)
    assert list(table.columns) == [
        "method", "seed", "hierarchy_seed", "steps_to_threshold", "final_normalised_distance",
    ]  # fmt: skip
    assert list(table["method"]) == METHODS
    assert list(table["steps_to_threshold"]) == [1024] * 3
    never = downstream_table(list(straight.values()), threshold=1e-6)
    assert never["steps_to_threshold"].isna().all()
    assert table["final_normalised_distance"][0] == pytest.approx(frame["normalised_distance"].iloc[-1])
    assert {w: sorted(m) for w, m in read_curves(list(straight.values())).items()} == {"point": sorted(METHODS)}


def test_the_curve_is_the_mean_of_the_episodes(runs: dict[str, Path], tmp_path: Path) -> None:
    """(1/T) Σ d_t / d_0 of every episode, as seen from outside."""
    means: list[float] = []
    reset, step = disk.GoalEnv.reset, disk.GoalEnv.step
    current: dict[int, list[float]] = {}
    with pytest.MonkeyPatch.context() as patched:

        def resetting(self: Any, **kwargs: Any) -> Any:
            if current.get(id(self)):
                means.append(float(np.mean(current[id(self)])))
            obs, info = reset(self, **kwargs)
            current[id(self)], self.first = [], max(info["distance"], 0.05 * self.size)
            return obs, info

        def stepping(self: Any, action: np.ndarray) -> Any:
            result = step(self, action)
            current[id(self)].append(result[4]["distance"] / self.first)
            return result

        patched.setattr(disk.GoalEnv, "reset", resetting)
        patched.setattr(disk.GoalEnv, "step", stepping)
        config = tiny_config(WORK, {"hierarchy": {"decisions": 1024}})
        out = train("random", runs, tmp_path / "seed0.csv", config)
    assert len(means) == 1024 / 16
    assert pd.read_csv(out)["normalised_distance"][0] == pytest.approx(np.mean(means), rel=1e-6)


def test_a_finished_controller_is_used_as_it_is_and_a_damaged_one_is_trained_again(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    config = tiny_config(WORK, {"hierarchy": {"decisions": 1024}})
    out = train("random", runs, tmp_path / "hierarchy/seed0.csv", config)
    whole, begun = contents(out), out.with_suffix(".json").stat().st_mtime_ns
    train("random", runs, out, config)
    assert out.with_suffix(".json").stat().st_mtime_ns == begun
    for suffix in (".csv", ".safetensors"):
        path = out.with_suffix(suffix)
        path.write_bytes(path.read_bytes()[:-2])
        train("random", runs, out, config)
        assert contents(out) == whole, suffix
    about = out.with_suffix(".json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"checksums": []}))
    train("random", runs, out, config)
    assert contents(out) == whole


def test_a_trained_controller_can_be_loaded_and_other_skills_train_another(
    runs: dict[str, Path], straight: dict[str, Path], tmp_path: Path
) -> None:
    from disk.downstream.ppo import load_controller

    skills = disk.load(runs["random"])
    model = load_controller(
        straight["random"].with_suffix(".safetensors"), disk.SkillEnv(disk.GoalEnv("point"), skills, 2)
    )
    assert 0 <= int(model.predict(np.zeros(4))[0]) < len(skills)
    with pytest.raises(ArtefactError, match="does not fit this environment"):
        load_controller(straight["random"].with_suffix(".safetensors"), gymnasium.make("CartPole-v1"))
    flat = disk.load(straight["flat"].with_suffix(".safetensors"))
    assert (len(flat), flat.observation_size) == (1, 4)
    job, runtime = settings_of().hierarchy_job("point", "random", 0, 0), settings_of().runtime
    with pytest.raises(ArtefactError, match="needs skills"):
        learn_hierarchy(job, None, tmp_path / "seed0.csv", runtime)


def test_flats_reward_is_the_environments_own_in_the_unit_of_ppos() -> None:
    """What SAC learns from, recomputed from a stored transition, is what the world paid, divided by the size.

    A controller over skills is paid the mean of that over the steps of a decision: with one step, the same number.
    """
    from disk.downstream.flat import GoalObjective
    from disk.learning.replay import Batch
    from disk.storage.replay import Columns

    config = tiny_config(WORK)
    env = disk.GoalEnv("point")
    obs, _ = env.reset(seed=0)
    action = np.array([1.0, 0.0, 0.5, 0.0])
    after, reward, _, _, _ = env.step(action)
    row = np.concatenate((obs, action, after, [0.0], [0.0])).astype(np.float32)[None]
    objective = GoalObjective(config.hierarchy_job("point", "flat", 0, 0), way=2)
    computed, _ = objective.reward(Batch(torch.from_numpy(row), Columns(4, 4, 1)), 0.0)
    assert float(computed[0]) == pytest.approx(reward / env.size, rel=1e-6)


def test_a_controller_is_paid_in_the_same_unit(runs: dict[str, Path]) -> None:
    from disk.downstream.vec_env import SkillVecEnv

    job = tiny_config(WORK).hierarchy_job("point", "random", 0, 0).model_copy(update={"environments": 1})
    envs = SkillVecEnv(job, disk.load(runs["random"]))
    envs.reset()
    env, total = envs.episodes[0].env, 0.0
    step = env.step

    def counted(action: np.ndarray) -> Any:
        nonlocal total
        seen = step(action)
        total += seen[1]
        return seen

    env.step = counted  # type: ignore[method-assign]
    envs.step_async(np.array([0]))
    _, rewards, _, _ = envs.step_wait()
    assert float(rewards[0]) == pytest.approx(total / job.steps / job.size, rel=1e-5)


def test_the_tutorial_is_twenty_lines_and_runs(runs: dict[str, Path]) -> None:
    script = configuration.PROJECT / "docs/tutorial.py"
    assert sum(1 for line in script.read_text().splitlines() if line.strip()) <= 20
    process = run_python("import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])",
                         script, runs["random"], 64)  # fmt: skip
    printed, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert printed.count("m away at the start") == 5


def test_controllers_are_child_runs_in_mlflow(runs: dict[str, Path], straight: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    from mlflow import MlflowClient

    from disk.tracking.mirror import mirror

    root, uri = tmp_path / "results", f"sqlite:///{tmp_path}/mlflow.db"
    shutil.copytree(runs["random"], root / "point/random/seed0")
    for method in ("random", "flat"):
        shutil.copytree(straight[method].parent, root / f"point/{method}/seed0/hierarchy")
    mirror(root, uri)
    client = MlflowClient(uri)
    found = {
        run.info.run_name: run for run in client.search_runs([e.experiment_id for e in client.search_experiments()])
    }
    for method in ("random", "flat"):
        child, parent = found[f"{method}/seed0/hierarchy/seed0"], found[f"{method}/seed0"]
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert (child.info.status, parent.info.status) == ("FINISHED", "FINISHED")
        points = client.get_metric_history(child.info.run_id, "hierarchy/normalised_distance")
        assert [point.step for point in points] == list(range(1024, 6145, 1024))
    assert mirror(root, uri).runs == 0


def test_a_controller_is_shown_in_mlflow_while_it_is_trained(runs: dict[str, Path], tmp_path: Path) -> None:
    """Stopped after two rows of its curve: MLflow has these, and no more; after its end it has all of them."""
    import shutil

    from mlflow import MlflowClient

    from disk.downstream.curve import Curve
    from disk.tracking.mirror import _mirror_live
    from disk.tracking.store import Store

    run, uri = tmp_path / "results/point/random/seed0", f"sqlite:///{tmp_path}/mlflow.db"
    shutil.copytree(runs["random"], run)
    out, rows = run / "hierarchy/seed0.csv", Curve.row

    def stopping(self: Curve, decision: int) -> bool:
        written = rows(self, decision)
        if len(self.rows) == 2:
            signal.raise_signal(signal.SIGTERM)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curve, "row", stopping)
        with pytest.raises(Interrupted):
            train("random", runs, out)
    for over, status, expected in ((False, "RUNNING", [1024, 2048]), (True, "FINISHED", list(range(1024, 6145, 1024)))):
        if over:
            train("random", runs, out)
        _mirror_live(Store(uri), out, over)
        client = MlflowClient(uri)
        found = client.search_runs([each.experiment_id for each in client.search_experiments()])
        child = next(each for each in found if each.info.run_name == "random/seed0/hierarchy/seed0")
        points = client.get_metric_history(child.info.run_id, "hierarchy/normalised_distance")
        assert [point.step for point in points] == expected
        assert child.info.status == status
        assert child.data.params["decisions"] == "6144"


def test_the_command_takes_a_place_and_tracking_as_every_training_does(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PPO computes on the CPU and asks for no GPU; `flat` takes a place on one where there are any."""
    import disk.storage.devices
    from disk.cli import main

    config, held = settings_of(), []
    place = disk.storage.devices.place

    def seen(device: str, jobs: int) -> Any:
        held.append((device, jobs))
        return place(device, jobs)

    monkeypatch.setattr(disk.storage.devices, "place", seen)
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda count: None)  # only once in a process
    monkeypatch.setenv("DISK_DEVICES", "")
    runtime = {**config.runtime.model_dump(), "device": "auto"}
    given = {"runtime": runtime, "tracking": {**config.tracking.model_dump(), "enabled": False}}
    monkeypatch.setenv("DISK_RUNTIME", json.dumps(given))
    for method in ("random", "flat"):
        job = config.hierarchy_job("point", method, 0, 0).canonical()
        out = tmp_path / method / "seed0.csv"
        skills = [] if method == "flat" else ["--skills", str(runs[method] / "skills.safetensors")]
        main(["train-hierarchy", "--job", job, *skills, "--out", str(out)])
        assert out.exists()
    torch.use_deterministic_algorithms(False)
    assert held == [("cpu", 3), ("auto", 3)]


def test_a_checkpoint_that_slurm_left_is_cleared_when_the_controller_is_known_to_be_finished(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from disk.storage.checkpoint import clear_finished

    monkeypatch.setenv("SLURM_JOB_ID", "1")
    out = train("random", runs, tmp_path / "hierarchy/seed0.csv", settings_of(checkpoint_minutes=1e-9))
    left = out.with_suffix(".checkpoint")
    assert (left / "state.safetensors").exists()
    clear_finished(left.with_suffix(""))
    assert not left.exists()
    assert out.exists()
