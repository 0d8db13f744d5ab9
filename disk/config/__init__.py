"""The configuration, typed and checked.

The YAML files under ``config/`` hold every number; `settings`, `environments` and `methods` say which
keys there are, what they mean and which values make sense. `Config` is what a user writes; from it come the jobs
(`jobs`), the part of it that one training depends on. Nothing may enter a job that does not change its
result: device, threads, logging and tracking are `Runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt, ValidationError, create_model, model_validator

from disk.config import resolve
from disk.config.environments import Change, Coordinates, Downstream, Environment, Evolution, World
from disk.config.jobs import EvaluationJob, HierarchyJob, JointJob, MeasureJob, SkillJob, UsableJob
from disk.config.messages import explain
from disk.config.methods import Method, RunGroup
from disk.config.objectives import objectives
from disk.config.settings import (
    Adaptive,
    Budget,
    Curriculum,
    Evaluation,
    Given,
    Hierarchy,
    Incremental,
    Iteration,
    Measured,
    Model,
    Name,
    Projection,
    Runtime,
    Sac,
    Share,
    Tracking,
    changed,
    known,
)
from disk.errors import ConfigError
from disk.storage.provenance import code_hash

__all__ = [
    "Adaptive",
    "Budget",
    "Change",
    "Config",
    "Coordinates",
    "Curriculum",
    "Downstream",
    "Environment",
    "Evaluation",
    "EvaluationJob",
    "Evolution",
    "Given",
    "Hierarchy",
    "HierarchyJob",
    "Incremental",
    "Iteration",
    "JointJob",
    "MeasureJob",
    "Measured",
    "Method",
    "Model",
    "Name",
    "Projection",
    "RunGroup",
    "Runtime",
    "Sac",
    "Share",
    "SkillJob",
    "Tracking",
    "UsableJob",
    "World",
    "load",
    "merge",
    "parse",
    "schema",
]

FLAT = "flat"
"""The controller without skills goes by this name where there would be a method's."""
PROJECT = Path(__file__).resolve().parents[2]
DEFAULT_FILES = tuple(PROJECT / "config" / name for name in ("config.yaml", "envs.yaml", "methods.yaml"))


