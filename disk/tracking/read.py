"""What the files of a run say, as records for MLflow: of the run, of each of its skills, of its controllers."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from disk.downstream.curve import LIVE
from disk.storage.layout import CURVE, JOB, METRICS, POLICY, SKILLS, STATS
from disk.tracking.store import Record, Row

STEP, ELAPSED = "time/total_timesteps", "time/time_elapsed"
HASHES = ("commit", "config_hash", "code_hash")
SETTINGS = ("skill", "alpha", "beta", "steps")  # of stats.json; the other numbers there are outcomes
COMMON = ("objective", "sac", "world")  # of a skill's job: what the skills of a chain have in common
RUN, SKILL = re.compile(r"seed\d+"), re.compile(r"(skill\d{2,})(\.checkpoint)?")


class Measured(NamedTuple):
    """A line of metrics.csv; skill -1 is the run as a whole."""

    condition: str
    skill: int
    metric: str
    value: float


def skills_of(run: Path) -> list[str]:
    """Names of a run's skills that have begun: training makes the directory before there is anything in it."""
    folders = [path for path in run.iterdir() if SKILL.fullmatch(path.name) and any(path.iterdir())]
    return sorted({path.name.removesuffix(".checkpoint") for path in folders})


def _place(run: Path) -> dict[str, str]:
    """What a run's path says: `…/results/quick/point/disk/seed0` is in the experiment `quick/point`.

    Below a root of another name, say /scratch/trial, the experiment is `trial/point`.
    """
    env, parts = run.parents[1].name, run.parents[2].parts
    root = parts[len(parts) - parts[::-1].index("results") :] if "results" in parts else parts[-1:]
    experiment, method = "/".join([*root, env]), run.parent.name
    key = f"{experiment}/{method}/{run.name}"
    return {"experiment": experiment, "key": key, "env": env, "method": method, "seed": run.name.removeprefix("seed")}


def read_run(run: Path) -> Record:
    place, result, env = _place(run), run / SKILLS, run.parents[1]
    stats = [_json(path) for path in sorted(run.glob("skill*/stats.json"))]
    finished = _finished(result, *run.glob("*checkpoint/progress.csv"))
    alone = not result.exists() and any(run.glob("hierarchy/seed*.json"))  # a controller without skills
    curve = run / CURVE if finished else run / "checkpoint" / CURVE
    rows = _rows(curve)
    about: dict[str, Any]
    if stats:
        about = {**_chain(stats, finished), **{name: stats[-1].get(name) for name in ("commit", "code_hash")}}
    else:
        made = {**_metadata(result), **_json(run / STATS)}
        about = made if finished else {"job": _json(run / "checkpoint" / JOB)}
    steps = rows[-1].step if rows else sum(int(skill.get("steps", 0)) for skill in stats)
    seconds = rows[-1].elapsed if rows else sum(float(skill.get("seconds", 0.0)) for skill in stats)
    artefacts = {f"figures/{path.name}": path for path in sorted([*env.glob("*.svg"), *run.glob("*.svg")])}
    artefacts |= {f"tables/{path.name}": path for path in sorted(env.glob("*.csv"))}
    artefacts |= {f"videos/{path.name}": path for path in sorted(run.glob("skills*.mp4")) if _current(path, result)}
    children, clips = skills_of(run), sorted(run.glob("clips/skill*.mp4"))
    artefacts |= {f"clips/{clip.name}": clip for clip in clips if clip.stem not in children and _current(clip, result)}
    evaluation = read_evaluation(run)
    return Record(
        experiment=place["experiment"],
        key=place["key"],
        name=f"{place['method']}/{run.name}",
        rows=rows,
        results={**_results(evaluation, steps), **_by_skill(evaluation), **_chain_curve(run)} if finished else {},
        params={**_flat(about.get("job", {})), **_identity(place)},
        tags={**_tags(about), "level": "run"},
        artefacts={**artefacts, **({result.name: result} if finished else {})},
        started=_started(seconds, curve, result),
        seconds=seconds,
        finished=finished or alone,
    )


