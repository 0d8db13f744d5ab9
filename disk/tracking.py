"""MLflow as a mirror of results/: an experiment an environment, a run a seed, a child run a skill.

Local files are the record of truth. `mirror` fills MLflow from them and adds nothing when there is nothing
new; `follow` does so for one skill while it is being trained, in a process of its own that `Sidecar` starts
beside the trainer, so that a slow or dead server costs training nothing. `disk.mlflow_store` does the writing.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any, NamedTuple

from disk.mlflow_store import Record, Row, Status, Store, Summary, TrackingError, explain

__all__ = ["Sidecar", "Summary", "TrackingError", "follow", "mirror", "resolve_uri"]

STEP, ELAPSED = "time/total_timesteps", "time/time_elapsed"
HASHES = ("commit", "config_hash", "code_hash")
SETTINGS = ("skill", "alpha", "beta", "steps")  # of stats.json; the other numbers there are outcomes
COMMON = ("objective", "sac", "world")  # of a skill's job: what the skills of a chain have in common
RUN, SKILL = re.compile(r"seed\d+"), re.compile(r"(skill\d{2,})(\.checkpoint)?")
RETRY = 60.0  # seconds between two tries at most, when MLflow does not answer


class Measured(NamedTuple):
    """A line of metrics.csv; skill -1 is the run as a whole."""

    condition: str
    skill: int
    metric: str
    value: float


def resolve_uri(config_uri: str) -> str:
    """Where to track: MLFLOW_TRACKING_URI, or what the config says."""
    return os.environ.get("MLFLOW_TRACKING_URI") or config_uri


def mirror(root: Path, uri: str) -> Summary:
    """Fill MLflow from everything below a results root, an environment, a run or a skill."""
    root = Path(os.path.abspath(root))  # not resolve(): a link's target need not be called `results`
    if not root.exists():
        raise TrackingError(f"{root}: does not exist")
    with _explained(uri):
        store = Store(uri)
        for run, skills in _runs_below(root):
            _mirror_run(store, run, skills)
        return store.summary


def follow(skill: Path, uri: str, interval: float, parent: int) -> None:
    """Mirror a skill's curve while process `parent` trains it, then its files; never fails."""
    skill = Path(os.path.abspath(skill))
    watch = _Watch(parent)
    store: Store | None = None
    reported, delay, over = False, interval, False
    while not over:
        over = watch.over()  # asked before looking: the last look comes after the training's end
        try:
            with _explained(uri):
                store = store or Store(uri)
                _mirror_live(store, skill, over)
            delay = interval
        except TrackingError as error:
            delay = min(max(2.0 * delay, interval), max(RETRY, interval))
            if not reported:
                message = f"{error}; training goes on, `python -m disk track {skill.parent}` fills in what is missing"
                print(f"tracking: {message}", file=sys.stderr, flush=True)
            reported = True
        if not over:
            watch.wait(delay)


