"""MLflow shows what results/ holds, each point once, whatever is killed, resumed, repeated or unreachable."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import once, run_python

from disk.errors import TrackingError
from disk.storage.files import save_json, save_tensors, save_text
from disk.tracking.mirror import Sidecar, follow, mirror, resolve_uri
from disk.tracking.read import read_run

DEAD = "http://127.0.0.1:9"
HEADER = "time/total_timesteps,time/time_elapsed,time/fps,reward/mean,train/critic_loss"


def curve(steps: Iterable[int], speed: float = 100.0) -> str:
    """A training curve; its metrics depend on the step alone, its times on the machine too."""
    rows = [f"{step},{step / speed},{speed},{step / 7:.9g},{step / 11:.9g}" for step in steps]
    return "\n".join([HEADER, *rows]) + "\n"


def write_live(skill: Path, steps: Iterable[int], speed: float = 100.0) -> Path:
    live = skill.with_name(f"{skill.name}.checkpoint")
    skill.mkdir(parents=True, exist_ok=True)
    live.mkdir(exist_ok=True)
    save_json(live / "job.json", {"seed": 0, "steps": 1000, "sac": {"batch_size": 32}})
    (live / "progress.csv").write_text(curve(steps, speed))
    return live


def write_skill(skill: Path, text: str, **stats: Any) -> None:
    """The files that training leaves, in its order."""
    job = {"seed": 0, "steps": 1000, "sac": {"batch_size": 32, "hidden": [16, 16], "target_entropy": None}}
    save_text(skill / "progress.csv", text)
    defaults = {"alpha": 0.5, "beta": None, "steps": 1000, "seconds": 9.5, "commit": "abc", "config_hash": "c0"}
    save_json(skill / "stats.json", {"job": job, "code_hash": "d0", **defaults, **stats})
    save_tensors(skill / "policy.safetensors", {"weight": torch.ones(2)}, {"env": "point", "config_hash": "c0"})
    shutil.rmtree(skill.with_name(f"{skill.name}.checkpoint"), ignore_errors=True)


def write_run(run: Path, skills: int) -> Path:
    for skill in range(skills):
        write_skill(run / f"skill{skill:02d}", curve(range(100, 1001, 100)))
    save_tensors(run / "skills.safetensors", {"weight": torch.ones(skills)}, {"env": "point", "config_hash": "r0"})
    lines = [f"nominal,{skill},distance,{skill + 1}" for skill in range(skills)]
    lines += [f"nominal,{skill},hausdorff,{'nan' if skill else 2.5}" for skill in range(skills)]
    save_text(run / "metrics.csv", "\n".join(["condition,skill,metric,value", *lines, "nominal,-1,coverage,7"]) + "\n")
    return run


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store: making one takes seconds, copying one does not."""
    return once(tmp_path_factory, "schema", lambda at: mirror(at, f"sqlite:///{at}/mlflow.db")) / "mlflow.db"


@pytest.fixture
def root(tmp_path: Path, schema: Path) -> Path:
    (tmp_path / "results").mkdir()
    shutil.copy(schema, tmp_path / "results" / "mlflow.db")
    return tmp_path / "results"


@pytest.fixture
def uri(root: Path) -> str:
    return f"sqlite:///{root}/mlflow.db"


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def runs(uri: str) -> dict[str, Any]:
    """All runs by key, which must be unique."""
    experiments = [experiment.experiment_id for experiment in client(uri).search_experiments()]
    found = client(uri).search_runs(experiments)
    keyed = {run.data.tags["disk.key"]: run for run in found}
    assert len(keyed) == len(found)
    return keyed


def points(uri: str, run: Any, metric: str) -> list[tuple[int, float]]:
    history = client(uri).get_metric_history(run.info.run_id, metric)
    return sorted((point.step, point.value) for point in history)


def contents(uri: str) -> dict[str, list[Any]]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        return {
            table: sorted(database.execute(f"select * from {table}").fetchall(), key=repr)
            for table in ("runs", "metrics", "params", "tags", "experiments", "logged_models", "logged_model_metrics")
        }


