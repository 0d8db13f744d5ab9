"""Skills that are shipped: they do what their cards say, and publishing more of them works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import yaml
from conftest import deadly_child, tiny_config

import disk
from disk import cli
from disk import config as configuration
from disk.config import PROJECT
from disk.errors import ArtefactError
from disk.learning.run import train_run
from disk.sharing.card import CARD
from disk.sharing.export import NAMES, TOLERANCE, Format, export
from disk.sharing.publish import card_job, check_published, evaluations, publish
from disk.show import live

SHIPPED = sorted(path.parent for path in (PROJECT / "pretrained").glob("*/skills.safetensors"))


def test_skills_are_shipped_and_small():
    assert SHIPPED
    assert sum(path.stat().st_size for folder in SHIPPED for path in folder.iterdir()) < 10e6


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_shipped_skills_do_what_their_card_says(folder: Path):
    """All conditions, with the starts of all the card's sets."""
    assert "Hausdorff (m) ↑" in check_published(folder, threads=2)
    skills = disk.load(folder)
    assert skills.meta["env"] == folder.name
    assert skills[-1].act(np.zeros(skills.observation_size)).shape == (skills.meta["action_size"],)


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_shipped_skills_can_be_exported_in_every_format(folder: Path, form: Format, tmp_path: Path):
    """The exported model acts as the skills do, also where every row asks for another skill."""
    skills, path = disk.load(folder), export(folder, form, tmp_path)
    seen = np.random.default_rng(1).normal(size=(len(skills), skills.observation_size)).astype(np.float32)
    expected = np.stack([skill.act(obs) for skill, obs in zip(skills, seen, strict=True)])
    if form == "onnx":
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        [found] = session.run(["action"], {"observation": seen, "skill": np.arange(len(skills))})
    else:
        found = np.stack([skill.act(obs) for skill, obs in zip(disk.load(path), seen, strict=True)])
    wide = np.subtract(skills.meta["action_high"], skills.meta["action_low"])
    assert np.abs((found - expected) / wide).max() < TOLERANCE
    assert np.abs(expected[0] - expected[1]).max() > 0.01, "the skills differ, so a wrong number would be seen"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of the tiny point world, and its skills as they are published. Read only."""
    config, root = tiny_config({"evaluation": {"episodes": 3}}), tmp_path_factory.mktemp("runs")
    run = train_run(config, root / "results", "point", "disk", 0, None, lambda out: nullcontext())
    return run, publish(config, run, root / "pretrained").parent


def test_published_skills_are_the_runs_rounded_in_half_the_space(published: tuple[Path, Path]):
    run, folder = published
    assert (folder / "skills.safetensors").stat().st_size < 0.75 * (run / "skills.safetensors").stat().st_size
    seen = np.random.default_rng(0).normal(size=(100, 2))
    for exact, rounded in zip(disk.load(run), disk.load(folder), strict=True):
        assert 0 < np.abs(exact.act(seen) - rounded.act(seen)).max() < 0.01


def test_a_card_has_what_hubs_and_people_read(published: tuple[Path, Path]):
    text = (published[1] / CARD).read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    [model] = front["model-index"]
    metrics = {each["name"]: each["value"] for each in model["results"][0]["metrics"]}
    low, high = front["evaluations"]["nominal"]["measured"]["hausdorff"]
    assert 0 < low <= metrics["hausdorff, nominal"] <= high
    assert "| nominal | Hausdorff (m) ↑ |" in text
    assert "rounded to 16 bits" in text


def test_publishing_that_is_killed_never_leaves_skills_beside_the_card_of_others(
    published: tuple[Path, Path], tmp_path: Path
):
    config = tiny_config({"evaluation": {"episodes": 2}})
    other = train_run(config, tmp_path / "results", "point", "random", 0, None, lambda out: nullcontext())
    old = contents(published[1])
    new = contents(publish(config, other, tmp_path / "published").parent)
    assert old.keys() == new.keys() == {"skills.safetensors", CARD}
    assert old["skills.safetensors"] != new["skills.safetensors"]
    for writes in range(1, 40):
        shutil.rmtree(tmp_path / "published")
        shutil.copytree(published[1], tmp_path / "published")
        _, status = os.waitpid(deadly_child(writes, lambda: publish(config, other, tmp_path / "published")), 0)
        found = contents(tmp_path / "published")
        if not os.WIFSIGNALED(status):
            break
        whole = {name: file for name, file in found.items() if not name.endswith(".tmp")}
        assert whole in (old, new) or CARD not in whole, f"killed before write {writes}"
    assert found == new
    assert writes > 6, "two files are written, each with three calls"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_wrong_address_is_refused_before_anything_is_measured_or_written(
    published: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for address in ("nowhere", "hf://me", "hf://me/point@main"):
        assert cli.main(["publish", str(published[0]), "--out", str(tmp_path / "out"), "--to", address]) == 1
        assert "expected an address like hf://owner/name" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_a_shipped_card_says_what_differs_from_training(folder: Path):
    skills, environment = disk.load(folder), configuration.load().environment(folder.name)
    for condition, about in evaluations(folder / CARD).items():
        kwargs = environment.world_in(condition).kwargs
        assert about.get("kwargs") == (None if kwargs == skills.world.kwargs else kwargs)
        assert card_job(skills, about).world.kwargs == kwargs


def test_skills_trained_in_another_world_are_checked_and_shown_in_that_of_their_card(tmp_path: Path):
    """Training starts far from rest; the first condition starts closer than the row says."""
    row = {"kwargs": {"reset_noise_scale": 0.5}, "train_kwargs": {"reset_noise_scale": 9.0}, "skills": 2, "steps": 60}
    conditions = {"near": {"kwargs": {"reset_noise_scale": 0.01}}, "usual": 0, "far": {"kwargs": row["train_kwargs"]}}
    config = tiny_config({"evaluation": {"episodes": 2}, "environments": {"point": {**row, "conditions": conditions}}})
    run = train_run(config, tmp_path / "results", "point", "random", 0, None, lambda out: nullcontext())
    folder = publish(config, run, tmp_path / "published").parent
    table = check_published(folder)
    skills, found = disk.load(folder), evaluations(folder / CARD)
    for condition, about in found.items():
        assert card_job(skills, about) == config.evaluation_job("point", condition, "random")
        [own] = re.findall(rf"^{condition} +Hausdorff \(m\) ↑ +([\d.e+-]+)", table, re.MULTILINE)
        low, high = about["measured"]["hausdorff"]
        assert low <= float(own) <= high
    assert live._evaluation(folder, skills, None).job == config.evaluation_job("point", "near", "random")


def test_the_command_line_publishes_and_checks(published: tuple[Path, Path], tmp_path: Path):
    def disk_command(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "disk", *map(str, words)]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    run, _ = published
    refused = disk_command("publish", run, "--out", run)
    assert refused.returncode == 1
    assert "is the file to publish; give another --out" in refused.stderr
    done = disk_command("publish", run, "--out", tmp_path, "--configfile", "config/quick.yaml")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"skills.safetensors", CARD}
    again = disk_command("evaluate", tmp_path)
    played = disk_command(
        "play", tmp_path, "--skill", 1, "--out", tmp_path / "skill.mp4", "--configfile", "config/quick.yaml"
    )
    assert "skill 2 (index 1) of 3: written to" in played.stdout or "libegl1" in played.stderr, played.stderr
    assert re.search(r"nominal +Hausdorff \(m\) ↑ +[\d.]+ +[\d.]+ to [\d.]+\n", again.stdout), again.stderr


def test_skills_that_do_not_do_what_their_card_says_are_found(published: tuple[Path, Path], tmp_path: Path):
    for name in ("skills.safetensors", CARD):
        (tmp_path / name).write_bytes((published[1] / name).read_bytes())
    other = re.sub(r"(measured:\n\s+hausdorff: )\[.*\]", r"\1[100.0, 101.0]", (tmp_path / CARD).read_text())
    (tmp_path / CARD).write_text(other)
    with pytest.raises(ArtefactError, match="does not agree with the card"):
        check_published(tmp_path)
    (tmp_path / CARD).write_text("# no front matter")
    with pytest.raises(ArtefactError, match="is not a card of published skills"):
        check_published(tmp_path)
