"""Read training curves and measures of a run as metrics for MLflow."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from disk.storage.layout import CHANGES, CURVE, METRICS
from disk.tracking.record import Row
from disk.tracking.shown import BY_SKILL

STEP, ELAPSED = "time/total_timesteps", "time/time_elapsed"
Curves = dict[str, dict[int, float]]
"""Metric → step → value."""


class Measure(NamedTuple):
    """A line of metrics.csv. Skill -1 is the run as a whole."""

    condition: str
    skill: int
    metric: str
    value: float


def read_rows(path: Path) -> list[Row]:
    """Read a progress.csv as far as it is written. Its last line may be incomplete."""
    try:
        text = path.read_text()
    except OSError:
        return []
    lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    header = lines[0] if lines else []
    if STEP not in header or "skill" in header:  # the curves of a chain: its skills' records have them
        return []
    rows: list[Row] = []
    for line in lines[1:]:
        values = dict(zip(header, map(_number, line), strict=False))
        step, elapsed = values.pop(STEP, math.nan), values.get(ELAPSED, math.nan)
        if len(line) == len(header) and step > (rows[-1].step if rows else -1):
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            rows.append(Row(int(step), elapsed if math.isfinite(elapsed) else 0.0, finite))
    return rows


def read_controller_rows(path: Path, seconds: float) -> list[Row]:
    """Read a controller's curve, whose rows are spread evenly over the `seconds` of its training."""
    lines = [{name: _number(value) for name, value in line.items()} for line in _lines(path)]
    return [
        Row(int(line["decision"]), seconds * (index + 1) / len(lines), {f"hierarchy/{k}": v for k, v in line.items()})
        for index, line in enumerate(lines)
    ]


def read_measures(run: Path) -> list[Measure]:
    """Read a run's metrics.csv; empty if there is none."""
    try:
        return [
            Measure(line["condition"], int(line["skill"]), line["metric"], _number(line["value"]))
            for line in _lines(run / METRICS)
        ]
    except (KeyError, TypeError, ValueError):
        return []


def mean_measures(measures: Sequence[Measure], steps: int, skill: int | None = None) -> Curves:
    """Return the measures of one skill, or their means over the run, as metrics at step `steps`.

    `eval/distance` is the measure in the first condition, so that runs of all environments can be compared. With
    several conditions, each has its own `eval/leg2/distance`. Conditions `name@step` are snapshots: points of a curve.
    """
    conditions = list(dict.fromkeys(measure.condition.partition("@")[0] for measure in measures))
    values: dict[str, dict[int, list[float]]] = {}
    for measure in measures:
        if not math.isfinite(measure.value) or skill not in (None, measure.skill):
            continue
        condition, _, step = measure.condition.partition("@")
        names = [f"eval/{measure.metric}"] if condition == conditions[0] else []
        names += [f"eval/{condition}/{measure.metric}"] if len(conditions) > 1 else []
        for name in names:
            values.setdefault(name, {}).setdefault(int(step) if step else steps, []).append(measure.value)
    return {name: {step: fmean(each) for step, each in curve.items()} for name, curve in values.items()}


def measures_by_skill(measures: Sequence[Measure]) -> Curves:
    """Return the measures in the first condition as curves over the skills: the skill's number is the step."""
    curves: Curves = {}
    for measure in measures:
        if measure.condition == measures[0].condition and measure.skill >= 0 and math.isfinite(measure.value):
            curves.setdefault(f"{BY_SKILL}{measure.metric}", {})[measure.skill] = measure.value
    return curves


def read_chain(run: Path) -> Curves:
    """Join the curves of a chain's skills over the steps of the whole run; empty for joint methods.

    The run's record shows them beside the curves of methods that learn all skills together.
    """
    curves: Curves = {}
    skill, before, last = None, 0, 0
    for line in _lines(run / CURVE):
        own, step = line.pop("skill", None), _number(line.pop(STEP, None))
        if own is None or not math.isfinite(step):
            return {}
        if own != skill:
            skill, before = own, last
        last = before + int(step)
        for name, text in line.items():
            if not name.startswith("time/") and math.isfinite(value := _number(text)):
                curves.setdefault(name, {})[last] = value
    return curves


def read_changes(run: Path) -> Curves:
    """Return the test's statistic, and a 1 at every change, over the steps of a run that probes its world."""
    lines = _lines(run / CHANGES)
    changes = {int(line["step"]): 1.0 for line in lines if line["decision"] != "none"}
    curves = {"aware/statistic": {int(line["step"]): float(line["statistic"]) for line in lines}}
    return {**curves, **({"aware/change": changes} if changes else {})} if lines else {}


def _lines(path: Path) -> list[dict[str, str]]:
    """Read the lines of a table; empty if there is none."""
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
