"""What the tests of the core share: a tiny point world, a chain of skills learned in it, and worlds that misbehave."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import hypothesis
import numpy as np
import pytest
import torch
import yaml
from filelock import FileLock
from matplotlib.figure import Figure
from needs import require

from disk import config as configuration
from disk.config import Config, Runtime
from disk.envs.point import PointEnv
from disk.evaluation.run import evaluate_run
from disk.learning.replay import Batch
from disk.learning.run import learn_skill, train_run
from disk.storage.replay import Columns

torch.set_num_threads(1)
os.environ.pop("SLURM_JOB_ID", None)  # the tests may run in a job, but what they train does not
hypothesis.settings.register_profile("disk", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("disk")

CPU = torch.device("cpu")
PROJECT = Path(__file__).resolve().parent.parent
TIERS = [PROJECT / "tests" / name for name in ("unit", "training", "workflow", "machine")]
SAME_BYTES = ("policy.safetensors", "replay.safetensors", "visits.npy")

TINY: dict[str, Any] = {
    "runs": [{"envs": ["point"], "methods": ["disk", "random"]}],
    "environments": {
        "point": {
            "skills": 3,
            "steps": 300,
            "horizon": 25,
            "sac": {"hidden": [16, 16], "batch_size": 32, "seed_steps": 50},
        }
    },
    "disk": {"past_states": 200, "past_batch": 64},
    "normaliser": {"steps": 500},
    "runtime": {"device": "cpu", "checkpoint_minutes": 1000.0, "log_every": 50},
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds")
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier.name}: tests of tests/{tier.name}")
    config.addinivalue_line("markers", "campaign: minutes of a busy machine; run by make campaign")
    config.addinivalue_line(
        "markers", "needs(name): skipped where the machine lacks slurm, chromium, gl, node or wasm; see needs.py"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its tier, the folder it lies in: `pytest -m "not machine"`."""
    tier = item.path.parent.name
    if tier in {path.name for path in TIERS}:
        item.add_marker(tier)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns last longer than a test may: they are for `make campaign`, and no part of `make test`.

    SLURM comes first: its tests wait for minutes, while other workers do the rest.
    """
    if not os.environ.get("DISK_CAMPAIGN"):
        campaigns = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if item not in campaigns]
    items.sort(key=lambda item: "slurm" not in {name for each in item.iter_markers("needs") for name in each.args})


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Tests that draw from torch's own generator draw the same every time."""
    torch.manual_seed(0)


