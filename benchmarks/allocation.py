"""What one allocation saves: a chain of four short skills in it, and as a SLURM job for each skill, by the clock.

    python benchmarks/allocation.py          # needs slurmctld, slurmd, slurm-client and munge; four minutes

On the one-node SLURM of tests/slurm, where nobody else is in the queue; a skill's steps sleep for twelve seconds.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests"), str(PROJECT / "tests/machine")]
from test_slurm import TARGETS, Node, until  # noqa: E402

ALLOCATION = ["--parsable", "--time=20", "--cpus-per-task=1", "--mem=100"]


def in_one_allocation(node: Node) -> None:
    script = [str(PROJECT / "profiles/slurm/in-one-allocation.sh"), TARGETS[0], "--configfile", "slow.yaml"]
    number = node.run("sbatch", *ALLOCATION, *script).strip()
    until(lambda: number not in node.run("squeue", "-h", "-o", "%i").split(), 900.0)


def a_job_for_each_skill(node: Node) -> None:
    node.snakemake(node.project / "log", TARGETS[0]).wait(900.0)


def main() -> None:
    for way in (in_one_allocation, a_job_for_each_skill):
        with tempfile.TemporaryDirectory() as project:
            folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's path may have 107 letters
            node = Node(folder, Path(project))
            try:
                begun = time.monotonic()
                way(node)
                if not (node.project / TARGETS[0]).exists():
                    raise SystemExit(f"{way.__name__}: did not come to its end")
                print(f"{way.__name__.replace('_', ' '):24}{time.monotonic() - begun:6.0f} s", flush=True)
            finally:
                node.stop()
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
