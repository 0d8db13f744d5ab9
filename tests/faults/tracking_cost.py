"""What tracking costs training when its server is slow: eight trainings at a time, each with a sidecar of its own.

    python tests/faults/tracking_cost.py --processes 8 --steps 6000

The server takes two seconds for every answer. For each training: its CPU time, the part of it that was spent on
tracking, the sidecar's own CPU time, and how often one of its steps waited for anything at all: the kernel counts
when a thread gives up the processor of its own accord, which is what waiting is. Beside it, the same trainings without
tracking: a step that waits there waits for something else, the disk under its checkpoints for one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(path) for path in (TESTS, *TESTS.iterdir()) if path.is_dir()]
import company  # noqa: E402
from conftest import HOOKED, HookedPoint, tiny_config  # noqa: E402

from disk.learning.run import learn_skill  # noqa: E402
from disk.tracking.mirror import Sidecar  # noqa: E402

DELAY = 2.0


def train(out: Path, uri: str | None, steps: int, seed: int) -> dict[str, Any]:
    """Train a skill of so many steps in this process; what that cost, and what tracking cost of it."""
    config = tiny_config(HOOKED, {"environments": {"point": {"steps": steps}}})
    waits, last = [0, 0], [None]

    def on_step(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        now = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        if last[0] is not None:
            waits[0] += 1
            waits[1] += now > last[0]
        last[0] = now
        return result

    spent = [0.0]

    def timed(call: Any) -> Any:
        def wrapped(*args: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*args)
            finally:
                spent[0] += time.thread_time() - begun

        return wrapped

    for name in ("__init__", "__enter__", "__exit__", "_start"):
        setattr(Sidecar, name, timed(getattr(Sidecar, name)))
    HookedPoint.on_step = on_step
    job = config.skill_job("point", "disk", seed, 0)
    begun = time.monotonic()
    if uri is None:
        learn_skill(job, [], out, config.runtime)
    else:
        with Sidecar(out, uri, 1.0, 10.0):
            learn_skill(job, [], out, config.runtime)
    own, beside = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.monotonic() - begun,
        "cpu": own.ru_utime + own.ru_stime,
        "tracking": spent[0],
        "sidecar": beside.ru_utime + beside.ru_stime,
        "steps": waits[0],
        "steps that waited": waits[1],
    }


def together(processes: int, steps: int, uri: str | None, root: Path) -> list[dict[str, Any]]:
    children = []
    for seed in range(processes):
        out = root / "results" / "point" / "disk" / f"seed{seed}" / "skill00"
        pid = os.fork()
        if pid == 0:
            found = train(out, uri, steps, seed)
            (root / f"{seed}.json").write_text(json.dumps(found))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return [json.loads(path.read_text()) for path in sorted(root.glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6000)
    options = parser.parse_args()
    company.Misbehaving.delay = DELAY
    with tempfile.TemporaryDirectory() as scratch:
        without = together(options.processes, options.steps, None, Path(scratch))
    with company.server("slow") as uri, tempfile.TemporaryDirectory() as scratch:
        found = together(options.processes, options.steps, uri, Path(scratch))
        asked = company.Misbehaving.asked
    print(
        "| training | wall s | CPU s | of it tracking | share | sidecar's CPU s | steps | steps that waited | without |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for number, (one, plain) in enumerate(zip(found, without, strict=True)):
        share = one["tracking"] / one["cpu"]
        print(
            f"| {number} | {one['seconds']:.0f} | {one['cpu']:.1f} | {one['tracking']:.4f} | {share:.3%} | "
            f"{one['sidecar']:.1f} | {one['steps']} | {one['steps that waited']} | {plain['steps that waited']} |"
        )
    seconds = [fmean(one["seconds"] for one in each) for each in (found, without)]
    print(f"\nThe server was asked {asked} times and took {DELAY:.0f} s for every answer.")
    print(f"Trainings took {seconds[0]:.1f} s by the clock, without tracking {seconds[1]:.1f} s.")


if __name__ == "__main__":
    main()
