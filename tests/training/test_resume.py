"""Every row of methods.yaml: interrupted or killed anywhere and run again, it leaves the bytes of a straight run."""

from __future__ import annotations

import hashlib
import json
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from conftest import HOOKED, often, run_python, tiny_config

from disk import config as configuration
from disk.config import Config
from disk.errors import Interrupted
from disk.learning.run import train_run

RAW_ROWS = {
    "disk": {"objective": "disk", "policies": "independent", "schedule": "incremental"},
    "diayn": {"objective": "diayn", "policies": "shared", "schedule": "uniform"},
    "dads": {"objective": "dads", "policies": "shared", "schedule": "uniform", "replay_capacity": 150},
}
BOUTS = {"hidden": [16], "seed_steps": 50, "iteration": {"steps": 40, "model_updates": 3, "policy_updates": 10}}
SEVERAL: dict[str, Any] = {
    "disk_in_three": {"sac": {"environments": 3}},
    "diayn_in_three": {"sac": {"environments": 3}},
    "dads_in_two": {"sac": {**BOUTS, "seed_actions": "policy", "environments": 2}},
    "disk_running": {"settings": {"normaliser": "running", "normaliser_window": 7}},
    "disk_running_own": {"settings": {"normaliser": "running", "normaliser_over": "own"}, "own_share": 0.3},
    "disk_gated": {"settings": {"shape": "gated", "normaliser": "running"}, "own_share": 0.5},
    "disk_log": {"settings": {"shape": "log", "first": "balanced"}, "first_steps": 100},
    "disk_sees": {"sac": {"critic": "crossq", "critic_sees": "sigma", "environments": 2}, "sigma_steps": 3},
    "diayn_learned": {"settings": {"sees": "sigma"}, "sigma": "learned"},
    "dads_learned": {"sac": {**BOUTS, "seed_actions": "policy"}, "sigma": "learned"},
}
"""Rows of our own: one policy that acts in several environments, parts of rewards, critics that see σ."""
ROWS = [*(name for name, row in configuration.load().methods.items() if row.objective != "none"), *SEVERAL]
TIMES = ("seconds", "cpu_seconds", "projection_seconds", "commit", "code_hash")
SMALL = {
    "methods": {
        **{name: {**RAW_ROWS[name.split("_")[0]], **row} for name, row in SEVERAL.items()},
        **{name: {"fork": {"after": 1}} for name in ("disk_fork_reuse", "disk_fork_fresh")},
        "dads": {"sac": BOUTS, "replay_capacity": 150},
    },
    "diayn": {"hidden": [16]},
    "dads": {"hidden": [16]},
    "metra": {"hidden": [16]},
    "projection": {"updates": 20},
    "curriculum": {"certainty": 0.2, "episodes": 3},
    "adaptive": {"least": 0.4, "window": 0.2, "tolerance": 0.5},
    "budget": {"least": 0.4, "window": 0.2, "tolerance": 0.9, "duplicate": 10.0},
    "environments": {"point": {"steps": 150, "snapshots": [200]}},
}


def config_of() -> Config:
    return tiny_config(HOOKED, SMALL)


def train(root: Path, method: str, config: Config | None = None) -> Path:
    train_run(config or config_of(), root, "point", method, 0, None, lambda out: nullcontext())
    return root


def contents(root: Path) -> dict[str, Any]:
    """Checksums of all that is there, and what its stats.json say apart from the time it took."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        if path.name == "stats.json":
            stats = json.loads(path.read_text())
            found[name] = {key: value for key, value in stats.items() if key not in TIMES}
        elif path.name == "progress.csv":
            found[name] = path.read_text().count("\n")
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an uninterrupted run of a row leaves; trained once each."""
    done: dict[str, dict[str, Any]] = {}

    def of(method: str) -> dict[str, Any]:
        if method not in done:
            done[method] = contents(train(tmp_path_factory.mktemp(method), method))
        return done[method]

    return of


every_row = pytest.mark.parametrize("method", ROWS)


@every_row
def test_stopped_again_and_again_it_gives_the_same_bytes(method: str, tmp_path: Path, straight: Any, hooked: Any):
    expected, stops = straight(method), 0

    def stop(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        # Outside the loop, where 𝒯 is collected, nobody listens and the signal would end these tests.
        if count >= 87 and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            signal.raise_signal(signal.SIGTERM)
        return result

    while True:
        hooked.steps, hooked.on_step = 0, stop
        try:
            train(tmp_path, method)
            break
        except Interrupted:
            stops += 1
            assert stops < 20
    assert stops >= 3
    assert contents(tmp_path) == expected


KILL = """
import os, signal, sys
from pathlib import Path
import conftest
from test_resume import config_of, train

method, root = sys.argv[1], Path(sys.argv[2])
config = config_of().model_copy(update={"runtime": conftest.often(config_of())})

def child(calls_left):
    return conftest.deadly_child(calls_left, lambda: train(root, method, config))

kills, calls = 0, 4
while True:
    code = os.waitstatus_to_exitcode(os.waitpid(child(calls), 0)[1])
    if code == 0:
        break
    if code != -signal.SIGKILL:
        sys.exit(1)
    kills, calls = kills + 1, calls + 10
print(kills)
"""


@pytest.mark.slow
@every_row
def test_killed_at_any_write_it_gives_the_same_bytes(method: str, tmp_path: Path, straight: Any):
    """SIGKILL before the fourth write to the disk, then the fourteenth, …, until one process gets through."""
    expected = straight(method)
    process = run_python(KILL, method, tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert int(out) >= 3, "too few writes were hit to mean anything"
    assert contents(tmp_path) == expected


def test_saving_after_every_episode_changes_nothing(tmp_path: Path, straight: Any):
    """What the kills rely on: how often is saved is no part of the result."""
    config = config_of()
    train(tmp_path, "dads", config.model_copy(update={"runtime": often(config)}))
    assert contents(tmp_path) == straight("dads")
