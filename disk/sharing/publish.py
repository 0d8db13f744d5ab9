"""Skills to be shipped: small files with a card that says what they do, and the check that they still do it.

`publish` rounds a run's skills to 16 bits and measures the rounded ones, with several sets of starts, so that the card
has the range that chance alone makes. `check` measures shipped skills as their card says and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from disk.config import Config, EvaluationJob
from disk.errors import ArtefactError
from disk.evaluation.metrics import SKILL_METRICS
from disk.evaluation.run import roll_out
from disk.sharing.card import card
from disk.skills import Skills, load
from disk.storage.files import save_text
from disk.storage.layout import SKILLS

CARD = "README.md"
SETS = 5
"""Sets of starts that published skills are measured with."""
SLACK = 0.25
"""Share of a value by which another machine may miss the card's range: chaotic robots amplify how it rounds."""
SHOWN = (*SKILL_METRICS, "coverage")


@dataclass(frozen=True)
class Measured:
    """What was measured of skills: for each condition its evaluation, and each metric's value by set of starts."""

    jobs: Mapping[str, EvaluationJob]
    values: Mapping[str, Mapping[str, list[float]]]

    def front_matter(self, env: str) -> dict[str, Any]:
        """For model hubs, `model-index`; for `check`, all that it needs besides the file of skills."""
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
            f"Means over the skills, {job.episodes} episodes of {job.horizon} steps each; mean, and lowest to highest "
            f"of {sets} sets of starts.",
            "",
            "| condition | metric | mean | lowest | highest |",
            "|---|---|---|---|---|",
        ]
        for condition, own in self.values.items():
            for metric, values in own.items():
                numbers = " | ".join(f"{value:.4g}" for value in (_mean(values), min(values), max(values)))
                lines.append(f"| {condition} | {metric} | {numbers} |")
        return "\n".join(lines)


def publish(config: Config, run: Path, out: Path, threads: int = 1) -> Path:
    """A run's skills in 16 bits with a card of what these do, in directory `out`; the path of the file of skills."""
    path = out / SKILLS
    if path.resolve() == (run / SKILLS).resolve():
        raise ArtefactError(f"{path}: is what would be published; give another directory")
    env = str(load(run).meta["env"])
    jobs = {name: config.evaluation_job(env, name) for name in config.environment(env).conditions}
    load(run).save(path, half=True)
    skills = load(path)
    measured = Measured(jobs, {name: _measure(job, skills, SETS, threads) for name, job in jobs.items()})
    checked = (
        "Weights are those of the run, rounded to 16 bits; the measures are those of the rounded skills.\n"
        f"`python -m disk evaluate` with this directory measures them again. Another machine rounds otherwise, which "
        f"robots amplify:\nexpect values within {SLACK:.0%} of the range above."
    )
    save_text(out / CARD, card(skills, run, str(out), "safetensors", checked, measured))
    return path


def check(folder: Path, threads: int = 1) -> str:
    """Shipped skills measured once more as their card says, as a table; raise unless the Hausdorff distance agrees.

    The mean over all sets of starts is compared: skills that fall end anywhere, and a single set of theirs on another
    machine can be as far from the card's sets as these are from each other.
    """
    skills, agrees = load(folder), True
    lines = [f"{'condition':12} {'metric':12} {'measured':>10}   card"]
    for condition, about in evaluations(folder / CARD).items():
        ranges = about.pop("measured")
        job = EvaluationJob(env=skills.meta["env"], world=skills.world, **about)
        for metric, values in _measure(job, skills, SETS, threads).items():
            value, (low, high) = _mean(values), ranges[metric]
            within = low - SLACK * abs(low) <= value <= high + SLACK * abs(high)
            agrees &= within or metric != "hausdorff"
            lines.append(f"{condition:12} {metric:12} {value:10.4g}   {low:.4g} to {high:.4g}{'' if within else '  !'}")
    table = "\n".join(lines)
    if not agrees:
        raise ArtefactError(f"{folder}: its mean Hausdorff distance is not what its card says:\n{table}")
    return table


def evaluations(path: Path) -> dict[str, dict[str, Any]]:
    """What a card says of how its skills were measured, and what came out."""
    try:
        _, front, _ = path.read_text().split("---\n", 2)
        found: dict[str, dict[str, Any]] = yaml.safe_load(front)["evaluations"]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ArtefactError(
            f"{path}: is no card of published skills ({error!r}); expected `evaluations` in it"
        ) from None
    return found


def _measure(job: EvaluationJob, skills: Skills, sets: int, threads: int) -> dict[str, list[float]]:
    """Means over the skills, for each metric one value a set of starts."""
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
