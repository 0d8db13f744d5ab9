"""The soak, short: a fault of every kind that needs neither MLflow nor Snakemake. `make soak` has two hundred."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(path) for path in (TESTS, *TESTS.iterdir()) if path.is_dir()]
import kinds  # noqa: E402
import soak  # noqa: E402


@pytest.mark.slow
def test_a_fault_of_every_kind_ends_in_the_bytes_of_an_undisturbed_run(tmp_path: Path):
    names = list(kinds.KINDS)
    found = soak.soak(len(names), seed=1, scratch=tmp_path, names=names)
    assert {result.kind for result in found} == set(names)
    assert len(names) >= 15
    wrong = [result for result in found if result.outcome not in soak.FINE]
    assert not wrong, "\n".join(
        f"{each.kind} in {each.run}: {each.outcome} {each.detail} {each.message}" for each in wrong
    )
    refused = [result for result in found if result.outcome == "refused"]
    assert len(refused) >= 4, "damage must be noticed"
    named = ("results/", "HookedPoint-v0")  # the file, or the environment that sends NaN before there is one
    assert all(any(name in result.message for name in named) for result in refused)


def test_the_table_counts_what_became_of_faults():
    results = [
        soak.Result(0, "kill", "disk", "recovered", "", "", 0.25, "", 1.0),
        soak.Result(1, "kill", "disk", "LOST", "", "", 0.5, "", 1.0),
        soak.Result(2, "flip", "disk", "DIVERGED", "", "", None, "", 1.0),
    ]
    text = soak.table(results)
    assert "| kill | 2 | 1 | 0 | 1 | 0 |" in text
    assert "| **all** | 3 | 1 | 0 | 1 | 1 |" in text
    assert "0.50 s" in text
