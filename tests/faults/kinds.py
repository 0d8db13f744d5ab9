"""The kinds of faults. Each breaks something of a run, or runs it in a place that breaks; the rig does the rest."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import torch
from conftest import HookedPoint
from rig import CHAINS, Case, Clock, Ended, Run, attempt, command, ended, kill, spawn

from disk import doctor
from disk.learning.sac import SAC

Kind = Callable[[Case, random.Random], None]
KINDS: dict[str, Kind] = {}
CHAIN_ONLY: set[str] = set()
IN_TRAINING = "kill -9 in the middle of a longer training"


def kind(name: str, chains: bool = False) -> Callable[[Kind], Kind]:
    def register(function: Kind) -> Kind:
        KINDS[name] = function
        if chains:
            CHAIN_ONLY.add(name)
        return function

    return register


# ---------------------------------------------------------------- kills


@kind("kill -9 at a random time")
def kill_any_time(case: Case, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 3)):
        pid, reader = spawn(case.work)
        time.sleep(case.seconds * rng.uniform(0.05, 1.0))
        kill(pid)
        case.note(ended(pid, reader))
    case.detail = "killed" if "killed" in case.ends else "over before the kill"


def _dying_at_write(case: Case, rng: random.Random, when: str) -> None:
    """SIGKILL around one of the calls that put something on the disk, chosen at random."""
    number = rng.randint(1, 45)

    def work() -> None:
        left = number
        names = ("fsync", "replace", "unlink", "rmdir") if when == "before" else ("fsync",)
        names = ("replace", "unlink", "rmdir") if when == "after" else names

        def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    if when == "during":
                        _tear(args[0])
                    if when == "after":
                        call(*args, **kwargs)
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return wrapped

        for name in names:
            setattr(os, name, deadly(getattr(os, name)))
        case.work()

    case.note(attempt(work))
    case.detail = f"write {number}"


def _tear(handle: int) -> None:
    """Leave what a machine that stops would: half of a new file, not all of the last rows of one that grows."""
    path, size = Path(os.readlink(f"/proc/self/fd/{handle}")), os.fstat(handle).st_size
    if path.is_file() and size:
        os.ftruncate(handle, size // 2 if path.suffix == ".tmp" else size - 3)


@kind("kill before a write")
def kill_before(case: Case, rng: random.Random) -> None:
    _dying_at_write(case, rng, "before")


@kind("kill during a write, half of it on the disk")
def kill_during(case: Case, rng: random.Random) -> None:
    _dying_at_write(case, rng, "during")


@kind("kill after a rename or removal")
def kill_after(case: Case, rng: random.Random) -> None:
    _dying_at_write(case, rng, "after")


def _when_training(case: Case, rng: random.Random, first: Callable[[], object] = int) -> tuple[int, int]:
    """Start the command, and come back when it has taken some steps of a training: its process and its report."""
    reader, writer = os.pipe()
    after = rng.randint(1, 60)

    def work() -> None:
        def tell(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
            if count >= after and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                HookedPoint.on_step = None
                os.close(writer)
            return result

        HookedPoint.steps, HookedPoint.on_step = 0, tell
        first()
        case.work()

    child = spawn(work)
    os.close(writer)
    os.read(reader, 1)  # until all have closed the other end
    os.close(reader)
    return child


@kind(IN_TRAINING)
def kill_training(case: Case, rng: random.Random) -> None:
    clock = Clock()
    pid, reader = _when_training(case, rng, clock.watch)
    time.sleep(0.6 * case.seconds * rng.random())
    cost = clock.since()
    kill(pid)
    end = ended(pid, reader)
    case.note(end)
    case.detail = end.how
    if end.how == "killed" and cost is not None:
        case.loss = cost


@kind("SIGTERM with a grace period")
def terminate(case: Case, rng: random.Random) -> None:
    pid, reader = _when_training(case, rng)
    kill(pid, signal.SIGTERM)
    begun = time.monotonic()
    end = ended(pid, reader)
    case.note(end)
    case.detail = f"{end.how} after {time.monotonic() - begun:.2f} s"


@kind("SIGTERM, SIGKILL before the grace is over")
def preempt(case: Case, rng: random.Random) -> None:
    pid, reader = _when_training(case, rng)
    kill(pid, signal.SIGTERM)
    time.sleep(rng.uniform(0.0, 0.02))
    kill(pid)
    end = ended(pid, reader)
    case.note(end)
    case.detail = end.how


@kind("suspended for a while")
def suspend(case: Case, rng: random.Random) -> None:
    pid, reader = spawn(case.work)
    time.sleep(case.seconds * rng.uniform(0.1, 0.8))
    kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    kill(pid, signal.SIGCONT)
    case.note(ended(pid, reader))


# ---------------------------------------------------------------- disks


def can_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


@kind("full disk")
def full_disk(case: Case, rng: random.Random) -> None:
    """A small tmpfs where mounting is allowed; elsewhere a limit on the size of files."""
    kilobytes = rng.randint(8, 90)
    if can_mount():
        _remount(case.root.parent, f"size={kilobytes}k")
        case.mend = lambda: _remount(case.root.parent, "size=64m")
        case.detail = f"tmpfs of {kilobytes} kB"
        case.note(attempt(case.work))
        return

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 128, kilobytes * 128))
        case.work()

    case.detail = f"files of at most {kilobytes / 8} kB"
    case.note(attempt(work))


@kind("read-only results")
def read_only(case: Case, rng: random.Random) -> None:
    pid, reader = spawn(case.work)
    time.sleep(case.seconds * rng.uniform(0.1, 1.0))
    kill(pid)
    case.note(ended(pid, reader))
    place = case.root.parent
    if can_mount():
        _remount(place, "ro")
        case.mend = lambda: _remount(place, "rw")
    else:
        folders = [case.root, *(path for path in case.root.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        case.mend = lambda: [folder.chmod(0o755) for folder in folders]


# ---------------------------------------------------------------- damage


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    where = rng.randrange(len(data))
    data[where] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path, random.Random], object]] = {
    "truncated": lambda path, rng: os.truncate(path, rng.randrange(path.stat().st_size)),
    "bit-flipped": _flip,
    "empty": lambda path, rng: path.write_bytes(b""),
    "foreign": lambda path, rng: shutil.copy(_stranger(path, rng), path),
}
STRANGERS: dict[Path, Path] = {}
"""Roots of runs with another seed, by the root they are strangers to; set by the campaign."""


def _stranger(path: Path, rng: random.Random) -> Path:
    """A whole file of the same name that belongs elsewhere: to another skill, or to another seed's run."""
    root = next(root for root in STRANGERS if path.is_relative_to(root))
    other = STRANGERS[root] / path.relative_to(root).as_posix().replace("seed0", "seed1")
    siblings = [folder / path.name for folder in path.parent.parent.glob("skill[0-9][0-9]") if folder != path.parent]
    choices = [each for each in (other, *siblings) if each.exists() and each.read_bytes() != path.read_bytes()]
    return rng.choice(choices) if choices else other


