"""hausdorff.svg: how far apart each method's skills end, the paper's figure of skill quality."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disk.evaluation.metrics import PAPER_HAUSDORFF
from disk.figures.bars import PAPER, draw_bars, marks_key, method_axis
from disk.figures.style import INK, NOMINAL, save, style

DISTANCES = {"hausdorff": "mean Hausdorff distance", "isolation": "mean isolation"}
COUNTED = {"distinct": "distinct movers"}


def hausdorff(hausdorff_table: pd.DataFrame, summary: pd.DataFrame, out: Path, *, env: str) -> None:
    """Draw bars of the mean with its interval, and the seeds as dots: one row of panels for each condition.

    One far skill raises the Hausdorff distance, so isolation and distinct movers stand beside it. The paper's values
    have marks of their own: they come from longer training. Snapshots taken during training are left out.
    """
    methods = list(dict.fromkeys([*summary["method"], *hausdorff_table["method"]]))
    conditions = dict.fromkeys([*summary["condition"], *hausdorff_table["condition"]])
    final = [condition for condition in conditions if "@" not in condition] or [*conditions] or [NOMINAL]
    with style():
        shown = DISTANCES | {metric: label for metric, label in COUNTED.items() if (summary["metric"] == metric).any()}
        size = (2.2 + 3.2 * len(shown), (0.55 + 0.4 * max(1, len(methods))) * len(final) + 1.1)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(final), len(shown), squeeze=False, sharex="col", sharey="row")
        figure.suptitle(f"{env}: how far apart skills end")
        for row, condition in zip(grid, final, strict=True):
            runs = hausdorff_table[hausdorff_table["condition"] == condition]
            for axes, (metric, label) in zip(row, shown.items(), strict=True):
                chosen = summary[(summary["condition"] == condition) & (summary["metric"] == metric)]
                bars = {bar.method: bar for bar in chosen.itertuples()}
                # The table of skills lacks measures that belong to a whole run.
                seeds = runs if metric in runs else pd.DataFrame(columns=["method", "seed", metric])
                draw_bars(axes, methods, bars, seeds.groupby(["method", "seed"])[metric].mean().reset_index())
                axes.set_title(label if len(final) == 1 else f"{label}, {condition}")
                if metric == "hausdorff":
                    method_axis(axes, methods, bars)
                    _paper(axes, methods, env)
        for axes, metric in zip(grid[-1], shown, strict=True):
            axes.set(xlim=(0, None), xlabel="skills" if metric in COUNTED else "metres")
        for axes in grid.flat:
            axes.tick_params(axis="y", length=0)
        marks_key(figure, paper=bool(PAPER_HAUSDORFF.get(env, {}).keys() & set(methods)))
        save(figure, out)


def _paper(axes: Axes, methods: Sequence[str], env: str) -> None:
    for method, value in PAPER_HAUSDORFF.get(env, {}).items():
        if method in methods:
            row = methods.index(method) + 0.38  # below the bar, where it hides nothing
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [row, row], color=INK, linewidth=0.8)
            axes.plot(value.mean, row, **PAPER)
