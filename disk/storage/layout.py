"""Runs on disk: where their files are, and what is done with a whole run.

A run is the directory `{root}/{env}/{method}/seed{seed}`. The workflow does the same in rules of its
own; here it is for people who would rather not use Snakemake. Both write the same files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.config import Config, EvaluationJob, MeasureJob
from disk.errors import ArtefactError
from disk.evaluation.tables import read_csv, read_rollouts, save_csv, save_rollouts
from disk.storage.files import load_stats, save_text, sweep

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from disk.skills import Skills

SKILL_FILES = ("policy.safetensors", "replay.safetensors", "visits.npy", "stats.json", "progress.csv")
RUN_FILES = ("skills.safetensors", "stats.json", "progress.csv")
"""What a run has whose skills were learned together."""


def results_root(config: Config) -> Path:
    return Path(config.pathvars.get("results", "results"))


def run_directory(root: Path, env: str, method: str, seed: int) -> Path:
    return root / env / method / f"seed{seed}"


def skill_directory(run: Path, skill: int) -> Path:
    return run / f"skill{skill:02d}"


def finished(skill: Path) -> bool:
    return all((skill / name).exists() for name in SKILL_FILES)


def train_run(
    config: Config,
    root: Path,
    env: str,
    method: str,
    seed: int,
    skills: int | None,
    watch: Callable[[Path], AbstractContextManager[Any]],
) -> Path:
    """Train what is missing of a run. `watch` is entered around each skill's training."""
    from disk.learning.loop import learn_jointly, learn_skill

    run = run_directory(root, env, method, seed)
    row, environment = config.method(method), config.environment(env)
    if not row.incremental:
        joint = config.joint_job(env, method, seed)
        snapshots = [f"snapshots/{step}.safetensors" for step in joint.snapshots or []]
        complete = all((run / name).exists() for name in (*RUN_FILES, *snapshots))
        if complete:
            _refuse_others(run, joint.digest())
        if not complete or (run / "checkpoint").exists():  # left by a process that was killed as its last act
            with watch(run):
                learn_jointly(joint, run, config.runtime)
        return run
    count = environment.skills if skills is None else skills
    owners = [config.owner_of(method, skill) for skill in range(count)]
    folders = [skill_directory(run_directory(root, env, owner, seed), skill) for skill, owner in enumerate(owners)]
    for skill, folder in enumerate(folders):
        job = config.skill_job(env, owners[skill], seed, skill)
        complete = finished(folder)
        if complete:
            _refuse_others(folder, job.digest())
        if not complete or folder.with_name(f"{folder.name}.checkpoint").exists():
            with watch(folder):
                learn_skill(job, folders[:skill], folder, config.runtime)
    bundle_run([folder / "policy.safetensors" for folder in folders], run / "skills.safetensors")
    return run


def _refuse_others(folder: Path, expected: str) -> None:
    """A finished training is left alone, if it is this one and whole."""
    from disk.storage.manifest import same_checksum, same_curve

    stats = load_stats(folder / "stats.json")
    if stats.get("config_hash") != expected:
        raise ArtefactError(f"{folder}: was trained with other settings; delete it, or give another --results")
    for name in stats.get("checksums", {}):
        same_checksum(folder, name, stats)
    same_curve(folder, stats)


def bundle_run(policies: Sequence[Path], out: Path) -> None:
    """All skills of a chain as one file, and their curves as one, with a column that says whose."""
    from disk.skills import bundle
    from disk.storage.manifest import same_checksum, same_curve

    for name in (out.name, "progress.csv"):
        sweep(out.parent, name)
    stats = [load_stats(policy.with_name("stats.json")) for policy in policies]
    seed = stats[0].get("job", {}).get("seed")
    for skill, (policy, about) in enumerate(zip(policies, stats, strict=True)):
        same_checksum(policy.parent, policy.name, about)
        found = about.get("skill", skill), about.get("job", {}).get("seed")
        if found != (skill, seed):
            raise ArtefactError(
                f"{policy}: is skill {found[0]} of seed {found[1]}, expected {skill} of seed {seed}. Restore "
                f"{policy.parent}, or delete it and run the same command again"
            )
    skills = bundle(policies)
    _refuse_strangers(out, skills.meta)
    skills.save(out)
    lines: list[str] = []
    for skill, policy in enumerate(policies):
        header, *rows = same_curve(policy.parent, stats[skill]).splitlines() or [""]
        lines = lines or [f"skill,{header}"]
        lines += [f"{skill},{row}" for row in rows]
    save_text(out.with_name("progress.csv"), "\n".join(lines) + "\n")


