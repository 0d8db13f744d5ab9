"""Which figures a configuration has, and what they are drawn from on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import tiny_config
from test_plots import fan, texts

from disk import config
from disk.evaluation.tables import runs_table, save_rollouts
from disk.figures import catalogue as figures
from disk.figures.consistency import draw_consistency
from disk.figures.curves import draw_curves
from disk.figures.legs import draw_legs
from disk.figures.order import draw_order
from disk.storage.provenance import code_hash

PAPER = config.load()
COMPARE = config.load("config/quick.yaml", "config/compare.yaml")


def test_every_figure_of_the_paper_is_among_those_of_its_worlds() -> None:
    ant = set(figures.figures_of(PAPER, "ant"))
    names = ("trajectories", "hausdorff", "consistency", "curves", "ablations", "disk/seed0/order", "downstream")
    assert ant == {f"ant/{name}.svg" for name in names}
    broken = set(figures.figures_of(PAPER, "ant_broken"))
    changing = ("legs", "forgetting", "usable", "recovery", "dads/seed0/worlds")
    assert {f"ant_broken/{name}.svg" for name in changing} <= broken
    assert "ant_broken/ablations.svg" not in broken, "one method with DISk's objective is no ablation"
    assert "ant_blocks_fast/legs.svg" not in set(figures.figures_of(PAPER, "ant_blocks_fast")), "nothing dies there"
    assert figures.beside_each_other(PAPER, "ant_broken") == ["disk", "dads"]


def test_a_configuration_without_learned_runs_has_only_what_needs_none() -> None:
    untrained = tiny_config({"runs": [{"envs": ["point"], "methods": ["random"]}]})
    names = ("trajectories", "hausdorff", "consistency")
    assert list(figures.figures_of(untrained, "point")) == [f"point/{name}.svg" for name in names]
    assert figures.runs_text(untrained, "point") == "random (3 seeds, untrained)"


def test_captions_say_how_many_seeds_and_steps() -> None:
    said = figures.runs_text(COMPARE, "point")
    assert "disk (3 seeds, 16,000 steps)" in said
    assert "disk_adaptive (1 seed, at most 16,000 steps)" in said
    assert figures.runs_text(COMPARE, "point", "dads") == "dads (3 seeds, 16,000 steps)"


def test_a_report_is_of_what_there_is(tmp_path: Path) -> None:
    settings = tiny_config({"pathvars": {"results": str(tmp_path)}})
    assert figures.computed(settings) == []
    for name in ("point/hausdorff.svg", "point/runs.csv", "point/disk/seed0/trajectories.svg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert figures.computed(settings) == [tmp_path / "point/hausdorff.svg", tmp_path / "point/runs.csv"]


def test_the_list_of_runs_names_those_made_by_other_code(tmp_path: Path) -> None:
    def stats(folder: str, **about: object) -> Path:
        path = tmp_path / folder / "stats.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"steps": 100, "seconds": 30.0, "commit": "c" * 40, **about}))
        return path

    files = [
        stats("disk/seed1/skill00", code_hash=code_hash(), collected_steps=10_000),
        stats("disk/seed1/skill01", code_hash="other", collected_steps=10_400),
        stats("diayn/seed0", code_hash=code_hash()),
        stats("random/seed0", code_hash=code_hash(), steps=None, seconds=None, commit=None),
    ]
    table = runs_table(files).set_index("method")
    assert table.loc["disk", ["seed", "trainings", "steps", "minutes"]].tolist() == [1, 2, 200, 1.0]
    assert table["collected_steps"].to_dict() == {"disk": 20_400, "diayn": 0, "random": 0}
    assert table["todays_code"].to_dict() == {"disk": "no", "diayn": "yes", "random": "yes"}
    assert table.loc["diayn", "commit"] == "c" * 10


def save(path: Path, frame: pd.DataFrame) -> Path:
    save_rollouts(frame, path)
    return path


def test_legs_show_the_end_and_the_last_snapshot(tmp_path: Path) -> None:
    row = PAPER.environment("point_broken")
    files = [
        save(tmp_path / method / "seed0/rollouts" / f"{name}.parquet", fan(8))
        for method, names in {
            "disk": row.conditions,
            "dads": [*row.conditions, *(f"{name}@24000" for name in row.conditions)],
        }.items()
        for name in names
        if name != "no_west"  # as if it were lost
    ]
    draw_legs(row, "point_broken", 2, files, tmp_path / "legs.svg")
    words = texts(tmp_path / "legs.svg")
    assert "after 24,000 steps (6 skills)" in words, "of a chain, the skills that were finished then"
    assert "after 24,000 steps" in words
    assert words.count("at the end") == 2
    assert {"east dead", "north dead", "west dead", "south dead"} <= set(words)
    assert words.count("no rollouts") == 3, "of DISk, at both times, and of Off-DADS at the end"
    draw_legs(row, "point_broken", 2, [], tmp_path / "none.svg")
    assert "no runs" in texts(tmp_path / "none.svg")


def test_figures_are_drawn_from_files_that_say_whose_they_are(tmp_path: Path) -> None:
    rollouts = [save(tmp_path / f"{method}/seed0/rollouts/nominal.parquet", fan(3)) for method in ("disk", "random")]
    draw_consistency("point", rollouts, tmp_path / "consistency.svg")
    assert "DISk, 1 seed" in texts(tmp_path / "consistency.svg")
    draw_order(PAPER.evaluation_job("point"), 2, [5, 6, 7], rollouts[0], tmp_path / "order.svg")
    words = texts(tmp_path / "order.svg")
    assert "point: skills of DISk in the order learned, seed 0" in words
    assert "skill 2, 6 steps" in words
    curve = tmp_path / "diayn/seed0/progress.csv"
    curve.parent.mkdir(parents=True)
    curve.write_text("time/total_timesteps,reward/mean\n100,1.0\n200,2.0\n")
    empty = tmp_path / "dads/seed0/progress.csv"
    empty.parent.mkdir(parents=True)
    empty.write_text("\n")
    draw_curves("point", [curve, empty], tmp_path / "curves.svg")
    assert {"DIAYN", "Off-DADS", "0 seeds"} <= set(texts(tmp_path / "curves.svg"))


@pytest.mark.parametrize("env", PAPER.environments)
def test_every_world_of_the_configuration_has_figures(env: str) -> None:
    names = list(figures.figures_of(PAPER, env))
    assert len(names) == len(set(names)) >= 3
