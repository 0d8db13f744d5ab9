"""The chain in Snakemake: what a change plans, what is refused, what a kill costs; on a tiny point robot."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT, once

TINY = {
    "seeds": [0],
    "runs": [{"envs": ["point"], "methods": ["disk", "diayn", "random"]}],
    "environments": {
        "point": {
            "skills": 3,
            "steps": [400, 400, 400],
            "sac": {"hidden": [16, 16], "seed_steps": 50, "batch_size": 32},
            "test_horizon": 20,
            "snapshots": [500, 1000],
        }
    },
    "diayn": {"hidden": [16]},
    "disk": {"past_states": 200},
    "runtime": {"checkpoint_minutes": 0.002},
    "tracking": {"enabled": False},
}


class Project:
    """A copy of the workflow in a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("workflow", "config", "profiles"):
            shutil.copytree(PROJECT / name, path / name)
        shutil.copy(PROJECT / "Snakefile", path)
        self.configure()

    @classmethod
    def at(cls, path: Path) -> Project:
        """A copy that is there already."""
        project = cls.__new__(cls)
        project.path = path
        return project

    def configure(self, **changes: object) -> None:
        from disk.config import merge

        (self.path / "tiny.yaml").write_text(yaml.safe_dump(merge(TINY, changes)))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments, "--configfile", "tiny.yaml"]
        return subprocess.Popen(
            command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def run(self, *arguments: str, ok: bool = True) -> str:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=1200)
        assert (process.returncode == 0) == ok, output
        return output

    def planned(self, *arguments: str) -> Counter[str]:
        """How many jobs of each rule a dry run plans."""
        output = self.run("-n", *arguments)
        if "Nothing to be done" in output:
            return Counter()
        table = output.split("Job stats:")[1].split("Reasons:")[0]
        rows = (line.split() for line in table.splitlines())
        return Counter({row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()})

    def bytes(self, pattern: str) -> dict[str, bytes]:
        return {str(path.relative_to(self.path)): path.read_bytes() for path in sorted(self.path.glob(pattern))}