def raw_config(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """The project's configuration files as plain values, with changes merged over them."""
    raw: dict[str, Any] = {}
    for path in configuration.DEFAULT_FILES:
        raw = configuration.merge(raw, yaml.safe_load(path.read_text()))
    for change in changes:
        raw = configuration.merge(raw, change)
    return raw


def tiny_config(*changes: Mapping[str, Any]) -> Config:
    return configuration.parse(raw_config(TINY, *changes))


@pytest.fixture
def tiny() -> Config:
    return tiny_config()


def often(config: Config) -> Runtime:
    """Save after every episode."""
    return config.runtime.model_copy(update={"checkpoint_minutes": 1e-9})


def learn(config: Config, root: Path, skills: range, seed: int = 0, runtime: Runtime | None = None) -> list[Path]:
    """Learn some skills of a run; the directories of all up to the last of them."""
    folders = [root / f"skill{skill:02d}" for skill in range(skills.stop)]
    for skill in skills:
        job = config.skill_job("point", "disk", seed, skill)
        learn_skill(job, folders[:skill], folders[skill], runtime or config.runtime)
    return folders


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Make a directory once for all workers of this session. Read only: copy before changing anything."""
    root = factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    done = folder.with_name(f"{name}.done")
    with FileLock(folder.with_name(f"{name}.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker whose `make` failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three skills of the tiny point world. Read only."""
    root = once(tmp_path_factory, "chain", lambda folder: learn(tiny_config(), folder, range(3)))
    return [root / f"skill{skill:02d}" for skill in range(3)]


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of the tiny point world: a network for each skill, one told a latent, one that sees the position. Read only.

    The chain has been evaluated.
    """
    small = {"diayn": {"hidden": [16]}, "metra": {"hidden": [16]}, "environments": {"point": {"steps": 100}}}
    settings, methods = tiny_config(small, {"evaluation": {"episodes": 2}}), ("disk", "diayn", "metra", "random")

    def make(folder: Path) -> None:
        for method in methods:
            train_run(settings, folder, "point", method, 0, None, lambda out: nullcontext())
        evaluate_run(settings, folder / "point/disk/seed0")

    root = once(tmp_path_factory, "small_runs", make)
    return {method: root / "point" / method / "seed0" for method in methods}


def fingerprint(folder: Path, names: tuple[str, ...] = SAME_BYTES) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def batch_of(
    obs: torch.Tensor,
    action: torch.Tensor,
    next_obs: torch.Tensor | None = None,
    sigma: torch.Tensor | None = None,
    terminated: torch.Tensor | None = None,
    sigma_before: torch.Tensor | None = None,
) -> Batch:
    """A batch as the replay hands it out, from its parts."""
    next_obs = obs if next_obs is None else next_obs
    sigma = torch.zeros(len(obs), 1) if sigma is None else sigma
    terminated = torch.zeros(len(obs)) if terminated is None else terminated
    before = obs[:, :0] if sigma_before is None else sigma_before
    columns = Columns(obs.shape[1], action.shape[1], sigma.shape[1], sigma_before=before.shape[1])
    return Batch(torch.cat((obs, before, action, next_obs, sigma, terminated[:, None]), dim=1), columns)


def sigma_batch(sigma: torch.Tensor) -> Batch:
    return batch_of(torch.zeros(len(sigma), 1), torch.zeros(len(sigma), 1), sigma=sigma)


def deadly_child(calls_left: int, work: Callable[[], object]) -> int:
    """Fork a process that does the work, and kills itself before its n-th write to the disk (0: never); its id."""
    pid = os.fork()
    if pid:
        return pid

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls_left
            calls_left -= 1
            if calls_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in ("fsync", "replace", "unlink", "rmdir"):
        setattr(os, name, deadly(getattr(os, name)))
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def run_python(code: str, *arguments: object, cwd: Path | None = None, **kwargs: Any) -> subprocess.Popen[str]:
    """Another Python process that finds `disk` and these tests; talk to it through its pipes."""
    paths = os.pathsep.join([*map(str, (PROJECT, PROJECT / "tests", *TIERS)), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **kwargs.pop("env", {})},
        cwd=cwd,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


class HookedPoint(PointEnv):
    """The point robot, with something that may happen at a step or a reset, counted over all instances."""

    on_step: Callable[[int, tuple[Any, ...]], tuple[Any, ...]] | None = None
    on_reset: Callable[[int, np.ndarray], np.ndarray] | None = None
    steps = resets = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        result = super().step(action)
        HookedPoint.steps += 1
        hook = HookedPoint.on_step
        return hook(HookedPoint.steps, result) if hook else result  # type: ignore[return-value]

    def reset_model(self) -> np.ndarray:
        obs = super().reset_model()
        HookedPoint.resets += 1
        hook = HookedPoint.on_reset
        return hook(HookedPoint.resets, obs) if hook else obs


gymnasium.register(id="tests/HookedPoint-v0", entry_point=HookedPoint)
HOOKED = {"environments": {"point": {"id": "tests/HookedPoint-v0"}}}


@pytest.fixture
def hooked() -> Any:
    """The class whose `on_step` and `on_reset` a test sets; counters and hooks start and end clean."""
    HookedPoint.on_step = HookedPoint.on_reset = None
    HookedPoint.steps = HookedPoint.resets = 0
    yield HookedPoint
    HookedPoint.on_step = HookedPoint.on_reset = None


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Figure]:
    """The figure that was saved last."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **kwargs: Any) -> None:
        save(figure, *args, **kwargs)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return lambda: figures[-1]
