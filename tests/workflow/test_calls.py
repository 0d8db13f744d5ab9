"""How Snakemake is called: what a call may write, what it may ask for, and what it may say on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT
from invocation import arguments
from test_workflow import Project

from disk.storage import lock

TWO_MODULES = f"""
module first:
    snakefile:
        "{PROJECT}/workflow/Snakefile"
    config:
        config
    prefix:
        "first"


use rule * from first as first_*


module second:
    snakefile:
        "{PROJECT}/workflow/Snakefile"
    config:
        config
    prefix:
        "second"


use rule * from second as second_*


rule both:
    input:
        "first/results/point/disk/seed0/metrics.csv",
        "second/results/point/disk/seed0/metrics.csv",
    default_target: True
"""
READS = ("-n", "--lint", "--list-rules", "--summary")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.mark.slow
def test_calls_that_run_nothing_take_no_lock_and_write_nothing_below_results(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in READS:
        project.run(call)
        assert not (project.path / "results").exists(), call
        assert not [*project.path.glob(".snakemake/locks/*")], call
    monkeypatch.chdir(tmp_path)  # another directory's Snakemake is at work on the same results
    with lock.claim(project.path / "results"):
        for call in READS:
            project.run(call)
        refused = project.run("results/point/random/seed0/skills.safetensors", ok=False)
    assert "another Snakemake is at work on these results" in refused
    assert [path.name for path in (project.path / "results").iterdir()] == [".controller"]


def test_a_workflow_may_use_this_one_twice(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(TWO_MODULES)
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{os.environ.get('PYTHONPATH', '')}"}
    made = [f"{name}/results/point/disk/seed0/skill00/policy.safetensors" for name in ("first", "second")]
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *made, "--configfile"]
    command += [str(PROJECT / ".test/config/config.yaml")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / made[0]).read_bytes() == (tmp_path / made[1]).read_bytes()


def test_a_process_that_asks_again_whether_it_lives_gets_the_locks_that_it_has(tmp_path: Path) -> None:
    held = lock.stay_alive(tmp_path / "locks")
    assert lock.stay_alive(tmp_path / "locks") is held
    assert len([*(tmp_path / "locks").iterdir()]) == 2


def test_numbers_and_booleans_in_braces_and_brackets_are_understood(project: Project) -> None:
    given = ["runtime={longest_minutes: 600}", "seeds=[1]", "evaluation={episodes: 3}", "tracking={enabled: false}"]
    rules = project.planned("results/point/hausdorff.csv", "--config", *given)
    assert rules["train_skill"] == 3
    output = project.run("-n", "results/point/disk/seed1/metrics.csv", "--config", *given)
    assert "'600'" not in output
    refused = project.run("-n", "--config", "runtime={longest_minutes: soon}", ok=False)
    assert "runtime.longest_minutes: 'soon'" in refused


def test_values_of_options_are_no_targets(project: Project) -> None:
    planned = project.planned("results/point/hausdorff.csv", "--report-stylesheet", "results/quick/report.css")
    assert planned["tabulate"] == 1
    assert arguments(["python", "-n", "results/point/hausdorff.csv"]) is None
    found = arguments(["bin/snakemake", "--configfile", "a.yaml", "b.yaml", "--cores", "1", "--", "results/x.csv"])
    assert found is not None
    assert found.targets == ["results/x.csv"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("results/laptop/hopper/hausdorff.csv", "add --configfile config/laptop.yaml after the target"),
        ("results/compare/point/hausdorff.csv", "add --configfile config/quick.yaml config/compare.yaml after the"),
        ("results/pont/hausdorff.csv", "unknown environment 'pont'; did you mean 'point'?"),
        ("results/walker/hausdorff.csv", "known: ant, "),
        ("results/point/hausdorf.csv", "did you mean results/point/hausdorff.csv?"),
        ("figurs", "did you mean figures?"),
    ],
)
def test_a_target_that_no_rule_makes_is_refused_with_an_advice(project: Project, target: str, said: str) -> None:
    output = project.run("-n", target, ok=False)
    assert f"{target}: " in output
    assert said in output


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("point/disk/seed0/skill07/policy.safetensors", "environments.point: has 3 skills, skill00 to skill02"),
        ("point/diayn/seed0/rollouts/nominal@700.parquet", "at step 700; expected one of: 500, 1000"),
        ("point/random/seed0/rollouts/nominal@500.parquet", "methods.random: learns nothing"),
        ("ant/diayn/seed0/rollouts/nominal@1000.parquet", "environments.ant.snapshots: no snapshot is taken"),
        ("point/disk/seed0/projection.svg", "methods.disk: no projection.svg: its σ in point is given"),
        ("point/forgetting.csv", "environments.point.evolution: missing: nothing is forgotten"),
        ("downstream.svg", "runs: no group has `hierarchy: true`"),
    ],
)
def test_a_target_that_can_never_exist_is_refused_before_any_training(project: Project, target: str, said: str) -> None:
    output = project.run("-n", f"results/{target}", ok=False)
    assert said in output
    assert "Job stats" not in output


def test_targets_beside_those_that_can_never_exist_are_planned(project: Project) -> None:
    project.configure(methods={"disk_own": {"like": "disk", "sigma": "learned"}})
    run = "results/point/{}/seed0"
    planned = project.planned(
        f"{run.format('diayn')}/rollouts/nominal@500.parquet", f"{run.format('disk_own')}/projection.svg"
    )
    assert (planned["rollout_snapshot"], planned["projection"]) == (1, 1)
    assert project.planned("results/point_blocks/forgetting.csv")["forgetting"] == 1
    assert project.planned("results/point/downstream.svg")["downstream"] == 1


def test_without_run_groups_targets_can_be_given_by_path(project: Project) -> None:
    project.configure(runs=[], tracking={"enabled": True})
    assert project.planned()["track"] == 1
    assert project.planned("results/point/random/seed0/metrics.csv")["train_joint"] == 1


def test_a_report_of_a_file_that_is_not_there_is_refused_in_one_line(project: Project) -> None:
    command = [sys.executable, "workflow/scripts/report.py", "report.html", "config/quik.yaml"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("config/quik.yaml: cannot be read: ")
