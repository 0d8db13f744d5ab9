"""The rig of the soak: tiny runs of every method in the point world, forked processes to break them in, and the judge.

A run's command trains it and measures it as the workflow does, skipping what is there. It is given again and again
after a fault, with the remedy of each refusal carried out, until it ends; then every byte is compared with a run that
nothing happened to.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import shutil
import signal
import struct
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  loaded once, for all the processes that are forked
import pyarrow.parquet  # noqa: F401
import scipy.spatial.distance  # noqa: F401
import torch
from conftest import HOOKED, HookedPoint, tiny_config
from test_resume import ROWS, SMALL, config_of, contents

import disk.learning.artefacts
from disk.config import Config
from disk.errors import ArtefactError, Interrupted, NotFiniteError
from disk.evaluation.run import evaluate, measure, read_runs
from disk.learning import run as learning_run
from disk.learning.run import train_run
from disk.learning.training import Training
from disk.storage.checkpoint import Pace
from disk.storage.lock import Lease

torch.set_num_threads(1)
for _slow in ("code_hash", "commit"):  # half of a tiny run's time
    _value = getattr(disk.learning.artefacts, _slow)()
    setattr(disk.learning.artefacts, _slow, lambda value=_value: value)
HookedPoint.on_step = HookedPoint.on_reset = None
CHANGES = [
    {"what": "actuator", "names": ["east"], "steps": [0, 80], "factors": [0.0, 1.0]},
    {"what": "actuator", "names": ["north"], "steps": [80], "factors": [0.0]},
]
EVOLVING = {"environments": {"point": {"evolution": {"total": 140, "changes": CHANGES}}}}
QUICK = {
    "environments": {
        "point": {
            **{"skills": 2, "steps": 70, "horizon": 14, "test_horizon": 10, "snapshots": [80]},
            "sac": {"seed_steps": 20},
        }
    },
    "disk": {"past_states": 60},
    "methods": {"dads": {"sac": {"seed_steps": 20}}},
    "evaluation": {"episodes": 2},
}
"""Runs of a second, over those of test_resume.py: two hundred of them are to be broken and mended."""
MINUTES = 0.005
"""checkpoint_minutes of the runs that are broken: 0.3 seconds, several episodes."""
LONG_MINUTES = 0.02
"""That of the long ones: 1.2 seconds, some fifty episodes."""
CHAINS = [name for name in ROWS if config_of().methods[name].incremental]
RESULTS = ("policy.safetensors", "replay.safetensors", "visits.npy", "skills.safetensors")
REMEDY = re.compile(r"[Dd]elete (it\b|/[^\s,;]+)|make room|make it writable|[Ww]ait for|last good checkpoint")


@dataclass(frozen=True)
class Run:
    """One run of the campaign."""

    method: str
    evolving: bool = False
    seed: int = 0
    long: bool = False
    """Some seconds of training, and several checkpoints, to see how much of it a kill costs."""

    @property
    def name(self) -> str:
        return f"{self.method}{' evolving' if self.evolving else ''}{' long' if self.long else ''}"

    def config(self, minutes: float | None = None) -> Config:
        return _config(self.evolving, self.long, minutes or (LONG_MINUTES if self.long else MINUTES))


@cache
def _config(evolving: bool, long: bool, minutes: float) -> Config:
    often = {"runtime": {"checkpoint_minutes": minutes}}
    steps = {"environments": {"point": {"steps": 1500, "snapshots": []}}} if long else {}
    return tiny_config(HOOKED, SMALL, QUICK, EVOLVING if evolving else {}, steps, often)


def command(run: Run, root: Path, config: Config | None = None) -> None:
    """Train what is missing of a run, then roll out, measure and read what is missing, as the workflow does."""
    config = config or run.config()
    folder = train_run(config, root, "point", run.method, run.seed, None, lambda out: nullcontext())
    paths = {name: folder / "rollouts" / f"{name}.parquet" for name in config.environment("point").conditions}
    for name, path in paths.items():
        if not path.exists():
            evaluate(config.evaluation_job("point", name, run.method), folder / "skills.safetensors", path)
    if not (folder / "metrics.csv").exists():
        measure(list(paths.values()), folder / "metrics.csv")
    read_runs([folder / "metrics.csv"])


@dataclass
class Ended:
    """How an attempt ended: `done`, `refused`, `failed`, `stopped` or `killed`."""

    how: str
    message: str = ""


def spawn(work: Callable[[], object]) -> tuple[int, int]:
    """Fork a process that does the work; its id and where it reports how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    how, message = "done", ""
    try:
        Lease.__init__.__defaults__ = (0.05,)
        work()
    except (ArtefactError, NotFiniteError) as error:
        how, message = "refused", str(error)
    except Interrupted as error:
        how, message = "stopped", str(error)
    except BaseException:
        how, message = "failed", traceback.format_exc()
    os.write(writer, json.dumps([how, message[-4000:]]).encode())
    os._exit(0 if how == "done" else 1)