def _refuse_strangers(path: Path, meta: Mapping[str, Any]) -> None:
    """A run's place in the tree says whose its skills are."""
    run = next((folder for folder in path.parents if re.fullmatch(r"seed\d+", folder.name)), None)
    if run and run.name != f"seed{meta.get('seed')}":
        raise ArtefactError(
            f"{path}: its skills are of seed {meta.get('seed')}, expected {run.name}. Restore {run}, or delete it and "
            "run the same command again"
        )


def evaluate(job: EvaluationJob, skills: Path, rollouts: Path, threads: int = 1) -> pd.DataFrame:
    """Roll out a run's skills into a Parquet file."""
    from disk.learning.progress import to_blame
    from disk.skills import load
    from disk.storage.manifest import as_recorded

    as_recorded(skills)
    loaded = load(skills)
    _refuse_strangers(skills, loaded.meta)
    with to_blame(rollouts):
        frame = roll_out(job, loaded, threads)
    save_rollouts(frame, rollouts, [skills])
    return frame


def roll_out(job: EvaluationJob, skills: Skills, threads: int = 1) -> pd.DataFrame:
    """Trajectories of skills as an evaluation asks for them, by so many processes."""
    from disk.evaluation.rollout import table
    from disk.evaluation.workers import rollout_with
    from disk.seeds import seed_of

    # The same starts for every skill and method: differences between them are the skills' own.
    seeds = [seed_of("evaluation", job.seed, episode) for episode in range(job.episodes)]
    return table(rollout_with(threads, skills, job.world, job.horizon, [seeds] * len(skills), job.world_steps))


def measure(rollouts: Sequence[Path], out: Path, by: MeasureJob | None = None) -> pd.DataFrame:
    """metrics.csv of a run from its rollouts, one file a condition."""
    import pandas as pd

    from disk.evaluation import metrics

    frames = []
    for path in rollouts:
        frame = metrics.measure(read_rollouts(path), by)
        frame.insert(0, "condition", path.stem)
        frames.append(frame)
    result = pd.concat(frames, ignore_index=True)
    save_csv(result, out, rollouts)
    return result


def evaluate_latents(
    job: EvaluationJob, skills: Skills, sets: Sequence[Tensor], by: MeasureJob, out: Path, threads: int = 1
) -> pd.DataFrame:
    """Measure one policy with other sets of latents: what an evaluation might have found instead.

    Columns set, metric, value: means over the skills of each set.
    """
    import pandas as pd
    import torch

    from disk.evaluation import metrics
    from disk.skills import Skills

    frames = []
    for number, latents in enumerate(sets):
        others = Skills(skills.actor, torch.zeros(len(latents), dtype=torch.int64), latents, skills.meta)
        means = metrics.measure(roll_out(job, others, threads), by).groupby("metric", sort=False)["value"].mean()
        frames.append(means.reset_index().assign(set=number)[["set", "metric", "value"]])
    result = pd.concat(frames, ignore_index=True)
    save_csv(result, out)
    return result


def read_runs(metrics: Sequence[Path]) -> list[tuple[str, int, pd.DataFrame]]:
    """(method, seed, metrics) of metrics.csv files, whose place in the tree says whose they are."""
    return [(path.parts[-3], int(path.parts[-2].removeprefix("seed")), read_csv(path)) for path in metrics]


def draw_trajectories(job: EvaluationJob, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Paths of the first seed of each method, side by side, `drawn` episodes a skill."""
    from disk.figures import trajectories as plots

    first: dict[str, Path] = {}
    for path in rollouts:
        first.setdefault(path.parts[-4], path)
    plots.trajectories(
        {method: read_rollouts(path) for method, path in first.items()},
        out,
        title=job.env,
        one_dimensional=len(job.world.position.entries) == 1,
        drawn=drawn,
    )


def evaluate_run(config: Config, run: Path, threads: int = 1) -> str:
    """Evaluate one run outside the workflow; returns what a person wants to read."""
    if not (run / "skills.safetensors").exists():
        raise ArtefactError(f"{run}: has no skills.safetensors; train it first")
    env, figure = run.resolve().parts[-3], run / "trajectories.svg"
    jobs = {name: config.evaluation_job(env, name) for name in config.environment(env).conditions}
    paths = {name: run / "rollouts" / f"{name}.parquet" for name in jobs}
    for name, job in jobs.items():
        evaluate(job, run / "skills.safetensors", paths[name], threads)
    measured = measure(list(paths.values()), run / "metrics.csv", config.measure_job(env))
    draw_trajectories(next(iter(jobs.values())), config.evaluation.drawn, [next(iter(paths.values()))], figure)
    wide = measured[measured["skill"] >= 0].pivot_table(index=["condition", "skill"], columns="metric", values="value")
    whole = measured[measured["skill"] < 0].pivot_table(index="condition", columns="metric", values="value", sort=False)
    return f"{wide.round(3).to_string()}\n\n{whole.round(3).to_string()}\n{run / 'metrics.csv'}, {figure}"