class Config(Model):
    """All of the configuration: config.yaml, envs.yaml, methods.yaml and a preset over them."""

    seeds: list[NonNegativeInt]
    runs: list[RunGroup]
    environments: dict[Name, Environment]
    methods: dict[Name, Method]
    sac: Sac
    disk: Incremental
    curriculum: Curriculum
    adaptive: Adaptive
    normaliser: Measured
    projection: Projection
    budget: Budget
    evaluation: Evaluation
    hierarchy: Hierarchy
    tracking: Tracking
    runtime: Runtime
    threads: PositiveInt
    """Threads of a training job. One is fastest unless a job has the machine to itself."""
    retrain_on_code_change: bool
    """Retrain skills that were made by other code than today's."""
    pathvars: dict[str, str] = {}
    """Where a preset writes: results, logs, benchmarks (Snakemake's own key)."""

    @model_validator(mode="before")
    @classmethod
    def _rows_like_others(cls, raw: Any) -> Any:
        """After all files have been merged, so that a preset changes a row and all that are like it."""
        rows = raw.get("methods") if isinstance(raw, Mapping) else None
        return {**raw, "methods": {name: alike(rows, name) for name in rows}} if isinstance(rows, Mapping) else raw

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        resolve.names(self)
        for name in self.methods:
            resolve.method(self, name)
        for group in self.runs:
            for env in group.envs:
                for name in group.methods:
                    resolve.budget(self, env, name)
                if group.hierarchy:
                    self.goals_of(env)
        return self

    def budget_of(self, env: str, method: str) -> int:
        """Environment steps of a whole run."""
        environment, row = self.environments[env], self.methods[method]
        if row.incremental:
            return self.start_of(env, method, environment.skills)
        own = _in(row.steps, env)
        return environment.start_of(environment.skills) if own is None else own

    def owner_of(self, method: str, skill: int) -> str:
        """The method whose run holds a skill of a chain: another one before a fork."""
        fork = self.method(method).fork
        return fork.parent if fork and skill < fork.after else method

    def steps_of(self, env: str, method: str, skill: int) -> int:
        """Environment steps of a skill of a chain."""
        row = self.methods[self.owner_of(method, skill)]
        of_first = None if skill else _in(row.first_steps, env)
        own = _in(row.steps, env) if of_first is None else of_first
        return self.environments[env].steps_of(skill) if own is None else own

    def start_of(self, env: str, method: str, skill: int) -> int:
        """The global step at which the training of a chain's skill begins."""
        return sum(self.steps_of(env, method, earlier) for earlier in range(skill))

    def skills_of(self, env: str, method: str) -> int:
        return self.methods[method].skills.get(env, self.environments[env].skills)

    def settings_of(self, method: str) -> Model | None:
        """Return the settings of a method's objective; None where nothing is learned."""
        row = self.methods[method]
        if row.objective == "none":
            return None
        base: Model = getattr(self, row.objective)
        return changed(base, row.settings, f"methods.{method}.settings")

    def sac_of(self, env: str, method: str) -> Sac:
        settings = changed(self.sac, self.environments[env].sac, f"environments.{env}.sac")
        row = self.methods[method]
        settings = changed(settings, row.sac, f"methods.{method}.sac")
        return changed(settings, row.sac_in.get(env, {}), f"methods.{method}.sac_in.{env}")

    def world_of(self, env: str, method: str) -> World:
        """The world that a method learns in: the environment's, with the method's own view of it."""
        row = self.methods[method]
        own: dict[str, Any] = {} if row.sigma_steps is None else {"sigma_steps": row.sigma_steps}
        own |= {} if row.sigma == "environment" else {"sigma": row.sigma}
        return changed(self.environments[env].training_world(), own, f"methods.{method} in {env}")

    def projection_of(self, env: str, method: str) -> Projection | None:
        """How a method's φ is learned in an environment; null: its σ is given, or it uses none."""
        kind = objectives().get(self.methods[method].objective)
        uses = not (kind and kind.sees_position)  # METRA learns a φ of its own
        if not uses or self.world_of(env, method).sigma != "learned":
            return None
        return changed(self.projection, self.methods[method].projection, f"methods.{method}.projection")

    def normaliser_of(self, env: str, method: str) -> Measured | Given | None:
        """How a method's observations are normalised in an environment; null: not at all."""
        return (self.environments[env].normaliser or self.normaliser) if self.methods[method].normalise else None

    def environment(self, name: str) -> Environment:
        return self.environments[known(self.environments, name, "environment")]

    def method(self, name: str) -> Method:
        return self.methods[known(self.methods, name, "method")]

    def seeds_of(self, group: RunGroup) -> list[int]:
        return group.seeds if group.seeds is not None else self.seeds

    def skill_job(self, env: str, method: str, seed: int, skill: int) -> SkillJob:
        """What training `skill` (counted from 0) depends on, and nothing else."""
        environment, row = self.environment(env), self.method(method)
        if not row.incremental:
            raise ConfigError(f"methods.{method}: its skills are learned together, not one after another")
        if skill >= environment.skills:
            raise ConfigError(f"environments.{env}.skills: {environment.skills}: there is no skill {skill:02d}")
        owner = self.owner_of(method, skill)
        if owner != method:
            raise ConfigError(f"methods.{method}.fork: skill {skill:02d} is before the fork, it is one of {owner}'s")
        resolve.budget(self, env, method)
        settings = self.settings_of(method)
        assert isinstance(settings, Incremental)
        first = skill == 0
        inherits = row.reuse_replay and not first
        return SkillJob(
            env=env,
            world=self.world_of(env, method),
            seed=seed,
            skill=skill,
            steps=self.steps_of(env, method, skill),
            start_step=self.start_of(env, method, skill) if environment.evolution else None,
            sac=self.sac_of(env, method),
            objective=settings.relevant_to(skill),
            first_alpha=environment.first_alpha if first and settings.first is None else None,
            alive_bonus=environment.alive_bonus if first else None,
            replay_capacity=environment.replay_capacity,
            replay_keep=row.replay_keep if inherits else None,
            own_share=row.own_share if inherits else None,
            warm=None if first else row.warm,
            adaptive=self.adaptive if row.adaptive else None,
            normaliser=self.normaliser_of(env, method),
            projection=self.projection_of(env, method),
            budget=self.budget if row.budget else None,
            planned=self.start_of(env, method, skill + 1) if row.budget else None,
            code=code_hash() if self.retrain_on_code_change else None,
        )

    def evaluation_job(self, env: str, condition: str | None = None, method: str | None = None) -> EvaluationJob:
        """How skills are rolled out in a condition, by default the environment's first.

        Without a method, or for untrained policies, a skill's last training step is that of the chain's.
        """
        environment = self.environment(env)
        name = condition or next(iter(environment.conditions))
        condition = known(environment.conditions, name, f"condition of {env}")
        step, world = environment.moments[condition], environment.world_in(condition)
        steps = [environment.last_of(skill) for skill in range(environment.skills)] if step == "trained" else step
        if step == "trained" and method and self.method(method).incremental:
            ends = [self.start_of(env, method, skill + 1) for skill in range(environment.skills)]
            steps = [max(0, end - 1) for end in ends]
        elif step == "trained" and method and self.budget_of(env, method):
            steps = self.budget_of(env, method) - 1
        return EvaluationJob(
            env=env,
            world=world,
            horizon=environment.test_horizon,
            world_steps=steps,
            episodes=self.evaluation.episodes,
            seed=self.evaluation.seed,
        )

    def measure_job(self, env: str) -> MeasureJob:
        """What the skills of an environment are measured by."""
        row = self.environment(env)
        goals = row.downstream if row.downstream.env is None else self.environment(row.downstream.env).downstream
        return MeasureJob(moves=row.moves, goals=goals.size, coordinates=len(row.position.entries))

    def usable_job(self, env: str, method: str) -> UsableJob:
        """At which moments of a run, and in which worlds, its skills are counted."""
        row, chain = self.environment(env), self.method(method).incremental
        if row.evolution is None or row.moves is None:
            missing = "evolution" if row.evolution is None else "moves"
            raise ConfigError(f"environments.{env}.{missing}: missing: usable skills are counted where worlds change")
        finished = [self.start_of(env, method, skill + 1) for skill in range(row.skills)] if chain else []
        return UsableJob(
            evaluation=self.evaluation_job(env, method=method).model_copy(update={"world_steps": 0}),
            measure=MeasureJob(moves=row.moves),
            ends=finished or list(dict.fromkeys([*row.snapshots, self.budget_of(env, method)])),
            chain=chain,
            conditions={name: step for name, step in row.moments.items() if step != "trained"},
        )

    def goals_of(self, env: str) -> tuple[World, float]:
        """The world that an environment's skills are put to work in, and how far its goals are away."""
        name, row = env, self.environment(env).downstream
        if row.env is not None:
            name, row = row.env, self.environment(row.env).downstream
        if row.size is None:
            raise ConfigError(f"environments.{name}.downstream.size: missing: expected the size of the square of goals")
        world = self.environment(name).world()
        if world.evolution is not None:
            raise ConfigError(
                f"environments.{name}.downstream: its world changes over time: expected env, one that stands still"
            )
        return world.model_copy(update={"kwargs": {**world.kwargs, **row.kwargs}}), row.size

    def hierarchy_job(self, env: str, method: str, seed: int, hierarchy_seed: int) -> HierarchyJob:
        """A controller over the skills of a run; of method `flat`, one without."""
        world, size = self.goals_of(env)
        settings = self.hierarchy
        own: dict[str, Any] = {}
        if method == FLAT:
            base = changed(self.sac, self.environments[env].sac, f"environments.{env}.sac")
            own["sac"] = changed(base, settings.sac, "hierarchy.sac")
            own["replay_capacity"] = self.environments[env].replay_capacity
            own["reward_scale"] = 1.0 / size  # PPO's decisions are paid the mean of the same over their steps
            if own["sac"].environments:
                raise ConfigError("hierarchy.sac.environments: a flat controller acts in one world")
            if settings.decisions * settings.steps <= own["sac"].seed_steps:
                raise ConfigError(
                    f"hierarchy.decisions: {settings.decisions}: expected more steps than the "
                    f"{own['sac'].seed_steps} seed steps of a flat controller"
                )
        else:
            if self.method(method).acts:
                raise ConfigError(f"methods.{method}.acts: a controller's skills act by their modes")
            own["environments"] = settings.environments
        return HierarchyJob(
            env=env,
            # Its horizon is that of training skills, which has no say here.
            world=world.model_copy(update={"horizon": settings.episode * settings.steps}),
            size=size,
            seed=seed,
            hierarchy_seed=hierarchy_seed,
            **{name: getattr(settings, name) for name in ("decisions", "steps", "episode", "every")},
            **own,
            code=code_hash() if self.retrain_on_code_change else None,
        )

    def joint_job(self, env: str, method: str, seed: int) -> JointJob:
        environment, row = self.environment(env), self.method(method)
        if row.incremental:
            raise ConfigError(f"methods.{method}: its skills are learned one after another, not together")
        settings = self.settings_of(method)
        learned: dict[str, Any] = {}
        if settings is not None:
            resolve.budget(self, env, method)
            curriculum = changed(self.curriculum, row.curriculum, f"methods.{method}.curriculum")
            learned = {
                "steps": self.budget_of(env, method),
                "objective": settings.relevant_to_all() if isinstance(settings, Incremental) else settings,
                "policies": row.policies,
                "schedule": row.schedule,
                "curriculum": curriculum if row.schedule == "curriculum" else None,
                "replay_capacity": row.replay_capacity or environment.replay_capacity,
                "snapshots": environment.snapshots or None,
                "normaliser": self.normaliser_of(env, method),
                "projection": self.projection_of(env, method),
            }
        return JointJob(
            env=env,
            world=self.world_of(env, method),
            seed=seed,
            skills=self.skills_of(env, method),
            sac=self.sac_of(env, method),
            acts=row.acts,
            code=code_hash() if self.retrain_on_code_change else None,
            **learned,
        )