def until(true: Callable[[], bool], seconds: float = 100.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def test_environment_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_uri("sqlite:///a.db") == "sqlite:///a.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    assert resolve_uri("sqlite:///a.db") == "http://there"


def test_trainer_imports_no_mlflow() -> None:
    code = "import disk.tracking.mirror, sys; sys.exit('mlflow' in sys.modules or 'torch' in sys.modules)"
    assert run_python(code).wait() == 0


def test_measures_of_a_run_as_a_whole_have_the_names_of_the_others(root: Path) -> None:
    run = write_run(root / "point" / "disk" / "seed0", 2)
    with (run / "metrics.csv").open("a") as file:
        file.write("nominal,-1,movers,2\nnominal,-1,distinct,1.5\nnominal,-1,goal_distance,0.25\n")
    results = read_run(run).results
    measures = ("movers", "distinct", "goal_distance")
    assert [results[f"eval/{measure}"] for measure in measures] == [{2000: 2.0}, {2000: 1.5}, {2000: 0.25}]
    assert not {f"by_skill/{measure}" for measure in measures} & set(results)


def test_a_run_is_shown_whole(root: Path, uri: str) -> None:
    run = write_run(root / "point" / "disk" / "seed0", 2)
    save_text(root / "point" / "hausdorff.svg", "<svg/>")
    save_text(root / "point" / "summary.csv", "method,mean\n")
    added = mirror(root, uri)
    assert str(added) == f"4 runs, {added.points} points and 5 artefacts added"

    found = runs(uri)
    assert set(found) == {"point:all", *(f"point/disk/seed0{name}" for name in ("", "/skill00", "/skill01"))}
    parent, child = found["point/disk/seed0"], found["point/disk/seed0/skill01"]
    assert client(uri).get_experiment(parent.info.experiment_id).name == "point"
    assert {each.info.status for each in found.values()} == {"FINISHED"}
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.info.end_time - child.info.start_time == 10_000
    assert parent.info.end_time - parent.info.start_time == 19_000
    assert {"disk.commit": "abc", "disk.config_hash": "c0", "disk.code_hash": "d0"}.items() <= child.data.tags.items()
    expected = {"env": "point", "method": "disk", "seed": "0", "alpha": "0.5", "sac.batch_size": "32"}
    assert expected.items() <= child.data.params.items()
    assert child.data.params["sac.hidden"] == "[16, 16]"
    assert "beta" not in child.data.params
    assert "sac.target_entropy" not in child.data.params
    assert points(uri, child, "reward/mean") == [(step, float(f"{step / 7:.9g}")) for step in range(100, 1001, 100)]
    assert child.data.metrics["eval/distance"] == 2
    assert "eval/hausdorff" not in child.data.metrics  # NaN
    assert child.data.metrics["final/seconds"] == 9.5
    assert points(uri, parent, "eval/distance") == [(2000, 1.5)]
    assert parent.data.metrics["eval/coverage"] == 7
    assert parent.data.metrics["eval/hausdorff"] == 2.5
    files = [file.path for file in client(uri).list_artifacts(child.info.run_id)]
    assert files == ["policy.safetensors"]
    assert client(uri).list_artifacts(parent.info.run_id, "figures") == [], "once for all runs, not in each"
    (figure,) = client(uri).list_artifacts(found["point:all"].info.run_id, "figures")
    assert figure.path == "figures/hausdorff.svg"
    assert Path(parent.info.artifact_uri.removeprefix("file://")).is_relative_to(root / "mlartifacts")

    before = contents(uri)
    for path in (root, root / "point", run, run / "skill01"):
        assert str(mirror(path, uri)) == "0 runs, 0 points and 0 artefacts added"
    assert contents(uri) == before


def test_runs_of_a_chain_and_of_a_joint_method_compare(root: Path, uri: str) -> None:
    """Curves over the run's steps, measures by skill, settings, conditions and clips are where they are looked for."""
    run, joint = write_run(root / "point" / "disk" / "seed0", 2), write_run(root / "point" / "diayn" / "seed0", 0)
    rows = [row for skill in range(2) for row in [f"{skill},100,1,9,0.5,2", f"{skill},1000,2,9,{skill + 0.25},nan"]]
    save_text(run / "progress.csv", "\n".join([f"skill,{HEADER}", *rows]) + "\n")
    save_text(joint / "progress.csv", curve([100, 2000]))
    lines = ["leg1,0,distance,nan", "leg1,1,distance,3", "leg2,0,distance,5", "leg2,1,distance,7"]
    save_text(run / "metrics.csv", "\n".join(["condition,skill,metric,value", *lines]) + "\n")
    for path in (run / "skills.mp4", run / "clips/skill01.mp4", joint / "clips/skill00.mp4"):
        save_text(path, "a film")
    mirror(root, uri)
    found = runs(uri)
    chain, child, other = (found[f"point/{key}"] for key in ("disk/seed0", "disk/seed0/skill00", "diayn/seed0"))
    assert points(uri, chain, "reward/mean") == [(100, 0.5), (1000, 0.25), (1100, 0.5), (2000, 1.25)]
    assert points(uri, chain, "train/critic_loss") == [(100, 2.0), (1100, 2.0)]  # NaN
    assert [step for step, _ in points(uri, other, "reward/mean")] == [100, 2000]
    assert chain.data.params["sac.batch_size"] == "32"
    assert "steps" not in chain.data.params  # which its skills need not have in common
    assert points(uri, chain, "eval/distance") == points(uri, chain, "eval/leg1/distance") == [(2000, 3.0)]
    assert points(uri, chain, "eval/leg2/distance") == [(2000, 6.0)]
    assert points(uri, chain, "by_skill/distance") == [(1, 3.0)]
    assert "eval/distance" not in child.data.metrics  # NaN there, and never the other condition's
    assert child.data.metrics["eval/leg2/distance"] == 5
    assert [each.data.tags["level"] for each in (chain, child, other)] == ["run", "skill", "run"]
    (model,) = client(uri).search_logged_models([chain.info.experiment_id])  # of the only skill with a measure
    assert (model.name, model.source_run_id) == ("skill 2 (index 1) disk seed0", chain.info.run_id)
    assert [(metric.key, metric.value) for metric in model.metrics] == [("by_skill/distance", 3.0)]
    lists = {key: client(uri).list_artifacts(each.info.run_id, "clips") for key, each in found.items()}
    clips = {key: [file.path for file in files] for key, files in lists.items()}
    assert {key: names for key, names in clips.items() if names} == {
        "point/disk/seed0/skill01": ["clips/skill01.mp4"],
        "point/diayn/seed0": ["clips/skill00.mp4"],
    }
    assert [file.path for file in client(uri).list_artifacts(chain.info.run_id, "videos")] == ["videos/skills.mp4"]


def test_files_of_a_real_training(root: Path, uri: str, chain: list[Path]) -> None:
    run = root / "point" / "disk" / "seed0"
    shutil.copytree(chain[0].parent, run)
    save_tensors(run / "skills.safetensors", {"weight": torch.ones(1)}, {"env": "point"})
    mirror(root, uri)
    child = runs(uri)["point/disk/seed0/skill02"]
    assert child.info.status == "FINISHED"
    assert child.data.params["objective.neighbours"] == "3"
    assert child.data.params["world.id"] == "disk/Point-v0"
    (world,) = runs(uri)["point/disk/seed0"].inputs.dataset_inputs
    assert json.loads(world.dataset.source)["id"] == "disk/Point-v0"
    assert "system/" not in " ".join(child.data.metrics), "no metrics of the machine unless they are asked for"
    assert len(child.data.params["beta"]) > 0
    lines = (run / "skill02" / "progress.csv").read_text().splitlines()
    steps = [int(line.split(",")[0]) for line in lines[1:]]
    assert [step for step, _ in points(uri, child, "train/critic_loss")] == steps


def test_a_preset_has_experiments_of_its_own_and_joint_methods_no_children(root: Path, uri: str) -> None:
    write_run(root / "quick" / "point" / "random" / "seed1", 0)
    mirror(root, uri)
    (run,) = runs(uri).values()
    assert run.data.tags["disk.key"] == "quick/point/random/seed1"
    assert run.data.tags["disk.config_hash"] == "r0"
    assert client(uri).get_experiment(run.info.experiment_id).name == "quick/point"
    assert run.info.status == "FINISHED"
    assert points(uri, run, "eval/coverage") == [(0, 7.0)]


def test_what_is_measured_anew_is_shown(root: Path, uri: str) -> None:
    run = write_run(root / "point" / "disk" / "seed0", 1)
    mirror(run, uri)
    save_text(run / "metrics.csv", "condition,skill,metric,value\nnominal,0,distance,5\nnominal@300,-1,distance,4\n")
    assert mirror(run, uri).points == 4  # the skill's, and the run's: two of its curve, one by skill
    assert mirror(run, uri).points == 0
    (model,) = client(uri).search_logged_models(["1"])
    assert {metric.key: metric.value for metric in model.metrics} == {"by_skill/distance": 5, "by_skill/hausdorff": 2.5}
    parent = runs(uri)["point/disk/seed0"]
    assert points(uri, parent, "eval/distance") == [(300, 4.0), (1000, 1.0), (1000, 5.0)]
    assert parent.data.metrics["eval/distance"] == 5


def test_a_batch_that_was_written_in_part_is_completed(root: Path, uri: str) -> None:
    from mlflow.entities import Metric

    run = write_run(root / "point" / "disk" / "seed0", 0)
    write_live(run / "skill00", range(100, 401, 100))
    mirror(run, uri)
    child = runs(uri)["point/disk/seed0/skill00"]
    partial = [Metric("time/fps", 99.0, 1, 500), Metric("reward/mean", 0.0, 1, 500), Metric("time/fps", 99.0, 2, 600)]
    client(uri).log_batch(child.info.run_id, partial)
    write_live(run / "skill00", range(100, 701, 100))
    mirror(run, uri)
    for metric in HEADER.split(",")[1:]:
        assert [step for step, _ in points(uri, child, metric)] == list(range(100, 701, 100))


def test_unfinished_lines_and_values_are_left_for_later(root: Path, uri: str) -> None:
    skill = root / "point" / "disk" / "seed0" / "skill00"
    live = write_live(skill, [100])
    with (live / "progress.csv").open("a") as file:
        file.write("200,2.0,100,nan,inf\n200,2.5,100,1,1\n300,3.0,100,,5\n400,4.0,1")
    mirror(skill, uri)
    child = runs(uri)["point/disk/seed0/skill00"]
    assert [step for step, _ in points(uri, child, "time/fps")] == [100, 200, 300]
    assert [step for step, _ in points(uri, child, "reward/mean")] == [100]
    assert [step for step, _ in points(uri, child, "train/critic_loss")] == [100, 300]
    assert child.info.status == "RUNNING"


def test_another_training_of_a_skill_is_another_run(root: Path, uri: str) -> None:
    run = write_run(root / "point" / "disk" / "seed0", 1)
    mirror(run, uri)
    first = runs(uri)["point/disk/seed0/skill00"]
    write_skill(run / "skill00", curve(range(150, 1001, 50)), config_hash="c1", alpha=0.9)
    assert mirror(run, uri).runs == 2  # the chain that begins with it is another one too
    assert mirror(run, uri).runs == 0
    found = runs(uri)
    assert found["replaced/point/disk/seed0/skill00"].info.run_id == first.info.run_id
    assert found["point/disk/seed0/skill00"].data.tags["mlflow.parentRunId"] == found["point/disk/seed0"].info.run_id
    assert found["point/disk/seed0/skill00"].data.params["alpha"] == "0.9"


TRAINER = """
import os, subprocess, sys, time
body = "import sys; from pathlib import Path; from disk.tracking.mirror import follow; "
body += "follow(Path(sys.argv[1]), sys.argv[2], 0.2, int(sys.argv[3]))"
print(subprocess.Popen([sys.executable, "-c", body, *sys.argv[1:], str(os.getpid())]).pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_training_is_killed_and_resumed(root: Path, uri: str) -> None:
    skill = root / "point" / "disk" / "seed0" / "skill03"
    live = write_live(skill, range(100, 301, 100))
    trainer = run_python(TRAINER, skill, uri)
    assert trainer.stdout
    follower = int(trainer.stdout.readline())
    key = f"point/disk/seed0/{skill.name}"
    until(lambda: key in runs(uri) and "reward/mean" in runs(uri)[key].data.metrics)
    with (live / "progress.csv").open("a") as file:
        file.write(curve([400, 500]).split("\n", 1)[1])
    until(lambda: len(points(uri, runs(uri)[key], "reward/mean")) == 5)
    first = runs(uri)[key]
    assert first.info.status == runs(uri)["point/disk/seed0"].info.status == "RUNNING"
    assert first.data.params["sac.batch_size"] == "32"
    trainer.kill()  # and nobody waits for it: it stays in the process table
    until(lambda: not alive(follower))
    assert runs(uri)[key].info.status == "KILLED"
    trainer.wait()

    write_live(skill, range(100, 601, 100), speed=50)  # the checkpoint was at 300: what follows has other times
    with Sidecar(skill, uri, after=0.0, interval=0.2):
        until(lambda: len(points(uri, first, "reward/mean")) == 6 and runs(uri)[key].info.status == "RUNNING")
        write_skill(skill, curve(range(100, 1001, 100), speed=50))
    last = runs(uri)[key]
    assert last.info.run_id == first.info.run_id
    assert last.info.status == "FINISHED"
    for metric in HEADER.split(",")[1:]:
        assert [step for step, _ in points(uri, last, metric)] == list(range(100, 1001, 100))
    assert [file.path for file in client(uri).list_artifacts(last.info.run_id)] == ["policy.safetensors"]
    assert len(runs(uri)) == 2


TOGETHER = """
import os, sys, traceback
from pathlib import Path
from disk.tracking.store import ENVIRONMENT
from disk.tracking.mirror import mirror
os.environ.update(ENVIRONMENT)
import mlflow  # once for all processes: nothing but their work keeps them apart
*paths, uri = sys.argv[1:]
for path in paths:
    if os.fork() == 0:
        try:
            mirror(Path(path), uri)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
sys.exit(any([os.wait()[1] for _ in paths]))
"""


def test_processes_that_start_together_share_a_fresh_store(tmp_path: Path) -> None:
    root = tmp_path / "results"
    first, second = write_run(root / "point" / "disk" / "seed0", 2), write_run(root / "point" / "disk" / "seed1", 1)
    third = write_run(root / "quick" / "point" / "disk" / "seed0", 1)
    uri = f"sqlite:///{root}/mlflow.db"
    processes = run_python(TOGETHER, first / "skill00", first / "skill01", second, third, uri)
    output, errors = processes.communicate(timeout=200)
    assert processes.returncode == 0, errors
    assert not output
    assert not errors  # MLflow is chatty by itself
    found = runs(uri)
    assert len(found) == 7
    for key, run in found.items():
        if "/skill" in key:
            assert run.data.tags["mlflow.parentRunId"] == found[key.rsplit("/", 1)[0]].info.run_id
            assert len(points(uri, run, "time/fps")) == 10


@pytest.mark.usefixtures("schema")  # so that the seconds are not MLflow's import
def test_an_unreachable_server_is_one_line_within_seconds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "results" / "point" / "disk" / "seed0", 1)
    begun = time.monotonic()
    with pytest.raises(TrackingError, match=r"^MLflow at http://127\.0\.0\.1:9: .*refused[^\n]*$"):
        mirror(run, DEAD)
    assert time.monotonic() - begun < 10
    with pytest.raises(TrackingError, match="does not exist"):
        mirror(run / "nowhere", DEAD)


def test_an_unreachable_server_costs_training_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    skill = tmp_path / "results" / "point" / "disk" / "seed0" / "skill00"
    write_live(skill, [100])
    heard = ""

    def reported() -> bool:
        nonlocal heard
        heard += capfd.readouterr().err
        return "\n" in heard

    with Sidecar(skill, DEAD, after=0.0, interval=0.1):
        until(reported)
        time.sleep(0.5)  # several tries more
        end = time.monotonic()
    assert time.monotonic() - end < 30
    heard += capfd.readouterr().err
    assert heard.count("\n") == 1
    assert "python -m disk track" in heard


def test_a_short_training_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no processes here")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with Sidecar(tmp_path / "skill00", DEAD, after=60.0, interval=1.0):
        pass
    with Sidecar(tmp_path / "skill00", DEAD, after=0.0, interval=1.0):
        time.sleep(0.2)  # cannot start, and training does not notice


def test_follow_ends_without_its_parent(root: Path, uri: str) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    skill = root / "point" / "disk" / "seed0" / "skill00"
    write_skill(skill, curve([100, 200]))
    previous = signal.getsignal(signal.SIGTERM)
    try:
        follow(skill, uri, 60.0, gone.pid)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert runs(uri)["point/disk/seed0/skill00"].info.status == "FINISHED"
