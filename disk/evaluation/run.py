"""Evaluate the skills of a run: roll them out into Parquet files, and measure those into metrics.csv.

The workflow calls these functions from its rules; `python -m disk evaluate` calls them without Snakemake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.config import Config, EvaluationJob, MeasureJob
from disk.config.objectives import objectives
from disk.errors import ArtefactError
from disk.evaluation.tables import read_csv, read_rollouts, save_csv, save_rollouts
from disk.evaluation.words import MEASURES, skill_label
from disk.storage.layout import LATENT_SETS, METRICS, RUN_NAME, SKILLS, Run, rollouts_of

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from disk.skills import Skills


def refuse_strangers(path: Path, meta: Mapping[str, Any]) -> None:
    """Refuse skills of another seed than their place in the results tree names."""
    run = next((folder for folder in path.parents if RUN_NAME.fullmatch(folder.name)), None)
    if run and run.name != f"seed{meta.get('seed')}":
        raise ArtefactError(
            f"{path}: its skills have seed {meta.get('seed')}, expected {run.name}. Restore {run}, or delete it and "
            "run the same command again"
        )


def evaluate(job: EvaluationJob, skills: Path, rollouts: Path, threads: int = 1) -> pd.DataFrame:
    """Roll out a run's skills into a Parquet file."""
    from disk.errors import to_blame
    from disk.skills import load
    from disk.storage.manifest import as_recorded

    as_recorded(skills)
    loaded = load(skills)
    refuse_strangers(skills, loaded.meta)
    with to_blame(rollouts):
        frame = roll_out(job, loaded, threads)
    save_rollouts(frame, rollouts, [skills])
    return frame


def roll_out(job: EvaluationJob, skills: Skills, threads: int = 1) -> pd.DataFrame:
    """Roll out skills as an evaluation job says, in `threads` processes."""
    from disk.evaluation.rollout import table
    from disk.evaluation.workers import rollout_with
    from disk.seeds import seed_of

    # Every skill and method has the same starts, so they differ only by what the skills do.
    seeds = [seed_of("evaluation", job.seed, episode) for episode in range(job.episodes)]
    return table(rollout_with(threads, skills, job.world, job.horizon, [seeds] * len(skills), job.world_steps))


def measure(rollouts: Sequence[Path], out: Path, by: MeasureJob | None = None) -> pd.DataFrame:
    """Measure a run's rollouts, one file per condition, into its metrics.csv."""
    import pandas as pd

    from disk.evaluation import metrics

    frames = []
    for path in rollouts:
        frame = metrics.measure(read_rollouts(path), by)
        frame.insert(0, "condition", path.stem)
        frames.append(frame)
    result = pd.concat(frames, ignore_index=True)
    save_csv(result, out)
    return result


def evaluate_latents(
    job: EvaluationJob, skills: Skills, sets: Sequence[Tensor], by: MeasureJob, out: Path, threads: int = 1
) -> pd.DataFrame:
    """Measure one policy with several sets of latents, to see how much a measure depends on the set.

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
    """Read one table per run. Return its method and seed, from its place in the tree, and the table."""
    runs = [Run.of(path) for path in metrics]
    return [(run.method, run.seed, read_csv(path)) for run, path in zip(runs, metrics, strict=True)]


def jobs_of(config: Config, env: str, method: str) -> dict[str, EvaluationJob]:
    """Return how skills of a method are rolled out in each condition of an environment, as the workflow does it.

    A method that the configuration lacks, such as another preset's, counts as a chain with the environment's schedule.
    """
    known = method if method in config.methods else None
    return {name: config.evaluation_job(env, name, known) for name in config.environment(env).conditions}


def evaluate_run(config: Config, run: Path, threads: int = 1) -> str:
    """Evaluate one run in all its conditions. Return its measures as text for people."""
    if not (run / SKILLS).exists():
        raise ArtefactError(f"{run}: has no {SKILLS}; train it first")
    place = Run.of(run.resolve())
    jobs = jobs_of(config, place.env, place.method)
    paths = {name: rollouts_of(run, name) for name in jobs}
    for name, job in jobs.items():
        evaluate(job, run / SKILLS, paths[name], threads)
    measured = measure(list(paths.values()), run / METRICS, config.measure_job(place.env))
    wide = measured[measured["skill"] >= 0].pivot_table(index=["condition", "skill"], columns="metric", values="value")
    whole = measured[measured["skill"] < 0].pivot_table(index="condition", columns="metric", values="value", sort=False)
    tables = (wide.rename(index=skill_label, level="skill"), whole)
    shown = (table.rename(columns=MEASURES).rename_axis(columns=None).round(3).to_string() for table in tables)
    return "\n\n".join([*shown, f"↑: more is better; ↓: less is better. {run / METRICS}"])


def evaluate_latent_sets(config: Config, run: Path, sets: int, threads: int = 1) -> str:
    """Evaluate a run with random sets of latents, into latent_sets.csv. Return the spread of its measures as a table.

    Only runs of methods with a continuum of skills have other latents to draw.
    """
    from disk.skills import load

    place, skills = Run.of(run.resolve()), load(run)
    objective, size = config.method(place.method).objective, skills.latent.shape[1]
    kind = objectives().get(objective)
    if kind is None or kind.prior is None:
        raise ArtefactError(f"{run}: has no continuum of skills; --latent-sets is for runs of dads and metra")
    prior = kind.prior(config.settings_of(place.method), size)
    drawn = [prior.random_set(number, len(skills)) for number in range(sets)]
    job, out = config.evaluation_job(place.env, method=place.method), run / LATENT_SETS
    found = evaluate_latents(job, skills, drawn, config.measure_job(place.env), out, threads)
    spread = found.groupby("metric", sort=False)["value"].agg(["mean", "min", "max"]).rename(index=MEASURES)
    return f"{spread.round(3).to_string()}\n{out}: {sets} random sets of {len(skills)} latents"