POLICIES = "results/point/disk/seed0/skill*/policy.safetensors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.at(once(tmp_path_factory, "finished", lambda folder: Project(folder).run()))


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A finished run that a test may change."""
    shutil.copytree(finished.path, tmp_path / "copy", symlinks=True)
    return Project.at(tmp_path / "copy")


def test_a_finished_run_has_its_tables_figures_and_nothing_left_to_do(finished: Project) -> None:
    env = finished.path / "results/point"
    tables = ("hausdorff.csv", "summary.csv", "runs.csv")
    drawn = ("trajectories.svg", "hausdorff.svg", "consistency.svg", "curves.svg", "disk/seed0/order.svg")
    for name in (*tables, *drawn):
        assert (env / name).stat().st_size > 100
    for name in ("statistics.csv", "profiles.csv", "profiles.svg"):
        assert (env.parent / name).stat().st_size > 50
    for method in ("disk", "diayn", "random"):
        lines = (env / method / "seed0/metrics.csv").read_text()
        assert all(f"nominal,-1,{metric}," in lines for metric in ("movers", "distinct", "goal_distance"))
    assert not list(env.rglob("*.checkpoint"))
    assert not list(env.rglob("*.tmp"))
    header = (env / "hausdorff.csv").read_text().splitlines()[0]
    assert header == "method,seed,condition,skill,hausdorff,isolation"
    assert finished.planned() == Counter()


def test_the_scheduler_looks_for_jobs_when_one_has_ended_and_not_ever_more_often(project: Project) -> None:
    drawn = list((project.path / "results/point").glob("*.svg"))
    for path in drawn:
        path.unlink()
    looks = project.run("--verbose").count("Resources before job selection")
    assert len(drawn) <= looks <= 2 * len(drawn)


def test_quickstart_prints_a_line_for_each_finished_skill_and_no_blocks_of_snakemake(project: Project) -> None:
    printed = subprocess.run(["make", "-n", "quickstart"], cwd=PROJECT, capture_output=True, text=True, check=True)
    (line,) = [line for line in printed.stdout.splitlines() if line.startswith("snakemake")]
    command = line.replace("config/quick.yaml", "tiny.yaml")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def quickstart() -> subprocess.CompletedProcess[str]:
        words = ["bash", "-c", command]
        return subprocess.run(words, cwd=project.path, env=environment, capture_output=True, text=True, check=False)

    env = project.path / "results/point"
    for lost in ("disk/seed0/skill02", "disk/seed0/rollouts", "random"):
        shutil.rmtree(env / lost)
    for lost in ("hausdorff.csv", "summary.csv", "disk/seed0/metrics.csv", "disk/seed0/skills.safetensors"):
        (env / lost).unlink()
    found = quickstart()
    assert found.returncode == 0, found.stdout
    said = sorted(line.partition(" ")[2] for line in found.stdout.splitlines())  # without the time
    assert re.fullmatch(r"results/point/disk/seed0: skill 3 of 3 learned: (stands still|[\d.]+ m, [a-z-]+)", said[0])
    assert re.fullmatch(r"results/point/random/seed0: all 3 skills drawn at random; the farthest: .+", said[1])
    assert len(said) == 2

    (env / "disk/seed0/skills.safetensors").write_bytes(b"torn")
    for lost in ("hausdorff.csv", "disk/seed0/metrics.csv", "disk/seed0/rollouts/nominal.parquet"):
        (env / lost).unlink()
    broken = quickstart()
    assert broken.returncode != 0
    assert "rollout.nominal.log" in broken.stdout, "the log of the job that failed"


def test_a_report_is_made_of_what_there_is_and_computes_nothing(project: Project) -> None:
    env = project.path / "results/point"
    for lost in ("hausdorff.svg", "diayn/seed0/metrics.csv"):
        (env / lost).unlink()
    command = [sys.executable, "workflow/scripts/report.py", "report.html", "tiny.yaml"]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (project.path / "report.html").read_text()
    assert not (env / "hausdorff.svg").exists()
    assert "disk (1 seed, 1,200 steps), diayn (1 seed, 1,200 steps), random (1 seed, untrained)" in report
    for name in ("trajectories", "consistency", "training curves", "order learned, disk, seed 0", "todays_code"):
        assert name in report
    assert "mean Hausdorff distance" not in report
    (summary,) = re.findall(r"var workflow_desc = (.*);\n", report)  # what the report opens on
    assert all(part in summary for part in ("DISk", "Hausdorff (m)", "data:image/svg+xml", "gallery/index.html"))
    assert re.search(r'var metadata = {"Runs": 2,', report), "with metadata, it does not open on the graph of rules"
    shutil.rmtree(project.path / "results")
    refused = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "nothing has been drawn yet for tiny.yaml" in refused.stderr


def test_the_doctor_names_the_command_that_makes_a_lost_or_damaged_file_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from disk import doctor

    monkeypatch.setattr(doctor, "PROJECT", project.path)
    results, presets = project.path / "results", [project.path / "tiny.yaml"]
    assert doctor.examine(results, presets).commands == [f"{results}: everything is finished"]
    run = results / "point/disk/seed0"
    expected = project.bytes("results/point/disk/seed0/skill01/policy.safetensors")
    shutil.rmtree(run / "skill01")
    rollouts = run / "rollouts/nominal.parquet"
    whole, times = rollouts.read_bytes(), (rollouts.stat().st_atime_ns, rollouts.stat().st_mtime_ns)
    rollouts.write_bytes(whole[:-9])
    os.utime(rollouts, ns=times)
    assert project.planned() == Counter(), "Snakemake alone does not notice"
    [line] = doctor.examine(results, presets).commands
    said, _, command = line.partition(": ")
    assert said == "to make missing or damaged files"
    subprocess.run(shlex.split(f"{sys.executable} -m {command}"), cwd=project.path, check=True, capture_output=True)
    assert project.bytes("results/point/disk/seed0/skill01/policy.safetensors") == expected
    assert rollouts.read_bytes() == whole
    assert doctor.examine(results, presets).commands == [f"{results}: everything is finished"]


def test_another_threshold_for_movers_measures_again_and_trains_nothing(project: Project) -> None:
    project.configure(environments={"point": {"moves": 1.0}})
    planned = project.planned()
    assert (planned["measure"], planned["tabulate"], planned["statistics"]) == (3, 1, 1)
    assert not {"train_skill", "train_joint", "rollout", "rollout_snapshot"} & set(planned)


def test_skills_learned_together_are_beside_the_chain_with_their_snapshots(finished: Project) -> None:
    run = finished.path / "results/point/diayn/seed0"
    names = ["skills.safetensors", "snapshots/500.safetensors", "snapshots/1000.safetensors"]
    about = json.loads((run / "stats.json").read_text())
    assert sorted(about["checksums"]) == sorted(names)
    assert about["steps"] == 1200
    for name in (*names, "progress.csv", "metrics.csv"):
        assert (run / name).stat().st_size > 100
    assert "diayn" in (finished.path / "results/point/hausdorff.csv").read_text()


def test_other_snapshots_or_another_budget_train_the_joint_method_alone(project: Project) -> None:
    for changes in ({"environments": {"point": {"snapshots": [500]}}}, {"methods": {"diayn": {"steps": 900}}}):
        project.configure(**{"environments": {"point": {"snapshots": [500]}}, **changes})  # type: ignore[arg-type]
        planned = project.planned()
        assert [planned["train_skill"], planned["train_joint"]] == [0, 1]


def test_a_killed_joint_training_goes_on_and_gives_the_same_bytes(project: Project) -> None:
    pattern = "results/point/diayn/seed0/**/*.safetensors"
    expected = project.bytes(pattern)
    shutil.rmtree(project.path / "results/point/diayn")
    process = project.start("results/point/diayn/seed0/skills.safetensors")
    state = project.path / "results/point/diayn/seed0/checkpoint/state.safetensors"
    while process.poll() is None and not state.exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert state.exists(), "it was killed before it had saved anything, or after it was done"
    assert not (project.path / "results/point/diayn/seed0/skills.safetensors").exists()
    project.run("results/point/diayn/seed0/skills.safetensors")
    assert "resuming at step" in (project.path / "logs/point/diayn/seed0/joint.log").read_text()
    assert project.bytes(pattern) == expected


def test_adding_a_skill_trains_exactly_that_skill(project: Project) -> None:
    before = project.bytes("results/point/disk/seed0/skill*/*")
    project.configure(environments={"point": {"skills": 4, "steps": [400] * 4}})
    planned = project.planned()
    assert planned["train_skill"] == 1
    assert planned["train_joint"] == 2  # four skills together instead of three
    project.run("results/point/disk/seed0/skills.safetensors")
    after = project.bytes("results/point/disk/seed0/skill*/*")
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)


def test_a_chain_with_a_learned_projection_grows_by_exactly_a_skill_and_draws_it(tmp_path: Path) -> None:
    project = Project(tmp_path / "new")
    run, point = "results/point/disk_learned/seed0", {"skills": 2, "steps": 100, "snapshots": []}
    runs, short = [{"envs": ["point"], "methods": ["disk_learned"]}], {"updates": 20}
    project.configure(runs=runs, environments={"point": point}, projection=short)
    project.run(f"{run}/skills.safetensors", f"{run}/projection.svg")
    assert (project.path / run / "projection.svg").stat().st_size > 1000
    before = project.bytes(f"{run}/skill0?/*")
    assert f"{run}/skill01/projection.safetensors" in before
    assert project.planned(f"{run}/skills.safetensors", f"{run}/projection.svg") == Counter()
    project.configure(runs=runs, environments={"point": {**point, "skills": 3}}, projection=short)
    planned = project.planned(f"{run}/skills.safetensors", f"{run}/projection.svg")
    assert planned["train_skill"] == 1
    assert planned["projection"] == 1, "it shows the last skill's φ"
    assert project.bytes(f"{run}/skill0?/*") == before


def test_a_fork_trains_what_comes_after_it_and_takes_the_rest_from_its_parent(project: Project) -> None:
    forks = {name: {"fork": {"after": 2}} for name in ("disk_fork_reuse", "disk_fork_fresh")}
    runs = [{"envs": ["point"], "methods": ["disk", *forks]}]
    project.configure(runs=runs, methods=forks)
    assert project.planned()["train_skill"] == 2, "one a fork"
    fork = "results/point/disk_fork_fresh/seed0"
    replay = project.path / "results/point/disk/seed0/skill00/replay.safetensors"
    replay.unlink()
    assert project.planned(f"{fork}/skill02/policy.safetensors")["train_skill"] == 1, "without reuse, no such edge"
    project.run(f"{fork}/skills.safetensors")
    assert [path.name for path in sorted((project.path / fork).glob("skill[0-9]*"))] == ["skill02"]
    assert "is before the fork" in project.run("-n", f"{fork}/skill01/policy.safetensors", ok=False)


def test_changing_the_third_skills_steps_plans_the_third_and_later(project: Project) -> None:
    project.configure(environments={"point": {"steps": [400, 400, 500]}})
    assert project.planned()["train_skill"] == 1
    project.configure(environments={"point": {"steps": [400, 500, 400]}})
    assert project.planned()["train_skill"] == 2
    project.configure(environments={"point": {"steps": [500, 400, 400]}})
    assert project.planned()["train_skill"] == 3


def test_what_does_not_change_a_result_plans_nothing(project: Project) -> None:
    project.configure(
        runtime={"checkpoint_minutes": 9, "log_every": 77, "device": "cpu"},
        tracking={"interval_seconds": 3},
        evaluation={"threads": 1},
        threads=2,
    )
    planned = project.planned()
    assert planned["train_skill"] == planned["rollout"] == 0
    project.configure()
    later = time.time() + 60
    for path in [*project.path.rglob("*.py"), *project.path.rglob("*.smk"), project.path / "Snakefile"]:
        os.utime(path, (later, later))  # what a git checkout does
    for path in (project.path / "config").iterdir():
        os.utime(path, (later, later))
    assert project.planned() == Counter()


def test_touching_the_package_plans_nothing(project: Project) -> None:
    """The package is installed beside the workflow, so touch a copy of it that comes first on the path."""
    shutil.copytree(PROJECT / "disk", project.path / "disk")
    later = time.time() + 60
    for path in (project.path / "disk").rglob("*.py"):
        os.utime(path, (later, later))
    (project.path / "disk/learning/sac.py").write_text(
        (PROJECT / "disk/learning/sac.py").read_text() + "\nEDITED = True\n"
    )
    assert project.planned() == Counter()


def test_a_code_change_retrains_where_the_configuration_says_so(project: Project) -> None:
    project.configure(retrain_on_code_change=True)
    assert project.planned()["train_skill"] == 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sac": {"batchsize": 3}}, ["sac.batchsize", "batch_size"]),
        ({"runs": [{"envs": ["pint"], "methods": ["disk"]}]}, ["runs.0.envs", "'pint'", "point"]),
        ({"runs": [{"envs": ["point"], "methods": ["dsk"]}]}, ["runs.0.methods", "'dsk'", "disk"]),
        ({"environments": {"point": {"steps": -5}}}, ["environments.point.steps", "-5", "greater than or equal to 0"]),
        ({"environments": {"point": {"steps": [400, 400]}}}, ["environments.point", "2 entries", "skills is 3"]),
        ({"sac": {"discount": "high"}}, ["sac.discount", "'high'", "number"]),
    ],
)
def test_a_bad_configuration_is_refused_before_any_job(
    project: Project, changes: dict[str, object], expected: list[str]
) -> None:
    project.configure(**changes)
    output = project.run(ok=False)
    assert all(part in output for part in expected), output
    assert "Traceback" not in output
    assert "rule train_skill" not in output


def test_a_key_that_a_file_has_twice_is_refused_before_any_job(project: Project) -> None:
    """Snakemake reads the files itself, and keeps the last of two keys."""
    twice = project.path / "tiny.yaml"
    twice.write_text("environments: {point: {skills: 2}}\nseeds: [0]\nenvironments: {point: {skills: 1}}\n")
    output = project.run("-n", ok=False)
    assert "tiny.yaml, line 3: key 'environments' is already in line 1" in output
    assert "Traceback" not in output


def test_a_truncated_earlier_policy_is_named(project: Project) -> None:
    policy = project.path / "results/point/disk/seed0/skill00/policy.safetensors"
    stat = policy.stat()
    policy.write_bytes(policy.read_bytes()[:100])
    os.utime(policy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    shutil.rmtree(project.path / "results/point/disk/seed0/skill02")
    output = project.run(
        "results/point/disk/seed0/skill02/policy.safetensors", "--allowed-rules", "train_skill", ok=False
    )
    assert "skill00/policy.safetensors: is damaged" in output
    assert "run the same command again" in output


@pytest.mark.slow
def test_killed_controllers_and_trainers_go_on_with_the_same_command(tmp_path: Path) -> None:
    """kill -9 at several moments, of the controller alone or of everything: the same bytes in the end.

    DISK_KILLS=10 kills more often, in longer trainings.
    """
    kills, target = int(os.environ.get("DISK_KILLS", "4")), "results/point/disk/seed0/skills.safetensors"
    undisturbed, project = Project(tmp_path / "undisturbed"), Project(tmp_path / "killed")
    for each in (undisturbed, project):
        each.configure(environments={"point": {"steps": [250 * kills] * 3}})
    undisturbed.run(target)
    landed = 0
    for kill in range(kills):
        process = project.start(target)
        _wait_for_training(project, process, seconds=0.3 + 0.5 * (kill % 4))
        if process.poll() is not None:
            break
        if kill % 2:
            process.kill()  # the controller; its trainer goes on as an orphan, which the next one waits for
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        landed += 1
    assert landed >= 2, "training was over before it could be killed in both ways"
    project.run(target)
    same = "results/point/disk/seed0/skill*/*"
    ours, theirs = project.bytes(same), undisturbed.bytes(same)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        if name.endswith(".json"):
            apart = {"seconds": 0, "cpu_seconds": 0, "commit": ""}  # somebody may commit while the tests run
            assert json.loads(ours[name]) | apart == json.loads(theirs[name]) | apart
        elif not name.endswith(".csv"):
            assert ours[name] == theirs[name], name


def _wait_for_training(project: Project, process: subprocess.Popen[str], seconds: float) -> None:
    """Let the current skill train for a while."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if list(project.path.glob("results/point/disk/seed0/*.checkpoint/lease")):
            time.sleep(seconds)
            return
        time.sleep(0.05)