def read_skill(run: Path, name: str, evaluation: Sequence[Measured]) -> Record:
    place, final, live = _place(run), run / name, run / f"{name}.checkpoint"
    policy, number = final / POLICY, int(name.removeprefix("skill"))
    finished = _finished(policy, live / CURVE)
    curve = (final if finished else live) / CURVE
    rows = _rows(curve)
    about: dict[str, Any] = _json(final / STATS) if finished else {"job": _json(live / JOB)}
    steps = int(about.get("steps") or (rows[-1].step if rows else 0))
    seconds = rows[-1].elapsed if rows else 0.0
    results = _results(evaluation, steps, number)
    clip = run / "clips" / f"{name}.mp4"
    clips = {f"clips/{clip.name}": clip} if _current(clip, run / SKILLS) else {}
    outcomes = {key: value for key, value in about.items() if key not in SETTINGS and _is_number(value)}
    results |= {f"final/{key}": {steps: float(value)} for key, value in outcomes.items()}
    return Record(
        experiment=place["experiment"],
        key=f"{place['key']}/{name}",
        name=f"{place['method']}/{run.name}/{name}",
        rows=rows,
        results=results if finished else {},
        params={**_flat(about.get("job", {})), **_flat({key: about.get(key) for key in SETTINGS}), **_identity(place)},
        tags={**_tags(about), "level": "skill"},
        artefacts={policy.name: policy, **clips} if finished else {},
        started=_started(seconds, curve, policy),
        seconds=seconds,
        finished=finished,
    )


def _chain(stats: Sequence[Mapping[str, Any]], finished: bool) -> dict[str, Any]:
    """What a chain's skills have in common. It grows without becoming another run, so its hash is of its first two.

    Of the second, since the first has no diversity reward, and with it no settings of one.
    """
    if not finished:
        return {}
    first = stats[:2]
    job = first[-1].get("job", {})
    digest = hashlib.sha256(" ".join(str(each.get("config_hash")) for each in first).encode()).hexdigest()[:16]
    return {"job": {name: job[name] for name in COMMON if name in job}, "config_hash": digest}


def _current(video: Path, skills: Path) -> bool:
    """Whether a video is there, and of the skills as they are."""
    return _modified(video) >= _modified(skills) > 0.0


def read_hierarchy(run: Path, curve: Path) -> Record:
    """A controller over the run's skills, finished or under way; steps are decisions."""
    place, weights, live = _place(run), curve.with_suffix(".safetensors"), curve.with_suffix(".checkpoint")
    finished = _finished(curve.with_suffix(".json"), live / LIVE)
    about: dict[str, Any] = _json(curve.with_suffix(".json")) if finished else {"job": _json(live / JOB)}
    written = curve if finished else live / LIVE
    lines: list[dict[str, float]] = []
    with suppress(FileNotFoundError), written.open(newline="") as file:
        lines = [{name: _number(value) for name, value in line.items()} for line in csv.DictReader(file)]
    seconds = float(about.get("seconds", max(0.0, _modified(written) - _modified(live / JOB))))
    rows = [
        Row(int(line["decision"]), seconds * (index + 1) / len(lines), {f"hierarchy/{k}": v for k, v in line.items()})
        for index, line in enumerate(lines)
    ]
    name = f"hierarchy/{curve.stem}"
    return Record(
        experiment=place["experiment"],
        key=f"{place['key']}/{name}",
        name=f"{place['method']}/{run.name}/{name}",
        rows=rows,
        results={},
        params={**_flat(about.get("job", {})), **_identity(place)},
        tags=_tags(about),
        artefacts={path.name: path for path in (curve, weights)} if finished else {},
        started=_started(seconds, written),
        seconds=seconds,
        finished=finished,
    )


def _finished(product: Path, *curves: Path) -> bool:
    """Whether training has made its product; a live curve that is newer belongs to a training since."""
    made = _modified(product)
    return made > 0.0 and all(_modified(curve) <= made for curve in curves)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _started(seconds: float, *paths: Path) -> int:
    """When a training began whose last file was written after `seconds`, in milliseconds."""
    last = next(filter(None, map(_modified, paths)), time.time())
    return round(1000 * (last - seconds))


