"""Worlds that change, in Snakemake: what is planned, what is measured in which world, what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import once
from test_plots import texts
from test_workflow import Project

from disk.storage.files import checksum, load_json

MINE = {  # a world of a user's own: thrusters that die and blocks that vanish, also in the middle of a skill
    "id": "disk/BlockedPoint-v0",
    "position": {"qpos": [0, 1]},
    "horizon": 50,
    "test_horizon": 20,
    "skills": 3,
    "steps": [300, 200, 300],
    "first_alpha": 1.0,
    "sac": {"hidden": [16, 16], "seed_steps": 50, "batch_size": 32},
    "evolution": {
        "total": 800,
        "changes": [
            {"what": "actuator", "names": ["east"], "steps": [0, 400], "factors": [0.0, 1.0]},
            {"what": "actuator", "names": ["west"], "steps": [400], "factors": [0.0]},
            {"what": "remove", "names": "block*", "together": 4},
        ],
    },
    "conditions": {"no_east": 399, "no_west": 799, "trained": "trained"},
    "snapshots": [400],
    "moves": 0.1,
}


def configure(project: Project, **changes: Any) -> None:
    runs = [{"envs": ["mine"], "methods": ["disk", "diayn", "random"]}]
    project.configure(runs=runs, environments={"mine": {**MINE, **changes}}, diayn={"hidden": [16]})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Project:
    def make(folder: Path) -> None:
        project = Project(folder)
        configure(project)
        project.run()

    return Project.at(once(tmp_path_factory, "evolving", make))


@pytest.fixture
def project(done: Project, tmp_path: Path) -> Project:
    shutil.copytree(done.path, tmp_path / "copy", symlinks=True)
    return Project.at(tmp_path / "copy")


def test_every_condition_is_rolled_out_measured_and_tabulated(done: Project) -> None:
    root, conditions = done.path / "results/mine", {"no_east", "no_west", "trained"}
    snapshot = {f"{name}@400" for name in conditions}
    for method, found in {"disk": conditions, "random": conditions, "diayn": conditions | snapshot}.items():
        assert {path.stem for path in (root / method / "seed0/rollouts").glob("*.parquet")} == found
        table = pd.read_csv(root / "hausdorff.csv").query("method == @method")
        assert list(table.columns) == ["method", "seed", "condition", "skill", "hausdorff", "isolation"]
        assert set(table["condition"]) == found
        assert len(table) == 3 * len(found)
    assert (root / "forgetting.svg").stat().st_size > 1000
    for method in ("disk", "diayn"):
        assert (root / method / "seed0/worlds.svg").stat().st_size > 1000
    assert not done.planned()


def test_skills_learned_one_after_another_forget_nothing(done: Project) -> None:
    root = done.path / "results/mine"
    table = pd.read_csv(root / "forgetting.csv")
    columns = ["method", "seed", "skill", "condition", "distance_after_training", "distance_final"]
    assert list(table.columns) == columns
    own = table[table["method"] == "disk"]
    assert len(own) == 3 * 3
    assert (own["distance_after_training"] == own["distance_final"]).all()
    assert (own["distance_final"] > 0).all()
    for skill in sorted((root / "disk/seed0").glob("skill0?")):
        trained = load_json(skill / "stats.json")["checksums"]
        assert checksum(skill / "policy.safetensors") == trained["policy.safetensors"]


def test_what_joint_skills_forget_is_measured_from_their_snapshots(done: Project) -> None:
    root = done.path / "results/mine"
    table = pd.read_csv(root / "forgetting.csv").query("method == 'diayn'").set_index(["condition", "skill"])
    measured = pd.read_csv(root / "diayn/seed0/metrics.csv").query("metric == 'distance'")
    distance = measured.set_index(["condition", "skill"])["value"]
    assert set(table.index.get_level_values("condition")) == {"no_east", "no_west", "trained"}
    for skill in range(3):
        # Training was without the eastern thruster until step 400, and without the western one to the end.
        assert table.loc[("no_east", skill), "distance_after_training"] == distance["no_east@400", skill]
        assert table.loc[("no_west", skill), "distance_after_training"] == distance["no_west", skill]
        for condition in ("no_east", "no_west", "trained"):
            assert table.loc[(condition, skill), "distance_final"] == distance[condition, skill]
    assert (distance["no_east@400"] != distance["no_east"]).all()


def test_skills_that_can_be_used_are_counted_over_training(done: Project) -> None:
    root = done.path / "results/mine"
    table = pd.read_csv(root / "usable.csv")
    assert list(table.columns) == ["method", "seed", "step", "condition", "movers", "distinct", "reach"]
    assert set(table["method"]) == {"disk", "diayn"}
    chain, joint = (list(table[table["method"] == method]["step"]) for method in ("disk", "diayn"))
    assert list(dict.fromkeys(chain)) == [300, 500, 800]
    assert joint == [400, 400, 800], "before and after the thruster dies, and at the end"
    assert list(table[table["method"] == "diayn"]["condition"])[:1] == ["no_east"]
    assert (table["movers"] <= 3).all()
    assert (table["distinct"] <= table["movers"] + 1e-6).all()
    assert (root / "usable.svg").stat().st_size > 1000
    recovered = pd.read_csv(root / "recovery.csv")
    assert set(recovered["change"]) <= {300, 400, 500}
    assert (recovered[recovered["measure"] == "reach"].groupby(["method", "seed", "change"])["steps"].min() == 0).all()
    assert (root / "recovery.svg").stat().st_size > 1000


def test_a_policy_that_is_not_the_trained_one_is_not_measured_as_such(project: Project) -> None:
    run = project.path / "results/mine/disk/seed0"
    newer, older = run / "skill02/policy.safetensors", run / "skill01/policy.safetensors"
    older.write_bytes(newer.read_bytes())
    later = (run / "after_training.csv").stat().st_mtime + 5
    os.utime(older, (later, later))
    target = "results/mine/disk/seed0/after_training.csv"
    project.run(target, "--allowed-rules", "measure_after_training", ok=False)
    log = (project.path / "logs/mine/disk/seed0/after_training.log").read_text()
    assert "skill01/policy.safetensors: is damaged, or not of this skill" in log


def test_skills_of_a_changing_world_are_put_to_work_in_the_plain_one(project: Project) -> None:
    """A panel for each world that skills were learned in, and a table for each."""
    runs = [{"envs": ["mine", "point"], "methods": ["random"], "hierarchy": True}]
    hierarchy = {"decisions": 256, "steps": 2, "episode": 16, "every": 128, "environments": 8, "seeds": [0, 1]}
    own = {"mine": {**MINE, "downstream": {"env": "point"}}}
    project.configure(runs=runs, environments=own, hierarchy={**hierarchy, "flat": False})
    project.run("results/mine/downstream.csv", "results/point/downstream.csv", "results/downstream.svg")
    root = project.path / "results"
    table = pd.read_csv(root / "mine/downstream.csv")
    assert table["method"].tolist() == ["random", "random"]
    assert table["hierarchy_seed"].tolist() == [0, 1]
    job = load_json(root / "mine/random/seed0/hierarchy/seed0.json")["job"]
    assert job["world"]["id"] == "disk/Point-v0"
    assert not job["world"].get("evolution")
    both, one = texts(root / "downstream.svg"), texts(root / "mine/downstream.svg")
    assert {"Skills at work", "mine", "point"} <= set(both)
    assert "mine: skills at work" in one
    assert "mine" not in one, "a panel alone needs no title of its own"


def test_adding_a_skill_to_an_evolving_world_trains_exactly_that_skill(project: Project) -> None:
    configure(project, skills=4, steps=[300, 200, 300, 100])
    assert project.planned()["train_skill"] == 1


def test_moving_a_change_retrains_what_saw_the_world(project: Project) -> None:
    """The evolution is one text in every job of its world: a skill before the change is trained again too."""
    evolution = {**MINE["evolution"], "total": 900}
    configure(project, evolution=evolution)
    assert project.planned()["train_skill"] == 3


def test_what_the_model_lacks_is_refused_before_anything_is_planned(project: Project) -> None:
    change = {"what": "actuator", "names": ["up"], "steps": [5], "factors": [0.0]}
    configure(project, evolution={"total": 800, "changes": [change]})
    output = project.run("-n", ok=False)
    assert "environments.mine: evolution.changes.0.names" in output
    assert all(name in output for name in ("'up'", "east", "north", "west", "south"))
    assert "Traceback" not in output
    assert "rule train_skill" not in output


def test_the_paper_scale_broken_legs_plan_twenty_skills_a_seed_each_after_all_earlier(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "tiny.yaml").write_text("tracking: {enabled: false}\n")
    output = project.run("-n", "results/ant_broken/hausdorff.csv")
    jobs = [job.split("\nrule ")[0] for job in output.split("\nrule train_skill:")[1:]]
    assert len(jobs) == 3 * 20
    for job in jobs:
        fields = dict(line.strip().partition(": ")[::2] for line in job.splitlines())
        wildcards = dict(pair.split("=") for pair in fields["wildcards"].split(", "))
        run = f"results/ant_broken/disk/seed{wildcards['seed']}"
        inputs = fields.get("input", "")
        for earlier in range(20):
            needed = earlier < int(wildcards["skill"])
            for name in ("policy.safetensors", "stats.json", "replay.safetensors"):
                assert (f"{run}/skill{earlier:02d}/{name}" in inputs) == needed
        assert "visits.npy" not in inputs  # the past is seen anew in the world as it is
