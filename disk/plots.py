"""Figures of a world, one visual language for all: where the skills of each method go (the paper's trajectory
figure) and how far apart they end (its bars of mean Hausdorff distance). SVG, written whole, the same bytes
for the same input; text stays text and dense paths are rasterised, so that files stay small. What is missing
(a method without runs, a skill without a sound episode) leaves its place empty and breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from disk.files import whole
from disk.metrics import PAPER_HAUSDORFF, ends, sound

PALETTE = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
"""Petroff's ten colours (arXiv 2107.02270). Any two differ by ΔE 17 or more, also under simulated protanopia,
deuteranopia and tritanopia (Machado's matrices). Neighbours also differ by 6 or more in lightness, L*; 1 and 7
are equally light."""
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)), (0, (9, 3)))
MARKERS = ("o", "s", "^", "D", "v")
"""Line and marker of skills 1-10, 11-20, …, which use the ten colours again."""
INK, QUIET = "#222222", "#8a8a8a"
COLUMNS = 4
"""Panels side by side."""
WIDTH = 6.6
"""Inches that the key of ten skills takes."""
NOMINAL = "nominal"
DISTANCES = {"hausdorff": "mean Hausdorff distance", "isolation": "mean isolation"}
NAMES = {"disk": "DISk", "diayn": "DIAYN", "dads": "Off-DADS", "metra": "METRA", "random": "Random"}

_START: dict[str, Any] = {"linestyle": "", "marker": "+", "markersize": 7, "markeredgewidth": 1.4, "color": INK}
_ORIGIN: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.8, "color": INK}
_INTERVAL: dict[str, Any] = {"color": INK, "linewidth": 1.6, "marker": "|", "markersize": 7}
_SEED: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4, "color": INK, "markerfacecolor": "white"}
_PAPER: dict[str, Any] = {"linestyle": "", "marker": "D", "markersize": 4.5, "color": INK, "clip_on": False}


def _style() -> AbstractContextManager[None]:
    return mpl.rc_context(
        {
            "font.family": "DejaVu Sans",
            "font.size": 8.5,
            "axes.titlesize": 9.5,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e6e6e6",
            "grid.linewidth": 0.6,
            "xtick.color": QUIET,
            "xtick.labelcolor": INK,
            "ytick.color": QUIET,
            "ytick.labelcolor": INK,
            "figure.titlesize": 11,
            "legend.frameon": False,
            "legend.fontsize": 8.5,
            "savefig.dpi": 150,  # of what is rasterised
            "svg.fonttype": "none",
            "svg.hashsalt": "disk",  # ids of SVG elements would be random otherwise
        }
    )


def _save(figure: Figure, out: Path) -> None:
    with whole(out) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def method_name(method: str) -> str:
    """How a figure calls a method: `diayn_sigma` is DIAYN sigma."""
    family, _, variant = method.partition("_")
    return f"{NAMES.get(family, family)} {variant.replace('_', ' ')}".strip()


def trajectories(runs: Mapping[str, pd.DataFrame], out: Path, *, title: str, one_dimensional: bool, drawn: int) -> None:
    """Where each method's skills go: a panel a method, all on one scale, `drawn` episodes a skill.

    In worlds with one coordinate: where the episodes end on a line, one row a skill, in the order learned.
    """
    kept = {method: _first(sound(rollouts), drawn) for method, rollouts in runs.items()}
    skills = max((int(rollouts["skill"].max()) + 1 for rollouts in runs.values() if len(rollouts)), default=1)
    with _style():
        key = 0.3 if one_dimensional else 0.35 + 0.19 * ceil(skills / len(PALETTE))
        figure, panels = _panels(max(1, len(runs)), 0.5 + 0.14 * skills if one_dimensional else None, key)
        figure.suptitle(title)
        if not runs:
            _nothing(panels[0], "no runs")
        for axes, (method, rollouts) in zip(panels, kept.items(), strict=False):
            axes.set_title(method_name(method))
            if not len(rollouts):
                _nothing(axes, "no rollouts")
            elif one_dimensional:
                _line(axes, rollouts)
            else:
                _plane(axes, rollouts)
        if one_dimensional:
            _line_scale(panels, skills)
            _line_key(figure)
        else:
            _plane_scale(panels, list(kept.values()))
            _plane_key(figure, skills)
        _save(figure, out)


def _first(rollouts: pd.DataFrame, drawn: int) -> pd.DataFrame:
    rank = rollouts.groupby("skill")["episode"].rank(method="dense")
    return rollouts[rank <= drawn]


def _panels(count: int, height: float | None, key: float) -> tuple[Figure, list[Axes]]:
    """A grid of panels with common axes, labelled on the left and below, and room for a key.

    The panels are square, and their axes x and y, unless they are given a height.
    """
    columns = min(COLUMNS, count)
    rows = ceil(count / columns)
    side = min(3.3, max(2.3, WIDTH / columns))
    size = (max(WIDTH, side * columns + 0.5), ((height or side) + 0.25) * rows + key + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for spare in grid.flat[count:]:
        spare.remove()
    panels = list(grid.flat[:count])
    for lowest in panels[-columns:]:  # of its column, also where the last row is not full
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("final x (m)" if height else "x (m)")
    for left in panels[::columns]:
        left.set_ylabel("skill" if height else "y (m)")
    return figure, panels


def _nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=QUIET)


def _look(skill: int) -> dict[str, Any]:
    cycle = skill // len(PALETTE)
    return {
        "color": PALETTE[skill % len(PALETTE)],
        "linestyle": LINES[cycle % len(LINES)],
        "marker": MARKERS[cycle % len(MARKERS)],
        "markeredgecolor": INK,
        "markeredgewidth": 0.4,
        "markersize": 4.0,
    }


def _by_skill(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for skill in np.unique(frame["skill"]):
        yield int(skill), frame[frame["skill"] == skill]


def _plane(axes: Axes, rollouts: pd.DataFrame) -> None:
    for skill, own in _by_skill(rollouts.sort_values("step", kind="stable")):
        look = _look(skill)
        for _, path in own.groupby("episode"):
            x, y = path["x"].to_numpy(), path["y"].to_numpy()
            axes.plot(x, y, linewidth=0.9, alpha=0.9, rasterized=True, **{**look, "marker": ""})
            # Below the frame (2.5), so that paths and ends are rasterised into one picture.
            axes.plot(x[-1:], y[-1:], rasterized=True, zorder=2.2, **look)
    start = ends(rollouts)[["start_x", "start_y"]].mean()
    axes.plot(*start, zorder=4, **_START)


def _plane_scale(panels: Sequence[Axes], drawn: Sequence[pd.DataFrame]) -> None:
    points = np.concatenate([np.zeros((0, 2)), *(rollouts[["x", "y"]].to_numpy() for rollouts in drawn)])
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.full(2, -1.0), np.ones(2))
    centre, half = (low + high) / 2, max(0.55 * float((high - low).max()), 0.05)
    for axes in panels:
        axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
        axes.locator_params(nbins=5)


def _plane_key(figure: Figure, skills: int) -> None:
    """A colour key with the skills in rows of ten (a legend fills columns first, hence the sorting)."""
    columns = len(PALETTE)
    order = sorted(range(skills), key=lambda skill: (skill % columns, skill // columns))
    handles = [Line2D([], [], label=str(skill + 1), linewidth=1.4, **_look(skill)) for skill in order]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(columns, skills),
        title="skill (markers: ends of episodes; +: start)",
        handlelength=1.8,
        columnspacing=1.2,
        handletextpad=0.4,
    )


def _line(axes: Axes, rollouts: pd.DataFrame) -> None:
    points = ends(rollouts)
    start = float(points["start_x"].mean())
    axes.axvline(start, zorder=1, **_ORIGIN)
    for skill, own in _by_skill(points):
        look = {**_look(skill), "linestyle": ""}
        axes.plot([start, own["x"].mean()], [skill + 1] * 2, color=look["color"], linewidth=1.0, alpha=0.6)
        axes.plot(own["x"], [skill + 1] * len(own), alpha=0.9, **look)


def _line_scale(panels: Sequence[Axes], skills: int) -> None:
    every = 1 if skills <= 20 else 5
    rows = [row for row in range(1, skills + 1) if row == 1 or row % every == 0]
    panels[0].set(ylim=(skills + 0.7, 0.3), yticks=rows)  # the first skill on top; the panels share their axes
    for axes in panels:
        axes.locator_params(axis="x", nbins=5)


def _line_key(figure: Figure) -> None:
    end = {**_look(0), "linestyle": "", "color": QUIET}
    handles = [Line2D([], [], label="end of an episode", **end), Line2D([], [], label="start", **_ORIGIN)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)


def hausdorff(hausdorff_table: pd.DataFrame, summary: pd.DataFrame, out: Path, *, env: str) -> None:
    """How far apart each method's skills end: bars of the mean with its interval, the seeds as dots.

    One row of panels a condition (snapshots taken during training are left out). Isolation stands beside the
    Hausdorff distance, which one far skill is enough to raise. The paper's values, where it has any for this
    world, are marks of their own: they come from longer training.
    """
    methods = list(dict.fromkeys([*summary["method"], *hausdorff_table["method"]]))
    conditions = dict.fromkeys([*summary["condition"], *hausdorff_table["condition"]])
    final = [condition for condition in conditions if "@" not in condition] or [*conditions] or [NOMINAL]
    with _style():
        figure = Figure(figsize=(8.6, (0.55 + 0.4 * max(1, len(methods))) * len(final) + 1.1), layout="constrained")
        grid = figure.subplots(len(final), 2, squeeze=False, sharex="col", sharey="row")
        figure.suptitle(f"{env}: how far apart skills end")
        for row, condition in zip(grid, final, strict=True):
            runs = hausdorff_table[hausdorff_table["condition"] == condition]
            for axes, (metric, label) in zip(row, DISTANCES.items(), strict=True):
                chosen = summary[(summary["condition"] == condition) & (summary["metric"] == metric)]
                bars = {bar.method: bar for bar in chosen.itertuples()}
                _bars(axes, methods, bars, runs.groupby(["method", "seed"])[metric].mean().reset_index())
                axes.set_title(label if len(final) == 1 else f"{label}, {condition}")
                if metric == "hausdorff":
                    _method_axis(axes, methods, bars)
                    if condition == NOMINAL:
                        _paper(axes, methods, env)
        for axes in grid[-1]:
            axes.set(xlim=(0, None), xlabel="metres")
        for axes in grid.flat:
            axes.tick_params(axis="y", length=0)
        _marks(figure, paper=NOMINAL in final and bool(PAPER_HAUSDORFF.get(env, {}).keys() & set(methods)))
        _save(figure, out)


def _bars(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any], runs: pd.DataFrame) -> None:
    beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
    for row, method in enumerate(methods):
        bar = bars.get(method)
        if bar is None or not np.isfinite(bar.mean):
            axes.annotate("no value", (1.02, row), color=QUIET, **beside)
            continue
        axes.barh(row, bar.mean, height=0.5, **_bar(method))
        label = _number(bar.mean)
        if bar.seeds > 1:
            axes.plot([bar.ci_low, bar.ci_high], [row, row], **_INTERVAL)
            label += f" [{_number(bar.ci_low)}, {_number(bar.ci_high)}]"
        dots = runs.loc[runs["method"] == method].iloc[:, -1]
        axes.plot(dots, [row] * len(dots), **_SEED)
        axes.annotate(label, (1.02, row), color=INK, **beside)
    if not methods:
        _nothing(axes, "no runs")


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _bar(method: str) -> dict[str, Any]:
    """DISk and its variants stand out, by hatching too."""
    ours = method.partition("_")[0] == "disk"
    return {
        "color": "#a9cdf0" if ours else "#dcdcdc",
        "edgecolor": QUIET,
        "linewidth": 0.6,
        "hatch": "//" if ours else "",
    }


def _method_axis(axes: Axes, methods: Sequence[str], bars: Mapping[Any, Any]) -> None:
    counts = [int(bars[method].seeds) if method in bars else 0 for method in methods]
    labels = [
        f"{method_name(method)}\n{n} seed{'' if n == 1 else 's'}" for method, n in zip(methods, counts, strict=True)
    ]
    axes.set(yticks=range(len(methods)), yticklabels=labels, ylim=(max(1, len(methods)) - 0.4, -0.6))


def _paper(axes: Axes, methods: Sequence[str], env: str) -> None:
    for method, value in PAPER_HAUSDORFF.get(env, {}).items():
        if method in methods:
            row = methods.index(method) + 0.38  # below the bar, where it hides nothing
            if value.low is not None and value.high is not None:
                axes.plot([value.low, value.high], [row, row], color=INK, linewidth=0.8)
            axes.plot(value.mean, row, **_PAPER)


def _marks(figure: Figure, *, paper: bool) -> None:
    handles = [
        Line2D([], [], label="95 % bootstrap interval of the mean over seeds", **_INTERVAL),
        Line2D([], [], label="a seed (mean over its skills)", **_SEED),
    ]
    if paper:
        handles.append(Line2D([], [], label="paper (2.5M–5M steps), read off its figure", **_PAPER))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
