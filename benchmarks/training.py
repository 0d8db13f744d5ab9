"""Whole trainings, phase by phase: every method, and DISk's second, tenth and twentieth skill.

Each training is a process of its own that takes turns with the others (see turns.py). A turn is some seconds of the
real loop of disk/learning/loop.py, with a clock around each thing that it calls; the pure learner, which is
`SAC.update` on one batch, takes its turn too. Rates are environment steps per CPU-second at one update a step, of
the best turn; ratios are medians over rounds of turns that followed each other. Earlier skills are made up (see
pretend.py).

    python benchmarks/training.py                # all of it, about ten minutes; part of make costs
    python benchmarks/training.py --env point --methods random,diayn --seconds 0.5 --rounds 1 --shard 2000
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from phases import CHAIN, PHASES, train
from turns import Said, Worker, machine, save, serve

SKILLS = {"second": 1, "tenth": 9, "twentieth": 19}


def learn_only(env: str) -> tuple[Said, Any]:
    """The pure learner: an environment's sizes and settings, the same batch again and again."""
    import torch

    from disk import config as configuration
    from disk.envs import make
    from disk.learning.replay import Replay
    from disk.learning.sac import SAC
    from disk.storage.replay import Columns

    settings = configuration.load()
    world, config = make(settings.environment(env).world()), settings.sac_of(env, "disk")
    columns = Columns(world.observation_size, world.action_size, world.sigma_size)
    generator, device = torch.Generator().manual_seed(0), torch.device("cpu")
    replay = Replay(config.batch_size, columns, device)
    replay.extend(torch.rand(config.batch_size, columns.width, generator=generator))
    batch, reward = replay.sample(config.batch_size, generator), torch.rand(config.batch_size, generator=generator)
    learner = SAC(columns.obs, columns.action, config, generator, device)

    def turn(seconds: float) -> Said:
        updates, cpu, wall = learner.updates, time.process_time(), time.perf_counter()
        while time.perf_counter() - wall < seconds:
            learner.update(batch, reward)
        return {"updates": learner.updates - updates, "cpu": time.process_time() - cpu}

    turn(0.5)
    return {}, turn


def rates(worker: Worker, count: str = "steps") -> list[float]:
    """Per CPU-second in each turn, the turns' checkpoints left out."""
    return [turn[count] / (turn["cpu"] - turn.get("phases", {}).get("checkpoint", 0.0)) for turn in worker.turns]


def paired(these: list[float], those: list[float]) -> float:
    """How much faster these are than those that had their turns just before or after: the median over rounds."""
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def breakdown(worker: Worker, checkpoint_minutes: float) -> Said:
    """Microseconds a step by phase, and shares; checkpoints as often as the configuration has them."""
    steps, cpu = (sum(turn[key] for turn in worker.turns) for key in ("steps", "cpu"))
    totals = {phase: sum(turn["phases"].get(phase, 0.0) for turn in worker.turns) for phase in PHASES}
    saving = statistics.median(turn["phases"]["checkpoint"] for turn in worker.turns)
    micro = {phase: 1e6 * seconds / steps for phase, seconds in totals.items() if phase != "checkpoint"}
    micro["rest"] = 1e6 * (cpu - sum(totals.values())) / steps
    return {
        "steps_per_cpu_second": max(rates(worker)),
        "steps_per_cpu_second_median": statistics.median(rates(worker)),
        "microseconds_a_step": {phase: round(value, 1) for phase, value in micro.items()},
        "checkpoint_seconds": saving,
        "checkpoint_share": saving / (60.0 * checkpoint_minutes),
        "progress_share": micro["progress"] / sum(micro.values()),
        "peak_mb": max(turn["peak_mb"] for turn in worker.turns),
    }


def side_by_side(one: Worker, two: Worker, seconds: float, rounds: int) -> float:
    """Steps a second by the clock of two jobs at once over those of one alone: medians of alternating turns."""
    alone, together = [], []
    for _ in range(rounds):
        for worker in (one, two):
            said = worker.turn(seconds)
            alone.append(said["steps"] / said["wall"])
        one.tell(seconds)
        two.tell(seconds)
        together.append(sum(said["steps"] / said["wall"] for said in (one.done(), two.done())))
    return statistics.median(together) / statistics.median(alone)


