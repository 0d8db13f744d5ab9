"""The skills that come with the repository do what their cards say."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from conftest import PROJECT

import disk
from disk import config as configuration
from disk.runs import evaluate, measure

SHIPPED = sorted(path for path in (PROJECT / "pretrained").glob("*") if path.is_dir())
ROW = re.compile(r"^\| (\S+) \| hausdorff \| (\S+) \|$", re.MULTILINE)
TOLERANCE = 0.15
"""Relative: another processor adds up in another order, and a gait of 500 steps makes much of it."""


def test_every_laptop_world_with_a_table_has_its_skills() -> None:
    assert {path.name for path in SHIPPED} >= {"halfcheetah", "hopper", "swimmer", "ant"}
    assert sum(path.stat().st_size for path in (PROJECT / "pretrained").rglob("*")) < 20e6


@pytest.mark.slow
@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_shipped_skills_are_as_far_apart_as_their_card_says(folder: Path, tmp_path: Path) -> None:
    skills, said = disk.load(folder), dict(ROW.findall((folder / "README.md").read_text()))
    assert said, "the card has no Hausdorff distances"
    assert skills.meta["env"] == folder.name
    settings = configuration.load(PROJECT / "config/laptop.yaml")
    for condition, value in said.items():
        rollouts, table = tmp_path / "rollouts" / f"{condition}.parquet", tmp_path / f"{condition}.csv"
        evaluate(settings.evaluation_job(folder.name, condition, "disk"), folder / "skills.safetensors", rollouts)
        measure([rollouts], table)
        found = pd.read_csv(table).query("metric == 'hausdorff'")["value"].mean()
        assert found == pytest.approx(float(value), rel=TOLERANCE), condition
