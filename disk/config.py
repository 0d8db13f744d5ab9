"""The configuration, typed and checked.

The YAML files under ``config/`` hold every number; this module says which keys there are, what they
mean and which values make sense. Two kinds of model live here: `Config`, what a user writes, and the
jobs (`SkillJob`, `JointJob`), the part of it that one training depends on. A job's canonical JSON is
the parameter that Snakemake compares and the text that a checkpoint is stamped with, so nothing may
enter a job that does not change its result: device, threads, logging and tracking are `Runtime`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from disk.faults import explain
from disk.provenance import code_hash

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PROJECT = Path(__file__).resolve().parent.parent
DEFAULT_FILES = tuple(PROJECT / "config" / name for name in ("config.yaml", "envs.yaml", "methods.yaml"))


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names key, value and expectation."""


class Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def canonical(self) -> str:
        """Sorted JSON: equal configurations give equal text, whatever the order of their keys.

        Nulls are left out, so that an option which is added later and not used changes nothing.
        """
        return json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True)

    def digest(self) -> str:
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]


M = TypeVar("M", bound=Model)


class Coordinates(Model):
    """Where in a world the agent is. Exactly one source; one or two numbers from it."""

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
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of qpos, com, info, observation; given: {given or 'none'}")
        if not 1 <= len(self.entries) <= 2:
            raise ValueError(f"{given[0]} must list one or two coordinates, not {len(self.entries)}")
        return self

    @property
    def source(self) -> str:
        return next(name for name, value in self if value is not None)

    @property
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
    together: PositiveInt | None = None
    """For `remove`, instead of steps: this many bodies at a time, in order, evenly over the total."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Change:
        if bool(self.names) == (self.what == "gravity"):
            raise ValueError("gravity takes no names" if self.names else f"{self.what} needs names")
        if any(later <= before for before, later in pairwise(self.steps)) and self.what != "remove":
            raise ValueError(f"steps must be ascending, not {self.steps}")
        if self.what == "remove":
            if self.factors or self.ramp or bool(self.steps) == bool(self.together):
                raise ValueError("remove takes either steps or together, and neither factors nor ramp")
            if isinstance(self.names, list) and len(set(self.names)) != len(self.names):
                raise ValueError(f"remove names a body twice: {self.names}")
        elif self.together or not self.steps or len(self.steps) != len(self.factors):
            raise ValueError(f"{self.what} needs as many factors as steps, and no together")
        return self


class Evolution(Model):
    """How a world changes over training, as a pure function of the global step."""

    total: PositiveInt
    """Steps over which it evolves: a number of its own, so that adding a skill moves no change."""
    changes: Annotated[list[Change], Field(min_length=1)]

    @model_validator(mode="after")
    def _within_the_total(self) -> Evolution:
        removed: set[str] = set()
        for index, change in enumerate(self.changes):
            beyond = [step for step in change.steps if step > self.total]
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
    sigma: Literal["velocity"] | Coordinates = "velocity"
    """σ, the projection that rewards are computed in: the position's velocity, or coordinates of their own."""
    horizon: PositiveInt
    """Length of a training episode."""
    evolution: Evolution | None = None
    """How the world changes over training; null: it does not."""


class Environment(World):
    """A row of envs.yaml: a world, its schedule and how it is evaluated."""

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
    conditions: Annotated[dict[Name, NonNegativeInt | Literal["trained"]], Field(min_length=1)] = {"nominal": 0}
    """Worlds that skills are evaluated in: the world as it is at a step, or that of a skill's last training step."""
    snapshots: list[PositiveInt] = []
    """Steps after which methods that learn all skills together keep them as they are then, ascending."""

    @model_validator(mode="after")
    def _snapshots_in_order(self) -> Environment:
        if any(later <= before for before, later in pairwise(self.snapshots)):
            raise ValueError(f"snapshots: {self.snapshots}: expected ascending steps, each once")
        return self

    @model_validator(mode="after")
    def _conditions_exist(self) -> Environment:
        last = self.evolution.total if self.evolution else 0
        for name, step in self.conditions.items():
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

    def steps_of(self, skill: int) -> int:
        return self.steps[skill] if isinstance(self.steps, list) else self.steps

    def start_of(self, skill: int) -> int:
        """The global step at which a skill's training begins."""
        return sum(self.steps_of(earlier) for earlier in range(skill))

    def last_of(self, skill: int) -> int:
        """The global step of a skill's last training step."""
        return self.start_of(skill) + max(0, self.steps_of(skill) - 1)

    def world(self) -> World:
        return World(**{name: getattr(self, name) for name in World.model_fields})


