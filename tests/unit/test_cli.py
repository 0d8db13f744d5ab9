"""The command line: wrong arguments are one line and write nothing, and suggested commands can be pasted."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import disk
from disk.cli import main, parser
from disk.config import PROJECT, load
from disk.errors import ConfigError
from disk.learning.run import train_run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "point", "--seed", "-1"], "--seed: -1: expected a whole number, 0 or more"),
        (["train", "point", "--seed", "two"], "--seed: two: expected a whole number, 0 or more"),
        (["train", "point", "--skills", "0"], "--skills: 0: expected a whole number, 1 or more"),
        (["train", "point", "--threads", "0"], "--threads: 0: expected a whole number, 1 or more"),
        (["evaluate", "run", "--latent-sets", "0"], "--latent-sets: 0: expected a whole number, 1 or more"),
        (["doctor", "--device", "gpu"], "--device: gpu: expected cpu, cuda, or one GPU, such as cuda:0"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line_before_anything_is_written(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--log", "train.log"])
    assert stopped.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not list(tmp_path.iterdir())


def test_a_path_that_configfile_swallowed_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gallery", "--configfile", "config/quick.yaml", "results/quick/point"]
    monkeypatch.setattr(sys, "argv", ["disk", *words])
    with pytest.raises(SystemExit):
        main(words)
    [line] = capsys.readouterr().err.splitlines()
    assert "required: results (--configfile takes every path after it: write it last)" in line


@pytest.mark.parametrize("method", ["diayn", "random"])
def test_a_number_of_skills_is_refused_for_a_method_that_makes_all_of_them_together(
    method: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"--skills: 2: {method} makes all its skills together: expected"):
        train_run(load(), tmp_path, "point", method, 0, 2, lambda out: nullcontext())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "job", "said"),
    [
        ("train-skill", "{", "a SkillJob as JSON:\n'{': invalid JSON"),
        ("train-joint", "[]", "a JointJob as JSON:\n[]: input should be an object"),
        ("train-hierarchy", '{"env": 3}', "a HierarchyJob as JSON:\nenv: 3: input should be a valid string"),
    ],
)
def test_a_job_that_is_none_is_refused_with_what_was_expected(
    command: str, job: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([command, "--job", job, "--out", str(tmp_path / "out" / "file")]) == 2
    assert f"--job: expected the settings of {said}" in caplog.text
    assert "Traceback" not in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for log in (tmp_path, tmp_path / "file" / "train.log"):
        assert main(["doctor", "--log", str(log)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert f"--log: {log}: cannot be written: " in line


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"disk {disk.__version__}\n"


def test_the_next_command_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    results, preset = tmp_path / "my results", tmp_path / "a preset.yaml"
    preset.write_text("tracking:\n  enabled: false\n")
    words = ["train", "point", "random", "--results", str(results), "--configfile", str(preset)]
    done = subprocess.run(
        [sys.executable, "-m", "disk", *words], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    _, _, suggested = done.stdout.strip().partition("Next: ")
    python, module, package, *command = shlex.split(suggested)
    assert (python, module, package) == ("python", "-m", "disk")
    arguments = parser().parse_args(command)
    assert (arguments.run / "skills.safetensors").exists()
    assert arguments.configfile == [preset]
