"""Recovery after a change of the world: what is left at once, by choosing among old skills, and after training."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

MEASURES = {"reach": "reach", "distinct": "distinct movers"}
ENOUGH = 0.9
"""Share of its value before the change at which a measure counts as recovered."""
DIRECTIONS = 8


def reach(points: pd.DataFrame) -> float:
    """Return how far the best skill gets in a direction, on average over eight directions, or two on a line.

    `points` are those of `metrics.ends`. A direction in which no skill goes counts 0.
    """
    if points.empty:
        return 0.0
    moved = points[["x", "y"]].to_numpy() - points[["start_x", "start_y"]].to_numpy()
    mean = pd.DataFrame(moved).groupby(points["skill"].to_numpy()).mean().to_numpy()  # (skills, 2)
    count = DIRECTIONS if moved[:, 1].any() else 2
    angles = 2.0 * np.pi * np.arange(count) / count
    along = mean @ np.array([np.cos(angles), np.sin(angles)])  # (skills, directions)
    return float(along.max(axis=0).clip(min=0.0).mean())


def recovery_table(usable: pd.DataFrame) -> pd.DataFrame:
    """Return every change of every run: columns method, seed, change, measure, steps, share.

    `usable` is the table of `forgetting.usable_table`. `share` is the measure `steps` after the change, relative to its
    value before: 0 steps are the old skills in the new world. A change ends where the next one comes. Changes before
    which a measure is 0 are left out.
    """
    rows = []
    for (method, seed), own in usable.groupby(["method", "seed"], sort=False):
        table = own.reset_index(drop=True)
        changed = table.index[table["step"].duplicated()].tolist()  # a change has two rows: the old world, the new one
        for at, end in pairwise([*changed, len(table)]):
            when = table["step"][at]
            for measure in MEASURES:
                before = table[measure][at - 1]
                for row in range(at, end) if before > 0 else ():
                    share = table[measure][row] / before
                    rows.append((method, seed, when, measure, table["step"][row] - when, share))
    return pd.DataFrame(rows, columns=["method", "seed", "change", "measure", "steps", "share"])


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per method and measure: changes, mean share at once and at the end, recovered, median steps.

    `recovered` is the share of changes after which the measure is back at ENOUGH, `steps` the median of those.
    """
    rows = []
    for (method, measure), own in table.groupby(["method", "measure"], sort=False):
        changes = [each for _, each in own.groupby(["seed", "change"])]
        back = [each["steps"][each["share"] >= ENOUGH].min() for each in changes]
        found = [steps for steps in back if np.isfinite(steps)]
        at_once, last = (float(np.mean([each["share"].iloc[place] for each in changes])) for place in (0, -1))
        steps = float(np.median(found)) if found else np.nan
        rows.append((method, measure, len(changes), at_once, last, len(found) / len(changes), steps))
    return pd.DataFrame(rows, columns=["method", "measure", "changes", "at_once", "last", "recovered", "steps"])