def _finished_tree(case: Case, reference_root: Path) -> None:
    shutil.copytree(reference_root, case.root, dirs_exist_ok=True)


def _damage(case: Case, rng: random.Random, path: Path, how: str) -> None:
    before = path.read_bytes()
    DAMAGE[how](path, rng)
    name = path.relative_to(case.root).as_posix()
    case.detail = f"{how} {'/'.join(Path(name).parts[3:])}"
    if path.read_bytes() == before:
        case.detail += " (nothing changed)"
        return
    case.touched.add(name)


def _doctor(case: Case) -> str:
    """Return the damage that the doctor finds in a tree. It must not fail over it."""
    audits = [doctor.audit(run, case.run.config()) for run in doctor.runs_below(case.root)]
    return "\n".join(fault for found in audits for fault in found.damaged)


def _damage_artefact(case: Case, rng: random.Random, how: str) -> None:
    """In a finished run, of which what was made from the damaged file is to be made again."""
    _finished_tree(case, case.root.parent / "reference")
    run = case.root / "point" / case.run.method / f"seed{case.run.seed}"
    owners = [run, *(case.root / "point").glob("*/seed0")]
    files = [path for folder in owners for path in folder.rglob("*") if path.is_file()]
    files = [path for path in dict.fromkeys(files) if path.stat().st_size and path.parent.name != "checkpoint"]
    if how != "empty":  # tables and curves have no checksum: only a torn one is noticed
        files = [path for path in files if path.suffix != ".csv"]
    path = rng.choice(sorted(files))
    _damage(case, rng, path, how)
    case.doctor = _doctor(case)
    rebuilt = path == run / "progress.csv" and case.run.method in CHAINS  # from its skills', whenever they are bundled
    if case.differing() and path.name not in case.doctor and not rebuilt:
        case.detail += " UNSEEN BY DOCTOR"
    relative = path.relative_to(case.root).parts
    if len(relative) > 3 and relative[3].startswith("skill") and relative[3] != "skills.safetensors":
        for later in run.glob("skill[0-9][0-9]"):  # go on with the chain, so that the damaged skill is read
            if later.name == max(folder.name for folder in run.glob("skill[0-9][0-9]")) and later != path.parent:
                shutil.rmtree(later)
        (run / "skills.safetensors").unlink(missing_ok=True)
    if path.name == "skills.safetensors" or path.parent.name == "snapshots":
        shutil.rmtree(run / "rollouts")
    if path.parent.name == "rollouts":
        (run / "metrics.csv").unlink()


