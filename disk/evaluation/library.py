"""A library of skills: what every stored skill does in a world as it is now, and which one is best for a goal.

`python -m disk recall` prints it. All skills of a run, in all conditions of the world, are one batch of episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from disk.config import Config, load
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.rollout import Trajectory, rollout, table
from disk.seeds import seed_of
from disk.skills import Skill, Skills, join, misfit
from disk.skills import load as load_skills
from disk.storage.layout import SKILLS
from disk.storage.manifest import as_recorded

if TYPE_CHECKING:
    import pandas as pd


class Match(NamedTuple):
    """The best skill for a goal."""

    skill: Skill
    run: Path
    distance: float
    """How near it comes to the goal, on average over episodes."""


class Library:
    """Skills of runs, files and published folders, rolled out in one world.

    `at` are global steps of a world that changes; by default the steps of its conditions. Skills of other sizes are in
    `left_out`, with the reason.
    """

    def __init__(
        self,
        sources: Iterable[str | Path],
        world: str,
        at: Sequence[int] = (),
        config: Config | None = None,
        episodes: int | None = None,
    ) -> None:
        config = config or load()
        row, base = config.environment(world), config.evaluation_job(world)
        last = row.evolution.total if row.evolution else 0
        for step in at:
            if step > last:
                raise ConfigError(f"--at: {step}: expected at most {last}, where the changes of {world} end")
        plain = row.world()
        own = {name: step for name, step in row.moments.items() if step != "trained" and row.world_in(name) == plain}
        self.conditions: dict[str, int] = {str(step): step for step in at} or own or {"0": 0}
        self.world, self.horizon = plain, base.horizon
        self.seeds = [seed_of("evaluation", base.seed, episode) for episode in range(episodes or base.episodes)]
        self.runs: dict[Path, Skills] = {}
        self.left_out: dict[Path, str] = {}
        env = make(self.world)
        for source in map(Path, sources):
            as_recorded(source / SKILLS if source.is_dir() else source)
            skills = load_skills(source)
            reason = misfit(skills, env.observation_size, env.action_size)
            if reason:
                self.left_out[source] = reason
            else:
                self.runs[source] = skills
        env.close()

    @cached_property
    def paths(self) -> dict[tuple[Path, str], list[list[Trajectory]]]:
        """Episodes of each run's skills in each condition."""
        found = {}
        for run, skills in self.runs.items():
            count, conditions = len(skills), list(self.conditions.items())
            every = skills.pick(list(range(count)) * len(conditions))
            worlds = [step for _, step in conditions for _ in range(count)]
            rolled = rollout(every, self.world, self.horizon, [self.seeds] * len(every), worlds)
            for number, (name, _) in enumerate(conditions):
                found[run, name] = rolled[number * count : (number + 1) * count]
        return found

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per skill and condition: run, skill, condition, distance, direction, consistency, falls.

        `direction` is that of the mean displacement in degrees; `falls` the share of episodes that end early. The
        farthest skill of a condition comes first.
        """
        import pandas as pd

        from disk.evaluation import metrics

        rows = []
        for (run, condition), skills in self.paths.items():
            wide = metrics.measure(table(skills)).pivot(index="skill", columns="metric", values="value")
            for number, episodes in enumerate(skills):
                x, y = np.resize(np.mean([each.position[-1] - each.position[0] for each in episodes], axis=0), 2)
                angle = float(np.degrees(np.arctan2(y if len(episodes[0].position[0]) > 1 else 0.0, x)))
                falls = float(np.mean([len(each.position) <= self.horizon for each in episodes]))
                measured = (wide["distance"][number], angle, wide["consistency"][number], falls)
                rows.append((str(run), number, condition, *measured))
        names = ["run", "skill", "condition", "distance", "direction", "consistency", "falls"]
        order = list(self.conditions)
        frame = pd.DataFrame(rows, columns=names)
        return frame.sort_values(
            ["condition", "distance"],
            ascending=[True, False],
            key=lambda c: c.map(order.index) if c.name == "condition" else c,
        ).reset_index(drop=True)

    def best_for(self, goal: Sequence[float], condition: str | None = None) -> Match:
        """Return the skill that comes nearest to a goal (x, y), in a condition of the world (default: the first)."""
        name = condition or next(iter(self.conditions))
        nearest = [
            (
                float(np.mean([np.linalg.norm(each.position - np.asarray(goal), axis=1).min() for each in episodes])),
                run,
                i,
            )
            for (run, where), skills in self.paths.items()
            if where == name
            for i, episodes in enumerate(skills)
        ]
        if not nearest:
            raise ArtefactError(f"no skill of the library fits {self.world.id} in condition {name!r}")
        distance, run, number = min(nearest, key=lambda each: each[0])
        return Match(self.runs[run][number], run, distance)

    def skills(self) -> Skills:
        """Return all skills that fit as one set, for a controller to choose from. Networks must have one size."""
        return join(list(self.runs.values()), list(self.runs))

    def text(self) -> str:
        """Return the table, and what was left out, for people."""
        lines = [self.table.round(3).to_string(index=False)] if self.runs else ["no skill fits this world"]
        lines += [f"left out: {path}: {reason}" for path, reason in self.left_out.items()]
        return "\n".join(lines)
