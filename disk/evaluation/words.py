"""Words for people: names of skills and measures, and a line that says what a skill has learned."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np

from disk.config import JointJob, SkillJob
from disk.storage.layout import POLICY, SKILLS

COMPASS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")
MEASURES = {
    "hausdorff": "Hausdorff (m) ↑",
    "isolation": "isolation (m) ↑",
    "distance": "distance (m) ↑",
    "spread": "spread (m) ↓",
    "consistency": "variance ↓",
    "coverage": "coverage ↑",
    "movers": "moving skills ↑",
    "distinct": "distinct skills ↑",
    "goal_distance": "distance to goals ↓",
}
"""How tables for people name the measures: with unit, and ↑ if more is better. `consistency` is a variance."""
log = logging.getLogger("disk")


def skill_label(skill: int) -> str:
    """Return `skill 3 (index 2)`: pictures count from 1, paths and Python from 0."""
    return f"skill {skill + 1} (index {skill})"


def announce(job: SkillJob | JointJob, folder: Path, count: int | None = None) -> None:
    """Log what the finished skills of a folder do in one episode each. `count` is the number of skills in the chain."""
    try:
        moved = _displacements(job, folder)
    except Exception as error:  # whatever the environment raises: the training is finished and must not fail now
        log.info("%s: learned, but not rolled out: %s", folder, error)
        return
    if isinstance(job, SkillJob):
        of = f" of {count}" if count else ""
        log.info("%s: skill %d%s learned: %s", folder.parent, job.skill + 1, of, in_words(moved[0]))
    else:
        farthest = max(moved, key=lambda each: float(np.linalg.norm(each)))
        done = "learned" if job.steps else "drawn at random"
        log.info("%s: all %d skills %s; the farthest: %s", folder, len(moved), done, in_words(farthest))


def in_words(moved: np.ndarray) -> str:
    """Describe a displacement: its length and its direction. North is +y; one coordinate goes forwards or backwards."""
    length = float(np.linalg.norm(moved))
    if length < 0.05:
        return "stands still"
    if len(moved) == 1:
        return f"{length:.1f} m, {'forwards' if moved[0] > 0 else 'backwards'}"
    return f"{length:.1f} m, {COMPASS[round(4 * math.atan2(moved[1], moved[0]) / math.pi) % 8]}"


def _displacements(job: SkillJob | JointJob, folder: Path) -> list[np.ndarray]:
    from disk.evaluation.rollout import rollout
    from disk.seeds import seed_of
    from disk.skills import load

    file, start = (POLICY, job.start_step or 0) if isinstance(job, SkillJob) else (SKILLS, 0)
    skills, last = load(folder / file), start + max(0, (job.steps or 0) - 1)
    starts = [[seed_of("evaluation", 0, 0)]] * len(skills)
    found = rollout(skills, job.world, job.world.horizon, starts, last)
    return [episode.position[-1] - episode.position[0] for (episode,) in found]
