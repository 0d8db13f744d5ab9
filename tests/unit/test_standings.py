"""The table at the end of quickstart and at the top of a report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT

from disk.show.standings import standings


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """Two methods of one seed: each has two skills, and the first has the lower numbers."""
    measured = {
        "disk": {"hausdorff": (13.0, 13.03), "isolation": (1.0, 3.0), "consistency": (0.001, 0.002)},
        "metra": {"hausdorff": (140.2, 140.4), "isolation": (0.5, 0.7), "consistency": (1200.0, 1300.0)},
    }
    for method, values in measured.items():
        rows = [f"nominal,{skill},{name},{pair[skill]}" for name, pair in values.items() for skill in (0, 1)]
        path = tmp_path / "point" / method / "seed0" / "metrics.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(["condition,skill,metric,value", *rows, "nominal,-1,distinct,2.0", ""]))
    return tmp_path / "point"


def test_numbers_have_three_digits_and_counts_have_no_decimals(env: Path) -> None:
    table, best = standings(env)
    assert list(table.index) == ["METRA", "DISk"]
    shown = table.T.to_dict()
    assert shown["DISk"]["Hausdorff (m) ↑"] == "13.0"
    assert shown["METRA"]["Hausdorff (m) ↑"] == "140"
    assert shown["DISk"]["isolation (m) ↑"] == "2.00"
    assert (shown["DISk"]["variance ↓"], shown["METRA"]["variance ↓"]) == ("0.00150", "1250")
    assert shown["DISk"]["distinct skills ↑"] == "2"
    assert best.endswith("DISk has the largest isolation (how far the nearest other skill ends).")


def test_one_skill_has_no_distances_and_is_shown_all_the_same(tmp_path: Path) -> None:
    """`measure` gives one skill no distance to others: NaN for Hausdorff and isolation."""
    path = tmp_path / "point" / "disk" / "seed0" / "metrics.csv"
    path.parent.mkdir(parents=True)
    rows = ["nominal,0,hausdorff,", "nominal,0,isolation,", "nominal,0,consistency,0.5"]
    counted = "nominal,-1,distinct,1.0"
    path.write_text("\n".join(["condition,skill,metric,value", *rows, counted, ""]))
    table, best = standings(tmp_path / "point")
    assert table.loc["DISk", ["skills", "distinct skills ↑", "Hausdorff (m) ↑"]].tolist() == [1, "1", "nan"]
    assert best == "DISk has the most distinct skills."
    path.write_text("\n".join(["condition,skill,metric,value", *rows, ""]))
    assert standings(tmp_path / "point")[1] == ""


@pytest.mark.parametrize("active", [True, False])
def test_the_next_command_works_with_and_without_an_activated_environment(env: Path, active: bool) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "DISPLAY")}
    done = subprocess.run(
        [sys.executable, str(PROJECT / "workflow/scripts/show.py"), str(env)],
        env={**variables, **({"VIRTUAL_ENV": ".venv"} if active else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    python = "python" if active else ".venv/bin/python"
    assert f" {python} -m disk live pretrained/ant " in done.stdout
    table = done.stdout.partition("\n\n")[2].partition("\nPicture")[0]
    assert max(map(len, table.splitlines())) <= 100