def ended(pid: int, reader: int) -> Ended:
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return Ended(*json.loads(said)) if said else Ended("killed")


def attempt(work: Callable[[], object]) -> Ended:
    return ended(*spawn(work))


class Clock:
    """A number that a process leaves for its parent: when the state was taken that a kill would go back to."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def watch(self) -> None:
        """In the child: remember the beginnings of trainings and the moments of saved states, and forget them after."""
        begin, saved, finish = Pace.__init__, Pace.saved, learning_run.finish

        def beginning(pace: Pace, seconds: float) -> None:
            begin(pace, seconds)
            self._set(pace._saved)

        def after_save(pace: Pace) -> None:
            saved(pace)
            self._set(pace._saved)

        def finishing(training: Training, job: Any) -> None:
            finish(training, job)
            self._set(0.0)  # all of its steps are saved

        Pace.__init__, Pace.saved = beginning, after_save  # type: ignore[method-assign]
        learning_run.finish = finishing

    def _set(self, value: float) -> None:
        self._memory[:] = struct.pack("d", value)

    def since(self) -> float | None:
        """Seconds of training that a kill at this moment costs; None: nothing is being trained."""
        begun = struct.unpack("d", self._memory[:])[0]
        return time.monotonic() - begun if begun else None


@dataclass
class Case:
    """A fault that is being injected into a run."""

    run: Run
    root: Path
    reference: dict[str, Any]
    seconds: float = 1.0
    """How long the run takes when nothing happens to it."""
    touched: set[str] = field(default_factory=set)
    """Files that the fault itself has changed."""
    mend: Callable[[], object] | None = None
    """What a person would do about the cause: free the disk, make it writable."""
    detail: str = ""
    lost: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    loss: float | None = None
    """Seconds of work that a kill cost."""
    doctor: str = ""
    """What the doctor said of a damaged tree."""

    def work(self) -> None:
        command(self.run, self.root)

    def note(self, end: Ended) -> None:
        """Keep how an attempt ended, and see whether it took anything with it."""
        self.ends.append(end.how)
        if end.how in ("refused",):
            self.refusals.append(end.message)
        if end.how == "failed":
            self.detail += f" [{end.message.strip().splitlines()[-1][:160]}]"

    def finished(self) -> set[str]:
        """Finished results that are there, as they are to be."""
        names = [name for name in self.reference if name.endswith(RESULTS) and name not in self.touched]
        return {name for name in names if _sum(self.root / name) == self.reference[name]}

    def go_on(self, most: int = 8) -> str:
        """Give the command again until it ends, carrying out remedies; what has become of the run."""
        for _ in range(most):
            before = self.finished()
            end = attempt(self.work)
            self.note(end)
            self.lost += sorted(before - self.finished())
            if end.how == "done":
                break
            if end.how == "refused":
                problem = self._heed(end.message)
                if problem:
                    return problem
        if self.lost:
            return "LOST"
        if self.ends[-1] != "done":
            return f"STUCK: {self.ends}"
        if differ := self.differing():
            self.detail += f" differs: {differ[:3]}"
            return "DIVERGED"
        return "refused" if self.refusals else "recovered"

    def differing(self) -> list[str]:
        """Files that are not what an undisturbed run leaves."""
        try:
            found = contents(self.root)
        except ValueError as error:  # a damaged stats.json
            return [str(error)]
        return sorted(name for name in {*found, *self.reference} if found.get(name) != self.reference.get(name))

    def _heed(self, message: str) -> str:
        """Do what a refusal says; a complaint if it does not say what."""
        path = Path(message.split(": ", maxsplit=1)[0])
        told = REMEDY.search(message)
        if not path.is_relative_to(self.root) or told is None:
            return f"UNCLEAR: {message[:300]}"
        what = told[1]
        if what is None:
            if self.mend:
                self.mend()
            return ""
        _remove(path if what == "it" else Path(what.rstrip(".")))
        return ""


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _sum(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    os.kill(pid, signum)
