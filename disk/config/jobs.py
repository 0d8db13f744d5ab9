"""Jobs: the part of the configuration that one training, or one evaluation, depends on.

A job's canonical JSON is the parameter that Snakemake compares and the text that a checkpoint is stamped
with, so nothing may enter a job that does not change its result.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveFloat, PositiveInt, SerializeAsAny

from disk.config.endings import Adaptive, Aware, Budget, Curriculum
from disk.config.environments import World
from disk.config.objectives import settings_from
from disk.config.settings import (
    Given,
    Incremental,
    Measured,
    Model,
    Name,
    Projection,
    Sac,
    Share,
)


class EvaluationJob(Model):
    """Inputs of a run's rollouts, apart from its skills."""

    env: Name
    world: World
    horizon: PositiveInt
    world_steps: NonNegativeInt | list[NonNegativeInt]
    """The global step whose world it is: one for all skills, or one for each."""
    episodes: PositiveInt
    seed: NonNegativeInt

    def step_of(self, skill: int) -> int:
        """Return the global step of a skill's world: the last one listed for skills beyond the list."""
        steps = self.world_steps
        return steps if isinstance(steps, int) else steps[min(skill, len(steps) - 1)]


class MeasureJob(Model):
    """Inputs of a run's measures, apart from its rollouts."""

    moves: PositiveFloat | None = None
    """Skills that end farther than this from their start count as movers. Null: they are not counted."""
    goals: PositiveFloat | None = None
    """Goals are uniform in [-goals, goals] in each coordinate. Null: there are none."""
    coordinates: PositiveInt = 2
    """Coordinates of the position."""


class UsableJob(Model):
    """Inputs of the usable skills over a training, apart from the skills."""

    evaluation: EvaluationJob
    """How they are rolled out; each moment has a world of its own."""
    measure: MeasureJob
    ends: list[NonNegativeInt]
    """Global steps at which a skill of a chain is finished, or skills that are learned together are kept."""
    chain: bool
    """Whether skills are learned one after another."""
    conditions: dict[Name, NonNegativeInt]
    """Names of worlds, and the steps they are of."""


class SkillJob(Model):
    """Inputs of the training of one skill, apart from the earlier skills' files."""

    env: Name
    world: World
    seed: int
    skill: NonNegativeInt
    steps: NonNegativeInt
    start_step: NonNegativeInt | None = None
    """The global step it begins at; null where the world stands still."""
    sac: Sac
    objective: Incremental
    first_alpha: float | None = None
    alive_bonus: float | None = None
    replay_capacity: PositiveInt
    replay_keep: Share | None = None
    """Null: nothing is inherited."""
    own_share: Share | None = None
    """Share of a batch that is the skill's own transitions; null: batches are uniform."""
    warm: Literal["last", "diverse", "recall"] | None = None
    """Which earlier skill's policy it starts from; null: none."""
    adaptive: Adaptive | None = None
    """When it ends before its steps are used; null: never."""
    normaliser: Measured | Given | None = None
    """How observations are normalised; null: not at all."""
    projection: Projection | None = None
    """How φ is learned; null: σ is given."""
    budget: Budget | None = None
    """How it spends its steps and what earlier skills have saved; null: it has its steps."""
    planned: NonNegativeInt | None = None
    """Steps that the schedule plans for this skill and all earlier ones. A budget may spend those that are left."""
    aware: Aware | None = None
    """How it looks for changes of the world; null: it does not."""
    code: str | None = None


class JointJob(Model):
    """Inputs of a run whose skills are made together. Most are null for untrained policies."""

    env: Name
    world: World
    seed: int
    skills: PositiveInt
    sac: Sac
    steps: PositiveInt | None = None
    objective: Annotated[SerializeAsAny[Model], BeforeValidator(settings_from)] | None = None
    """Settings of the objective; null where nothing is learned."""
    policies: Literal["independent", "shared"] | None = None
    schedule: Literal["uniform", "round_robin", "curriculum"] | None = None
    curriculum: Curriculum | None = None
    replay_capacity: PositiveInt | None = None
    """Of each policy's replay."""
    snapshots: list[PositiveInt] | None = None
    normaliser: Measured | Given | None = None
    """How observations are normalised; null: not at all."""
    projection: Projection | None = None
    """How φ is learned; null: σ is given, or not needed."""
    acts: Literal["sample"] | None = None
    """How untrained policies act; null: by their modes."""
    code: str | None = None


class HierarchyJob(Model):
    """Inputs of the training of a controller, apart from the skills it chooses from."""

    env: Name
    """The environment that the skills were learned in."""
    world: World
    """The world that goals are set in."""
    size: PositiveFloat
    seed: int
    """Of the skills' run."""
    hierarchy_seed: NonNegativeInt
    decisions: PositiveInt
    steps: PositiveInt
    episode: PositiveInt
    every: PositiveInt
    environments: PositiveInt | None = None
    """Environments that PPO steps together; null for a flat controller. The next three fields are null for a controller
    over skills."""
    sac: Sac | None = None
    replay_capacity: PositiveInt | None = None
    reward_scale: PositiveFloat | None = None
    """What minus the distance is multiplied by."""
    code: str | None = None
