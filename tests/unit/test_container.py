"""The images: linted, and the same installation as the Makefile's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT


@pytest.mark.parametrize("recipe", ["Containerfile", "Apptainer.def"])
def test_the_image_has_what_make_setup_installs(recipe: str):
    made = re.findall(r"-m pip install --quiet (.+)", (PROJECT / "Makefile").read_text().partition("quickstart:")[0])
    image = (PROJECT / recipe).read_text()
    installed = re.findall(r"-m pip install --no-cache-dir (.+?)(?:; \})?(?: \\)?$", image, re.MULTILINE)
    assert made == installed
    assert len(made) == 5
    lines = re.findall(r"^COPY (.+) \./|^    (\S+) /opt/disk/", image, re.MULTILINE)
    copied = " ".join(" ".join(line) for line in lines).split()
    assert {"pyproject.toml", "README.md", "requirements.lock", "requirements-torch.lock", "config", "disk"} == set(
        copied
    )
    assert all((PROJECT / name).exists() for name in copied)


def test_the_containerfile_has_no_lint():
    lint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([lint, PROJECT / "Containerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_workflow_names_the_image_that_is_built_from_it():
    image = re.search(r'^container: "(.+)"', (PROJECT / "workflow/Snakefile").read_text(), re.MULTILINE)
    assert image is not None
    assert f"apptainer build {image[1]} " in (PROJECT / "Containerfile").read_text()
