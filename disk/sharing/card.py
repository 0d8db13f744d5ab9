"""Model cards: the environment, method, sizes and measures of a file of skills, in Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from disk.config import World
from disk.errors import ArtefactError
from disk.evaluation.words import MEASURES
from disk.skills import Skills
from disk.storage.files import load_json
from disk.storage.layout import METRICS, STATS
from disk.tracking.curves import read_measures

if TYPE_CHECKING:
    from disk.sharing.publish import CardMeasures

CARD = "README.md"
"""File name of a card. Model hubs expect this one."""
USE = {
    "onnx": """\
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession("{name}")
skill = np.array([3])  # skill 4 (index 3) for all rows, or one per row: (B,), int64
inputs = {{"observation": obs.astype(np.float32), "skill": skill}}  # obs: (B, {size})
action = session.run(["action"], inputs)[0]""",
    "safetensors": """\
import disk

skills = disk.load("{name}")
action = skills[3].act(obs)  # skill 4 (index 3); obs: ({size},) or (B, {size})""",
}


def card(skills: Skills, run: Path, name: str, form: str, checked: str, measured: CardMeasures | None = None) -> str:
    """Return a card in Markdown with the front matter of model hubs.

    `checked` says how the file was checked. `measured` replaces the measures in the run's metrics.csv.
    """
    meta, world = skills.meta, skills.world
    about = _about(run)
    low, high, hashes = meta["action_low"], meta["action_high"], meta["config_hash"]
    bounds = f"[{low[0]:g}, {high[0]:g}]" if len(set(low)) == len(set(high)) == 1 else f"{low} to {high}"
    sees = f"{meta['observation_size']} numbers: the observation of `{world.id}`"
    sees += " and the position behind it" if meta.get("sees_position") else ""
    rows = {
        "environment": f"`{meta['env']}`: `{world.id}`, {json.dumps(world.kwargs) if world.kwargs else 'no options'}",
        "changes during training": _evolution(world),
        "σ": _sigma(world),
        "method": run.parent.name if about else "unknown: the run was not found",
        "skills": str(len(skills)),
        "environment steps of training": about.get("steps", "unknown"),
        "networks": f"{' × '.join(map(str, meta['hidden']))} units, ReLU; {_actors(skills)}",
        "observation": sees,
        "action": f"{meta['action_size']} numbers in {bounds}, deterministic",
        "seed": str(meta["seed"]),
        "settings": ", ".join([hashes] if isinstance(hashes, str) else hashes),
        "code": f"commit {about.get('commit', 'unknown')}, hash {about.get('code_hash', 'unknown')}",
        "licence": "MIT",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    usage = USE[form].format(name=name, size=meta["observation_size"])
    front: dict[str, Any] = {"license": "mit", "tags": ["reinforcement-learning", "skill-discovery", meta["env"]]}
    if measured:
        front |= measured.front_matter(meta["env"], world)
    return f"""---
{yaml.safe_dump(front, sort_keys=False, default_flow_style=None, width=120).rstrip()}
---
# {len(skills)} skills of {meta["env"]}

These skills were learned without rewards. The model takes observations and skill numbers, counted from 0. It returns
the skills' actions in the environment's bounds.

| | |
|---|---|
{table}

## Measures

{measured.table() if measured else _measures(run)}

## Use

```python
{usage}
```

{checked}
"""


def _about(run: Path) -> dict[str, str]:
    """Return a run's training steps and code version; empty if its files are missing."""
    try:
        stats = [load_json(path) for path in sorted(run.glob(f"skill[0-9][0-9]/{STATS}")) or [run / STATS]]
    except ArtefactError:
        return {}
    known = {key: str(stats[-1][key]) for key in ("commit", "code_hash") if stats[-1].get(key)}
    return {"steps": f"{sum(int(each.get('steps') or 0) for each in stats):,}", **known}


def _evolution(world: World) -> str:
    if world.evolution is None:
        return "none"
    changes = "; ".join(f"{change.what} {change.names}" for change in world.evolution.changes)
    return f"over {world.evolution.total:,} steps: {changes}"


def _sigma(world: World) -> str:
    position = f"{world.position.source} {world.position.entries}"
    if world.sigma == "learned":
        return f"learned from the observation and the position ({position})"
    if isinstance(world.sigma, str):
        over = f" over {world.sigma_steps} steps" if world.sigma_steps else ""
        return f"{world.sigma}{over} of the position ({position})"
    return f"{world.sigma.source} {world.sigma.entries}; position {position}"


def _actors(skills: Skills) -> str:
    size = skills.latent.shape[1]
    return f"one for all skills, with a latent of {size} numbers as input" if size else "one for each skill"


def _measures(run: Path) -> str:
    """Return a table of means over skills, by condition, from the run's metrics.csv."""
    values: dict[tuple[str, str], list[float]] = {}
    for measure in read_measures(run):
        values.setdefault((measure.condition, measure.metric), []).append(measure.value)
    if not values:
        return f"Not measured: the run has no readable {METRICS}."
    rows = "\n".join(f"| {c} | {MEASURES.get(m, m)} | {fmean(each):.4g} |" for (c, m), each in values.items())
    return f"Means over the skills.\n\n| condition | measure (↑: more is better) | mean |\n|---|---|---|\n{rows}"
