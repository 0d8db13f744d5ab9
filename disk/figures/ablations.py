"""ablations.svg: DISk and its variants, measure by measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from disk.evaluation.metrics import MeasuredRun, summarise
from disk.evaluation.run import read_runs
from disk.figures.bars import WHOLE, draw_bars, marks_key, method_axis
from disk.figures.catalogue import OURS
from disk.figures.style import NOMINAL, save, style

ABLATED = {
    "hausdorff": "mean Hausdorff distance (m), higher is better",
    "isolation": "mean isolation (m), higher is better",
    "movers": "movers, higher is better",
    "distinct": "distinct movers, higher is better",
    "coverage": "coverage (unit bins), higher is better",
    "consistency": "normalised variance, lower is better",
}


def draw_ablations(env: str, condition: str, metrics: Sequence[Path], out: Path) -> None:
    """Draw ablations.svg from the metrics.csv of all runs of DISk and its variants."""
    ablations(read_runs(metrics), out, env=env, condition=condition)


def ablations(runs: Sequence[MeasuredRun], out: Path, *, env: str, condition: str) -> None:
    """Draw bars of each measure in one condition, with a line at the value of DISk itself."""
    ours = [(method, seed, frame[frame["condition"] == condition]) for method, seed, frame in runs]
    summary = summarise(ours)
    values = [
        frame.groupby("metric")["value"].mean().reset_index().assign(method=method, seed=seed)
        for method, seed, frame in ours
    ]
    of_runs = pd.concat(values) if values else pd.DataFrame(columns=["metric", "value", "method", "seed"])
    methods = sorted(dict.fromkeys(method for method, _, _ in ours), key=lambda method: method != OURS)
    with style():
        shown = {metric: label for metric, label in ABLATED.items() if (summary["metric"] == metric).any()} or ABLATED
        rows = -(-len(shown) // 2)
        figure = Figure(figsize=(9.2, (0.55 + 0.4 * max(1, len(methods))) * rows + 1.1), layout="constrained")
        grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
        world = "" if condition == NOMINAL else f", {condition.replace('_', ' ')}"
        figure.suptitle(f"{env}: DISk and its variants{world}")
        for axes, (metric, label) in zip(grid.flat, shown.items(), strict=False):
            chosen = summary[summary["metric"] == metric]
            bars: dict[Any, Any] = {bar.method: bar for bar in chosen.itertuples()}
            own = of_runs[of_runs["metric"] == metric]
            draw_bars(axes, methods, bars, own[["method", "seed", "value"]])
            if OURS in bars and np.isfinite(bars[OURS].mean):
                axes.axvline(bars[OURS].mean, zorder=1.5, **WHOLE)
            axes.set_title(label)
            axes.set(xlim=(0, None))
            axes.tick_params(axis="y", length=0)
            axes.locator_params(axis="x", nbins=5)
        bars = {bar.method: bar for bar in summary[summary["metric"] == "hausdorff"].itertuples()}
        for axes in grid[:, 0]:
            method_axis(axes, methods, bars)
        marks_key(figure, paper=False, whole=bool(bars))
        save(figure, out)
