"""MLflow as a mirror of results/: an experiment per environment, a run per seed, a child run per skill.

Local files are the truth. `mirror` adds to MLflow what it lacks of them. `follow` does so for one skill during its
training. `Sidecar` runs `follow` in its own process, so that a slow or dead server does not slow down training.
`disk.tracking.read` reads the files, `disk.tracking.store` writes to MLflow.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from disk.config import Tracking
from disk.errors import TrackingError
from disk.storage.layout import RUN_NAME, Run
from disk.tracking.curves import read_measures
from disk.tracking.read import read_environment, read_hierarchy, read_run, read_skill, skill_name, skills_of
from disk.tracking.record import Summary
from disk.tracking.store import Status, Store, explain

RETRY = 60.0
"""Longest pause between two attempts, in seconds, while MLflow does not answer."""
log = logging.getLogger("disk")


def resolve_uri(config_uri: str) -> str:
    """Return MLFLOW_TRACKING_URI if it is set, otherwise the configuration's uri."""
    return os.environ.get("MLFLOW_TRACKING_URI") or config_uri


def mirror(root: Path, uri: str) -> Summary:
    """Mirror everything below a results root, an environment, a run or a skill. Return what was added."""
    root = Path(os.path.abspath(root))  # not resolve(): a link's target need not be called `results`
    if not root.exists():
        raise TrackingError(f"{root}: does not exist")
    with _explained(uri):
        store, runs = Store(uri), list(_runs_below(root))
        for run, skills in runs:
            _mirror_run(store, run, skills)
        for env in sorted({run.parents[1] for run, _ in runs if run.parents[1].is_relative_to(root)}):
            record = read_environment(env)
            if record.artefacts:
                store.put(record, store.runs(record.experiment, record.key), None, None)
        return store.summary


def mirror_or_warn(root: Path, uri: str) -> Summary | None:
    """Mirror as `mirror` does. An unreachable MLflow is a warning, because results do not depend on it."""
    try:
        return mirror(root, uri)
    except TrackingError as error:
        log.warning("%s. Training and results are not affected. Later, run: %s", error, _track_command(root))
        return None


def watching(out: Path, tracking: Tracking) -> AbstractContextManager[object]:
    """Return a context in which the training of `out` is mirrored live, if the configuration says so."""
    uri = resolve_uri(tracking.uri)
    if not tracking.enabled:
        return nullcontext()
    if "SLURM_JOB_ID" in os.environ and uri.startswith("sqlite:"):  # several nodes would write it over NFS
        log.info("not mirrored live: SLURM jobs share no SQLite file. `rule track` brings this to MLflow afterwards")
        return nullcontext()
    return Sidecar(out, uri, tracking.live_after_seconds, tracking.interval_seconds)


def follow(skill: Path, uri: str, interval: float, parent: int) -> None:
    """Mirror a skill's curve while process `parent` trains it, then its files. Never raises."""
    skill = Path(os.path.abspath(skill))
    watch = _Watch(parent)
    store: Store | None = None
    reported, delay, over = False, interval, False
    while not over:
        over = watch.over()  # asked before reading: the last reading comes after the end of training
        try:
            with _explained(uri):
                store = store or Store(uri)
                _mirror_live(store, skill, over)
            delay = interval
        except TrackingError as error:
            delay = min(max(2.0 * delay, interval), max(RETRY, interval))
            if not reported:
                message = f"{error}. Training continues. Later, run: {_track_command(skill.parent)}"
                print(f"tracking: {message}", file=sys.stderr, flush=True)
            reported = True
        if not over:
            watch.wait(delay)


class Sidecar:
    """Runs `follow` in its own process, once a training has lasted `after` seconds. Never raises."""

    def __init__(self, skill: Path, uri: str, after: float, interval: float) -> None:
        options = {"--parent": os.getpid(), "--interval": interval}
        self._command = [sys.executable, "-m", "disk", "track", "--follow", str(skill)]
        self._command += [str(part) for option in options.items() for part in option]
        # Not on the command line, which every user of the machine can read: a uri may hold a password.
        self._environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
        self._process: subprocess.Popen[bytes] | None = None
        self._timer = threading.Timer(after, self._start)
        self._timer.daemon = True

    def _start(self) -> None:
        try:
            # Its own session: the training's Ctrl-C and walltime signals are not meant for it.
            # S603: our own interpreter and module; no shell reads the paths.
            self._process = subprocess.Popen(  # noqa: S603
                self._command, stdin=subprocess.DEVNULL, start_new_session=True, env=self._environment
            )
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)
        except OSError as error:
            print(f"tracking: cannot be started: {error}. Training continues", file=sys.stderr, flush=True)

    def __enter__(self) -> Sidecar:
        with suppress(RuntimeError):  # this machine allows no more threads
            self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        with suppress(RuntimeError):
            self._timer.join()  # it may be starting the process right now
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Watch:
    """Waits until this process receives SIGTERM or another process ends."""

    def __init__(self, process: int) -> None:
        self._process, self._stopped = process, False
        self._is_child = os.getppid() == process
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self._stopped = True

    def over(self) -> bool:
        if self._stopped or (self._is_child and os.getppid() != self._process):
            return True  # a zombie still has its number, but no children
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
    except Exception as error:  # MLflow passes on errors of requests, SQLAlchemy and the file system
        raise TrackingError(explain(uri, error)) from error


def _track_command(path: Path) -> str:
    return f"python -m disk track {shlex.quote(str(path))}"


def _runs_below(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the runs at or below a path, each with the names of its skills."""
    if name := skill_name(path):
        yield path.parent, [name]
        return
    for run in [path] if RUN_NAME.fullmatch(path.name) else sorted(path.rglob("seed*")):
        if RUN_NAME.fullmatch(run.name) and run.is_dir():
            yield run, skills_of(run)


def _mirror_run(store: Store, run: Path, skills: Iterable[str]) -> None:
    record, measures = read_run(run), read_measures(run)
    known = store.runs(record.experiment, record.key)
    parent = store.put(record, known, None, None)
    for name in skills:
        store.put(read_skill(run, name, measures), known, parent, None)
    for curve in sorted(run.glob("hierarchy/seed*.csv")):
        store.put(read_hierarchy(run, curve), known, parent, None)


def _mirror_live(store: Store, path: Path, over: bool) -> None:
    """Mirror the training of a skill, of a joint method's run or of a controller once. `over`: it has ended."""
    status: Status = "KILLED" if over else "RUNNING"  # ended and not finished: it was interrupted
    if path.suffix == ".csv":
        _mirror_controller(store, path, status)
        return
    joint = RUN_NAME.fullmatch(path.name) is not None
    run = read_run(path if joint else path.parent)
    known = store.runs(run.experiment, run.key)
    if joint:
        store.put(run, known, None, status)
        return
    skill = read_skill(path.parent, path.name, [])
    # The run's figures and skills come after its last training. Checking them every few seconds is a waste.
    parent = store.put(replace(run, artefacts={}), known, None, "RUNNING" if skill.finished else status)
    store.put(skill, known, parent, status)


def _mirror_controller(store: Store, curve: Path, status: Status) -> None:
    folder = Run.of(curve).path
    run = read_run(folder)
    known = store.runs(run.experiment, run.key)
    # The run's skills are trained, or it has none: its status is not the controller's.
    parent = store.put(replace(run, artefacts={}), known, None, None)
    store.put(read_hierarchy(folder, curve), known, parent, status)
