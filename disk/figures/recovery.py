"""recovery.svg: what a method has left after a change of the world, and how fast it is back."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from disk.evaluation.recovery import ENOUGH, MEASURES
from disk.figures.style import method_look, method_name, nothing, save, seeds_of, style, thousands


def recovery(table: pd.DataFrame, out: Path, *, env: str) -> None:
    """Draw the table of `recovery_table`: a line for each method, the mean over its changes and seeds."""
    methods = list(dict.fromkeys(table["method"]))
    with style():
        figure = Figure(figsize=(8.6, 3.6), layout="constrained")
        grid = figure.subplots(1, len(MEASURES), sharex=True, sharey=True)
        figure.suptitle(f"{env}: after a change of the world")
        for axes, (measure, title) in zip(grid, MEASURES.items(), strict=True):
            axes.axhline(ENOUGH, color="0.6", linewidth=0.8, linestyle=":")
            for method in methods:
                own = table[(table["method"] == method) & (table["measure"] == measure)]
                mean = own.groupby("steps")["share"].mean()
                label = f"{method_name(method)}, {seeds_of(own['seed'].nunique())}"
                axes.plot(mean.index, mean, label=label, linewidth=1.6, clip_on=False, **method_look(method, methods))
            axes.set(title=title, xlabel="steps since the change (0: old skills, at once)")
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            thousands(axes)
        grid[0].set(ylabel="of the value before", ylim=(0, None))  # shared, so set when all lines are there
        if methods:
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        else:
            nothing(grid[0], "no change")
        save(figure, out)
