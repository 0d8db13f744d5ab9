"""Methods: a row of methods.yaml, and which rows make sense."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, WithJsonSchema, model_validator

from disk.config.environments import Coordinates
from disk.config.objectives import objectives
from disk.config.settings import OF_CHAINS, Model, Name, Share, known


class Fork(Model):
    """A chain that shares the first skills of another chain."""

    parent: Name = Field(alias="from")
    """The method whose skills it begins with: those of the same environment and seed."""
    after: PositiveInt
    """How many of them."""


def _complete_or_like(schema: dict[str, Any]) -> None:
    """In a file, a row needs objective, policies and schedule, or `like` with another row's name."""
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["like"]}]


def _known(name: str) -> str:
    return known({"disk": None, "none": None, **objectives()}, name, "objective")


class Method(Model):
    """A row of methods.yaml."""

    model_config = ConfigDict(json_schema_extra=_complete_or_like)

    like: Name | None = None
    """Another row, whose keys this one takes. Its own keys win; mappings such as settings are merged key by key."""
    objective: Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string"})]
    """`disk`, `none`, or a file of disk/learning/objectives/."""
    policies: Literal["independent", "shared"]
    """A network for every skill, or one for all that is told which skill it is."""
    schedule: Literal["incremental", "uniform", "round_robin", "curriculum"]
    """Which skill acts next: one after another, one drawn for every episode, one step each in turn, or one drawn from
    a growing number. All but the first learn the skills together."""
    reuse_replay: bool = True
    """A new skill starts with the earlier skills' transitions, relabelled."""
    replay_keep: Share = 1.0
    """Share of the inherited transitions that is kept, drawn without replacement."""
    steps: NonNegativeInt | dict[Name, NonNegativeInt] | None = None
    """Budget of a joint method: one for all environments, or some environments' own. Null, and where an environment is
    not listed: the total of the environment's schedule. Of a chain: steps of each skill, of a fork: of each skill after
    it; in place of the environment's."""
    first_steps: PositiveInt | dict[Name, PositiveInt] | None = None
    """Steps of a chain's first skill: one number for all environments, or some environments' own. Null, and where an
    environment is not listed: as the other skills."""
    own_share: Share | None = None
    """Share of every batch that is drawn from a skill's own transitions; the rest is drawn from the inherited ones.
    Null: batches are drawn uniformly from all."""
    replay_capacity: PositiveInt | None = None
    """Transitions that a joint method keeps for each policy. Null: the environment's number."""
    skills: dict[Name, PositiveInt] = {}
    """Numbers of skills that a joint method sets differently from an environment's."""
    settings: dict[str, Any] = {}
    """Settings of the objective that this method sets differently."""
    curriculum: dict[str, Any] = {}
    """Settings of the curriculum that this method sets differently."""
    fork: Fork | None = None
    """A chain that begins with another method's skills."""
    warm: Literal["last", "diverse", "recall"] | None = None
    """The earlier skill that lends a new skill its first policy. `last`: the one before. `diverse`: the one with the
    largest mean r_d. `recall`: the one farthest from the others in the current world. Null: a new policy."""
    adaptive: bool = False
    """A skill of a chain ends when it has converged; its steps are the most that it gets."""
    acts: Literal["sample"] | None = None
    """For objective none: `sample` draws actions from the untrained policies. Null: they act by their modes."""
    budget: bool = False
    """The steps of a chain's schedule are a budget. A skill ends when it has converged and continues while it improves,
    with steps that others saved. A duplicate is trained again."""
    aware: bool = False
    """A chain that is not told when its world changes: its frozen skills probe it."""
    sac: dict[str, Any] = {}
    """SAC settings that this method sets differently."""
    sac_in: dict[Name, dict[str, Any]] = {}
    """Those that it sets differently in some environments only."""
    sigma_steps: PositiveInt | None = None
    """Number of steps over which σ, the velocity, is averaged. Null: use the environment's value."""
    sigma: Literal["environment", "learned"] | Coordinates = "environment"
    """σ: the environment's, or in its place learned, or coordinates."""
    projection: dict[str, Any] = {}
    """Settings of a learned σ that this method sets differently."""

    normalise: Annotated[bool | None, AfterValidator(lambda value: value or None)] = None
    """Normalise observations in training by a fixed mean and deviation. Saved skills see raw ones. Null: do not."""

    @property
    def incremental(self) -> bool:
        return self.schedule == "incremental"

    @model_validator(mode="after")
    def _objective_and_schedule(self) -> Method:
        """Refuse objectives with a schedule, or a kind of policies, that they cannot have."""
        if self.objective == "none" and (self.schedule, self.policies) != ("uniform", "independent"):
            raise ValueError("objective none learns nothing: it needs schedule uniform and policies independent")
        turns = ("incremental", "round_robin")
        if self.objective == "disk" and not (self.schedule in turns and self.policies == "independent"):
            raise ValueError("objective disk needs schedule incremental or round_robin, and policies independent")
        kind = objectives().get(self.objective)
        if kind and kind.prior and (self.schedule, self.policies) != ("uniform", "shared"):
            raise ValueError(
                f"objective {self.objective} has a continuum of skills: it needs schedule uniform and policies shared"
            )
        if kind and self.incremental:
            raise ValueError(
                f"objective {self.objective} learns its skills together: it needs another schedule than incremental"
            )
        if self.policies == "shared" and self.schedule != "uniform":
            raise ValueError(f"schedule {self.schedule} needs policies independent")
        if self.schedule == "curriculum" and not (kind and kind.certain):
            certain = ", ".join(name for name, other in objectives().items() if other.certain)
            raise ValueError(f"schedule curriculum grows with a discriminator: it needs objective {certain}")
        return self

    @model_validator(mode="after")
    def _keys_that_apply(self) -> Method:
        """Refuse keys that this kind of method never looks at."""
        if self.incremental and (self.skills or self.replay_capacity):
            raise ValueError("a chain has the environment's skills and replay: leave out skills and replay_capacity")
        if not self.incremental and (self.fork or self.warm or self.adaptive or self.budget or self.aware):
            raise ValueError("fork, warm, adaptive, budget and aware are for chains: they need schedule incremental")
        if self.aware and (self.fork or self.adaptive or self.budget):
            raise ValueError("aware keeps a schedule of its own: leave out fork, adaptive and budget")
        if self.aware and self.own_share is not None:
            raise ValueError("aware says what of a batch is old (aware.old): leave out own_share")
        if self.adaptive and self.budget:
            raise ValueError("adaptive and budget both say when a skill ends: give one of them")
        chains = [name for name in ("own_share", "first_steps") if getattr(self, name) is not None]
        chains += [f"settings.{name}" for name in OF_CHAINS if self.settings.get(name) is not None]
        if not self.incremental and chains:
            raise ValueError(f"{chains[0]}: only chains have it: expected schedule incremental")
        if self.objective == "none":
            if self.settings:
                raise ValueError("objective none has no settings")
            if self.normalise:
                raise ValueError("objective none learns nothing: leave out normalise")
            if any(own.get("critic_sees") for own in (self.sac, *self.sac_in.values())):
                raise ValueError("objective none has no critics: leave out critic_sees")
        elif self.acts:
            raise ValueError("acts is for objective none: skills that were learned act by their modes")
        if self.schedule != "curriculum" and self.curriculum:
            raise ValueError(f"schedule {self.schedule} has no curriculum")
        return self


class RunGroup(Model):
    """Environments × methods × seeds that belong to `rule all`."""

    envs: list[Name]
    methods: list[Name]
    seeds: list[NonNegativeInt] | None = None
    """Null: the config's seeds."""
    hierarchy: bool = False
    """Train controllers over the skills of these runs, see `hierarchy`."""
