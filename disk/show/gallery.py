"""The skill gallery: a page with a card for every skill of an environment, opened from disk without a server.

gallery.html is the template. The data lie in the page and the clips beside it, so the folder can be sent as it is and
the page loads nothing from elsewhere. Names come from folders and configurations: the page escapes them, inserts them
as text, and allows no script but its own.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from disk.config import Config, EvaluationJob
from disk.errors import ArtefactError
from disk.show.html import digest, fill, to_json
from disk.storage.files import save_text
from disk.storage.layout import METRICS, RUN_NAME, SKILLS, Run, rollouts_of

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("disk")

TEMPLATE = Path(__file__).with_name("gallery.html")
EPISODES = 3
"""Paths drawn for each skill."""
POINTS = 60
"""Most points of a path."""
MOST_POINTS = 60_000
"""Most points of all paths: fifty skills, four methods and three seeds stay below 1 MB."""
FEWEST_POINTS = 8
MEASURES = {
    "hausdorff": ("Hausdorff distance", "m", "high"),
    "isolation": ("isolation", "m", "high"),
    "distance": ("distance", "m", "high"),
    "spread": ("spread", "m", "low"),
    "consistency": ("variance of position", "", "low"),
}
"""Measures of a skill: name, unit, and which values are good."""
TOTALS = {
    "coverage": "coverage",
    "movers": "movers",
    "distinct": "distinct movers",
    "goal_distance": "distance to goals",
}
"""Measures of a whole run."""


def build(
    job: EvaluationJob, conditions: Sequence[str], chains: Collection[str], runs: Sequence[Path], out: Path
) -> str:
    """Write the gallery of some runs of an environment; `chains` are the methods that learn one skill after another.

    The page shows one condition at a time, the first one at first. A run without rollouts, without metrics or without a
    sound episode in a condition is left out of it; the page and the log name it.
    """
    from disk.figures.style import PALETTE, method_name

    read, missing = [], []
    for run, condition in ((Run.of(path), name) for path in runs for name in conditions):
        found = _read(run, condition)
        if isinstance(found, str):
            where = f", {condition}" if len(conditions) > 1 else ""
            missing.append(f"{method_name(run.method)}, seed {run.seed}{where} ({found})")
        else:
            clips = "clips" if condition == conditions[0] else f"clips.{condition}"
            read.append((run, condition, clips, *found))
    flat = len(job.world.position.entries) == 1
    drawn = sum(rollouts["skill"].nunique() for *_, rollouts, _ in read)
    points = max(FEWEST_POINTS, min(POINTS, MOST_POINTS // max(1, EPISODES * drawn)))
    shutil.rmtree(out.parent / "clips", ignore_errors=True)
    shown = [
        {"condition": condition, "chain": run.method in chains, **_run(run, rollouts, values, points, flat, clips, out)}
        for run, condition, clips, rollouts, values in read
    ]
    count = len({(entry["method"], entry["seed"], skill["skill"]) for entry in shown for skill in entry["skills"]})
    data = {
        "env": job.env,
        "conditions": [name for name in conditions if any(entry["condition"] == name for entry in shown)],
        "flat": flat,
        "episodes": EPISODES,
        "measures": [dict(zip(("key", "name", "unit", "good"), (k, *v), strict=True)) for k, v in MEASURES.items()],
        "totals": [{"key": key, "name": name} for key, name in TOTALS.items()],
        "palette": PALETTE,
        "runs": shown,
        "projections": [_projection(run) for run in map(Run.of, runs) if (run.path / "projection.svg").exists()],
        "missing": missing,
    }
    save_text(out, page(data))
    found_runs = len({(entry["method"], entry["seed"]) for entry in shown})
    return f"{out}: {count} skills of {found_runs} runs" + (f"; left out: {', '.join(missing)}" if missing else "")


def build_from_results(config: Config, results: Path) -> str:
    """Write the gallery of all runs in an environment's folder."""
    env = Path(os.path.abspath(results)).name
    conditions = list(config.environment(env).conditions)
    methods = [*config.methods]
    folders = [
        path for path in results.glob("*/seed*") if RUN_NAME.fullmatch(path.name) and path.parent.name in methods
    ]
    if not folders:
        raise ArtefactError(f"{results}: has no runs of known methods (expected {results}/METHOD/seedN)")
    runs = sorted(map(Run.of, map(Path.absolute, folders)), key=lambda run: (methods.index(run.method), run.seed))
    chains = [name for name, row in config.methods.items() if row.incremental]
    paths = [run.path for run in runs]
    return build(config.evaluation_job(env), conditions, chains, paths, results / "gallery" / "index.html")


