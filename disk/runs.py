"""Runs on disk: where their files are, and what is done with a whole run.

A run is the directory `{root}/{env}/{method}/seed{seed}`. The workflow does the same in rules of its
own; here it is for people who would rather not use Snakemake. Both write the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.config import Config, EvaluationJob
from disk.files import ArtefactError, load_json, save_text, sweep, whole

if TYPE_CHECKING:
    import pandas as pd

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
    from disk.train import learn_jointly, learn_skill

    run = run_directory(root, env, method, seed)
    row, environment = config.method(method), config.environment(env)
    if not row.incremental:
        joint = config.joint_job(env, method, seed)
        complete = all((run / name).exists() for name in RUN_FILES)
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
    if load_json(folder / "stats.json").get("config_hash") != expected:
        raise ArtefactError(f"{folder}: was trained with other settings; delete it, or give another --results")


def bundle_run(policies: Sequence[Path], out: Path) -> None:
    """All skills of a chain as one file, and their curves as one, with a column that says whose."""
    from disk.skills import bundle

    for name in (out.name, "progress.csv"):
        sweep(out.parent, name)
    bundle(policies).save(out)
    lines: list[str] = []
    for skill, policy in enumerate(policies):
        header, *rows = (policy.parent / "progress.csv").read_text().splitlines()
        lines = lines or [f"skill,{header}"]
        lines += [f"{skill},{row}" for row in rows]
    save_text(out.with_name("progress.csv"), "\n".join(lines) + "\n")


def evaluate(job: EvaluationJob, skills: Path, rollouts: Path, threads: int = 1) -> pd.DataFrame:
    """Roll out a run's skills into a Parquet file."""
    from disk.skills import load

    frame = roll_out(job, load(skills), threads)
    with whole(rollouts) as file:
        frame.to_parquet(file, index=False)
    return frame


def roll_out(job: EvaluationJob, skills: Skills, threads: int = 1) -> pd.DataFrame:
    """Trajectories of skills as an evaluation asks for them, by so many processes."""
    from disk.rollout import table
    from disk.seeds import seed_of
    from disk.workers import rollout_with

    # The same starts for every skill and method: differences between them are the skills' own.
    seeds = [seed_of("evaluation", job.seed, episode) for episode in range(job.episodes)]
    return table(rollout_with(threads, skills, job.world, job.horizon, [seeds] * len(skills), job.world_steps))


def measure(rollouts: Sequence[Path], out: Path) -> pd.DataFrame:
    """metrics.csv of a run from its rollouts, one file a condition."""
    import pandas as pd

    from disk import metrics

    frames = []
    for path in rollouts:
        frame = metrics.measure(pd.read_parquet(path))
        frame.insert(0, "condition", path.stem)
        frames.append(frame)
    result = pd.concat(frames, ignore_index=True)
    save_csv(result, out)
    return result


def save_csv(frame: pd.DataFrame, out: Path) -> None:
    save_text(out, frame.to_csv(index=False, float_format="%.9g"))


def read_runs(metrics: Sequence[Path]) -> list[tuple[str, int, pd.DataFrame]]:
    """(method, seed, metrics) of metrics.csv files, whose place in the tree says whose they are."""
    import pandas as pd

    return [(path.parts[-3], int(path.parts[-2].removeprefix("seed")), pd.read_csv(path)) for path in metrics]


def draw_trajectories(job: EvaluationJob, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Paths of the first seed of each method, side by side, `drawn` episodes a skill."""
    import pandas as pd

    from disk import plots

    first: dict[str, Path] = {}
    for path in rollouts:
        first.setdefault(path.parts[-4], path)
    plots.trajectories(
        {method: pd.read_parquet(path) for method, path in first.items()},
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
    measured = measure(list(paths.values()), run / "metrics.csv")
    draw_trajectories(next(iter(jobs.values())), config.evaluation.drawn, [next(iter(paths.values()))], figure)
    wide = measured[measured["skill"] >= 0].pivot_table(index=["condition", "skill"], columns="metric", values="value")
    return f"{wide.round(3).to_string()}\n{run / 'metrics.csv'}, {figure}"
