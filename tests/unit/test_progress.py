"""The training curve: its rows, its alarm, and that an interruption leaves no trace in it."""

from __future__ import annotations

import csv
import io
import logging
import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import CPU
from hypothesis import given, settings
from hypothesis import strategies as st

from disk.errors import NotFiniteError
from disk.learning.progress import Bar, Progress
from disk.storage.files import load_tensors, save_tensors

TIMES = ("time/time_elapsed", "time/fps")


def make(path: Path, log_every: int = 10, total: int = 1000) -> Progress:
    return Progress(path, log_every, total, "label", CPU)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def feed(progress: Progress, start: int, stop: int, length: int = 5, seeding: int = 0) -> None:
    """Steps of episodes of some length; update i reports i and -2i, σ is (1, i)."""
    for step in range(start, stop):
        progress.observe(np.array([1.0, float(step)]))
        if step >= seeding:
            values = {"reward/mean": torch.tensor(float(step)), "train/actor_loss": torch.tensor(-2.0 * step)}
            progress.update(step, values)
        if (step + 1) % length == 0:
            progress.episode(step + 1, length)


def test_a_row_holds_the_means_since_the_row_before(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    feed(progress, 0, 20)
    rows = table(progress.text())
    assert [row["time/total_timesteps"] for row in rows] == ["10", "20"]
    assert [float(row["reward/mean"]) for row in rows] == [4.5, 14.5]
    assert [float(row["train/actor_loss"]) for row in rows] == [-9.0, -29.0]
    assert [float(row["rollout/ep_len_mean"]) for row in rows] == [5.0, 5.0]
    assert [float(row["rollout/sigma_x"]) for row in rows] == [1.0, 1.0]
    assert [float(row["rollout/sigma_y"]) for row in rows] == [4.5, 14.5]
    assert (tmp_path / "progress.csv").read_text() == progress.text()


def test_long_intervals_are_folded_without_losing_any_update(tmp_path: Path):
    progress = make(tmp_path / "progress.csv", log_every=1000, total=1000)
    feed(progress, 0, 1000)
    (row,) = table(progress.text())
    assert float(row["reward/mean"]) == pytest.approx(499.5)


def test_the_end_of_training_always_has_a_row(tmp_path: Path):
    progress = make(tmp_path / "progress.csv", log_every=600, total=1000)
    feed(progress, 0, 1000)
    assert [row["time/total_timesteps"] for row in table(progress.text())] == ["600", "1000"]


def test_rows_start_when_there_is_something_to_report(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    feed(progress, 0, 40, seeding=25)
    rows = table(progress.text())
    assert [row["time/total_timesteps"] for row in rows] == ["30", "40"]
    assert float(rows[0]["reward/mean"]) == 27.0


def test_rows_without_a_new_update_hold_no_made_up_numbers(tmp_path: Path):
    """One update in 50 steps and a row every 10: `updates_per_step` may be far below 1."""
    progress = make(tmp_path / "progress.csv")
    with np.errstate(all="raise"):
        for step in range(100):
            progress.observe(np.zeros(1))
            if step % 50 == 0:
                progress.update(step, {"reward/mean": torch.tensor(3.0)})
            if (step + 1) % 5 == 0:
                progress.episode(step + 1, 5)
    rows = table(progress.text())
    assert all(row["reward/mean"] in ("3", "") for row in rows), rows


# ---------------------------------------------------------------- the alarm


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bad", [0, 1, 137, 255, 256, 400])
def test_a_number_that_is_not_finite_is_blamed_on_its_name_and_exact_step(tmp_path: Path, value: float, bad: int):
    progress = make(tmp_path / "progress.csv", log_every=1000)

    def train() -> None:
        for step in range(bad + 3):
            actor, critic = value if step == bad else 1.0, math.nan if step > bad else 1.0
            losses = {"train/actor_loss": torch.tensor(actor), "train/critic_loss": torch.tensor(critic)}
            progress.update(step, {"reward/mean": torch.tensor(1.0), **losses})
        progress.check()

    with pytest.raises(NotFiniteError) as caught:
        train()
    assert "train/actor_loss" in str(caught.value)
    assert f"step {bad};" in str(caught.value)
    assert str(value) in str(caught.value)


def test_it_is_noticed_within_some_hundred_updates_without_being_asked(tmp_path: Path):
    progress = make(tmp_path / "progress.csv", log_every=10**6, total=10**6)

    def train() -> None:
        for step in range(600):
            progress.update(step, {"reward/mean": torch.tensor(math.nan if step == 3 else 1.0)})

    with pytest.raises(NotFiniteError, match="step 3"):
        train()


def test_no_row_is_written_with_it(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    feed(progress, 0, 20)
    before = progress.text()
    progress.update(20, {"reward/mean": torch.tensor(math.nan), "train/actor_loss": torch.tensor(1.0)})
    with pytest.raises(NotFiniteError):
        progress.episode(30, 10)
    assert progress.text() == before == (tmp_path / "progress.csv").read_text()


def test_finite_numbers_raise_no_alarm(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    progress.check()
    progress.update(0, {"reward/mean": torch.tensor(3.4e38)})
    progress.check()


# ---------------------------------------------------------------- going on


def without_times(text: str) -> list[dict[str, str]]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in table(text)]


@given(
    stops=st.lists(st.integers(0, 159), max_size=3).map(sorted),
    seeding=st.sampled_from([0, 23]),
    lost=st.integers(0, 40),
    log_every=st.sampled_from([7, 10, 300]),
)
@settings(max_examples=30)
def test_an_interrupted_curve_equals_an_uninterrupted_one(tmp_path_factory, stops, seeding, lost, log_every):
    """Stopped after some episodes, with some more steps that are lost; the state goes through a real file."""
    folder = tmp_path_factory.mktemp("curve")
    straight = make(folder / "straight.csv", log_every, 800)
    feed(straight, 0, 800, seeding=seeding)
    progress, done = make(folder / "broken.csv", log_every, 800), 0
    for stop in stops:
        feed(progress, done, 5 * stop, seeding=seeding)
        tensors, values = progress.state()
        save_tensors(folder / "state", tensors, values)
        feed(progress, 5 * stop, min(5 * stop + lost, 800), seeding=seeding)
        loaded, meta = load_tensors(folder / "state")
        progress, done = make(folder / "broken.csv", log_every, 800), 5 * stop
        progress.load_state(loaded, meta, done)
        assert (folder / "broken.csv").read_text() in (progress.text(), "")
    feed(progress, done, 800, seeding=seeding)
    assert without_times(progress.text()) == without_times(straight.text())
    assert without_times((folder / "broken.csv").read_text()) == without_times(straight.text())


def test_a_bad_number_that_waits_in_a_saved_state_is_still_found(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    progress.update(3, {"reward/mean": torch.tensor(math.nan)})
    tensors, values = progress.state()
    again = make(tmp_path / "progress.csv")
    again.load_state(tensors, values, 4)
    with pytest.raises(NotFiniteError, match="step 3"):
        again.check()


def test_seconds_add_up_over_processes(tmp_path: Path):
    progress = make(tmp_path / "progress.csv")
    tensors, values = progress.state()
    again = make(tmp_path / "progress.csv")
    again.load_state(tensors, {**values, "seconds": 100.0, "cpu_seconds": 50.0}, 0)
    assert 100.0 < again.seconds < 110.0
    sum(range(3_000_000))
    assert 50.0 < again.cpu_seconds < 60.0


# ---------------------------------------------------------------- for whoever watches


def test_where_there_is_no_terminal_a_line_comes_every_so_often(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="disk")
    bar = Bar("point skill 02", 1000, every=0.0)
    bar.note({"reward/mean": 0.25, "reward/diversity": 2.0})
    bar.show(100)
    bar.show(200)
    assert len(caplog.records) == 2
    assert "point skill 02: 200/1000 steps" in caplog.text
    assert "steps/s" in caplog.text
    assert "min left" in caplog.text
    assert "diversity 2" in caplog.text


def test_and_not_more_often(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="disk")
    bar = Bar("label", 1000, every=3600.0)
    for step in range(0, 1000, 50):
        bar.show(step)
    assert not caplog.records


def test_the_rate_counts_this_processs_steps_only(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    caplog.set_level(logging.INFO, logger="disk")
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    bar = Bar("label", 1000, every=1.0)
    bar.start(600)
    clock[0] = 10.0
    bar.show(700)
    assert "700/1000 steps, 10 steps/s, 0.5 min left" in caplog.text


def test_a_bar_starts_no_thread():
    """tqdm's own would be waited for without end where memory is too short for it to start."""
    before = threading.active_count()
    Bar("label", 10).close()
    assert threading.active_count() == before


def test_on_a_terminal_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar("point skill 02", 1000)
    bar.show(1000)
    bar.close()
    assert "point skill 02" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Bar("point skill 02", 1000).close()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