def _damage_checkpoint(case: Case, rng: random.Random, how: str) -> None:
    """Of a training that was stopped on its way."""
    stop_after = rng.randint(15, 130)

    def work() -> None:
        def stop(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
            if count >= stop_after and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                signal.raise_signal(signal.SIGTERM)
            return result

        HookedPoint.steps, HookedPoint.on_step = 0, stop
        case.work()

    case.note(attempt(work))
    places = [path for path in case.root.rglob("*checkpoint/*") if path.name != "lease" and path.stat().st_size]
    if not places:
        case.detail = "over before it was stopped"
        return
    if how == "foreign":
        root, other = case.root, Run(case.run.method, case.run.evolving, seed=1)
        STRANGERS[root] = strange = case.root.parent / "strange"

        def another() -> None:
            HookedPoint.steps = 0
            HookedPoint.on_step = lambda count, result: (
                (
                    signal.raise_signal(signal.SIGTERM)
                    if count >= stop_after and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
                    else None
                )
                or result
            )
            command(other, strange)

        attempt(another)
        places = [path for path in places if _stranger(path, rng).exists()] or places[:0]
        if not places:
            case.detail = "no stranger's file of that name"
            return
    _damage(case, rng, rng.choice(sorted(places)), how)


for _how in DAMAGE:
    kind(f"{_how} artefact")(lambda case, rng, how=_how: _damage_artefact(case, rng, how))
    kind(f"{_how} checkpoint")(lambda case, rng, how=_how: _damage_checkpoint(case, rng, how))


@kind("another run's skill in the chain", chains=True)
def foreign_skill(case: Case, rng: random.Random) -> None:
    """A whole directory, consistent in itself, from another seed or another method; the later skills are to be made."""
    _finished_tree(case, case.root.parent / "reference")
    run = case.root / "point" / case.run.method / "seed0"
    folders = sorted(run.glob("skill[0-9][0-9]"))
    target = rng.choice(folders[:-1] or folders)
    method = rng.choice([case.run.method, *[name for name in CHAINS if "fork" not in name]])
    other = Run(method, case.run.evolving, seed=1 if method == case.run.method else 0)
    strange = case.root.parent / "strange"
    end = attempt(lambda: command(other, strange))
    assert end.how == "done", end
    source = strange / "point" / method / f"seed{other.seed}" / target.name
    if not source.exists():
        case.detail = "no such skill elsewhere"
        return
    shutil.rmtree(target)
    shutil.copytree(source, target)
    case.detail = f"{target.name} of {method} seed {other.seed}"
    case.touched |= {path.relative_to(case.root).as_posix() for path in target.iterdir()}
    for later in folders[folders.index(target) + 1 :]:
        shutil.rmtree(later)
    (run / "skills.safetensors").unlink()


# ---------------------------------------------------------------- company


@kind("two trainers on one run")
def two_trainers(case: Case, rng: random.Random) -> None:
    first = spawn(case.work)
    time.sleep(case.seconds * rng.uniform(0.0, 0.4))
    second = spawn(case.work)
    if rng.random() < 0.5:
        time.sleep(case.seconds * rng.uniform(0.1, 1.0))
        kill(first[0])
        case.detail = "the first was killed"
    for each in (first, second):
        case.note(ended(*each))


@kind("out of memory, one of three")
def out_of_memory(case: Case, rng: random.Random) -> None:
    """One of three trainings at a time gets no more memory; the others must not notice."""
    others = [Run(case.run.method, case.run.evolving, seed) for seed in (1, 2)]
    started = [spawn(lambda run=run: command(run, case.root.parent / "others")) for run in others]
    extra = rng.randint(0, 64) << 12

    def work() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + extra
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        case.work()

    pid, reader = spawn(work)
    # A thread that cannot be started for want of memory is waited for without end; a walltime would end it.
    watchdog = Timer(60.0, kill, [pid])
    watchdog.start()
    case.note(ended(pid, reader))
    watchdog.cancel()
    for each in started:
        end = ended(*each)
        if end.how != "done":
            case.ends.append(f"neighbour {end.how}")
            case.lost.append(f"neighbour: {end.message[-200:]}")


# ---------------------------------------------------------------- time


@kind("clock jumps")
def clock_jumps(case: Case, rng: random.Random) -> None:
    """The wall clock goes to and fro by days, the monotonic one forward by hours; files are dated in the future."""
    seed = rng.random()

    def work() -> None:
        jumps, now, monotonic = random.Random(seed), time.time, time.monotonic
        ahead = 0.0

        def forward() -> float:
            nonlocal ahead
            ahead += 3600.0 * (jumps.random() < 0.01)
            return monotonic() + ahead

        time.time = lambda: now() + jumps.choice([-86400.0 * 400, 0.0, 86400.0 * 400])
        time.monotonic = forward
        case.work()

    pid, reader = spawn(work)
    time.sleep(case.seconds * rng.uniform(0.2, 0.9))
    kill(pid)
    case.note(ended(pid, reader))
    for path in case.root.rglob("*"):
        moment = time.time() + rng.choice([-1, 1]) * 86400.0 * 365
        os.utime(path, (moment, moment))
    case.note(attempt(work))


# ---------------------------------------------------------------- what comes from within


def _at(step: int, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[], None]:
    def hook() -> None:
        def on_step(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
            return change(result) if count == step else result

        HookedPoint.steps, HookedPoint.on_step = 0, on_step

    return hook


def _raise(result: tuple[Any, ...]) -> tuple[Any, ...]:
    raise RuntimeError("the simulator has lost its connection")


@kind("environment raises in mid-episode")
def environment_raises(case: Case, rng: random.Random) -> None:
    step = rng.randint(5, 130)
    hook = _at(step, _raise)
    case.note(attempt(lambda: (hook(), case.work())))
    case.detail = f"at step {step}" + case.detail


@kind("NaN observation")
def nan_observation(case: Case, rng: random.Random) -> None:
    step = rng.randint(5, 130)
    hook = _at(step, lambda result: (np.full_like(result[0], np.nan), *result[1:]))
    case.note(attempt(lambda: (hook(), case.work())))
    case.detail = f"at step {step}"


@kind("NaN action")
def nan_action(case: Case, rng: random.Random) -> None:
    """From the policy's network, at one of its steps."""
    number = rng.randint(1, 40)

    def work() -> None:
        left = number

        def spoiled(call: Callable[..., Any]) -> Callable[..., Any]:
            def act(*args: Any) -> Any:
                nonlocal left
                left -= 1
                action = call(*args)
                if left:
                    return action
                return (action[0] * np.nan, action[1]) if isinstance(action, tuple) else action * np.nan

            return act

        SAC.act, SAC.act_on_record = spoiled(SAC.act), spoiled(SAC.act_on_record)  # type: ignore[method-assign]
        case.work()

    case.note(attempt(work))
    case.detail = f"action {number}"


@kind("NaN loss")
def nan_loss(case: Case, rng: random.Random) -> None:
    number = rng.randint(1, 40)

    def work() -> None:
        left, update = number, SAC.update

        def spoiled(agent: SAC, batch: Any, reward: Any) -> Any:
            nonlocal left
            left -= 1
            return update(agent, batch, reward if left else reward * torch.nan)

        SAC.update = spoiled  # type: ignore[method-assign]
        case.work()

    case.note(attempt(work))
    case.detail = f"update {number}"


__all__ = ["CHAIN_ONLY", "KINDS", "Ended", "small_disk"]
