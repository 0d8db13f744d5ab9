"""CPU-minutes until a training has a set of skills of a given quality: our settings, and other learners in our loop.

Each run is a process of its own with one thread. Its clock is its CPU time from the start of Python, imports and
compilers included. Looks at the quality, after each quarter of a skill, are left out. A look rolls out the finished
skills and the one in training. Quality is the mean Hausdorff distance over all planned skills: those that are not there
yet count 0. A run ends when it has the quality, with its last skill, or when its minutes are used up: in the last two
cases it did not get there. Runs share `--total` minutes by the clock. Runs that find none left are not started.

    python benchmarks/time_to_skill.py              # the point robot, and our settings on HalfCheetah: 20 minutes
    python benchmarks/time_to_skill.py --full       # every environment and contender to the end: hours
    python benchmarks/time_to_skill.py --envs halfcheetah --contenders disk,disk_crossq --seeds 0,1,2 --minutes 60

Locomotion has the settings of benchmarks/common.yaml. `disk_laptop` has those of config/laptop.yaml, an update a step,
which is what this project took before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from turns import Said, machine, save

PROJECT = Path(__file__).parent.parent
TARGETS: dict[str, Said] = {
    "point": {"hausdorff": 18.0},
    "halfcheetah": {"hausdorff": 60.0, "movers": 4},
    "hopper": {"hausdorff": 4.5},
    "swimmer": {"hausdorff": 4.0},
}
COMMON = "benchmarks/common.yaml"
PRESETS = {"point": "config/quick.yaml", "halfcheetah": COMMON, "hopper": COMMON, "swimmer": COMMON}
CONTENDERS: dict[str, Said] = {
    "disk_laptop": {"method": "disk", "preset": "config/laptop.yaml"},
    "disk": {"method": "disk"},
    "disk_bf16": {"method": "disk", "sac": {"precision": "bf16"}},
    "disk_crossq": {"method": "disk_crossq"},
    "disk_crossq_onednn": {"method": "disk_crossq", "sac": {"precision": "onednn"}},
    "disk_plus": {"method": "disk_plus"},
    "disk_plus_onednn": {"method": "disk_plus", "sac": {"precision": "onednn"}},
    "disk_crossq_bf16": {"method": "disk_crossq", "sac": {"precision": "bf16"}},
    "sb3": {"method": "disk", "peer": "sb3"},
    "sbx": {"method": "disk", "peer": "sbx"},
    "sbx_crossq": {"method": "disk_crossq", "peer": "sbx_crossq"},
}
OURS, PEERS = ("disk", "disk_crossq", "disk_plus"), ("sb3", "sbx", "sbx_crossq")
DEFAULT = {"point": (*OURS, *PEERS)}
"""Contenders of an environment where `--contenders` names none; elsewhere OURS."""
LOOKS = 4
"""Looks at the quality of a skill in training."""


class Finished(Exception):
    """The run has the quality, or has used its minutes."""


class Chain:
    """A run in training, and what it had reached at each look."""

    def __init__(
        self, env: str, contender: Said, seed: int, preset: str, target: Said, minutes: float, clock: float
    ) -> None:
        from disk import config as configuration

        self.env, self.contender, self.seed, self.target, self.minutes = env, contender, seed, target, minutes
        self.config = configuration.load(PROJECT / preset)
        self.planned = self.config.environment(env).skills
        self.looks: list[Said] = []
        self.taken = 0  # steps of finished skills
        self._outside = 0.0  # CPU seconds of the looks
        self._ends = time.monotonic() + 60.0 * clock

    def reached(self) -> bool:
        return bool(self.looks) and all(self.looks[-1][name] >= value for name, value in self.target.items())

    def look(self, policies: list[Path], steps: int) -> None:
        """Measure the skills so far, outside the clock."""
        before = time.process_time()
        self.looks.append({"cpu_minutes": self.cpu_minutes(), "steps": steps, **self.quality(policies)})
        self._outside += time.process_time() - before
        if self.reached():
            raise Finished

    def cpu_minutes(self) -> float:
        return (time.process_time() - self._outside) / 60.0

    def stop_if_too_late(self) -> None:
        if self.cpu_minutes() > self.minutes or time.monotonic() > self._ends:
            raise Finished

    def quality(self, policies: list[Path]) -> Said:
        from disk.evaluation.metrics import measure
        from disk.evaluation.run import roll_out
        from disk.skills import bundle

        rollouts = roll_out(self.config.evaluation_job(self.env), bundle(policies))
        found = measure(rollouts, self.config.measure_job(self.env)).groupby("metric")["value"].sum()
        return {"hausdorff": float(found["hausdorff"] / self.planned), "movers": float(found.get("movers", 0.0))}

    def learn(self, folders: list[Path], folder: Path) -> None:
        """Train the skill after those in `folders`, into `folder`."""
        from disk.learning.artefacts import write_skill
        from disk.learning.build import choose_device, skill_parts
        from disk.learning.loop import train
        from disk.learning.training import Training
        from disk.storage.checkpoint import Checkpoint, stamp
        from disk.storage.manifest import identity

        skill = len(folders)
        job = self.config.skill_job(self.env, self.contender["method"], self.seed, skill)
        job = job.model_copy(update={"sac": job.sac.model_copy(update=self.contender.get("sac", {}))})
        parts = skill_parts(job, folders, choose_device("cpu"))
        peer: Any = None
        if "peer" in self.contender:
            from peers import Peer

            sizes = parts.replays[0].columns.obs, parts.replays[0].columns.action
            peer = Peer(self.contender["peer"], parts.agents[0], *sizes, 1000 * self.seed + skill)
            parts.agents[0] = peer
        checkpoint = Checkpoint(folder.with_suffix(".checkpoint"), stamp(job.canonical(), {}))
        training = Training(parts, self.config.runtime, checkpoint)
        every = max(1, job.steps // LOOKS)
        marks = list(range(every, parts.steps, every)) if skill else []  # a budget may give more than the job's steps
        policies, now = [each / "policy.safetensors" for each in folders], folder.with_suffix(".now")

        def after_an_episode() -> int:
            self.stop_if_too_late()
            if marks and marks[0] <= training.step < parts.steps:  # a finished skill gets its look below
                marks.pop(0)
                if peer:
                    peer.export()
                parts.skills().save(now)
                self.look([*policies, now], self.taken + training.step)
            return 0

        train(training, after_an_episode)
        if peer:
            peer.export()
        folder.mkdir()
        write_skill(job, parts, training.progress, "", identity(job, folders), folder)
        checkpoint.remove()
        checkpoint.close()
        self.taken += parts.steps
        if skill:
            self.look([*policies, folder / "policy.safetensors"], self.taken)

    def run(self, scratch: Path) -> Said:
        """Train the chain until it has the quality, or has no minutes or no skills left."""
        from disk.process import configure_torch

        configure_torch(1)
        folders = [scratch / f"skill{skill:02d}" for skill in range(self.planned)]
        with suppress(Finished):
            for skill, folder in enumerate(folders):
                self.learn(folders[:skill], folder)
        nothing: Said = {"steps": 0, "hausdorff": 0.0, "movers": 0.0}
        last = self.looks[-1] if self.looks else nothing
        used = last["cpu_minutes"] if self.reached() else self.cpu_minutes()
        return {"seed": self.seed, "reached": self.reached(), **last, "cpu_minutes": used, "looks": self.looks}


def in_a_process(**asked: Any) -> Said:
    """Train a chain in a process of its own, with one thread."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"), "1")
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, __file__, "--worker", json.dumps(asked)]
    done = subprocess.run(command, env={**os.environ, **one, **flags}, stdout=subprocess.PIPE, text=True, check=True)
    said: Said = json.loads(done.stdout.splitlines()[-1])
    return said