class Sac(Model):
    """Soft actor-critic."""

    hidden: list[PositiveInt]
    """Widths of the hidden layers of actor and critics."""
    batch_size: PositiveInt
    discount: Annotated[float, Field(ge=0.0, lt=1.0)]
    learning_rate: PositiveFloat
    """Of actor, critics and temperature (Adam)."""
    target_momentum: Annotated[float, Field(gt=0.0, le=1.0)]
    """τ: the share of the critic that its target takes over at a target update."""
    target_every: PositiveInt
    """Updates between target updates."""
    actor_every: PositiveInt
    """Updates between updates of actor and temperature."""
    temperature: PositiveFloat
    """The entropy temperature at the start; it is learned."""
    target_entropy: float | None = None
    """What the temperature steers the entropy to; null: minus the number of actions."""
    log_std_bounds: Annotated[list[float], Field(min_length=2, max_length=2)]
    """Bounds that a tanh maps the log standard deviation into."""
    seed_steps: NonNegativeInt
    """Steps with uniform actions and no updates at the start of each skill."""
    updates_per_step: PositiveFloat
    """Gradient updates for each environment step; may be below 1."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Sac:
        if not self.log_std_bounds[0] < self.log_std_bounds[1]:
            raise ValueError(f"log_std_bounds must be [low, high] with low < high, not {self.log_std_bounds}")
        return self


class Incremental(Model):
    """DISk's reward, r = -α·r_c + β·r_d."""

    neighbours: PositiveInt
    """k: the distance to the k-th nearest neighbour is measured."""
    recent_states: PositiveInt
    """Size of BUF, the skill's own most recent projected states."""
    past_batch: PositiveInt
    """Size of 𝒯_b, drawn from the earlier skills' states for each update."""
    past_states: PositiveInt
    """States collected from each finished skill under its mode action; together they are 𝒯."""
    alpha: NonNegativeFloat
    """Weight of the consistency penalty on top of its normalisation."""
    beta: NonNegativeFloat
    """Weight of the diversity reward on top of its normalisation."""
    second_beta: Literal["replay", "one"]
    """β of the second skill, which has no predecessor with an r_d: measured on the replay, or 1."""
    anneal: Literal["tanh", "signed", "none"]
    """How α grows over a skill: from 0 (tanh), from -α as in the released code (signed), not at all."""
    mean_floor: PositiveFloat
    """Means of r_c and r_d are clamped here before they are inverted."""

    def relevant_to(self, skill: int) -> Incremental:
        """The settings with those replaced by a fixed value that this skill's training never looks at."""
        unused: dict[str, Any] = {}
        if skill != 1:
            unused["second_beta"] = "one"
        if skill == 0:
            unused |= {"alpha": 1.0, "beta": 1.0, "anneal": "none", "past_batch": 1, "mean_floor": 1.0}
        return self.model_copy(update=unused)


class Diayn(Model):
    """DIAYN's reward, log q(z|s') - log p(z), and its discriminator q."""

    hidden: list[PositiveInt]
    """Widths of the discriminator's hidden layers."""
    learning_rate: PositiveFloat
    """Of the discriminator (Adam)."""
    sees: Literal["observation_and_sigma", "sigma"]
    """What skills are told apart by: the next observation and σ, or σ alone."""


class Curriculum(Model):
    """VALOR's growing number of skills."""

    first: PositiveInt
    """K at the start."""
    certainty: Share
    """p_d: K grows when the discriminator's mean probability of the right skill, on fresh states, reaches this."""
    episodes: PositiveInt
    """How many episodes that mean is over, and the fewest between two growths."""


