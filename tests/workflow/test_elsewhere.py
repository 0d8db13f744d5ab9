"""The workflow outside its checkout: in another working directory, and as a module of another workflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import PROJECT

TEST = PROJECT / ".test/config/config.yaml"
TARGET = "results/point/disk/seed0/metrics.csv"
PARENT = f"""
module skills:
    snakefile:
        "{PROJECT}/workflow/Snakefile"
    config:
        config
    prefix:
        "lib"


use rule * from skills as skills_*


rule copy:
    input:
        "lib/{TARGET}",
    output:
        "mine.csv",
    default_target: True
    shell:
        "cp {{input}} {{output}}"
"""


def snakemake(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_runs_in_another_directory_and_as_a_module_with_the_same_bytes(tmp_path: Path) -> None:
    there, parent = tmp_path / "there", tmp_path / "parent"
    (there / "config").mkdir(parents=True)
    shutil.copy(TEST, there / "config")
    snakemake(PROJECT, TARGET, "--directory", str(there))
    assert (there / TARGET).read_text().startswith("condition,skill,metric,value")
    assert "Nothing to be done" in snakemake(PROJECT, TARGET, "-n", "--directory", str(there))

    parent.mkdir()
    (parent / "Snakefile").write_text(PARENT)
    planned = snakemake(parent, "-n", "--configfile", str(TEST))
    assert [planned.count(f"rule skills_{name}:") for name in ("train_skill", "bundle_skills", "rollout")] == [2, 1, 1]
    snakemake(parent, "--configfile", str(TEST))
    assert (parent / "mine.csv").read_bytes() == (there / TARGET).read_bytes()
    policy = "results/point/disk/seed0/skill01/policy.safetensors"
    assert (parent / "lib" / policy).read_bytes() == (there / policy).read_bytes()
    assert not (parent / "results").exists(), "the claim on results is below the prefix too"
    assert "Nothing to be done" in snakemake(parent, "-n", "--configfile", str(TEST))


def test_without_any_configuration_the_defaults_of_the_package_are_planned(tmp_path: Path) -> None:
    snakefile = str(PROJECT / "workflow/Snakefile")
    planned = snakemake(tmp_path, "-n", "-s", snakefile, "results/point/disk/seed0/metrics.csv")
    assert planned.count("rule train_skill:") == 8
