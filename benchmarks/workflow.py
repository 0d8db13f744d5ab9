"""What everything around training costs: planning, starting, saving, loading.

Times by the clock, the best of several, because a command that somebody waits for is waited for by the clock. The start
of a training job is in CPU time too: that is what it takes from other jobs.

    python benchmarks/workflow.py                # about five minutes; part of make costs
    python benchmarks/workflow.py --repeat 1 --shard 6000 --skip plan
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from turns import Said, machine, save

PROJECT = Path(__file__).parent.parent
TARGETS = {"plan": 20.0, "help": 1.0, "cpu_of_its_start": 2.2}


def best(repeat: int, action: Callable[[], float]) -> Said:
    return best_of([action() for _ in range(repeat)])


def best_of(seconds: Sequence[float]) -> Said:
    """The best of several seconds, and all of them."""
    return {"seconds": min(seconds), "all": [round(each, 3) for each in seconds]}


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def command(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run(arguments, cwd=PROJECT, capture_output=True, check=True)


def plan(repeat: int) -> Said:
    """`snakemake -n` of the whole configuration as it stands, the paper's scale."""
    dry = [sys.executable, "-m", "snakemake", "-n", "--quiet", "rules"]
    said = subprocess.run(dry, cwd=PROJECT, capture_output=True, text=True, check=True)
    total = [line.split()[-1] for line in (said.stdout + said.stderr).splitlines() if line.startswith("total")]
    return {**best(repeat, lambda: timed(command(*dry))), "jobs": int(total[0]) if total else 0}


MANY = """
rule all:
    input:
        expand("{{i}}.txt", i=range({jobs})),

rule one:
    output:
        "{{i}}.txt",
    shell:
        "sleep {seconds} && touch {{output}}"

onstart:
    {start}
"""
STARTS = {"as_it_is": "pass", "calm": "workflow.scheduler.job_rate_limiter = None"}
"""What common_cluster.smk does to Snakemake's scheduler, and without it."""


def scheduler(jobs: int, seconds: float, scratch: Path) -> Said:
    """CPU time of Snakemake itself over so many short jobs of a toy workflow, one at a time, the jobs' own included."""
    import resource

    used: Said = {"jobs": jobs, "seconds_a_job": seconds}
    for name, start in STARTS.items():
        folder = scratch / name
        folder.mkdir()
        (folder / "Snakefile").write_text(MANY.format(jobs=jobs, seconds=seconds, start=start))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all"]
        clock = timed(lambda: subprocess.run(line, cwd=folder, capture_output=True, check=True))  # noqa: B023
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        used[name] = {"cpu": round(cpu, 2), "clock": round(clock, 2)}
    return used


def first_step(env: str, scratch: Path) -> tuple[float, float]:
    """Seconds from the command of a training job to the moment its loop begins: by the clock, and of CPU."""
    import psutil

    from disk import config as configuration

    settings = configuration.load()
    job = settings.skill_job(env, "disk", 0, 0)
    out = scratch / f"start{time.monotonic_ns()}" / "skill00"
    about = {
        "runtime": settings.runtime.model_dump(mode="json"),
        "tracking": settings.tracking.model_copy(update={"enabled": False}).model_dump(mode="json"),
    }
    begun = out.with_name("skill00.checkpoint") / "job.json"
    line = [sys.executable, "-m", "disk", "train-skill", "--job", job.model_dump_json(), "--out", str(out / "policy")]
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(line, env={**os.environ, "DISK_RUNTIME": json.dumps(about)}, **quiet)  # type: ignore[call-overload]
    while not begun.exists():
        if process.poll() is not None:
            raise SystemExit(f"the training job ended with status {process.returncode}")
        time.sleep(0.002)
    seconds, used = time.perf_counter() - start, sum(psutil.Process(process.pid).cpu_times()[:2])
    process.send_signal(signal.SIGKILL)
    process.wait()
    return seconds, used


def files(env: str, shard: int, rows: int, scratch: Path, repeat: int) -> Said:
    """Loading the files of 19 earlier skills, and saving a checkpoint with so many new rows of replay."""
    import torch
    from pretend import long_chain, write_chain

    from disk.learning.build import choose_device, skill_parts
    from disk.learning.training import Training
    from disk.storage.checkpoint import Checkpoint, stamp
    from disk.storage.manifest import identity

    settings = long_chain(env, 20, shard)
    folders = write_chain(settings, env, "disk", 19, scratch / "earlier")
    job = settings.skill_job(env, "disk", 0, 19)
    device = choose_device("cpu")
    checked = best(repeat, lambda: timed(lambda: identity(job, folders)))
    loaded = best(repeat, lambda: timed(lambda: skill_parts(job, folders, device)))
    parts = skill_parts(job, folders, device)
    rows_loaded = len(parts.replays[0])
    size = sum((folder / "replay.safetensors").stat().st_size for folder in folders)
    checkpoint = Checkpoint(scratch / "skill19.checkpoint", stamp(job.canonical(), {}))
    training = Training(parts, settings.runtime, checkpoint)
    training.step = rows

    def saved() -> float:
        parts.replays[0].extend(torch.randn(rows, parts.replays[0].columns.width))
        return timed(training._save)

    saving = best(repeat, saved)
    checkpoint.close()
    return {
        "checksums_of_19_skills": {**checked, "megabytes": size / 1e6},
        "loading_19_skills": {**loaded, "rows": rows_loaded},
        "checkpoint": {**saving, "new_rows": rows, "state_megabytes": _size(checkpoint.directory)},
    }


def _size(directory: Path) -> float:
    return (directory / "state.safetensors").stat().st_size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what is around training.")
    parser.add_argument("--env", default="ant")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shard", type=int, default=125_000, help="steps of each earlier skill")
    parser.add_argument("--rows", type=int, default=60_000, help="steps between two checkpoints")
    parser.add_argument("--skip", default="", help="of plan, help, scheduler, start, files")
    parser.add_argument("--out", type=Path, default=Path("results/bench/workflow.json"))
    arguments = parser.parse_args()
    repeat, skipped = arguments.repeat, arguments.skip.split(",")
    result: Said = {"machine": machine(), "targets": TARGETS}
    with tempfile.TemporaryDirectory() as scratch:
        if "plan" not in skipped:
            result["plan"] = plan(repeat)
        if "help" not in skipped:
            result["help"] = best(repeat, lambda: timed(command(sys.executable, "-m", "disk", "--help")))
        if "scheduler" not in skipped:
            result["scheduler"] = found = scheduler(150, 0.5, Path(scratch))
            print(f"scheduler over {found['jobs']} jobs:", *(f"{name} {found[name]['cpu']} CPU-s" for name in STARTS))
        if "start" not in skipped:
            starts = [first_step(arguments.env, Path(scratch)) for _ in range(repeat)]
            result["start_of_a_training_job"] = best_of([clock for clock, _ in starts])
            result["cpu_of_its_start"] = best_of([used for _, used in starts])
        if "files" not in skipped:
            result |= files(arguments.env, arguments.shard, arguments.rows, Path(scratch), repeat)
    for name, value in result.items():
        if isinstance(value, dict) and "seconds" in value:
            rest = ", ".join(f"{key} {number}" for key, number in value.items() if key not in ("seconds", "all"))
            goal = f"  (at most {TARGETS[name]:g})" if name in TARGETS else ""
            print(f"{name:26}{value['seconds']:8.2f} s{goal}  {rest}")
    save(arguments.out, result)


if __name__ == "__main__":
    main()
