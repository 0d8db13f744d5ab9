"""The style that all figures share: colours, lines, markers, panels, keys, and saving.

A skill has one colour and line in every figure; a method has one colour. Line styles and markers differ too, so that
nobody depends on colour alone. Figures are SVG with the same bytes for the same input: text stays text, and dense paths
are rasterised to keep files small.
"""

from __future__ import annotations

import colorsys
import hashlib
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
from disk.figures.catalogue import OURS
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
"""Colours of skills: Petroff's ten (arXiv 2107.02270). Any two differ by ΔE 17 or more, also under simulated
protanopia, deuteranopia and tritanopia (Machado's matrices). Neighbours differ by 6 or more in lightness, L*."""
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)), (0, (9, 3)))
MARKERS = ("o", "s", "^", "D", "v")
"""Lines and markers of skills 1-10, 11-20, …, which repeat the ten colours."""
INK, QUIET, FAINT = "#222222", "#8a8a8a", "#d0d0d0"
COLUMNS = 4
"""Panels side by side."""
WIDTH = 6.6
"""Width of a key with ten skills, in inches."""
NOMINAL = "nominal"
NAMES = {OURS: "DISk", "dads": "Off-DADS", "diayn": "DIAYN", "random": "Random", "metra": "METRA", "flat": "Flat SAC"}
"""Families of methods. A family is the part of a method's name before the first underscore."""
METHOD_COLOURS = {
    OURS: "#1464ff",
    "dads": "#ffa90e",
    "diayn": "#bd1f01",
    "random": "#94a4a2",
    "metra": "#832db6",
    "flat": "#a96b59",
    "diayn_sigma": "#186000",
    "disk_parallel": "#fc90fc",
    "diayn_disjoint": "#60e478",
    "disk_stride": "#489c00",
    "diayn_curriculum": "#780c48",
    "metra_relabel": "#cc54b4",
    "disk_adaptive": "#00d8fc",
    "disk_crossq": "#18486c",
    "dads_scaled": "#fc7884",
    "disk_plus": "#fc3054",
    "disk_budget": "#008478",
    "disk_aware": "#0000a5",
    "disk_learned": "#040706",
    "disk_fresh": "#6c3c00",
    "disk_soft": "#9c9cfc",
    "random_sampled": "#ccc0e4",
    "disk_warm": "#b49000",
    "disk_signed": "#6c6084",
    "metra_raw": "#a82478",
    "disk_keep_half": "#00c090",
    "disk_released": "#542484",
    "disk_unannealed": "#786c00",
    "disk_beta_one": "#00a8d8",
    "disk_soft_beta_one": "#c0cc90",
    "disk_fork_reuse": "#9078c0",
    "disk_fork_fresh": "#e46000",
}
"""One colour for each method of methods.yaml. Any two differ by 0.1 or more in OKLab. DISk's is the most saturated and
differs from all others by 0.15 or more."""

MARKED: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 0.4, "markersize": 4.0}
START: dict[str, Any] = {"linestyle": "", "marker": "+", "markersize": 7, "markeredgewidth": 1.4, "color": INK}
ORIGIN: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 0.8, "color": INK}


def style() -> AbstractContextManager[None]:
    """Return the context in which every figure is drawn."""
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
            "savefig.dpi": 150,  # of rasterised parts
            "svg.fonttype": "none",
            "svg.hashsalt": "disk",  # ids of SVG elements would be random otherwise
        }
    )


def save(figure: Figure, out: Path) -> None:
    with whole(out) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def method_name(method: str) -> str:
    """Return the name that a figure shows: `diayn_sigma` becomes DIAYN sigma."""
    family, _, variant = method.partition("_")
    return f"{NAMES.get(family, family)} {variant.replace('_', ' ')}".strip()


def method_colour(method: str) -> str:
    """Return the colour of a method. A method without an entry gets a dark colour that depends on its name alone."""
    if method in METHOD_COLOURS:
        return METHOD_COLOURS[method]
    hue, light = hashlib.sha256(method.encode()).digest()[:2]
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue / 256, 0.25 + light / 1024, 0.45))
    return f"#{red:02x}{green:02x}{blue:02x}"


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
        **MARKED,
    }


def method_look(method: str, methods: Sequence[str]) -> dict[str, Any]:
    """Return the colour of a method, with a line and a marker that differ within one figure."""
    place = methods.index(method)
    return {
        "color": method_colour(method),
        "linestyle": LINES[place % len(LINES)],
        "marker": (*MARKERS, "P", "X")[place % (len(MARKERS) + 2)],
        **MARKED,
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
    """Return a grid of panels with common axes, labelled on the left and below, and room for a key.

    Sizes are in inches. Panels are square unless `height` is given, and at least `least` wide.
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
    for lowest in found[-columns:]:  # the lowest of each column, even if the last row is not full
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel(labels[0])
    for left in found[::columns]:
        left.set_ylabel(labels[1])
    return figure, found


def thousands(axes: Axes) -> None:
    """Write steps as 20k and 5M."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.locator_params(axis="x", nbins=5)


def first(rollouts: pd.DataFrame, drawn: int) -> pd.DataFrame:
    """Return the first `drawn` episodes of each skill."""
    rank = rollouts.groupby("skill")["episode"].rank(method="dense")
    return rollouts[rank <= drawn]


def by_skill(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield each skill and its rows."""
    for skill in np.unique(frame["skill"]):
        yield int(skill), frame[frame["skill"] == skill]


def plane(axes: Axes, rollouts: pd.DataFrame) -> None:
    """Draw paths from above, and the start."""
    _paths(axes, rollouts, "x", "y")
    axes.plot(*ends(rollouts)[["start_x", "start_y"]].mean(), zorder=4, **START)


def over_time(axes: Axes, rollouts: pd.DataFrame) -> None:
    """Draw the position over time, for worlds with one coordinate."""
    _paths(axes, rollouts, "step", "x")


def _paths(axes: Axes, rollouts: pd.DataFrame, across: str, up: str) -> None:
    for skill, own in by_skill(rollouts.sort_values("step", kind="stable")):
        lines = look(skill)
        for _, path in own.groupby("episode"):
            x, y = path[across].to_numpy(), path[up].to_numpy()
            axes.plot(x, y, linewidth=0.9, alpha=0.9, rasterized=True, **{**lines, "marker": ""})
            # Below the frame (2.5), so that paths and ends are rasterised into one picture.
            axes.plot(x[-1:], y[-1:], rasterized=True, zorder=2.2, **lines)


def plane_scale(shown: Sequence[Axes], drawn: Sequence[pd.DataFrame]) -> None:
    """Give all panels one scale, with everything in view."""
    points = np.concatenate([np.zeros((0, 2)), *(rollouts[["x", "y"]].to_numpy() for rollouts in drawn)])
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (np.full(2, -1.0), np.ones(2))
    centre, half = (low + high) / 2, max(0.55 * float((high - low).max()), 0.05)
    for axes in shown:
        axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
        axes.locator_params(nbins=5)


def skill_key(figure: Figure, skills: int, *, start: bool = True) -> None:
    """Add a key with the skills in rows of ten. A legend fills columns first, hence the sorting."""
    columns = len(PALETTE)
    order = sorted(range(skills), key=lambda skill: (skill % columns, skill // columns))
    handles = [Line2D([], [], label=str(skill + 1), linewidth=1.4, **look(skill)) for skill in order]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(columns, skills),
        title=f"skill (markers: ends of episodes{'; +: start' if start else ''})",
        handlelength=1.8,
        columnspacing=1.2,
        handletextpad=0.4,
    )