class Sidecar:
    """Runs `follow` in a process beside a training that lasts longer than `after` seconds. Never raises."""

    def __init__(self, skill: Path, uri: str, after: float, interval: float) -> None:
        options = {"--parent": os.getpid(), "--interval": interval}
        self._command = [sys.executable, "-m", "disk", "track", "--follow", str(skill)]
        self._command += [str(part) for option in options.items() for part in option]
        # Not on the command line, which everybody on the machine can read: it may hold a password.
        self._environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
        self._process: subprocess.Popen[bytes] | None = None
        self._timer = threading.Timer(after, self._start)
        self._timer.daemon = True

    def _start(self) -> None:
        try:
            # A session of its own: the training's Ctrl-C and walltime signals are not meant for it.
            # Our own interpreter and module; paths are arguments, no shell reads them.
            self._process = subprocess.Popen(  # noqa: S603
                self._command, stdin=subprocess.DEVNULL, start_new_session=True, env=self._environment
            )
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)
        except OSError as error:
            print(f"tracking: cannot be started: {error}; training goes on", file=sys.stderr, flush=True)

    def __enter__(self) -> Sidecar:
        with suppress(RuntimeError):  # no more threads allowed on this machine
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        with suppress(RuntimeError):
            self._timer.join()  # it may be starting the process at this moment
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Watch:
    """Waits until SIGTERM comes or a process is gone."""

    def __init__(self, process: int) -> None:
        self._process, self._stopped = process, False
        self._is_child = os.getppid() == process
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopped = True

    def over(self) -> bool:
        if self._stopped or (self._is_child and os.getppid() != self._process):
            return True  # a killed process that nobody has waited for still has its number, but no children
        try:
            os.kill(self._process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.over() and (left := end - time.monotonic()) > 0.0:
            time.sleep(min(left, 0.25))


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # MLflow lets through what requests, SQLAlchemy and the file system raise
        raise TrackingError(explain(uri, error)) from error


def _runs_below(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Runs at or below a path, each with the names of its skills."""
    if match := SKILL.fullmatch(path.name):
        yield path.parent, [match[1]]
    elif RUN.fullmatch(path.name):
        yield path, _skills(path)
    else:
        for run in sorted(path.rglob("seed*")):
            if RUN.fullmatch(run.name) and run.is_dir():
                yield run, _skills(run)


def _skills(run: Path) -> list[str]:
    """Names of a run's skills that have begun: training makes the directory before there is anything in it."""
    folders = [path for path in run.iterdir() if SKILL.fullmatch(path.name) and any(path.iterdir())]
    return sorted({path.name.removesuffix(".checkpoint") for path in folders})


def _mirror_run(store: Store, run: Path, skills: Iterable[str]) -> None:
    record, evaluation = _read_run(run), _evaluation(run)
    known = store.runs(record.experiment, record.key)
    parent = store.put(record, known, None, None)
    for name in skills:
        store.put(_read_skill(run, name, evaluation), known, parent, None)
    for curve in sorted(run.glob("hierarchy/seed*.csv")):
        store.put(_read_hierarchy(run, curve), known, parent, None)


def _mirror_live(store: Store, path: Path, over: bool) -> None:
    """One look at the training of a skill, or of a run whose skills are learned together."""
    status: Status = "KILLED" if over else "RUNNING"  # over and not finished: it was interrupted
    joint = RUN.fullmatch(path.name) is not None
    run = _read_run(path if joint else path.parent)
    known = store.runs(run.experiment, run.key)
    if joint:
        store.put(run, known, None, status)
        return
    skill = _read_skill(path.parent, path.name, [])
    # The run's figures and skills come after its last training: not worth a look every few seconds.
    parent = store.put(replace(run, artefacts={}), known, None, "RUNNING" if skill.finished else status)
    store.put(skill, known, parent, status)


def _place(run: Path) -> dict[str, str]:
    """What a run's path says: `…/results/quick/point/disk/seed0` is in the experiment `quick/point`.

    Below a root of another name, say /scratch/trial, the experiment is `trial/point`.
    """
    env, parts = run.parents[1].name, run.parents[2].parts
    root = parts[len(parts) - parts[::-1].index("results") :] if "results" in parts else parts[-1:]
    experiment, method = "/".join([*root, env]), run.parent.name
    key = f"{experiment}/{method}/{run.name}"
    return {"experiment": experiment, "key": key, "env": env, "method": method, "seed": run.name.removeprefix("seed")}


def _read_run(run: Path) -> Record:
    place, result, env = _place(run), run / "skills.safetensors", run.parents[1]
    stats = [_json(path) for path in sorted(run.glob("skill*/stats.json"))]
    finished = _finished(result, *run.glob("*checkpoint/progress.csv"))
    alone = not result.exists() and any(run.glob("hierarchy/seed*.json"))  # a controller without skills
    curve = run / "progress.csv" if finished else run / "checkpoint" / "progress.csv"
    rows = _rows(curve)
    about: dict[str, Any]
    if stats:
        about = {**_chain(stats, finished), **{name: stats[-1].get(name) for name in ("commit", "code_hash")}}
    else:
        made = {**_metadata(result), **_json(run / "stats.json")}
        about = made if finished else {"job": _json(run / "checkpoint" / "job.json")}
    steps = rows[-1].step if rows else sum(int(skill.get("steps", 0)) for skill in stats)
    seconds = rows[-1].elapsed if rows else sum(float(skill.get("seconds", 0.0)) for skill in stats)
    artefacts = {f"figures/{path.name}": path for path in sorted([*env.glob("*.svg"), *run.glob("*.svg")])}
    artefacts |= {f"tables/{path.name}": path for path in sorted(env.glob("*.csv"))}
    artefacts |= {f"videos/{path.name}": path for path in sorted(run.glob("skills*.mp4")) if _current(path, result)}
    children, clips = _skills(run), sorted(run.glob("clips/skill*.mp4"))
    artefacts |= {f"clips/{clip.name}": clip for clip in clips if clip.stem not in children and _current(clip, result)}
    evaluation = _evaluation(run)
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


def _read_skill(run: Path, name: str, evaluation: Sequence[Measured]) -> Record:
    place, final, live = _place(run), run / name, run / f"{name}.checkpoint"
    policy, number = final / "policy.safetensors", int(name.removeprefix("skill"))
    finished = _finished(policy, live / "progress.csv")
    curve = (final if finished else live) / "progress.csv"
    rows = _rows(curve)
    about: dict[str, Any] = _json(final / "stats.json") if finished else {"job": _json(live / "job.json")}
    steps = int(about.get("steps") or (rows[-1].step if rows else 0))
    seconds = rows[-1].elapsed if rows else 0.0
    results = _results(evaluation, steps, number)
    clip = run / "clips" / f"{name}.mp4"
    clips = {f"clips/{clip.name}": clip} if _current(clip, run / "skills.safetensors") else {}
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


def _read_hierarchy(run: Path, curve: Path) -> Record:
    """A finished controller over the run's skills; steps are decisions."""
    place, about, weights = _place(run), _json(curve.with_suffix(".json")), curve.with_suffix(".safetensors")
    with curve.open(newline="") as file:
        lines = [{name: _number(value) for name, value in line.items()} for line in csv.DictReader(file)]
    seconds = float(about.get("seconds", 0.0))
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
        artefacts={path.name: path for path in (curve, weights)},
        started=_started(seconds, curve),
        seconds=seconds,
        finished=bool(about),
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


def _evaluation(run: Path) -> list[Measured]:
    try:
        with (run / "metrics.csv").open(newline="") as file:
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
        with (run / "progress.csv").open(newline="") as file:
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
    """What a file of tensors says of itself. Not disk.files.load_tensors: that brings torch with it."""
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
