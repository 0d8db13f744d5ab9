"""profiles.svg: the share of each method's runs above a score, over all worlds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from disk.figures.style import WIDTH, method_look, method_name, nothing, save, style


def profiles(table: pd.DataFrame, statistics: pd.DataFrame, out: Path) -> None:
    """Draw `statistics.profiles_table`: a line for each method, its interquartile mean and its runs in the legend."""
    about = {row.method: row for row in statistics.itertuples()}
    methods = list(dict.fromkeys(table["method"]))
    with style():
        figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
        axes = figure.subplots()
        figure.suptitle("Share of runs above a score")
        for method in methods:
            own = table[table["method"] == method]
            label = f"{method_name(method)}: {about[method].iqm:.2f} ({about[method].runs} runs)"
            look = {**method_look(method, methods), "markevery": 10}
            axes.plot(own["threshold"], own["share"], label=label, linewidth=1.6, drawstyle="steps-post", **look)
        axes.set(xlabel="score τ: distinct movers as a share of the skills", ylabel="share of runs with score > τ")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        if methods:
            figure.legend(title="interquartile mean", loc="outside lower center", ncols=3)
        else:
            nothing(axes, "no runs")
        save(figure, out)
