"""What trainings asked a cluster for beside what they used, from Snakemake's benchmark files.

    python benchmarks/requests.py results/laptop logs/laptop/benchmarks

Memory is the largest resident set. Time is CPU time, which is what a training takes on a core of its own (a clock would
also count the other jobs of a shared machine), and the ten seconds of Snakemake on the node. `--preset
config/laptop.yaml` says what trainings with the steps of that preset would have come to, from the time a step took, for
measurements that were cut short: benchmarks/requests.yaml makes some.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

from disk import config as configuration
from disk.config import Config, JointJob, Runtime, SkillJob

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))
from walltime import expected_mb, memory_mb, minutes, size_of

START = 9.0
"""CPU seconds of a trainer before its first step, and of the process beside it before its first look."""
ON_THE_NODE = 10.0
"""Seconds that SLURM counts for two starts of Snakemake. Jobs of tests/machine/test_slurm.py took 6 to 12."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("benchmarks", type=Path)
    parser.add_argument("--preset", type=Path, help="as if trainings had the steps of this configuration")
    arguments = parser.parse_args()
    preset = configuration.load(arguments.preset) if arguments.preset else None
    runtime = Runtime(device="cpu", checkpoint_minutes=5.0, log_every=1000)
    print("| training | steps | asked, MB | used, MB | ratio | asked, min | used, min | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for path in sorted(arguments.benchmarks.rglob("*.tsv")):
        name = path.relative_to(arguments.benchmarks).with_suffix("")
        folder = arguments.results / (name.parent if name.name == "joint" else name)
        try:
            job = json.loads((folder / "stats.json").read_text())["job"]
        except (OSError, KeyError):
            continue  # not finished
        with path.open(newline="") as file:
            used = list(csv.DictReader(file, delimiter="\t"))[-1]
        print(row(name, job, float(used["max_rss"]), float(used["cpu_time"]), preset, folder, runtime))


def row(
    name: Path,
    raw: dict[str, object],
    used_mb: float,
    cpu: float,
    preset: Config | None,
    folder: Path,
    runtime: Runtime,
) -> str:
    done = SkillJob.model_validate(raw) if "skill" in raw else JointJob.model_validate(raw)
    earlier = [folder.with_name(f"skill{skill:02d}") for skill in range(getattr(done, "skill", 0))]
    taken = [int(json.loads((each / "stats.json").read_text())["steps"]) for each in earlier]
    job, size, seconds, wanted = done, size_of(done.world), cpu, taken
    if preset and done.steps:
        method = name.parts[1]
        if isinstance(done, SkillJob):
            chain = [preset.skill_job(done.env, method, done.seed, skill) for skill in range(done.skill + 1)]
            job, wanted = chain[-1], [each.steps or 0 for each in chain[:-1]]
        else:
            job = preset.joint_job(done.env, method, done.seed)
        seconds = START + (cpu - START) * (job.steps or 0) / done.steps
        used_mb += expected_mb(job, wanted, size) - expected_mb(done, taken, size)
    seconds += ON_THE_NODE
    megabytes, asked = memory_mb(job, wanted, size, runtime), minutes(job, size, runtime)
    cells = [f"`{name}`", f"{job.steps or 0:,}", megabytes, round(used_mb), f"{megabytes / used_mb:.2f}"]
    cells += [asked, f"{seconds / 60:.1f}", f"{60 * asked / seconds:.2f}"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