class Method(Model):
    """A row of methods.yaml."""

    objective: Literal["disk", "diayn", "none"]
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
    not listed: the total of the environment's schedule."""
    skills: dict[Name, PositiveInt] = {}
    """Numbers of skills that a joint method sets differently from an environment's."""
    settings: dict[str, Any] = {}
    """Settings of the objective that this method sets differently."""
    curriculum: dict[str, Any] = {}
    """Settings of the curriculum that this method sets differently."""
    sac: dict[str, Any] = {}
    """SAC settings that this method sets differently."""

    @property
    def incremental(self) -> bool:
        return self.schedule == "incremental"

    @model_validator(mode="after")
    def _rows_that_exist(self) -> Method:
        if self.objective == "none" and (self.schedule, self.policies) != ("uniform", "independent"):
            raise ValueError("objective none learns nothing: it needs schedule uniform and policies independent")
        if self.objective == "disk" and not (self.incremental and self.policies == "independent"):
            raise ValueError("objective disk needs schedule incremental and policies independent")
        if self.objective == "diayn" and self.incremental:
            raise ValueError("objective diayn learns its skills together: it needs another schedule than incremental")
        if self.policies == "shared" and self.schedule != "uniform":
            raise ValueError(f"schedule {self.schedule} needs policies independent")
        if self.incremental and (self.steps is not None or self.skills):
            raise ValueError("a chain has the environment's steps and skills: leave out steps and skills")
        if self.objective == "none" and self.settings:
            raise ValueError("objective none has no settings")
        if self.schedule != "curriculum" and self.curriculum:
            raise ValueError(f"schedule {self.schedule} has no curriculum")
        return self


class RunGroup(Model):
    """Environments × methods × seeds that belong to `rule all`."""

    envs: list[Name]
    methods: list[Name]
    seeds: list[NonNegativeInt] | None = None
    """Null: the config's seeds."""


class Evaluation(Model):
    episodes: PositiveInt
    """Episodes a skill, with deterministic actions and their own seeds."""
    drawn: PositiveInt
    """How many of them the figures draw."""
    seed: NonNegativeInt
    """Start of the evaluation's own seeds, apart from training's."""


class Tracking(Model):
    """MLflow, a mirror of results/."""

    enabled: bool
    uri: str
    """Tracking store; the environment variable MLFLOW_TRACKING_URI wins."""
    live_after_seconds: NonNegativeFloat
    """A training that lasts longer than this is mirrored while it runs; shorter ones when they are done."""
    interval_seconds: PositiveFloat
    """Seconds between two looks at a training's curve."""


class Runtime(Model):
    """How a job runs, as opposed to what it computes. Changing any of this retrains nothing."""

    device: str
    """`auto`: CUDA when there is one, otherwise the CPU; or a torch device."""
    checkpoint_minutes: PositiveFloat
    """The most that a kill can cost."""
    log_every: PositiveInt
    """Environment steps between two rows of progress.csv."""