def page(data: Mapping[str, Any]) -> str:
    """Return the page with its data in it."""
    template = TEMPLATE.read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    title = escape(f"Skills of {data['env']}")
    return fill(template, {"__TITLE__": title, "__SCRIPT__": digest(script), "__DATA__": to_json(data)})


def _read(run: Run, condition: str) -> tuple[pd.DataFrame, pd.DataFrame] | str:
    """Return a run's rollouts and metrics in a condition, or the reason why it is left out."""
    from disk.evaluation.metrics import sound
    from disk.evaluation.tables import read_csv, read_rollouts

    rollouts, metrics = rollouts_of(run.path, condition), run.path / METRICS
    for path in (rollouts, metrics):
        if not path.exists():
            return f"no {path.name}"
    try:
        frame, table = read_rollouts(rollouts), read_csv(metrics)
    except ArtefactError as error:  # its message has a path, which a page for others must not show
        log.warning("%s: left out of the gallery: %s", run.path, error)
        return "its files are damaged: `python -m disk doctor` names them"
    if not len(sound(frame)):
        return "no episode without NaN"
    return frame, table[table["condition"] == condition]


def _run(
    run: Run, rollouts: pd.DataFrame, metrics: pd.DataFrame, points: int, flat: bool, clips: str, out: Path
) -> dict[str, Any]:
    """Return the data of one run in a condition: names, means, and numbers, paths and clip of each skill."""
    from disk.evaluation.metrics import sound
    from disk.figures.style import method_colour, method_name

    kept = sound(rollouts).sort_values("step", kind="stable")
    values = metrics.pivot(index="skill", columns="metric", values="value")
    means = values[values.index >= 0].mean()
    totals = {key: _number(values[key].get(-1)) for key in TOTALS if key in values}
    skills = []
    for skill in map(int, sorted(rollouts["skill"].unique())):
        own: Mapping[Any, Any] = values.loc[skill].to_dict() if skill in values.index else {}
        skills.append(
            {
                "skill": skill,
                "values": {key: _number(own.get(key)) for key in MEASURES},
                "paths": _paths(kept[kept["skill"] == skill], points, flat),
                "clip": _clip(run.path, clips, skill, out),
            }
        )
    return {
        "method": run.method,
        "name": method_name(run.method),
        "colour": method_colour(run.method),
        "seed": str(run.seed),
        "means": {key: _number(means.get(key)) for key in MEASURES} | totals,
        "skills": skills,
    }


def _projection(run: Run) -> dict[str, str]:
    """Return the picture of a run's learned σ, within the page: its policy loads no images."""
    from disk.figures.style import method_name

    drawn = base64.b64encode((run.path / "projection.svg").read_bytes()).decode()
    title = f"{method_name(run.method)}, seed {run.seed}: what its learned σ sees"
    return {"title": title, "image": f"data:image/svg+xml;base64,{drawn}"}


def _number(value: Any) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _paths(rollouts: pd.DataFrame, points: int, flat: bool) -> list[list[float]]:
    """Return the first episodes as x, y, x, y, …; with one coordinate, as step, x, step, x, …"""
    import numpy as np

    paths = []
    for _, path in list(rollouts.groupby("episode"))[:EPISODES]:
        kept = np.unique(np.linspace(0, len(path) - 1, min(points, len(path))).round().astype(int))
        columns = path[["step", "x"] if flat else ["x", "y"]].to_numpy()[kept]
        paths.append([float(f"{value:.4g}") for value in columns.ravel()])
    return paths


def _clip(run: Path, folder: str, skill: int, out: Path) -> str | None:
    """Put a skill's clip beside the page and return its address. A clip older than the skills is ignored."""
    clip, skills = run / folder / f"skill{skill:02d}.mp4", run / SKILLS
    if not clip.exists() or (skills.exists() and clip.stat().st_mtime < skills.stat().st_mtime):
        return None
    parts = ("clips", run.parent.name, run.name, *folder.split(".")[1:], clip.name)
    target = out.parent.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(clip, target)  # no second copy if the file system allows it
    except OSError:
        shutil.copyfile(clip, target)
    return "/".join(quote(part, safe="") for part in parts)
