"""Skills that travel: exported and loaded back, they act as they did at home."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import tiny_config

import disk
from disk.cli import main
from disk.errors import ArtefactError
from disk.evaluation.run import evaluate_run
from disk.evaluation.tables import read_csv
from disk.sharing.export import NAMES, export
from disk.storage.layout import METRICS

METHODS = ["disk", "diayn", "metra"]


@pytest.fixture
def runs(small_runs: dict[str, Path]) -> dict[str, Path]:
    return small_runs


@pytest.mark.parametrize("method", METHODS)
def test_exported_actions_equal_torchs_on_a_thousand_observations(
    method: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    import onnxruntime

    skills = disk.load(runs[method])
    seen = np.random.default_rng(7).normal(scale=2.0, size=(1000, skills.observation_size)).astype(np.float32)
    models = {form: export(runs[method], form, tmp_path / form) for form in NAMES}
    session = onnxruntime.InferenceSession(str(models["onnx"]))
    again = disk.load(models["safetensors"])
    for index, skill in enumerate(skills):
        expected = skill.act(seen)
        [onnx] = session.run(["action"], {"observation": seen, "skill": np.array([index])})
        assert np.abs(onnx - expected).max() < 1e-5
        assert np.array_equal(again[index].act(seen), expected)
    mixed = np.arange(len(seen)) % len(skills)
    [onnx] = session.run(["action"], {"observation": seen, "skill": mixed})
    alone = np.stack([skill.act(seen) for skill in skills])[mixed, np.arange(len(seen))]
    assert np.abs(onnx - alone).max() < 1e-5, "a number per row"
    apart = [session.run(None, {"observation": seen, "skill": np.array([index])})[0] for index in range(len(skills))]
    assert not np.allclose(apart[0], apart[1], atol=1e-3), "the number of the skill makes a difference"


def test_the_card_says_what_one_needs_to_know(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "point/disk/seed0"
    shutil.copytree(runs["disk"], run)
    assert main(["export", str(run), "--format", "onnx"]) == 0
    folder = run / "export/onnx"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", NAMES["onnx"]]
    assert "compared with the skills" in capsys.readouterr().out
    text = (folder / "README.md").read_text()
    for part in ("license: mit", "disk/Point-v0", "velocity of the position (qpos [0, 1])", "| method | disk |"):
        assert part in text
    for part in (
        "steps of training | 300 |",
        "| licence | MIT |",
        "| nominal | Hausdorff (m) ↑ |",
        "onnxruntime",
        "[0, 1]",
    ):
        assert part in text


def test_a_file_without_its_run_is_exported_too_and_nothing_is_written_over_it(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    file = Path(shutil.copy(runs["metra"] / "skills.safetensors", tmp_path))
    text = export(file, "onnx").with_name("README.md").read_text()
    assert "and the position behind it" in text
    assert "Not measured" in text
    assert "unknown" in text
    with pytest.raises(ArtefactError, match="is the file to export"):
        export(file, "safetensors", tmp_path)


def test_a_model_whose_actions_differ_is_not_left_behind(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        disk.sharing.export._READERS, "onnx", lambda content: lambda seen, skill: np.full((len(seen), 4), 9.0)
    )
    with pytest.raises(ArtefactError, match="its actions differ from"):
        export(runs["disk"], "onnx", tmp_path)
    assert not list(tmp_path.iterdir())


def test_skills_are_loaded_from_mlflow(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    from disk.tracking.mirror import mirror

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run = tmp_path / "results/point/diayn/seed0"
    shutil.copytree(runs["diayn"], run)
    mirror(run, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    client = MlflowClient(uri)
    [found] = client.search_runs([each.experiment_id for each in client.search_experiments()])
    expected = disk.load(run)
    for path in ("/skills.safetensors", ""):
        skills = disk.load(f"runs:/{found.info.run_id}{path}")
        assert np.array_equal(skills[1].act(np.ones(2)), expected[1].act(np.ones(2)))
    with pytest.raises(ArtefactError, match=r"runs:/0123.*cannot be fetched from sqlite"):
        disk.load("runs:/0123/skills.safetensors")


def test_tables_for_people_name_skills_by_both_numbers_and_measures_with_their_direction(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = shutil.copytree(runs["disk"], tmp_path / "point/disk/seed0")
    text = evaluate_run(tiny_config({"evaluation": {"episodes": 2}}), run)
    assert all(label in text for label in ("skill 1 (index 0)", "skill 3 (index 2)", "Hausdorff (m) ↑", "variance ↓"))
    assert "consistency" not in text
    assert {"consistency", "hausdorff"} <= set(read_csv(run / METRICS)["metric"]), "columns keep their names"