class Config(Model):
    """All of the configuration: config.yaml, envs.yaml, methods.yaml and a preset over them."""

    seeds: list[NonNegativeInt]
    runs: list[RunGroup]
    environments: dict[Name, Environment]
    methods: dict[Name, Method]
    sac: Sac
    disk: Incremental
    diayn: Diayn
    curriculum: Curriculum
    evaluation: Evaluation
    tracking: Tracking
    runtime: Runtime
    threads: PositiveInt
    """Threads of a training job. One is fastest unless a job has the machine to itself."""
    retrain_on_code_change: bool
    """Retrain skills that were made by other code than today's."""
    pathvars: dict[str, str] = {}
    """Where a preset writes: results, logs, benchmarks (Snakemake's own key)."""

    @model_validator(mode="after")
    def _known_names(self) -> Config:
        for g, group in enumerate(self.runs):
            for field, table in (("envs", self.environments), ("methods", self.methods)):
                for name in getattr(group, field):
                    if name not in table:
                        known = ", ".join(sorted(table))
                        raise ValueError(f"runs.{g}.{field}: {name!r} is unknown; known: {known}")
        for name, environment in self.environments.items():
            _changed(self.sac, environment.sac, f"environments.{name}.sac")
        for name, method in self.methods.items():
            self._check_method(name, method)
        for group in self.runs:
            for env in group.envs:
                for name in group.methods:
                    self._enough_steps(env, name)
        return self

    def _check_method(self, name: str, method: Method) -> None:
        _changed(self.sac, method.sac, f"methods.{name}.sac")
        _changed(self.curriculum, method.curriculum, f"methods.{name}.curriculum")
        self.settings_of(name)
        if method.objective == "none" and method.steps != 0:
            raise ValueError(f"methods.{name}.steps: {method.steps!r}: objective none learns nothing, so steps 0")
        for field in ("steps", "skills"):
            listed = getattr(method, field)
            for env in listed if isinstance(listed, dict) else ():
                if env not in self.environments:
                    known = ", ".join(sorted(self.environments))
                    raise ValueError(f"methods.{name}.{field}: {env!r} is unknown; known: {known}")

    def _enough_steps(self, env: str, method: str) -> None:
        """Refuse budgets in which some policy would never be updated, and snapshots that would never be taken."""
        environment, row, seed_steps = self.environments[env], self.methods[method], self.sac_of(env, method).seed_steps
        if row.incremental:
            for skill in range(environment.skills):
                if environment.steps_of(skill) <= seed_steps:
                    raise ConfigError(
                        f"environments.{env}.steps: {environment.steps_of(skill)}: expected more than the "
                        f"{seed_steps} seed steps of {method}, or skill {skill} would never be updated"
                    )
        elif row.objective != "none":
            budget, policies = (
                self.budget_of(env, method),
                1 if row.policies == "shared" else self.skills_of(env, method),
            )
            if budget <= policies * seed_steps:
                raise ConfigError(
                    f"methods.{method}.steps: {budget} in {env}: expected more than the {seed_steps} seed steps "
                    f"of each of its {policies} policies"
                )
            beyond = [step for step in environment.snapshots if step > budget]
            if beyond:
                raise ConfigError(
                    f"environments.{env}.snapshots: {beyond[0]}: expected at most {budget}, the steps of {method}"
                )

    def budget_of(self, env: str, method: str) -> int:
        """Environment steps of a whole run."""
        environment, steps = self.environments[env], self.methods[method].steps
        own = steps.get(env) if isinstance(steps, dict) else steps
        return environment.start_of(environment.skills) if own is None else own

    def skills_of(self, env: str, method: str) -> int:
        return self.methods[method].skills.get(env, self.environments[env].skills)

    def settings_of(self, method: str) -> Incremental | Diayn | None:
        """Settings of a method's objective; null where nothing is learned."""
        row = self.methods[method]
        if row.objective == "none":
            return None
        base: Incremental | Diayn = getattr(self, row.objective)
        return _changed(base, row.settings, f"methods.{method}.settings")

    def sac_of(self, env: str, method: str) -> Sac:
        settings = _changed(self.sac, self.environments[env].sac, f"environments.{env}.sac")
        return _changed(settings, self.methods[method].sac, f"methods.{method}.sac")

    def environment(self, name: str) -> Environment:
        return self.environments[_known(self.environments, name, "environment")]

    def method(self, name: str) -> Method:
        return self.methods[_known(self.methods, name, "method")]

    def seeds_of(self, group: RunGroup) -> list[int]:
        return group.seeds if group.seeds is not None else self.seeds

    def skill_job(self, env: str, method: str, seed: int, skill: int) -> SkillJob:
        """What training `skill` (counted from 0) depends on, and nothing else."""
        environment, row = self.environment(env), self.method(method)
        if not row.incremental:
            raise ConfigError(f"methods.{method}: its skills are learned together, not one after another")
        if skill >= environment.skills:
            raise ConfigError(f"environments.{env}.skills: {environment.skills}: there is no skill {skill:02d}")
        self._enough_steps(env, method)
        settings = self.settings_of(method)
        assert isinstance(settings, Incremental)
        first = skill == 0
        inherits = row.reuse_replay and not first
        return SkillJob(
            env=env,
            world=environment.world(),
            seed=seed,
            skill=skill,
            steps=environment.steps_of(skill),
            start_step=environment.start_of(skill) if environment.evolution else None,
            sac=self.sac_of(env, method),
            objective=settings.relevant_to(skill),
            first_alpha=environment.first_alpha if first else None,
            alive_bonus=environment.alive_bonus if first else None,
            replay_capacity=environment.replay_capacity,
            replay_keep=row.replay_keep if inherits else None,
            code=code_hash() if self.retrain_on_code_change else None,
        )

    def evaluation_job(self, env: str, condition: str | None = None) -> EvaluationJob:
        """How skills are rolled out in a condition, by default the environment's first."""
        environment = self.environment(env)
        name = condition or next(iter(environment.conditions))
        step = environment.conditions[_known(environment.conditions, name, f"condition of {env}")]
        ends = [environment.last_of(skill) for skill in range(environment.skills)]
        return EvaluationJob(
            env=env,
            world=environment.world(),
            horizon=environment.test_horizon,
            world_steps=ends if step == "trained" else step,
            episodes=self.evaluation.episodes,
            seed=self.evaluation.seed,
        )

    def joint_job(self, env: str, method: str, seed: int) -> JointJob:
        environment, row = self.environment(env), self.method(method)
        if row.incremental:
            raise ConfigError(f"methods.{method}: its skills are learned one after another, not together")
        settings = self.settings_of(method)
        learned: dict[str, Any] = {}
        if settings is not None:
            self._enough_steps(env, method)
            curriculum = _changed(self.curriculum, row.curriculum, f"methods.{method}.curriculum")
            learned = {
                "steps": self.budget_of(env, method),
                "objective": settings,
                "policies": row.policies,
                "schedule": row.schedule,
                "curriculum": curriculum if row.schedule == "curriculum" else None,
                "replay_capacity": environment.replay_capacity,
                "snapshots": environment.snapshots or None,
            }
        return JointJob(
            env=env,
            world=environment.world(),
            seed=seed,
            skills=self.skills_of(env, method),
            sac=self.sac_of(env, method),
            code=code_hash() if self.retrain_on_code_change else None,
            **learned,
        )


