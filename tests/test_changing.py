"""What is made of runs in changing worlds: what counts as forgotten, and which moments are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from disk import config
from disk.config import Environment
from disk.evaluation.forgetting import draw_worlds, forgetting_table
from disk.figures import worlds as plots_worlds

CONFIG = config.load()
MILLION = 1_000_000
SNAPSHOTS = [*range(MILLION, 10 * MILLION, MILLION), 9_300_000]


def distance(leg: int, step: int, skill: int) -> float:
    """A number that says where it comes from: leg 3 at step 2,000,000, skill 1 is 3.0201."""
    return leg + step / (100 * MILLION) + skill / 10_000


def metrics_csv(run: Path, conditions: dict[str, dict[int, float]], steps: int, name: str = "metrics.csv") -> Path:
    rows = [
        (condition, skill, metric, value if metric == "distance" else -1.0)
        for condition, skills in conditions.items()
        for skill, value in skills.items()
        for metric in ("hausdorff", "distance")
        if name == "metrics.csv" or metric == "distance"
    ]
    run.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows, columns=["condition", "skill", "metric", "value"]).to_csv(run / name, index=False)
    (run / "stats.json").write_text(json.dumps({"steps": steps}))
    return run / name


def of_a_joint_run(run: Path) -> Path:
    conditions = {f"leg{leg}": {skill: distance(leg, 10 * MILLION, skill) for skill in (0, 1)} for leg in range(1, 5)}
    for step in SNAPSHOTS:
        for leg in range(1, 5):
            conditions[f"leg{leg}@{step}"] = {skill: distance(leg, step, skill) for skill in (0, 1)}
    return metrics_csv(run, conditions, 10 * MILLION)


def test_a_joint_run_is_compared_with_the_end_of_the_last_phase_in_each_world(tmp_path: Path):
    table = forgetting_table(CONFIG.environment("ant_broken"), [], [of_a_joint_run(tmp_path / "dads/seed2")])
    assert list(table.columns) == [
        "method", "seed", "skill", "condition", "distance_after_training", "distance_final",
    ]  # fmt: skip
    assert set(table["method"]) == {"dads"}
    assert set(table["seed"]) == {2}
    after = table.set_index(["condition", "skill"])["distance_after_training"]
    final = table.set_index(["condition", "skill"])["distance_final"]
    # Legs break in the order 3, 4, 1, 2, 3, 4, 1, 2, 3, 4: leg 1 last until step 7M, leg 2 until 8M, leg 3 until 9M.
    for leg, end in {1: 7, 2: 8, 3: 9, 4: 10}.items():
        for skill in (0, 1):
            assert after[f"leg{leg}", skill] == pytest.approx(distance(leg, end * MILLION, skill))
            assert final[f"leg{leg}", skill] == pytest.approx(distance(leg, 10 * MILLION, skill))
            # What the paper looks at: 9.3M of 10M, in the middle of the last phase, in which leg 4 is broken.
            assert final[f"leg{leg}@9300000", skill] == pytest.approx(distance(leg, 9_300_000, skill))
            seen = 9_300_000 if leg == 4 else end * MILLION
            assert after[f"leg{leg}@9300000", skill] == pytest.approx(distance(leg, seen, skill))
    assert len(table) == 2 * 4 * 2  # no rows for the ends of phases themselves


def test_a_joint_run_without_snapshots_is_compared_with_itself(tmp_path: Path):
    conditions = {f"leg{leg}": {0: float(leg)} for leg in range(1, 5)}
    run = metrics_csv(tmp_path / "diayn/seed0", conditions, 10 * MILLION)
    table = forgetting_table(CONFIG.environment("ant_broken"), [], [run])
    assert (table["distance_after_training"] == table["distance_final"]).all()
    assert len(table) == 4


def test_chains_are_compared_with_what_their_trainings_wrote(tmp_path: Path):
    conditions = {"nominal": {0: 5.0, 1: 7.0}, "trained": {0: 1.0, 1: 2.0}}
    changed = {"nominal": {0: 5.0, 1: 6.0}, "trained": {0: 1.0, 1: 2.5}}
    run = tmp_path / "disk/seed1"
    after = metrics_csv(run, conditions, 0, "after_training.csv")
    table = forgetting_table(CONFIG.environment("point_blocks"), [after], [metrics_csv(run, changed, 0)])
    change = (table["distance_final"] - table["distance_after_training"]).round(9)
    assert dict(zip(zip(table["condition"], table["skill"], strict=True), change, strict=True)) == {
        ("nominal", 0): 0.0,
        ("nominal", 1): -1.0,
        ("trained", 0): 0.0,
        ("trained", 1): 0.5,
    }


def test_no_runs_give_an_empty_table():
    assert forgetting_table(CONFIG.environment("ant_broken"), [], []).empty


def rollouts(path: Path, skills: int) -> Path:
    frame = pd.DataFrame(
        [(skill, 0, step, float(step), 0.0, 1.0, 0.0) for skill in range(skills) for step in range(3)],
        columns=["skill", "episode", "step", "x", "y", "vx", "vy"],
    )
    frame.to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            "point_blocks",  # after every second skill, with the skills until then; then without blocks
            [("skills 1 to 2", 7_999, 2), ("skills 1 to 4", 15_999, 4), ("skills 1 to 6", 23_999, 6),
             ("skills 1 to 8", 31_999, 8), ("nominal", 32_000, 8)],
        ),
        (
            "ant_broken",  # as they broke first
            [("leg3", 0, 8), ("leg4", MILLION, 8), ("leg1", 2 * MILLION, 8), ("leg2", 3 * MILLION, 8)],
        ),
    ],
)  # fmt: skip
def test_the_moments_that_are_drawn(
    env: str, expected: list[tuple[str, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[tuple[str, int, int]] = []

    def note(world: config.World, panels: list[plots_worlds.Panel], out: Path, **words: object) -> None:
        drawn.extend((label, step, frame["skill"].nunique()) for label, step, frame in panels)

    monkeypatch.setattr(plots_worlds, "worlds", note)
    environment = CONFIG.environment(env)
    files = {name: rollouts(tmp_path / f"{name}.parquet", 8) for name in environment.conditions}
    draw_worlds(environment, files, tmp_path / "worlds.svg", title=env, drawn=1)
    assert drawn == expected


def test_the_row_that_a_script_gets_is_the_configurations():
    for name in ("point_blocks", "ant_broken"):
        environment = CONFIG.environment(name)
        assert Environment.model_validate_json(environment.canonical()) == environment
