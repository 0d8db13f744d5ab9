"""Publish skills as small files with a card of measures, and check published skills against their card.

`publish` rounds a run's skills to 16 bits. It measures the rounded skills with several sets of starts, so that the card
shows how much chance matters. `check_published` repeats the measurement and compares it with the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from disk.config import Config, EvaluationJob, World
from disk.errors import ArtefactError
from disk.evaluation.metrics import SKILL_METRICS
from disk.evaluation.run import jobs_of, roll_out
from disk.evaluation.words import MEASURES
from disk.sharing.card import CARD, card
from disk.skills import Skills, load
from disk.storage.files import save_text, writing
from disk.storage.layout import SKILLS

SETS = 5
"""Number of sets of starts for measuring published skills."""
SLACK = 0.25
"""Share of a value by which another machine may miss the card's range: chaotic robots amplify rounding."""
SHOWN = (*SKILL_METRICS, "coverage")


@dataclass(frozen=True)
class CardMeasures:
    """Measures of skills: an evaluation job per condition, and each metric's values, one per set of starts."""

    jobs: Mapping[str, EvaluationJob]
    values: Mapping[str, Mapping[str, list[float]]]

    def front_matter(self, env: str, training: World) -> dict[str, Any]:
        """Return `model-index` for model hubs, and `evaluations`: what `card_job` needs beside the skills."""
        metrics = [
            {"type": metric, "name": f"{metric}, {condition}", "value": _rounded(_mean(values))}
            for condition, own in self.values.items()
            for metric, values in own.items()
        ]
        task, dataset = {"type": "reinforcement-learning"}, {"type": env, "name": env}
        index = {"name": f"disk-{env}", "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}
        evaluations = {
            condition: {
                **job.model_dump(include={"horizon", "world_steps", "episodes", "seed"}),
                **({} if job.world.kwargs == training.kwargs else {"kwargs": dict(job.world.kwargs)}),
                "measured": {
                    metric: [_rounded(min(values)), _rounded(max(values))]
                    for metric, values in self.values[condition].items()
                },
            }
            for condition, job in self.jobs.items()
        }
        return {"model-index": [index], "evaluations": evaluations}

    def table(self) -> str:
        job = next(iter(self.jobs.values()))
        sets = len(next(iter(self.values[next(iter(self.jobs))].values())))
        lines = [
            f"Means over the skills, with {job.episodes} episodes of {job.horizon} steps per skill. Mean, lowest and "
            f"highest value of {sets} sets of starts.",
            "",
            "| condition | measure (↑: more is better) | mean | lowest | highest |",
            "|---|---|---|---|---|",
        ]
        for condition, own in self.values.items():
            for metric, values in own.items():
                numbers = " | ".join(f"{value:.4g}" for value in (_mean(values), min(values), max(values)))
                lines.append(f"| {condition} | {MEASURES[metric]} | {numbers} |")
        return "\n".join(lines)


def publish(config: Config, run: Path, out: Path, threads: int = 1) -> Path:
    """Write a run's skills in 16 bits, and a card of their measures, to folder `out`. Return the path of the skills."""
    path = out / SKILLS
    if path.resolve() == (run / SKILLS).resolve():
        raise ArtefactError(f"{path}: is the file to publish; give another --out")
    skills = _rounded_skills(load(run))
    jobs = jobs_of(config, str(skills.meta["env"]), run.resolve().parent.name)
    measured = CardMeasures(jobs, {name: _measure(job, skills, SETS, threads) for name, job in jobs.items()})
    checked = (
        "Weights are rounded to 16 bits; the measures are those of the rounded skills.\n"
        "`python -m disk evaluate DIRECTORY` measures them again. Machines round differently, and robots "
        f"amplify it:\nexpect values within {SLACK:.0%} of the range above."
    )
    text = card(skills, run, str(out), "safetensors", checked, measured)
    with writing(out / CARD):  # a kill from here on may leave skills without a card, but never with that of others
        (out / CARD).unlink(missing_ok=True)
    skills.save(path, half=True)
    save_text(out / CARD, text)
    return path


def _rounded_skills(skills: Skills) -> Skills:
    """Return skills as a file in 16 bits holds them."""
    with TemporaryDirectory() as folder:
        skills.save(Path(folder) / SKILLS, half=True)
        return load(folder)


def check_published(folder: Path, threads: int = 1) -> str:
    """Measure published skills as their card says. Return a table; raise unless the Hausdorff distance agrees.

    Means over all sets of starts are compared. Skills that fall end anywhere, so a single set
    can miss the card's range.
    """
    skills, agrees = load(folder), True
    lines = [f"{'condition':12} {'measure':16} {'measured':>10}   card"]
    for condition, about in evaluations(folder / CARD).items():
        ranges, job = about["measured"], card_job(skills, about)
        for metric, values in _measure(job, skills, SETS, threads).items():
            value, (low, high) = _mean(values), ranges[metric]
            within = low - SLACK * abs(low) <= value <= high + SLACK * abs(high)
            agrees &= within or metric != "hausdorff"
            lines.append(
                f"{condition:12} {MEASURES[metric]:16} {value:10.4g}   {low:.4g} to {high:.4g}{'' if within else '  !'}"
            )
    table = "\n".join(lines)
    if not agrees:
        raise ArtefactError(f"{folder}: the mean Hausdorff distance does not agree with the card:\n{table}")
    return table


def evaluations(path: Path) -> dict[str, dict[str, Any]]:
    """Read from a card how its skills were measured, and the measured ranges."""
    try:
        _, front, _ = path.read_text().split("---\n", 2)
        found: dict[str, dict[str, Any]] = yaml.safe_load(front)["evaluations"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ArtefactError(
            f"{path}: is not a card of published skills: expected front matter with `evaluations` ({error!r})"
        ) from None
    return found


def card_job(skills: Skills, about: Mapping[str, Any]) -> EvaluationJob:
    """Return how published skills were measured in a condition, from that part of their card."""
    own = {key: value for key, value in about.items() if key not in ("measured", "kwargs")}
    world = skills.world.model_copy(update={"kwargs": about.get("kwargs", skills.world.kwargs)})
    return EvaluationJob(env=skills.meta["env"], world=world, **own)


def _measure(job: EvaluationJob, skills: Skills, sets: int, threads: int) -> dict[str, list[float]]:
    """Return each metric's mean over the skills, one value per set of starts."""
    from disk.evaluation.metrics import measure

    found: dict[str, list[float]] = {metric: [] for metric in SHOWN}
    for each in range(sets):
        frame = measure(roll_out(job.model_copy(update={"seed": job.seed + each}), skills, threads))
        means = frame.groupby("metric")["value"].mean()
        for metric, values in found.items():
            values.append(float(means[metric]))
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
