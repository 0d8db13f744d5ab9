"""What trainings asked a cluster for beside what they used, from Snakemake's benchmark files.

    python benchmarks/requests.py results/laptop logs/laptop/benchmarks

Memory is the largest resident set. Time is CPU time, which is what a training takes on a core of its own; a clock would
also count the other jobs of a shared machine. `--steps 20000` says what skills of so many steps would have come to,
from the time a step took, for measurements that were cut short.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from disk.config import JointJob, Runtime, SkillJob
from disk.resources import expected_mb, memory_mb, minutes, size_of

START = 4.0
"""CPU seconds of a trainer before its first step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("benchmarks", type=Path)
    parser.add_argument("--steps", type=int, help="as if skills had so many steps")
    arguments = parser.parse_args()
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
        print(row(str(name), job, float(used["max_rss"]), float(used["cpu_time"]), arguments.steps, folder, runtime))


def row(
    name: str, raw: dict[str, object], used_mb: float, cpu: float, steps: int | None, folder: Path, runtime: Runtime
) -> str:
    done = SkillJob.model_validate(raw) if "skill" in raw else JointJob.model_validate(raw)
    earlier = [folder.with_name(f"skill{skill:02d}") for skill in range(getattr(done, "skill", 0))]
    taken = [int(json.loads((each / "stats.json").read_text())["steps"]) for each in earlier]
    job, size, seconds, wanted = done, size_of(done.world), cpu, taken
    if steps and done.steps:
        job = done.model_copy(update={"steps": steps})
        seconds = START + (cpu - START) * steps / done.steps
        wanted = [steps for _ in taken]
        used_mb += expected_mb(job, wanted, size) - expected_mb(done, taken, size)
    megabytes, asked = memory_mb(job, wanted, size, runtime), minutes(job, size, runtime)
    cells = [name, f"{job.steps or 0:,}", megabytes, round(used_mb), f"{megabytes / used_mb:.2f}"]
    cells += [asked, f"{seconds / 60:.1f}", f"{60 * asked / seconds:.2f}"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