def _in(value: int | dict[str, int] | None, env: str) -> int | None:
    """One number for all environments, or some environments' own."""
    return value.get(env) if isinstance(value, dict) else value


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, everything else is replaced: what Snakemake does to config files."""
    merged = dict(base)
    for key, value in extra.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def alike(rows: Mapping[str, Any], name: str, seen: tuple[str, ...] = ()) -> Any:
    """A row of methods.yaml with the keys of the row that it is `like`, of the row that this one is like, …"""
    row, seen = rows[name], (*seen, name)
    other = row.get("like") if isinstance(row, Mapping) else None
    if not isinstance(other, str):
        return row
    if other in seen:
        raise ValueError(f"methods.{name}.like: {other!r}: rows that are like each other: {' → '.join((*seen, other))}")
    if other not in rows:
        raise ValueError(f"methods.{name}.like: {other!r} is unknown; known: {', '.join(sorted(map(str, rows)))}")
    return merge(alike(rows, other, seen), row) if isinstance(rows[other], Mapping) else row


@cache
def model() -> type[Config]:
    """Return `Config` with a section for each objective in disk/learning/objectives/."""
    sections: dict[str, Any] = {name: (kind.settings, ...) for name, kind in objectives().items()}
    return create_model("Config", __base__=Config, **sections)


def parse(raw: Mapping[str, Any]) -> Config:
    """Check a merged configuration. Every fault is reported with its path, value and expectation."""
    try:
        return model().model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"the configuration is not usable:\n{explain(error, model())}") from None


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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model().model_json_schema()}
