"""The skill gallery: a page on which every skill of an environment is a card, opened from disk without a server.

The data are written into the page itself (disk/gallery.html) and the clips that there are beside it, so that the
folder can be sent as it is; nothing is fetched from elsewhere. Names come from folders and configurations, so
they are data everywhere: escaped in the page, put into it as text, and no script runs but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
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
from disk.storage.files import save_text
from disk.storage.layout import METRICS, SKILLS

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("disk")

TEMPLATE = Path(__file__).with_name("gallery.html")
EPISODES = 3
"""Paths of a skill that are drawn."""
POINTS = 60
"""Points of a path at most."""
MOST_POINTS = 60_000
"""Points of all paths together: what keeps the page of fifty skills, four methods and three seeds below 1 MB."""
FEWEST_POINTS = 8
MEASURES = {
    "hausdorff": ("Hausdorff distance", "m", "high"),
    "isolation": ("isolation", "m", "high"),
    "distance": ("distance", "m", "high"),
    "spread": ("spread", "m", "low"),
    "consistency": ("consistency", "", "low"),
}
"""Of a skill: name, unit, and which values are good."""
TOTALS = {
    "coverage": "coverage",
    "movers": "movers",
    "distinct": "distinct movers",
    "goal_distance": "distance to goals",
}
"""Of a run as a whole."""


def build(job: EvaluationJob, condition: str, chains: Collection[str], runs: Sequence[Path], out: Path) -> str:
    """Write the gallery of some runs of an environment; `chains` are the methods that learn one skill after another.

    A run that has not been rolled out or measured, or none of whose episodes is sound, is left out and named.
    """
    from disk.figures.style import PALETTE

    read, missing = [], []
    for run in runs:
        try:
            read.append((run, *_read(run, condition)))
        except (ArtefactError, OSError, ValueError, KeyError) as error:
            log.warning("%s: left out of the gallery: %s", run, error)
            missing.append(f"{_label(run)} ({_reason(error)})")
    flat = len(job.world.position.entries) == 1
    count = sum(rollouts["skill"].nunique() for _, rollouts, _ in read)
    points = max(FEWEST_POINTS, min(POINTS, MOST_POINTS // max(1, EPISODES * count)))
    shutil.rmtree(out.parent / "clips", ignore_errors=True)
    shown = [
        _run(run, rollouts, values, run.parent.name in chains, points, flat, out) for run, rollouts, values in read
    ]
    data = {
        "env": job.env,
        "condition": condition,
        "flat": flat,
        "episodes": EPISODES,
        "measures": [dict(zip(("key", "name", "unit", "good"), (k, *v), strict=True)) for k, v in MEASURES.items()],
        "totals": [{"key": key, "name": name} for key, name in TOTALS.items()],
        "palette": PALETTE,
        "runs": shown,
        "missing": missing,
    }
    save_text(out, page(data))
    return f"{out}: {count} skills of {len(shown)} runs" + (f"; left out: {', '.join(missing)}" if missing else "")


def build_from_results(config: Config, results: Path) -> str:
    """The gallery of those runs of an environment that there are."""
    env = Path(os.path.abspath(results)).name
    condition = next(iter(config.environment(env).conditions))
    methods = [*config.methods]
    found = [path for path in results.glob("*/seed*") if re.fullmatch(r"seed\d+", path.name)]
    known = [path for path in found if path.parent.name in methods]
    runs = sorted(known, key=lambda path: (methods.index(path.parent.name), int(path.name.removeprefix("seed"))))
    if not runs:
        raise ArtefactError(f"{results}: has no runs of known methods (expected {results}/METHOD/seedN)")
    chains = [name for name, row in config.methods.items() if row.incremental]
    return build(config.evaluation_job(env), condition, chains, runs, results / "gallery" / "index.html")


def page(data: Mapping[str, Any]) -> str:
    """The page around its data."""
    template = TEMPLATE.read_text()
    # In a script element only these characters can end it, or open a comment; JSON may write any of them as \u….
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    (script,) = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {"__TITLE__": escape(f"Skills of {data['env']}"), "__SCRIPT__": f"sha256-{digest}", "__DATA__": text}
    return re.sub("|".join(values), lambda found: values[found[0]], template)


def _read(run: Path, condition: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    from disk.evaluation.metrics import sound
    from disk.evaluation.tables import read_csv, read_rollouts

    rollouts = run / "rollouts" / f"{condition}.parquet"
    for path in (rollouts, run / METRICS):
        if not path.exists():
            raise ArtefactError(f"no {path.name}")
    try:
        frame, metrics = read_rollouts(rollouts), read_csv(run / METRICS)
    except ArtefactError:  # its message has a path, which a page that is shown to others must not have
        raise ArtefactError("its files are damaged: `python -m disk doctor` names them") from None
    if not len(sound(frame)):
        raise ArtefactError("no episode without NaN")
    return frame, metrics[metrics["condition"] == condition]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, ArtefactError) else "its files cannot be read"


def _label(run: Path) -> str:
    from disk.figures.style import method_name

    return f"{method_name(run.parent.name)}, seed {run.name.removeprefix('seed')}"


def _run(
    run: Path, rollouts: pd.DataFrame, metrics: pd.DataFrame, chain: bool, points: int, flat: bool, out: Path
) -> dict[str, Any]:
    from disk.evaluation.metrics import sound
    from disk.figures.style import method_name

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
                "clip": _clip(run, skill, out),
            }
        )
    return {
        "method": run.parent.name,
        "name": method_name(run.parent.name),
        "seed": run.name.removeprefix("seed"),
        "chain": chain,
        "means": {key: _number(means.get(key)) for key in MEASURES} | totals,
        "skills": skills,
    }


def _number(value: Any) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _paths(rollouts: pd.DataFrame, points: int, flat: bool) -> list[list[float]]:
    """The first episodes as x, y, x, y, …; where there is one coordinate, as step, x, step, x, …"""
    import numpy as np

    paths = []
    for _, path in list(rollouts.groupby("episode"))[:EPISODES]:
        kept = np.unique(np.linspace(0, len(path) - 1, min(points, len(path))).round().astype(int))
        columns = path[["step", "x"] if flat else ["x", "y"]].to_numpy()[kept]
        paths.append([float(f"{value:.4g}") for value in columns.ravel()])
    return paths


def _clip(run: Path, skill: int, out: Path) -> str | None:
    """Put a skill's clip beside the page; its address, if there is one of this training."""
    clip, skills = run / "clips" / f"skill{skill:02d}.mp4", run / SKILLS
    if not clip.exists() or (skills.exists() and clip.stat().st_mtime < skills.stat().st_mtime):
        return None
    parts = ("clips", run.parent.name, run.name, clip.name)
    target = out.parent.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(clip, target)  # no second copy where the file system can do without
    except OSError:
        shutil.copyfile(clip, target)
    return "/".join(quote(part, safe="") for part in parts)