def summary(runs: list[Said]) -> Said:
    """The median over seeds of the CPU-minutes. Runs that did not get there count as longer than all others."""
    minutes = sorted(run["cpu_minutes"] if run["reached"] else float("inf") for run in runs)
    median = statistics.median_low(minutes)
    reached = sum(run["reached"] for run in runs)
    return {"median_minutes": None if median == float("inf") else median, "reached": reached, "runs": runs}


def times(base: Said | None, median: float | None) -> str:
    """How often `median` goes into the minutes of `base`, or at least goes, if `base` did not get there."""
    if base is None or median is None:
        return ""
    if base["median_minutes"] is not None:
        return f"{base['median_minutes'] / median:.2f}"
    spent = statistics.median_low(run["cpu_minutes"] for run in base["runs"])
    return f"> {spent / median:.2f}"


def show(env: str, target: Said, rows: dict[str, Said | None]) -> None:
    wanted = ", ".join(f"{name} {value:g}" for name, value in target.items())
    print(f"\n{env}: CPU-minutes to {wanted}")
    first = next(iter(rows))
    print(f"{'':18}{'median':>8}{'got there':>11}{first + ' / it':>19}   last quality of each seed")
    for name, row in rows.items():
        if row is None:
            print(f"{name:18}{'not measured':>19}")
            continue
        median, of = row["median_minutes"], len(row["runs"])
        ratio = f"{times(rows[first], median):>19}"
        last = ", ".join(f"{run['hausdorff']:.1f} at {run['cpu_minutes']:.1f}" for run in row["runs"])
        print(f"{name:18}{'–' if median is None else f'{median:.2f}':>8}{row['reached']:>6} of {of}{ratio}   {last}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the CPU time to a set of skills.")
    parser.add_argument("--envs", default="point,halfcheetah", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--contenders", help=f"of {', '.join(CONTENDERS)}; default: peers on the point robot only")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU-minutes that a run may take")
    parser.add_argument("--total", type=float, default=19.0, help="minutes by the clock for all runs together")
    parser.add_argument("--full", action="store_true", help="every environment, three seeds, to the end")
    parser.add_argument("--preset", help="configuration over the default one (default: quick or common)")
    parser.add_argument("--hausdorff", type=float, help="another quality for all environments")
    parser.add_argument("--out", type=Path, default=Path("results/bench/time_to_skill.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        said, sys.stdout = sys.stdout, sys.stderr
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(Chain(**json.loads(arguments.worker)).run(Path(scratch))), file=said)
        return
    if arguments.full:
        arguments.envs, arguments.seeds, arguments.minutes = ",".join(TARGETS), "0,1,2", 1e9
        arguments.total, arguments.contenders = 1e9, arguments.contenders or ",".join((*OURS, *PEERS))
    ends = time.monotonic() + 60.0 * arguments.total
    result: Said = {"machine": machine(), "minutes": arguments.minutes, "environments": {}}
    for env in arguments.envs.split(","):
        target = TARGETS[env] if arguments.hausdorff is None else {"hausdorff": arguments.hausdorff}
        rows: dict[str, Said | None] = {}
        result["environments"][env] = {"target": target, "contenders": rows}
        chosen = arguments.contenders.split(",") if arguments.contenders else DEFAULT.get(env, OURS)
        for name in chosen:
            preset = CONTENDERS[name].get("preset", arguments.preset or PRESETS[env])
            asked = {"env": env, "contender": CONTENDERS[name], "preset": preset}
            asked |= {"target": target, "minutes": arguments.minutes}
            runs = []
            for seed in map(int, arguments.seeds.split(",")):
                left = (ends - time.monotonic()) / 60.0
                if left > 0.0:
                    runs.append(in_a_process(**asked, seed=seed, clock=left))
            if not runs:
                print(f"{env}, {name}: not measured, the {arguments.total:g} minutes are used up")
            rows[name] = summary(runs) if runs else None  # None: not measured
            save(arguments.out, result)  # after each: a killed benchmark keeps what it has
        show(env, target, rows)


if __name__ == "__main__":
    main()
