"""Faults of what stands around a training: tracking servers, databases, controllers.

These cost seconds each, because they start MLflow or Snakemake, so a campaign has a few of every kind.
"""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rig import Case, Ended, Run, _sum, attempt, ended, spawn
from test_workflow import Project

from disk import config as configuration
from disk.errors import TrackingError
from disk.learning.run import train_run
from disk.storage import layout
from disk.tracking.mirror import follow, mirror

Kind = Callable[[Any, Run, Path], tuple[str, str, str]]
KINDS: dict[str, Kind] = {}
MOST = 1
"""How many of each a campaign has at most."""
TRACKING = ("tracking", "SQLite")
"""What the names of those begin with that need MLflow."""
FASTER = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}


def kind(name: str) -> Callable[[Kind], Kind]:
    def register(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return register


# ---------------------------------------------------------------- tracking servers


class Misbehaving(http.server.BaseHTTPRequestHandler):
    """Answers late, or with an error, or with what is no answer."""

    how = "errors"
    delay = 5.0
    asked = 0

    def _answer(self) -> None:
        Misbehaving.asked += 1
        if self.how == "slow":
            time.sleep(self.delay)
        self.send_response(200 if self.how == "nonsense" else 500)
        self.end_headers()
        self.wfile.write(b"<html>no</html>" * 100)

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def server(how: str) -> Iterator[str]:
    Misbehaving.how, Misbehaving.asked = how, 0
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    listening.daemon_threads = True
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()


def _beside_tracking(campaign: Any, run: Run, place: Path, uri: str) -> Case:
    """Train beside what a sidecar runs, which talks to `uri` from the first moment on and may take its time."""
    import mlflow  # noqa: F401  once for all, it takes seconds

    root, reference = campaign.straight(run)
    case = Case(run, place / "results", reference)
    out = layout.Run(case.root, "point", run.method, run.seed).path
    out = out / "skill00" if (root / "point" / run.method / "seed0" / "skill00").exists() else out
    trainer = spawn(case.work)

    def following() -> None:
        os.environ.update(FASTER)
        sys.stderr = (place / "said").open("w")
        follow(out, uri, 0.2, trainer[0])

    place.mkdir(parents=True, exist_ok=True)
    follower = spawn(following)
    case.note(ended(*trainer))
    end = ended(*follower)
    said = (place / "said").read_text()
    case.detail = f"the sidecar: {end.how}, {said.count(chr(10))} line{'s' * (said.count(chr(10)) != 1)} said"
    if end.how != "done" or said.count("\n") > 1:
        case.lost.append(f"the sidecar: {end.message[-300:]}{said[:300]}")
    return case


def _judged(case: Case, detail: str) -> tuple[str, str, str]:
    return case.go_on(), f"{detail}; {case.detail}".strip("; "), ""


@kind("tracking server down")
def down(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    return _judged(_beside_tracking(campaign, run, place, "http://127.0.0.1:9"), "connection refused")


def _served(how: str) -> Kind:
    def inject(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
        with server(how) as uri:
            case = _beside_tracking(campaign, run, place, uri)
            return _judged(case, f"asked {Misbehaving.asked} times")

    return inject


for _how, _name in {"slow": "slow", "errors": "returning errors", "nonsense": "returning nonsense"}.items():
    kind(f"tracking server {_name}")(_served(_how))


def _mirrored(root: Path, uri: str) -> Ended:
    def work() -> None:
        os.environ.update(FASTER)
        mirror(root, uri)

    return attempt(work)


@kind("tracking server away, then back")
def away_and_back(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    """What could not be sent while the server was away is there after one `track` when it is back."""
    case = _beside_tracking(campaign, run, place, "http://127.0.0.1:9")
    outcome, detail, _ = _judged(case, "away while training")
    store = f"sqlite:///{place}/mlflow.db"
    end = _mirrored(case.root, store)
    count = _points(place / "mlflow.db") if end.how == "done" else 0
    return (outcome if count else f"LOST: {end.message[-200:]}"), f"{detail}; {count} points when it was back", ""


@kind("SQLite locked by another process")
def locked(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    root, reference = campaign.straight(run)
    case = Case(run, place / "results", reference)
    shutil.copytree(root, case.root)
    store, path = f"sqlite:///{place}/mlflow.db", place / "mlflow.db"
    _mirrored(case.root, store)
    before = _points(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("DELETE FROM metrics")
    pid = os.fork()
    if pid == 0:
        try:
            mirror(case.root, store)
        except TrackingError as error:
            (place / "said").write_text(str(error))
        os._exit(0)
    time.sleep(3.0)
    holder.execute("ROLLBACK")
    holder.close()
    os.waitpid(pid, 0)
    said = (place / "said").read_text() if (place / "said").exists() else "waited"
    again = _mirrored(case.root, store)
    same = before and _points(path) == before and again.how == "done"
    outcome, detail, _ = _judged(case, f"{said[:80]}; {before} points before and after")
    return (outcome if same else f"LOST: {again.message[-200:]}"), detail, ""


def _points(path: Path) -> int:
    with sqlite3.connect(path) as database:
        return int(database.execute("SELECT COUNT(*) FROM metrics").fetchone()[0])


# ---------------------------------------------------------------- controllers

WANTED = [f"results/point/disk/seed{seed}/skill00/policy.safetensors" for seed in (0, 1)]
SAME = ("policy.safetensors", "replay.safetensors", "visits.npy")
FOR_SNAKEMAKE = {
    "environments": {"point": {"steps": 200, "skills": 1, "snapshots": []}},
    "runtime": {"checkpoint_minutes": 0.002, "device": "cpu"},
}


def _project(place: Path) -> Project:
    place.mkdir(parents=True)
    project = Project(place)
    project.configure(**FOR_SNAKEMAKE)
    return project


def _straight_project(project: Project) -> dict[str, str | None]:
    """What the same settings give without Snakemake, undisturbed."""
    config = configuration.load(project.path / "tiny.yaml")
    root = project.path / "straight"
    for seed in (0, 1):
        end = attempt(lambda seed=seed: train_run(config, root, "point", "disk", seed, None, lambda out: nullcontext()))
        assert end.how == "done", end
    return _results(root)


def _results(root: Path) -> dict[str, str | None]:
    paths = [path for path in sorted(root.glob("point/disk/seed*/skill*/*")) if path.name in SAME]
    return {str(path.relative_to(root)): _sum(path) for path in paths}


def _trainers(project: Project) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"train-skill" in words and (folder / "cwd").readlink() == project.path:
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def _when_training(project: Project, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None and not _trainers(project):
        time.sleep(0.1)


def _verdict(project: Project, expected: dict[str, str | None], detail: str, message: str = "") -> tuple[str, str, str]:
    output = project.run(*WANTED)
    found = _results(project.path / "results")
    outcome = ("refused" if message else "recovered") if found == expected else "DIVERGED"
    return outcome, detail if outcome != "DIVERGED" else f"{detail}: {output[-500:]}", message


@kind("two controllers in one directory")
def two_controllers(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    """Snakemake's own lock: the second refuses at once."""
    project = _project(place)
    expected = _straight_project(project)
    first = project.start(*WANTED)
    _when_training(project, first)
    begun = time.monotonic()
    second = project.run(*WANTED, ok=False)
    detail = f"the second refused after {time.monotonic() - begun:.0f} s"
    assert "lock" in second.lower(), second
    first.communicate(timeout=600)
    assert first.returncode == 0
    return _verdict(project, expected, detail, next(line for line in second.splitlines() if "lock" in line.lower()))


@kind("two controllers in two directories, one results tree")
def two_directories(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    project = _project(place / "a")
    expected = _straight_project(project)
    other = _project(place / "b")
    (other.path / "results").symlink_to(project.path / "results")
    (project.path / "results").mkdir()
    first = project.start(*WANTED)
    _when_training(project, first)
    begun = time.monotonic()
    second = other.run(*WANTED, ok=False)
    detail = f"the second refused after {time.monotonic() - begun:.0f} s"
    said = next((line for line in second.splitlines() if "another Snakemake is at work" in line), "")
    assert said, second
    first.communicate(timeout=600)
    assert first.returncode == 0
    return _verdict(project, expected, detail, said.replace(str(place), "…"))


@kind("controller killed, its trainer left behind")
def controller_killed(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    project = _project(place)
    expected = _straight_project(project)
    process = project.start(*WANTED)
    _when_training(project, process)
    process.kill()
    process.wait()  # not communicate(), which would wait for the orphans too
    return _verdict(project, expected, f"{len(_trainers(project))} orphans")


@kind("one job among several killed, as for want of memory")
def job_killed(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    """What the kernel does when memory runs out. The others go on (`keep-going`), the same command mends it."""
    project = _project(place)
    expected = _straight_project(project)
    process = project.start("--cores", "2", *WANTED)
    _when_training(project, process)
    killed = _trainers(project)[:1]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=600)
    others = any((project.path / name).exists() for name in WANTED)
    outcome, detail, message = _verdict(project, expected, f"killed {len(killed)}, the other run was made: {others}")
    return (outcome if others else "LOST"), detail, message


# ---------------------------------------------------------------- clocks of the system

FAKETIME = next((str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
CLI = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from rig import Run, command
command(Run(sys.argv[1], sys.argv[2] == "True"), Path(sys.argv[3]))
"""


def faketime(campaign: Any, run: Run, place: Path) -> tuple[str, str, str]:
    """A process of its own whose every clock is false; killed, and gone on with under the right clock."""
    _, reference = campaign.straight(run)
    case = Case(run, place / "results", reference)
    tests = Path(__file__).resolve().parents[1]
    paths = [str(path) for path in (tests, *tests.iterdir()) if path.is_dir()]
    false = {**os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME": "+400d x50"}
    words = [sys.executable, "-c", CLI, run.method, str(run.evolving), str(case.root), *paths]
    process = subprocess.Popen(words, env=false, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(case.root.rglob("state.safetensors")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    return _judged(case, f"{len(list(case.root.rglob('*.safetensors')))} files were there when it was killed")


if FAKETIME:  # apt-get install faketime
    kind("clock of another year, and running fast (libfaketime)")(faketime)
