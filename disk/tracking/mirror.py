"""MLflow as a mirror of results/: an experiment an environment, a run a seed, a child run a skill.

Local files are the record of truth. `mirror` fills MLflow from them and adds nothing when there is nothing
new; `follow` does so for one skill while it is being trained, in a process of its own that `Sidecar` starts
beside the trainer, so that a slow or dead server costs training nothing. `disk.tracking.read` does the
reading, `disk.tracking.store` the writing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from disk.errors import TrackingError
from disk.tracking.read import RUN, SKILL, read_evaluation, read_hierarchy, read_run, read_skill, skills_of
from disk.tracking.store import Status, Store, Summary, explain

__all__ = ["Sidecar", "Summary", "TrackingError", "follow", "mirror", "resolve_uri"]

RETRY = 60.0  # seconds between two tries at most, when MLflow does not answer


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
        yield path, skills_of(path)
    else:
        for run in sorted(path.rglob("seed*")):
            if RUN.fullmatch(run.name) and run.is_dir():
                yield run, skills_of(run)


def _mirror_run(store: Store, run: Path, skills: Iterable[str]) -> None:
    record, evaluation = read_run(run), read_evaluation(run)
    known = store.runs(record.experiment, record.key)
    parent = store.put(record, known, None, None)
    for name in skills:
        store.put(read_skill(run, name, evaluation), known, parent, None)
    for curve in sorted(run.glob("hierarchy/seed*.csv")):
        store.put(read_hierarchy(run, curve), known, parent, None)


def _mirror_live(store: Store, path: Path, over: bool) -> None:
    """One look at the training of a skill, of a run whose skills are learned together, or of a controller's curve."""
    status: Status = "KILLED" if over else "RUNNING"  # over and not finished: it was interrupted
    if path.suffix == ".csv":
        _mirror_controller(store, path, status)
        return
    joint = RUN.fullmatch(path.name) is not None
    run = read_run(path if joint else path.parent)
    known = store.runs(run.experiment, run.key)
    if joint:
        store.put(run, known, None, status)
        return
    skill = read_skill(path.parent, path.name, [])
    # The run's figures and skills come after its last training: not worth a look every few seconds.
    parent = store.put(replace(run, artefacts={}), known, None, "RUNNING" if skill.finished else status)
    store.put(skill, known, parent, status)


def _mirror_controller(store: Store, curve: Path, status: Status) -> None:
    run = read_run(curve.parents[1])
    known = store.runs(run.experiment, run.key)
    # Its skills have been trained, or there are none: their run's status is not the controller's.
    parent = store.put(replace(run, artefacts={}), known, None, None)
    store.put(read_hierarchy(curve.parents[1], curve), known, parent, status)
