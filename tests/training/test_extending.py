"""docs/extending.md, followed to the letter on a copy of the project."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT, TINY

BLOCK = re.compile(r"```(python|diff)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"^`([\w./]+)`:$", re.MULTILINE)


def follow(page: str, project: Path) -> list[str]:
    """Do what the page says: new files from its Python blocks, changes from its diffs; the files it names."""
    places = [(match.start(), match[1]) for match in FILE.finditer(page)]
    changed = []
    for block in BLOCK.finditer(page):
        name = [name for start, name in places if start < block.start()][-1]
        path = project / name
        changed.append(name)
        if block[1] == "python":
            assert not path.exists()
            path.write_text(block[2])
            continue
        lines = block[2].splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        text = path.read_text()
        assert text.count(old) == 1, f"{name} has this {text.count(old)} times:\n{old}"
        path.write_text(text.replace(old, new))
    return changed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("disk", "config"):
        shutil.copytree(PROJECT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_one_file_and_its_rows_add_an_objective_that_trains(project: Path):
    changed = follow((PROJECT / "docs/extending.md").read_text(), project)
    assert changed == ["disk/learning/objectives/speed.py", "config/config.yaml", "config/methods.yaml"]
    tiny = {**TINY, "tracking": {"enabled": False}, "pathvars": {"results": "results"}}
    (project / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    command = [sys.executable, "-m", "disk", "train", "point", "speed", "--configfile", "tiny.yaml"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, env={"PATH": ""}, check=False)
    assert done.returncode == 0, done.stderr
    run = project / "results/point/speed/seed0"
    assert (run / "skills.safetensors").exists()
    with (run / "progress.csv").open() as file:
        rewards = [float(row["reward/mean"]) for row in csv.DictReader(file)]
    assert all(-1.5 < reward <= 0.0 for reward in rewards)


def test_what_the_page_adds_passes_the_projects_type_checks(project: Path):
    follow((PROJECT / "docs/extending.md").read_text(), project)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(PROJECT / "pyproject.toml"),
            "disk/learning/objectives/speed.py",
        ],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


COPIED = """
class Mine(Model):
    hidden: list[PositiveInt]
    learning_rate: PositiveFloat
    sees: str
"""
OTHER = {
    "the settings of another objective": ("from disk.learning.objectives.diayn import Diayn as Mine", "diayn.py"),
    "another objective's keys": (COPIED, "diayn.py"),
    "another objective's keys and one more that may be left out": (f"{COPIED}    mine: int = 0\n", "diayn.py"),
    "the settings of the chain's objective": ("from disk.config.settings import Incremental as Mine", "incremental.py"),
    "a required key of its own": (f"{COPIED}    mine: int\n", None),
    "fewer keys than another objective": ("class Mine(Model):\n    hidden: list[PositiveInt]\n", None),
}


@pytest.mark.parametrize("case", OTHER)
def test_an_objective_whose_settings_could_be_anothers_is_refused_with_both_files(case: str, project: Path):
    settings, other = OTHER[case]
    (project / "disk/learning/objectives/mine.py").write_text(
        "from pydantic import PositiveFloat, PositiveInt\n\nfrom disk.config.settings import Model\n"
        f"from disk.learning.objectives import Kind\n\n{settings}\n\nOBJECTIVE = Kind(Mine, print)\n"
    )
    code = (
        "from disk.config.objectives import name_of, objectives, settings_from as read; "
        "kinds = objectives(); "
        "diayn = read({'hidden': [8], 'learning_rate': 0.1, 'sees': 'sigma'}); "
        "print(sorted(kinds), name_of(diayn))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    if other is None:
        assert done.stdout.strip() == "['dads', 'diayn', 'metra', 'mine'] diayn", done.stderr
    else:
        error = done.stderr.splitlines()[-1]
        assert error.startswith("disk.errors.ConfigError: disk/learning/objectives/")
        assert "mine.py" in error
        assert other in error
