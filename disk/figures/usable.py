"""usable.svg: the number of movers and of distinct movers over training, in a changing world."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from disk.figures.style import method_look, method_name, nothing, save, seeds_of, style, thousands

COUNTED = {"movers": "movers", "distinct": "distinct movers"}


def usable(table: pd.DataFrame, out: Path, *, env: str) -> None:
    """Draw the table of `forgetting.usable_table`: a line for each method's mean over seeds; thin lines are seeds.

    Where the world changes, a line has two values: in the old world and in the new one.
    """
    methods = list(dict.fromkeys(table["method"]))
    with style():
        figure = Figure(figsize=(8.6, 3.6), layout="constrained")
        grid = figure.subplots(1, len(COUNTED), sharex=True, sharey=True)
        figure.suptitle(f"{env}: usable skills in the current world")
        for axes, (column, title) in zip(grid, COUNTED.items(), strict=True):
            for method in methods:
                own = table[table["method"] == method]
                look, seeds = method_look(method, methods), own["seed"].nunique()
                # Seeds are averaged by row number, since a change of the world has two rows at one step.
                moments = own.assign(moment=own.groupby("seed").cumcount())
                mean = moments.groupby("moment")[["step", column]].mean()
                label = f"{method_name(method)}, {seeds_of(seeds)}"
                axes.plot(mean["step"], mean[column], label=label, linewidth=1.6, clip_on=False, **look)
                for _, run in own.groupby("seed") if seeds > 1 else ():
                    axes.plot(run["step"], run[column], color=look["color"], linewidth=0.5, alpha=0.7)
            axes.set(title=title, xlabel="environment steps", xlim=(0, None), ylim=(0, None))
            thousands(axes)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        if methods:
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        else:
            nothing(grid[0], "no runs")
        save(figure, out)