def follow_seconds(scratch: Path, seconds: float) -> Said:
    """CPU seconds of the process that mirrors a running training: to begin with, and a minute."""
    import signal
    import subprocess

    import psutil

    store = f"sqlite:///{scratch / 'mlflow.db'}"
    skill = scratch / "ant" / "disk" / "seed0" / "skill01"
    live = skill.with_name("skill01.checkpoint")
    live.mkdir(parents=True)
    (live / "job.json").write_text(json.dumps({"env": "ant", "seed": 0, "skill": 1}))
    curve, row = live / "progress.csv", 0
    columns = ["time/total_timesteps", *(f"train/metric_{i}" for i in range(12))]
    curve.write_text(",".join(columns) + "\n")
    command = [sys.executable, "-m", "disk", "track", str(scratch), "--uri", store, "--follow", str(skill)]
    command += ["--parent", str(os.getpid()), "--interval", "10"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    watched, first, start = psutil.Process(process.pid), 0.0, time.monotonic()
    begin = min(25.0, seconds / 2)
    while time.monotonic() - start < seconds and process.poll() is None:
        time.sleep(0.5)
        row += 1
        with curve.open("a") as file:  # twice as often as a fast training does
            file.write(",".join(str(1000 * row) for _ in columns) + "\n")
        if not first and time.monotonic() - start > begin:
            first = sum(watched.cpu_times()[:2])
    total = sum(watched.cpu_times()[:2]) if process.poll() is None else first
    process.send_signal(signal.SIGTERM)
    process.wait()
    return {"begin_cpu_seconds": first, "cpu_share": max(total - first, 0.0) / max(seconds - begin, 1e-9)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure whole trainings.")
    parser.add_argument("--env", default="ant")
    parser.add_argument("--methods", help="of config/methods.yaml (default: all)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--shard", type=int, default=125_000, help="steps of each earlier skill")
    parser.add_argument("--follow", type=float, default=60.0, help="seconds that the mirror is watched for; 0: not")
    parser.add_argument("--scratch", type=Path, help="where to put the earlier skills (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path("results/bench/training.json"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker == "learner":
        serve(lambda: learn_only(arguments.env))
        return
    if arguments.worker:
        serve(lambda: train(**_revived(json.loads(arguments.worker))))
        return
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        result = measure(arguments, Path(scratch))
    save(arguments.out, result)


def _revived(specification: Said) -> Said:
    return {**specification, **{key: Path(specification[key]) for key in ("earlier", "scratch")}}


def measure(arguments: argparse.Namespace, scratch: Path) -> Said:
    from pretend import long_chain, write_chain

    env = arguments.env
    settings = long_chain(env, CHAIN, arguments.shard)
    earlier = scratch / "earlier"
    write_chain(settings, env, "disk", CHAIN - 1, earlier)
    made = 0

    def worker(name: str, method: str, skill: int | None) -> Worker:
        nonlocal made
        made += 1
        place = {"earlier": str(earlier), "scratch": str(scratch / f"job{made}")}
        (scratch / f"job{made}").mkdir()
        specification = {"env": env, "method": method, "skill": skill, "shard": arguments.shard, **place}
        return Worker(name, Path(__file__), "--worker", json.dumps(specification))

    result: Said = {"env": env, "machine": machine(), "methods": {}}
    learner = Worker("learner", Path(__file__), "--env", env, "--worker", "learner")
    learner.ready()
    skills, started = {}, {}
    for name, skill in SKILLS.items():  # one after the other: they would disturb each other's start
        skills[name] = worker(f"disk, {name} skill", "disk", skill)
        started[name] = skills[name].ready()
    for _ in range(arguments.rounds):
        for each in (learner, *skills.values()):
            each.turn(arguments.seconds)
    minutes = settings.runtime.checkpoint_minutes
    pure, second = rates(learner, "updates"), rates(skills["second"])
    result["learner_updates_per_cpu_second"] = max(pure)
    result["loop_over_learner"] = paired(second, pure)
    result["twentieth_over_second"] = paired(rates(skills["twentieth"]), second)
    result["skills"] = {name: {**breakdown(each, minutes), **started[name]} for name, each in skills.items()}
    for each in (skills.pop("tenth"), skills.pop("twentieth")):
        each.close()
    twin = worker("disk, second skill, again", "disk", SKILLS["second"])
    twin.ready()
    result["two_jobs_over_one"] = side_by_side(skills["second"], twin, arguments.seconds, max(1, arguments.rounds // 2))
    twin.close()
    skills.pop("second").close()
    for method in arguments.methods.split(",") if arguments.methods else settings.methods:
        row = settings.method(method)
        if row.objective == "none":
            continue  # nothing is learned
        each = worker(method, method, own_skill(settings, env, method) if row.incremental else None)
        began = each.ready()
        for _ in range(max(1, arguments.rounds // 2)):
            each.turn(arguments.seconds)
        result["methods"][method] = {**breakdown(each, minutes), **began}
        each.close()
    learner.close()
    result["tracking"] = follow_seconds(scratch / "track", arguments.follow) if arguments.follow else None
    result["summary"] = summary(result)
    show(result)
    return result


def own_skill(settings: Any, env: str, method: str) -> int:
    """The first skill after another one that a chain does not share with the one that it forked from."""
    from disk.errors import ConfigError

    for skill in range(1, CHAIN):
        with suppress(ConfigError):
            settings.skill_job(env, method, 0, skill)
            return skill
    raise SystemExit(f"{method} has no skill of its own in {env}")


def summary(result: Said) -> Said:
    second, twentieth = result["skills"]["second"], result["skills"]["twentieth"]
    tracking = result["tracking"]["cpu_share"] if result["tracking"] else 0.0
    return {
        "loop_over_learner": result["loop_over_learner"],
        "checkpoints_and_tracking": second["checkpoint_share"] + second["progress_share"] + tracking,
        "twentieth_over_second": result["twentieth_over_second"],
        "seconds_to_start_the_twentieth": twentieth["start_seconds"],
        "two_jobs_over_one": result["two_jobs_over_one"],
    }


def show(result: Said) -> None:
    rows = {f"disk, {name} skill": row for name, row in result["skills"].items()} | result["methods"]
    phases = [*(phase for phase in PHASES if phase != "checkpoint"), "rest"]
    print(f"\n{result['env']}: microseconds of CPU a step, one update each; pure learner ", end="")
    print(f"{result['learner_updates_per_cpu_second']:.0f} updates a CPU-second")
    print(
        f"{'':24}{'steps/s':>9}"
        + "".join(f"{phase:>10}" for phase in phases)
        + f"{'save s':>9}{'peak MB':>9}{'start s':>9}"
    )
    for name, row in rows.items():
        numbers = "".join(f"{row['microseconds_a_step'][phase]:10.0f}" for phase in phases)
        end = f"{row['checkpoint_seconds']:9.2f}{row['peak_mb']:9.0f}{row['start_seconds']:9.1f}"
        print(f"{name:24}{row['steps_per_cpu_second']:9.1f}{numbers}{end}")
    print()
    for name, value in result["summary"].items():
        print(f"{name:34}{value:8.3f}")


if __name__ == "__main__":
    main()
