"""A checkpoint that is whole, of the same job, but saved by other code: one line with a remedy, and it stays."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, tiny_config
from test_hierarchy import settings_of, train

import disk
from disk.errors import ArtefactError, ConfigError, DiskError, Interrupted, NotFiniteError
from disk.learning.build import skill_parts
from disk.learning.training import Training
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import load_tensors, save_tensors

Change = Callable[[dict[str, torch.Tensor], dict[str, Any]], object]


def saved_by_other_code(state: Path, change: Change) -> bytes:
    """Change a state, and write it as the other code would have: with the right checksums."""
    tensors, meta = load_tensors(state)
    change(tensors, meta)
    save_tensors(state, tensors, meta)
    return state.read_bytes()


def wider(name: str) -> Change:
    def change(tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        assert name in tensors, sorted(tensors)
        tensors[name] = torch.cat((tensors[name], tensors[name]))

    return change


def without(name: str) -> Change:
    return lambda tensors, meta: tensors.pop(name) if name in tensors else meta.pop(name)


def one_line(error: ArtefactError, folder: Path) -> None:
    text = str(error)
    assert text.startswith(f"{folder}: its state does not fit this code (")
    assert text.endswith("run the same command with the code that saved it, or delete the folder to train from step 0")
    assert "\n" not in text


@pytest.mark.parametrize(
    "change",
    [
        wider("agent/actor.mlp.weights.0"),
        wider("generator"),
        without("agent/actor.mlp.weights.0"),
        without("lanes"),
    ],
)
def test_a_skills_checkpoint_of_other_code_is_refused_with_a_remedy(change: Change, tmp_path: Path) -> None:
    config, folder = tiny_config(), tmp_path / "skill.checkpoint"
    job = config.skill_job("point", "disk", 0, 0)

    def training() -> Training:
        return Training(skill_parts(job, [], CPU), config.runtime, Checkpoint(folder, "stamp"))

    first = training()
    first.save_if_due(now=True)
    first.checkpoint.close()
    before = saved_by_other_code(folder / "state.safetensors", change)
    with pytest.raises(ArtefactError) as caught:
        training().resume()
    one_line(caught.value, folder)
    assert (folder / "state.safetensors").read_bytes() == before


@pytest.fixture(scope="module")
def stopped(small_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The curve of a controller whose training was stopped, with its checkpoint beside it."""
    out, count, step = tmp_path_factory.mktemp("stopped") / "hierarchy/seed0.csv", 0, disk.GoalEnv.step

    def stopping(self: Any, action: np.ndarray) -> Any:
        nonlocal count
        count += 1
        if count == 5000:
            signal.raise_signal(signal.SIGTERM)
        return step(self, action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.GoalEnv, "step", stopping)
        with pytest.raises(Interrupted):
            train("random", small_runs, out, settings_of())
    return out


@pytest.mark.parametrize(
    "change",
    [wider("policy/mlp_extractor.policy_net.0.weight"), wider("generator/torch"), without("lanes"), without("numpy")],
)
def test_a_controllers_checkpoint_of_other_code_is_refused_with_a_remedy(
    change: Change, stopped: Path, small_runs: dict[str, Path]
) -> None:
    state = stopped.with_suffix(".checkpoint") / "state.safetensors"
    whole = state.read_bytes()
    before = saved_by_other_code(state, change)
    with pytest.raises(ArtefactError) as caught:
        train("random", small_runs, stopped, settings_of())
    one_line(caught.value, state.parent)
    assert state.read_bytes() == before
    state.write_bytes(whole)


@pytest.mark.parametrize("error", [ConfigError("a"), ArtefactError("b"), NotFiniteError("c"), MemoryError("d")])
def test_errors_with_a_remedy_of_their_own_keep_it(error: Exception, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c", "stamp")
    with pytest.raises(type(error)) as caught, checkpoint.restoring():
        raise error
    assert caught.value is error
    assert isinstance(error, DiskError | MemoryError)
