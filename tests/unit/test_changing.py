"""What is made of runs in changing worlds: what counts as forgotten, and which moments are drawn."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from disk import config
from disk.config import Environment, UsableJob
from disk.errors import ConfigError
from disk.evaluation.forgetting import forgetting_table, measure_usable, usable_table
from disk.evaluation.recovery import reach, recovery_table, summary
from disk.figures.worlds import panels_of
from disk.networks import Actor
from disk.skills import Skills
from disk.storage.files import save_stats

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
    save_stats(run / "stats.json", {"steps": steps})
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


def rollouts(skills: int) -> pd.DataFrame:
    return pd.DataFrame(
        [(skill, 0, step, float(step), 0.0, 1.0, 0.0) for skill in range(skills) for step in range(3)],
        columns=["skill", "episode", "step", "x", "y", "vx", "vy"],
    )


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
def test_the_moments_that_are_drawn(env: str, expected: list[tuple[str, int, int]]):
    environment = CONFIG.environment(env)
    frames = {name: rollouts(8) for name in environment.conditions}
    panels = panels_of(environment, frames)
    assert [(label, step, frame["skill"].nunique()) for label, step, frame in panels] == expected


def test_the_row_that_a_script_gets_is_the_configurations():
    for name in ("point_blocks", "ant_broken"):
        environment = CONFIG.environment(name)
        assert Environment.model_validate_json(environment.canonical()) == environment


# ---------------------------------------------------------------- skills that can be used in the world as it is

EAST, WEST, NORTH, SOUTH = range(4)


def thrusting(path: Path, *thrusters: int) -> None:
    """Skills that fire one thruster each, whatever they see."""
    job = CONFIG.evaluation_job("point_broken")
    actor = Actor(2, 4, [4], (-5.0, 2.0), len(thrusters), torch.Generator().manual_seed(0)).requires_grad_(False)
    for weights in actor.mlp.weights:
        weights.zero_()
    for bias in actor.mlp.biases:
        bias.zero_()
    for skill, thruster in enumerate(thrusters):
        actor.mlp.biases[-1][skill, 0, :4] = -20.0
        actor.mlp.biases[-1][skill, 0, thruster] = 20.0
    meta = {
        "env": "point_broken",
        "world": job.world.model_dump(mode="json"),
        "observation_size": 2,
        "action_size": 4,
        "latent_size": 0,
        "action_low": [0.0] * 4,
        "action_high": [1.0] * 4,
        "hidden": [4],
        "log_std_bounds": [-5.0, 2.0],
        "seed": 0,
        "config_hash": "abc",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    Skills(actor, torch.arange(len(thrusters)), torch.zeros(len(thrusters), 0), meta).save(path)


def usable_job(**changes: object) -> UsableJob:
    return CONFIG.usable_job("point_broken", "disk").model_copy(update=changes)


def rows(table: pd.DataFrame) -> list[tuple[object, ...]]:
    return list(table.itertuples(index=False, name=None))


def test_of_a_chain_the_finished_skills_are_counted_in_the_world_as_it_is(tmp_path: Path):
    """Without the eastern thruster until step 8,000, then without the northern one."""
    run = tmp_path / "disk/seed3"
    thrusting(run / "skills.safetensors", EAST, NORTH, WEST)
    table = measure_usable(usable_job(ends=[4_000, 8_000, 16_000]), run, run / "usable.csv")
    assert rows(table[["step", "condition", "movers", "distinct"]]) == [
        (4_000, "no_east", 0, 0),
        (8_000, "no_east", 1, 1),  # north
        (8_000, "no_north", 1, 1),  # and then only east
        (16_000, "no_north", 2, 2),
    ]
    joined = usable_table([run / "usable.csv"])
    assert list(joined.columns) == ["method", "seed", "step", "condition", "movers", "distinct", "reach"]
    assert rows(joined)[-1][:-1] == ("disk", 3, 16_000, "no_north", 2, 2)


def test_skills_that_are_learned_together_are_counted_as_they_were(tmp_path: Path):
    run = tmp_path / "dads/seed0"
    thrusting(run / "snapshots/8000.safetensors", NORTH, NORTH, SOUTH)
    thrusting(run / "skills.safetensors", SOUTH, SOUTH, NORTH)
    table = measure_usable(usable_job(ends=[8_000, 12_000], chain=False), run, run / "usable.csv")
    assert rows(table[["step", "condition", "movers"]]) == [
        (8_000, "no_east", 3),
        (8_000, "no_north", 1),
        (12_000, "no_north", 2),
    ]
    assert list(table["distinct"]) == pytest.approx([2, 1, 1])  # those that do the same count once


def test_a_world_that_no_condition_names_is_called_by_its_step(tmp_path: Path):
    run = tmp_path / "disk/seed0"
    thrusting(run / "skills.safetensors", NORTH)
    job = usable_job(ends=[5_000], conditions={"no_west": 16_000})
    assert rows(measure_usable(job, run, run / "usable.csv").drop(columns="reach")) == [(5_000, "step4999", 1, 1)]


def test_chains_are_looked_at_after_each_skill_and_the_others_at_their_snapshots():
    chain, joint = (CONFIG.usable_job("point_broken", method) for method in ("disk", "diayn"))
    assert chain.ends == [4_000 * skill for skill in range(1, 9)]
    assert joint.ends == [8_000, 16_000, 24_000, 32_000]
    assert (chain.chain, joint.chain) == (True, False)
    assert chain.measure.moves == 6.0
    assert chain.conditions == {"no_east": 0, "no_north": 8_000, "no_west": 16_000, "no_south": 24_000}
    with pytest.raises(ConfigError, match=r"environments\.point\.evolution"):
        CONFIG.usable_job("point", "disk")


def test_no_runs_give_an_empty_table_of_usable_skills():
    assert usable_table([]).empty


def test_reach_is_how_far_the_best_skill_gets_in_each_direction():
    east_and_north = pd.DataFrame(
        {"skill": [0, 0, 1], "start_x": 1.0, "start_y": 0.0, "x": [4.0, 6.0, 1.0], "y": [0.0, 0.0, 2.0]}
    )
    half = 0.5**0.5
    # Skill 0 goes 4 m east on average, skill 1 2 m north: E 4, NE 4√½, N 2, NW 2√½, W 0, SW 0, S 0, SE 4√½.
    assert reach(east_and_north) == pytest.approx((4 + 2 + (4 + 2 + 4) * half) / 8)
    line = pd.DataFrame({"skill": [0, 1], "start_x": 0.0, "start_y": 0.0, "x": [3.0, -1.0], "y": [0.0, 0.0]})
    assert reach(line) == 2.0
    assert reach(line.iloc[:0]) == 0.0


def test_recovery_is_relative_to_the_value_before_until_the_next_change():
    """Changes at 100 and 300: the first is recovered after 100 steps, the second never."""
    counted = [(100, 4.0), (100, 1.0), (200, 3.8), (300, 5.0), (300, 2.0), (400, 4.0)]
    usable = pd.DataFrame([("disk", 0, step, "x", 0, reached, reached) for step, reached in counted])
    usable.columns = ["method", "seed", "step", "condition", "movers", "distinct", "reach"]
    usable["distinct"] = [0, 1, 1, 2, 2, 2]
    table = recovery_table(usable)
    mine = table[table["measure"] == "reach"]
    assert rows(mine[["change", "steps", "share"]]) == [
        *[(100, 0, 0.25), (100, 100, 0.95), (100, 200, 1.25)],
        *[(300, 0, 0.4), (300, 100, 0.8)],
    ]
    distinct = table[table["measure"] == "distinct"]
    assert set(distinct["change"]) == {300}, "nothing was distinct before the first change"
    [reached, told] = rows(summary(table))
    assert reached == ("disk", "reach", 2, pytest.approx(0.325), pytest.approx(1.025), 0.5, 100.0)
    assert told == ("disk", "distinct", 1, 1.0, 1.0, 1.0, 0.0)
    assert recovery_table(usable.iloc[:0]).empty
