"""projection.svg: a learned σ, φ's coordinates over the position, and skills in φ's space beside skills in space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from disk import projection
from disk.config import World
from disk.errors import ArtefactError
from disk.figures.style import first, over_time, plane, save, skill_key, style
from disk.storage.layout import PROJECTION


def draw_projection(world: World, title: str, drawn: int, stats: Path, visits: Sequence[Path], out: Path) -> None:
    """Draw projection.svg from φ beside `stats`, that of the last skill, and the states that all skills visited."""
    if world.sigma != "learned":
        raise ArtefactError(f"{stats.parent}: has no {PROJECTION}: its σ is not learned")
    learned, _ = projection.load(stats.with_name(PROJECTION))
    figure(paths(learned, visits, len(world.position.entries)), out, title=title, drawn=drawn)


def paths(learned: projection.Projection, visits: Sequence[Path], coordinates: int) -> pd.DataFrame:
    """Tabulate visited states: skill, episode, step, the position x, y and φ's coordinates phi1, phi2, …"""
    frames = []
    for skill, path in enumerate(visits):
        before, after = np.split(np.load(path, allow_pickle=False), 2, axis=1)
        begins = np.append(True, (before[1:] != after[:-1]).any(axis=1))
        episode = begins.cumsum() - 1
        step = np.arange(len(before)) - np.flatnonzero(begins)[episode]
        position = before[:, before.shape[1] - coordinates :]
        places = learned.place(torch.from_numpy(before)).numpy()
        columns = {"skill": skill, "episode": episode, "step": step, "x": position[:, 0], "y": position[:, -1]}
        frames.append(pd.DataFrame({**columns, **{f"phi{i + 1}": own for i, own in enumerate(places.T)}}))
    return pd.concat(frames, ignore_index=True).assign(flat=coordinates == 1)


def figure(table: pd.DataFrame, out: Path, *, title: str, drawn: int) -> None:
    """Draw a panel for each coordinate of φ, then skills in space and in φ's first two coordinates."""
    kept, flat = first(table, drawn), bool(table["flat"].iloc[0])
    names = [name for name in table.columns if name.startswith("phi")]
    with style():
        drawing = Figure(figsize=(3.0 * (len(names) + 2), 3.7), layout="constrained")
        grid = drawing.subplots(1, len(names) + 2, squeeze=False)[0]
        drawing.suptitle(title)
        for axes, name in zip(grid, names, strict=False):
            _coloured(axes, drawing, kept, name, flat)
        (over_time if flat else plane)(grid[-2], kept)
        grid[-2].set(title="skills in space", xlabel="step" if flat else "x (m)", ylabel="x (m)" if flat else "y (m)")
        narrow = len(names) == 1
        own = kept.drop(columns=["x", "y"]).assign(x=kept[names[0]], y=kept[names[-1]])
        (over_time if narrow else plane)(grid[-1], own)
        grid[-1].set(title="the same skills in φ", xlabel="step" if narrow else "φ₁", ylabel="φ₁" if narrow else "φ₂")
        skill_key(drawing, table["skill"].nunique())
        save(drawing, out)


def _coloured(axes: Axes, drawing: Figure, kept: pd.DataFrame, name: str, flat: bool) -> None:
    """Draw the visited positions in the colour of one coordinate of φ."""
    across, up = ("step", "x") if flat else ("x", "y")
    points = axes.scatter(kept[across], kept[up], c=kept[name], s=4, cmap="viridis", rasterized=True)
    drawing.colorbar(points, ax=axes, location="bottom", shrink=0.8)
    label = f"φ{'₁₂₃₄₅₆₇₈₉'[(int(name[3:]) - 1) % 9]}"
    axes.set(
        title=f"{label} where skills went", xlabel="step" if flat else "x (m)", ylabel="x (m)" if flat else "y (m)"
    )
