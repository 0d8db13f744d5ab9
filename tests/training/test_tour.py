"""docs/tour.ipynb runs as it stands, and its stored outputs are those of its cells."""

from __future__ import annotations

import base64
import resource
from itertools import groupby
from typing import Any

import nbformat
import pytest
from conftest import PROJECT
from nbclient import NotebookClient

SECONDS = 120
"""CPU time that the tour may take: two minutes on one core."""


def kinds(cell: Any) -> list[str]:
    """What a cell shows, without what numbers it has there: machines round differently. Text may come in pieces."""
    shown = [kind for output in cell.outputs for kind in sorted(output.get("data", {output.output_type: ""}))]
    return [kind for kind, _ in groupby(shown)]


@pytest.mark.slow
def test_the_tour_runs_in_two_minutes_and_shows_what_it_has_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "120")
    stored = nbformat.read(PROJECT / "docs/tour.ipynb", as_version=4)
    notebook = nbformat.from_dict(stored)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(PROJECT / "docs")}}).execute()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"tour: {taken:.0f} s of CPU")
    assert taken < SECONDS
    code = [(old, new) for old, new in zip(stored.cells, notebook.cells, strict=True) if old.cell_type == "code"]
    assert len(code) > 8
    for old, new in code:
        assert kinds(old) == kinds(new), old.source
        assert old.execution_count == new.execution_count


def test_the_stored_tour_is_small_and_names_no_place_of_the_machine_that_ran_it() -> None:
    path = PROJECT / "docs/tour.ipynb"
    assert path.stat().st_size < 200_000
    pictures = [
        output.data["image/png"]
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 3
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    text = path.read_text()
    assert "/tmp" not in text
    assert str(PROJECT) not in text
    assert "/home/" not in text
