"""Read the files of a run, of its skills and of its controllers as records for MLflow."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from disk.downstream.curve import LIVE
from disk.storage.layout import (
    CHANGES,
    CHECKPOINT,
    CURVE,
    JOB,
    POLICY,
    SKILL_NAME,
    SKILLS,
    STATS,
    Run,
    checkpoint_beside,
)
from disk.tracking.curves import (
    Measure,
    mean_measures,
    measures_by_skill,
    read_chain,
    read_changes,
    read_controller_rows,
    read_measures,
    read_rows,
)
from disk.tracking.record import Record

HASHES = ("commit", "config_hash", "code_hash")
SETTINGS = ("skill", "alpha", "beta", "steps")
"""Numbers in a skill's stats.json that are settings. The others are outcomes."""
COMMON = ("objective", "sac", "world")
"""Settings of a skill's job that all skills of a chain share."""


def skill_name(path: Path) -> str | None:
    """Return the skill's name for its folder or its checkpoint; None for another path."""
    name = path.name.removesuffix(f".{CHECKPOINT}")
    return name if SKILL_NAME.fullmatch(name) else None


def skills_of(run: Path) -> list[str]:
    """Return the names of a run's skills that have begun. Training makes a skill's folder before it begins."""
    return sorted({name for path in run.iterdir() if (name := skill_name(path)) and any(path.iterdir())})


def read_run(run: Path) -> Record:
    place, skills, live = Run.of(run), run / SKILLS, run / CHECKPOINT
    stats = [_json(path) for path in sorted(run.glob(f"skill*/{STATS}"))]
    finished = _is_finished(skills, *run.glob(f"*{CHECKPOINT}/{CURVE}"))
    without_skills = not skills.exists() and any(run.glob("hierarchy/seed*.json"))  # a flat controller
    curve = run / CURVE if finished else live / CURVE
    rows = read_rows(curve)
    about: dict[str, Any]
    if stats:
        about = {**(_chain(stats) if finished else {}), **{key: stats[-1].get(key) for key in ("commit", "code_hash")}}
    else:
        about = {**_metadata(skills), **_json(run / STATS)} if finished else {"job": _json(live / JOB)}
    steps = rows[-1].step if rows else sum(int(skill.get("steps", 0)) for skill in stats)
    seconds = rows[-1].elapsed if rows else sum(float(skill.get("seconds", 0.0)) for skill in stats)
    measures, job = read_measures(run), about.get("job", {})
    return Record(
        **_names(place),
        rows=rows,
        results={
            **mean_measures(measures, steps),
            **measures_by_skill(measures),
            **read_chain(run),
            **read_changes(run),
        }
        if finished
        else {},
        params={**_flat(job), **_identity(place)},
        tags={**_tags(about), "level": "run"},
        artefacts={**_shown(place), **({skills.name: skills} if finished else {})},
        started=_started(seconds, curve, skills),
        seconds=seconds,
        finished=finished or without_skills,
        world=json.dumps(job["world"], sort_keys=True) if "world" in job else "",
    )


def read_environment(folder: Path) -> Record:
    """Read the figures and tables that all runs of an environment share."""
    experiment, figures = _experiment(folder.parent, folder.name), sorted(folder.glob("*.svg"))
    return Record(
        experiment=experiment,
        key=f"{experiment}:all",  # begins like no run's
        name="all methods",
        rows=[],
        results={},
        params={"env": folder.name},
        tags={"level": "environment"},
        artefacts={
            **{f"figures/{path.name}": path for path in figures},
            **{f"tables/{path.name}": path for path in sorted(folder.glob("*.csv"))},
        },
        started=_started(0.0, *figures),
        seconds=0.0,
        finished=True,
    )


def read_skill(run: Path, name: str, measures: Sequence[Measure]) -> Record:
    place, final, live = Run.of(run), run / name, checkpoint_beside(run / name)
    policy, number = final / POLICY, int(name.removeprefix("skill"))
    finished = _is_finished(policy, live / CURVE)
    curve = (final if finished else live) / CURVE
    rows = read_rows(curve)
    about: dict[str, Any] = _json(final / STATS) if finished else {"job": _json(live / JOB)}
    steps = int(about.get("steps") or (rows[-1].step if rows else 0))
    seconds = rows[-1].elapsed if rows else 0.0
    outcomes = {key: value for key, value in about.items() if key not in SETTINGS and _is_number(value)}
    final_values = {f"final/{key}": {steps: float(value)} for key, value in outcomes.items()}
    clip = run / "clips" / f"{name}.mp4"
    clips = {f"clips/{clip.name}": clip} if _is_current(clip, run / SKILLS) else {}
    return Record(
        **_names(place, name),
        rows=rows,
        results={**mean_measures(measures, steps, number), **final_values} if finished else {},
        params={**_flat(about.get("job", {})), **_flat({key: about.get(key) for key in SETTINGS}), **_identity(place)},
        tags={**_tags(about), "level": "skill"},
        artefacts={policy.name: policy, **clips} if finished else {},
        started=_started(seconds, curve, policy),
        seconds=seconds,
        finished=finished,
    )


