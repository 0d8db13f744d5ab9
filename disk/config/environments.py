"""Worlds: a row of envs.yaml, and the part of it that training sees."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from disk.config.settings import Given, Model, Name

NEAREST = 0.05
"""Share of `downstream.size`. A start nearer to its goal counts as this far away, so that no distance is divided by
almost 0."""


class Coordinates(Model):
    """Where in a world the agent is, or what σ is. Exactly one source; one or two numbers from it for a position."""

    qpos: list[NonNegativeInt] | None = None
    """Indices into MuJoCo's generalised positions, e.g. [0, 1]. Exact right after a step."""
    com: list[Literal["x", "y", "z"]] | None = None
    """Axes of the whole body's centre of mass, for bodies whose root oscillates."""
    info: list[str] | None = None
    """Keys of the `info` dictionary that the environment's step returns."""
    observation: list[NonNegativeInt] | None = None
    """Indices into the observation, for environments that are not MuJoCo's."""

    @model_validator(mode="after")
    def _one_source(self) -> Coordinates:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of qpos, com, info, observation; given: {given or 'none'}")
        if not self.entries:
            raise ValueError(f"{given[0]} must list one or two coordinates, or more for sigma, not none")
        return self

    @cached_property  # these two are asked for at every step
    def source(self) -> str:
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    @cached_property
    def entries(self) -> list[Any]:
        return list(getattr(self, self.source))


class Change(Model):
    """How one part of a world depends on the global step."""

    what: Literal["remove", "actuator", "gravity", "friction", "mass", "damping"]
    """`remove` sinks bodies below the floor; `actuator` scales controls (0: dead); the others scale the model's own
    value: of geoms (friction), bodies (mass), joints (damping) or the whole world (gravity)."""
    names: list[str] | str = []
    """Bodies, actuators (by name, or by the joint they drive), geoms or joints; or one pattern such as `block*`."""
    steps: list[NonNegativeInt] = []
    """When it changes, ascending. For `remove`: one step for all bodies, or one for each."""
    factors: list[NonNegativeFloat] = []
    """The factor from each of these steps on; before the first it is 1."""
    ramp: bool = False
    """Go from factor to factor in straight lines instead of at once."""
    within: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)] | None = None
    """In place of steps, for one factor: the evolution's seed draws the step, the first of these or later, before the
    second."""
    together: PositiveInt | None = None
    """For `remove`, instead of steps: this many bodies at a time, in order, evenly over the total."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Change:
        if bool(self.names) == (self.what == "gravity"):
            raise ValueError("gravity takes no names" if self.names else f"{self.what} needs names")
        if any(later <= before for before, later in pairwise(self.steps)) and self.what != "remove":
            raise ValueError(f"steps must be ascending, not {self.steps}")
        if self.what == "remove":
            if self.within or self.factors or self.ramp or bool(self.steps) == bool(self.together):
                raise ValueError("remove takes either steps or together, and no factors, ramp or within")
            if isinstance(self.names, list) and len(set(self.names)) != len(self.names):
                raise ValueError(f"remove names a body twice: {self.names}")
        elif self.within is not None:
            if self.steps or self.ramp or len(self.factors) != 1 or self.within[0] >= self.within[1]:
                raise ValueError(f"within: {self.within}: expected ascending steps, one factor, no steps and no ramp")
        elif self.together or not self.steps or len(self.steps) != len(self.factors):
            raise ValueError(f"{self.what} needs as many factors as steps, and no together")
        return self


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


class Evolution(Model):
    """How a world changes over training, as a pure function of the global step."""

    total: PositiveInt
    """Steps over which it evolves: a number of its own, so that adding a skill moves no change."""
    changes: Annotated[list[Change], Field(min_length=1)]
    # Without a default in the schema: Snakemake would set it on rows that have no evolution.
    seed: NonNegativeInt | None = Field(None, json_schema_extra=_without_default)
    """Draws the steps of changes with `within`. It is the world's own, apart from the seeds of runs."""

    @model_validator(mode="after")
    def _within_the_total(self) -> Evolution:
        removed: set[str] = set()
        for index, change in enumerate(self.changes):
            if change.within and self.seed is None:
                raise ValueError(f"seed: null: changes.{index}.within needs a seed to draw its step")
            beyond = [step for step in (*change.steps, *(change.within or ())) if step > self.total]
            if beyond:
                raise ValueError(f"changes.{index}.steps: {beyond[0]} is beyond the total of {self.total}")
            if change.what == "remove":
                names = {change.names} if isinstance(change.names, str) else set(change.names)
                if names & removed:
                    raise ValueError(f"changes.{index}.names: {sorted(names & removed)} are removed twice")
                removed |= names
        return self


class World(Model):
    """How an environment is built and projected: all of an environment that training sees."""

    id: str
    """A registered Gymnasium id."""
    kwargs: dict[str, Any] = {}
    """Passed to `gymnasium.make`."""
    position: Coordinates
    """The agent's place, from which trajectories are drawn and endpoints measured."""
    sigma: Literal["velocity", "learned"] | Coordinates = "velocity"
    """σ, the projection that rewards are computed in: the position's velocity, coordinates of their own, or `learned`
    from states, observation and position, before a skill's first update."""
    horizon: PositiveInt
    """Length of a training episode."""
    evolution: Evolution | None = None
    """How the world changes over training; null: it does not."""
    sigma_steps: PositiveInt | None = None
    """Number of steps over which σ, the velocity, is averaged; fewer at the start of an episode. Null: one."""

    @model_validator(mode="after")
    def _at_most_a_plane(self) -> Self:
        if len(self.position.entries) > 2:
            raise ValueError(
                f"position.{self.position.source} must list one or two coordinates, not {len(self.position.entries)}"
            )
        return self

    @model_validator(mode="after")
    def _only_velocities_have_steps(self) -> Self:
        if self.sigma_steps is not None and self.sigma != "velocity":
            raise ValueError(f"sigma_steps: {self.sigma_steps}: expected sigma to be velocity")
        return self


