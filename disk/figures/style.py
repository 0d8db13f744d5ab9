"""The visual language that all figures share: colours, lines and marks, panels, keys, and how a figure is saved.
A skill has its colour and line in every figure, and so has a method. Colours are never alone in telling two things
apart. SVG, written whole, the same bytes for the same input; text stays text and dense paths are rasterised, so that
files stay small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from matplotlib.ticker import EngFormatter

from disk.evaluation.metrics import ends
from disk.storage.files import whole

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
INK, QUIET, FAINT = "#222222", "#8a8a8a", "#d0d0d0"
COLUMNS = 4
"""Panels side by side."""
WIDTH = 6.6
"""Inches that the key of ten skills takes."""
NOMINAL = "nominal"
NAMES = {"disk": "DISk", "dads": "Off-DADS", "diayn": "DIAYN", "random": "Random", "metra": "METRA", "flat": "Flat SAC"}
"""Families of methods, each with the colour of its place here."""

START: dict[str, Any] = {"linestyle": "", "marker": "+", "markersize": 7, "markeredgewidth": 1.4, "color": INK}
ORIGIN: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.8, "color": INK}


def style() -> AbstractContextManager[None]:
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


def save(figure: Figure, out: Path) -> None:
    with whole(out) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def method_name(method: str) -> str:
    """How a figure calls a method: `diayn_sigma` is DIAYN sigma."""
    family, _, variant = method.partition("_")
    return f"{NAMES.get(family, family)} {variant.replace('_', ' ')}".strip()


def seeds_of(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=QUIET)


def look(skill: int) -> dict[str, Any]:
    cycle = skill // len(PALETTE)
    return {
        "color": PALETTE[skill % len(PALETTE)],
        "linestyle": LINES[cycle % len(LINES)],
        "marker": MARKERS[cycle % len(MARKERS)],
        "markeredgecolor": INK,
        "markeredgewidth": 0.4,
        "markersize": 4.0,
    }


def method_look(method: str, methods: Sequence[str]) -> dict[str, Any]:
    """Its family's colour, and among the methods of one figure a line and a marker of its own."""
    families = list(NAMES)
    family = method.partition("_")[0]
    colour = families.index(family) if family in families else len(families) + len(family) % 4
    place = methods.index(method)
    return {
        "color": PALETTE[colour],
        "linestyle": LINES[place % len(LINES)],
        "marker": (*MARKERS, "P", "X")[place % (len(MARKERS) + 2)],
        "markeredgecolor": INK,
        "markeredgewidth": 0.4,
        "markersize": 4.0,
    }


def panels(
    count: int,
    key: float,
    *,
    height: float | None = None,
    labels: tuple[str, str] = ("x (m)", "y (m)"),
    abreast: int = COLUMNS,
    least: float = 2.3,
) -> tuple[Figure, list[Axes]]:
    """A grid of panels with common axes, labelled on the left and below, and room for a key.

    The panels are square unless they are given a height, and at least so many inches wide.
    """
    columns = min(abreast, count)
    rows = ceil(count / columns)
    side = min(3.3, max(least, WIDTH / columns))
    size = (max(WIDTH, side * columns + 0.5), ((height or side) + 0.25) * rows + key + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for spare in grid.flat[count:]:
        spare.remove()
    found = list(grid.flat[:count])
    for lowest in found[-columns:]:  # of its column, also where the last row is not full
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel(labels[0])
    for left in found[::columns]:
        left.set_ylabel(labels[1])
    return figure, found


def thousands(axes: Axes) -> None:
    """Steps as 20k and 5M."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=5)


def first(rollouts: pd.DataFrame, drawn: int) -> pd.DataFrame:
    """The first episodes of each skill."""
    rank = rollouts.groupby("skill")["episode"].rank(method="dense")
    return rollouts[rank <= drawn]


def by_skill(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for skill in np.unique(frame["skill"]):
        yield int(skill), frame[frame["skill"] == skill]


def plane(axes: Axes, rollouts: pd.DataFrame) -> None:
    """Paths from above."""
    for skill, own in by_skill(rollouts.sort_values("step", kind="stable")):
        lines = look(skill)
        for _, path in own.groupby("episode"):
            x, y = path["x"].to_numpy(), path["y"].to_numpy()
            axes.plot(x, y, linewidth=0.9, alpha=0.9, rasterized=True, **{**lines, "marker": ""})
            # Below the frame (2.5), so that paths and ends are rasterised into one picture.
            axes.plot(x[-1:], y[-1:], rasterized=True, zorder=2.2, **lines)
    start = ends(rollouts)[["start_x", "start_y"]].mean()
    axes.plot(*start, zorder=4, **START)


def plane_scale(shown: Sequence[Axes], drawn: Sequence[pd.DataFrame]) -> None:
    """One scale for all, with everything in view."""
    points = np.concatenate([np.zeros((0, 2)), *(rollouts[["x", "y"]].to_numpy() for rollouts in drawn)])
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.full(2, -1.0), np.ones(2))
    centre, half = (low + high) / 2, max(0.55 * float((high - low).max()), 0.05)
    for axes in shown:
        axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
        axes.locator_params(nbins=5)


def plane_key(figure: Figure, skills: int) -> None:
    """A colour key with the skills in rows of ten (a legend fills columns first, hence the sorting)."""
    columns = len(PALETTE)
    order = sorted(range(skills), key=lambda skill: (skill % columns, skill // columns))
    handles = [Line2D([], [], label=str(skill + 1), linewidth=1.4, **look(skill)) for skill in order]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(columns, skills),
        title="skill (markers: ends of episodes; +: start)",
        handlelength=1.8,
        columnspacing=1.2,
        handletextpad=0.4,
    )