def _rows(path: Path) -> list[Row]:
    """A training curve as far as it is written; its last line may still be incomplete."""
    try:
        text = path.read_text()
    except OSError:
        return []
    lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    header = lines[0] if lines else []
    if STEP not in header or "skill" in header:  # the latter: a chain's curves in one file, which its skills have
        return []
    rows: list[Row] = []
    for line in lines[1:]:
        values = dict(zip(header, map(_number, line), strict=False))
        step, elapsed = values.pop(STEP, math.nan), values.get(ELAPSED, math.nan)
        if len(line) == len(header) and step > (rows[-1].step if rows else -1):
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            rows.append(Row(int(step), elapsed if math.isfinite(elapsed) else 0.0, finite))
    return rows


def read_evaluation(run: Path) -> list[Measured]:
    try:
        with (run / METRICS).open(newline="") as file:
            lines = [
                Measured(line["condition"], int(line["skill"]), line["metric"], _number(line["value"]))
                for line in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError):
        return []
    return lines


def _results(evaluation: Sequence[Measured], steps: int, skill: int | None = None) -> dict[str, dict[int, float]]:
    """Measures of a skill, or their means over all of a run, by metric and step.

    `eval/distance` is that in the first condition, so that runs of all environments can be compared by it; where
    there are several conditions, `eval/leg2/distance` is that in each. A condition `name@step` is a snapshot's: a
    point of a curve.
    """
    conditions = list(dict.fromkeys(measured.condition.partition("@")[0] for measured in evaluation))
    values: dict[str, dict[int, list[float]]] = {}
    for measured in evaluation:
        if not math.isfinite(measured.value) or skill not in (None, measured.skill):
            continue
        condition, _, step = measured.condition.partition("@")
        names = [f"eval/{measured.metric}"] if condition == conditions[0] else []
        names += [f"eval/{condition}/{measured.metric}"] if len(conditions) > 1 else []
        for name in names:
            values.setdefault(name, {}).setdefault(int(step) if step else steps, []).append(measured.value)
    return {name: {step: fmean(each) for step, each in curve.items()} for name, curve in values.items()}


def _by_skill(evaluation: Sequence[Measured]) -> dict[str, dict[int, float]]:
    """Measures in the first condition as curves over a run's skills, whose number takes the place of the step."""
    curves: dict[str, dict[int, float]] = {}
    for measured in evaluation:
        if measured.condition == evaluation[0].condition and measured.skill >= 0 and math.isfinite(measured.value):
            curves.setdefault(f"by_skill/{measured.metric}", {})[measured.skill] = measured.value
    return curves


def _chain_curve(run: Path) -> dict[str, dict[int, float]]:
    """The curves of a chain's skills as one, over the steps of the whole run; nothing for other runs.

    They are the skills' curves once more, beside which those of methods that learn all skills together can be seen.
    """
    try:
        with (run / CURVE).open(newline="") as file:
            lines = list(csv.DictReader(file))
    except OSError:
        return {}
    curves: dict[str, dict[int, float]] = {}
    skill, before, last = None, 0, 0
    for line in lines:
        own, step = line.pop("skill", None), _number(line.pop(STEP, None))
        if own is None or not math.isfinite(step):
            return {}
        if own != skill:
            skill, before = own, last
        last = before + int(step)
        for name, text in line.items():
            if not name.startswith("time/") and math.isfinite(value := _number(text)):
                curves.setdefault(name, {})[last] = value
    return curves


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _metadata(path: Path) -> dict[str, Any]:
    """What a file of tensors says of itself. Not disk.storage.files.load_tensors: that brings torch with it."""
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


def _identity(place: Mapping[str, str]) -> dict[str, str]:
    return {name: place[name] for name in ("env", "method", "seed")}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow's params: `sac.batch_size`."""
    params: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            params |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            params[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return params


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