class Downstream(Model):
    """The goal task for an environment's skills. Its world does not change, and its episodes do not end early."""

    env: Name | None = None
    """Another environment, whose row says all of this. Null: the skills' own."""
    size: PositiveFloat | None = None
    """Goals are uniform in [-size, size], in each coordinate of the position. Null: there are none."""
    kwargs: dict[str, Any] = {}
    """Passed to `gymnasium.make` on top of the row's kwargs. They must keep episodes from ending early: every step
    costs, so an early end would pay."""

    @model_validator(mode="after")
    def _own_or_anothers(self) -> Downstream:
        if self.env and (self.size or self.kwargs):
            raise ValueError("give either env, whose row has the rest, or size and perhaps kwargs")
        return self


class Condition(Model):
    """A world that skills are evaluated in, where a step does not say enough."""

    step: NonNegativeInt | Literal["trained"] = 0
    """The world as it is at this step, or that of a skill's last training step."""
    kwargs: dict[str, Any] = {}
    """Passed to `gymnasium.make` on top of the row's."""


class Environment(World):
    """A row of envs.yaml: a world, its schedule and how it is evaluated."""

    train_kwargs: dict[str, Any] | None = None
    """Passed to `gymnasium.make` on top of kwargs in training only. Evaluation does without them."""
    test_horizon: PositiveInt
    """Length of an evaluation episode."""
    skills: PositiveInt
    """How many skills a run learns."""
    steps: NonNegativeInt | list[NonNegativeInt]
    """Environment steps a skill: one number for all, or a list with one entry a skill."""
    first_alpha: NonNegativeFloat
    """α of the first skill's reward, bonus - α r_c."""
    alive_bonus: float = 1.0
    """The constant in the first skill's reward."""
    replay_capacity: PositiveInt = 2_000_000
    """Transitions kept; the oldest go first."""
    sac: dict[str, Any] = {}
    """SAC settings that this environment sets differently."""
    conditions: Annotated[dict[Name, NonNegativeInt | Literal["trained"] | Condition], Field(min_length=1)] = {
        "nominal": 0
    }
    """Worlds that skills are evaluated in: the world as it is at a step, or that of a skill's last training step; or
    such a step with `kwargs` that build the world differently."""
    moves: PositiveFloat | None = None
    """A skill is a mover if it ends farther than this from its start, on average over the evaluation's episodes. Null:
    movers are not counted."""
    snapshots: list[PositiveInt] = []
    """Steps after which methods that learn all skills together keep them as they are then, ascending."""
    normaliser: Given | None = None
    """Mean and deviation of observations, for methods with `normalise`. Null: they are measured."""
    downstream: Downstream = Downstream()
    """The goal task. Without env and size there is none."""

    @model_validator(mode="after")
    def _snapshots_in_order(self) -> Environment:
        if any(later <= before for before, later in pairwise(self.snapshots)):
            raise ValueError(f"snapshots: {self.snapshots}: expected ascending steps, each once")
        return self

    @model_validator(mode="after")
    def _conditions_exist(self) -> Environment:
        last = self.evolution.total if self.evolution else 0
        for name, step in self.moments.items():
            if step == "trained" and self.evolution is None:
                raise ValueError(f"conditions.{name}: 'trained' needs a world that evolves")
            if step != "trained" and step > last:
                raise ValueError(f"conditions.{name}: {step} is beyond the evolution's total of {last}")
        return self

    @model_validator(mode="after")
    def _one_entry_a_skill(self) -> Environment:
        if isinstance(self.steps, list) and len(self.steps) != self.skills:
            raise ValueError(
                f"steps lists {len(self.steps)} entries, but skills is {self.skills}: "
                "give one entry a skill, or a single number for all"
            )
        return self

    @property
    def moments(self) -> dict[str, int | Literal["trained"]]:
        """The step of each condition."""
        conditions = self.conditions.items()
        return {name: given.step if isinstance(given, Condition) else given for name, given in conditions}

    def world_in(self, condition: str) -> World:
        """The world of a condition, built with its kwargs."""
        given, world = self.conditions[condition], self.world()
        extra = given.kwargs if isinstance(given, Condition) else {}
        return world.model_copy(update={"kwargs": {**world.kwargs, **extra}}) if extra else world

    def steps_of(self, skill: int) -> int:
        return self.steps[skill] if isinstance(self.steps, list) else self.steps

    def start_of(self, skill: int) -> int:
        """The global step at which a skill's training begins."""
        return sum(self.steps_of(earlier) for earlier in range(skill))

    def last_of(self, skill: int) -> int:
        """The global step of a skill's last training step."""
        return self.start_of(skill) + max(0, self.steps_of(skill) - 1)

    def world(self) -> World:
        """The world that skills are evaluated in. No evaluation looks at a learned σ."""
        own = {name: getattr(self, name) for name in World.model_fields}
        return World(**{**own, "sigma": "velocity" if self.sigma == "learned" else self.sigma})

    def training_world(self) -> World:
        """The world that skills are learned in; states of earlier skills, 𝒯, are collected here too."""
        update = {"kwargs": {**self.kwargs, **(self.train_kwargs or {})}, "sigma": self.sigma}
        return self.world().model_copy(update=update)