class EvaluationJob(Model):
    """Everything the rollouts of a run depend on besides its skills."""

    env: Name
    world: World
    horizon: PositiveInt
    world_steps: NonNegativeInt | list[NonNegativeInt]
    """The global step whose world it is: one for all skills, or one for each."""
    episodes: PositiveInt
    seed: NonNegativeInt


class SkillJob(Model):
    """Everything the training of one skill depends on besides the earlier skills' files."""

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
    code: str | None = None


class JointJob(Model):
    """Everything a method whose skills are made together depends on. Where nothing is learned, most of it is null."""

    env: Name
    world: World
    seed: int
    skills: PositiveInt
    sac: Sac
    steps: PositiveInt | None = None
    objective: Diayn | None = None
    policies: Literal["independent", "shared"] | None = None
    schedule: Literal["uniform", "round_robin", "curriculum"] | None = None
    curriculum: Curriculum | None = None
    replay_capacity: PositiveInt | None = None
    """Of each policy's replay."""
    snapshots: list[PositiveInt] | None = None
    code: str | None = None


def _changed(settings: M, changes: Mapping[str, Any], where: str) -> M:
    """Settings with some of them changed; a fault names the place of the change."""
    try:
        return type(settings).model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        raise ConfigError(explain(error, type(settings), prefix=where)) from None


def _known(table: Mapping[str, Any], name: str, what: str) -> str:
    if name not in table:
        raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(sorted(table))}")
    return name


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, everything else is replaced: what Snakemake does to config files."""
    merged = dict(base)
    for key, value in extra.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def parse(raw: Mapping[str, Any]) -> Config:
    """Check a merged configuration; every fault is reported with its path, value and expectation."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"the configuration is not usable:\n{explain(error, Config)}") from None


def load(*presets: str | Path, files: Iterable[Path] = DEFAULT_FILES) -> Config:
    """Read the project's configuration files and the presets over them."""
    import yaml

    raw: dict[str, Any] = {}
    for path in (*files, *map(Path, presets)):
        try:
            content = yaml.safe_load(Path(path).read_text())
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if not isinstance(content, Mapping):
            raise ConfigError(f"{path}: expected keys and values, found {type(content).__name__}")
        raw = merge(raw, content)
    return parse(raw)


def schema() -> dict[str, Any]:
    """JSON schema of `Config`, which Snakemake validates the merged config files against."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