def read_hierarchy(run: Path, curve: Path) -> Record:
    """Read a controller over the run's skills, finished or not. Its steps are decisions."""
    place, stats, live = Run.of(run), curve.with_suffix(".json"), checkpoint_beside(curve)
    finished = _is_finished(stats, live / LIVE)
    about: dict[str, Any] = _json(stats) if finished else {"job": _json(live / JOB)}
    written = curve if finished else live / LIVE
    seconds = float(about.get("seconds", max(0.0, _modified(written) - _modified(live / JOB))))
    return Record(
        **_names(place, f"hierarchy/{curve.stem}"),
        rows=read_controller_rows(written, seconds),
        results={},
        params={**_flat(about.get("job", {})), **_identity(place)},
        tags=_tags(about),
        artefacts={path.name: path for path in (curve, curve.with_suffix(".safetensors"))} if finished else {},
        started=_started(seconds, written),
        seconds=seconds,
        finished=finished,
    )


def _names(place: Run, child: str = "") -> dict[str, str]:
    """Return experiment, key and name of a run, or of its skill or controller `child`."""
    experiment = _experiment(place.root, place.env)
    name = "/".join(filter(None, (place.method, f"seed{place.seed}", child)))
    return {"experiment": experiment, "key": f"{experiment}/{name}", "name": name}


def _experiment(root: Path, env: str) -> str:
    """Return the experiment of an environment: `quick/point` for …/results/quick/point.

    Below a root of another name, say /scratch/trial, it is `trial/point`.
    """
    parts = root.parts
    below = parts[len(parts) - parts[::-1].index("results") :] if "results" in parts else parts[-1:]
    return "/".join([*below, env])


def _identity(place: Run) -> dict[str, str]:
    return {"env": place.env, "method": place.method, "seed": str(place.seed)}


def _chain(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what identifies a chain: the settings its skills share, and a hash of its first two skills' settings.

    Later skills do not count, because a chain that grows stays the same run. The settings are the second skill's: the
    first has no diversity reward.
    """
    first = stats[:2]
    job = first[-1].get("job", {})
    digest = hashlib.sha256(" ".join(str(each.get("config_hash")) for each in first).encode()).hexdigest()[:16]
    return {"job": {name: job[name] for name in COMMON if name in job}, "config_hash": digest}


def _shown(place: Run) -> dict[str, Path]:
    """Return the figures and videos of a run, by their path in MLflow."""
    run = place.path
    skills, children = run / SKILLS, skills_of(run)
    videos, clips = sorted(run.glob("skills*.mp4")), sorted(run.glob("clips/skill*.mp4"))
    return {
        **{f"figures/{path.name}": path for path in sorted(run.glob("*.svg"))},
        **{f"tables/{path.name}": path for path in run.glob(CHANGES)},
        **{f"videos/{path.name}": path for path in videos if _is_current(path, skills)},
        **{f"clips/{clip.name}": clip for clip in clips if clip.stem not in children and _is_current(clip, skills)},
    }


def _is_current(video: Path, skills: Path) -> bool:
    """Return True if a video exists and is newer than the skills."""
    return _modified(video) >= _modified(skills) > 0.0


def _is_finished(product: Path, *live: Path) -> bool:
    """Return True if training has made its product. A newer live curve belongs to a later training."""
    made = _modified(product)
    return made > 0.0 and all(_modified(curve) <= made for curve in live)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _started(seconds: float, *paths: Path) -> int:
    """Return when a training began, in milliseconds: `seconds` before the first existing path was written."""
    last = next(filter(None, map(_modified, paths)), time.time())
    return round(1000 * (last - seconds))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of a safetensors file. `disk.storage.files.load_tensors` would import torch."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            content = json.loads((file.metadata() or {}).get("disk", "{}"))
    except (OSError, ValueError, SafetensorError):
        return {}
    return content if isinstance(content, dict) else {}


def _tags(about: Mapping[str, Any]) -> dict[str, str]:
    tags = {f"disk.{name}": str(about[name]) for name in HASHES if about.get(name)}
    if about.get("commit"):
        tags["mlflow.source.git.commit"] = str(about["commit"])  # the column `Version` of MLflow's UI
    return tags


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested settings to MLflow's params: `sac.batch_size`. Nulls are left out."""
    params: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            params |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            params[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return params


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
