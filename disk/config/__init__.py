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

from disk.config import resolve, trainings, uses
from disk.config.arguments import typed
from disk.config.endings import Adaptive, Aware, Budget, Curriculum
from disk.config.environments import Change, Coordinates, Environment, Evolution, World
from disk.config.files import DEFAULT_FILES, PROJECT, SHIPPED, alike, merge, read
from disk.config.jobs import EvaluationJob, HierarchyJob, JointJob, MeasureJob, SkillJob, UsableJob
from disk.config.messages import explain
from disk.config.methods import Method, RunGroup
from disk.config.objectives import objectives
from disk.config.running import Evaluation, Hierarchy, Runtime, Tracking
from disk.config.settings import Given, Incremental, Measured, Model, Name, Projection, Sac, changed, known
from disk.config.uses import FLAT
from disk.errors import ConfigError

__all__ = [
    "DEFAULT_FILES",
    "FLAT",
    "PROJECT",
    "SHIPPED",
    "Adaptive",
    "Budget",
    "Change",
    "Config",
    "Coordinates",
    "Curriculum",
    "Environment",
    "EvaluationJob",
    "Evolution",
    "Given",
    "HierarchyJob",
    "Incremental",
    "JointJob",
    "MeasureJob",
    "Measured",
    "Projection",
    "Runtime",
    "Sac",
    "SkillJob",
    "Tracking",
    "UsableJob",
    "World",
    "alike",
    "load",
    "merge",
    "parse",
    "read",
    "schema",
    "typed",
]


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
    aware: Aware
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
        """Resolve `like` after all files are merged, so that a preset that changes a row also changes the rows like
        it."""
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

    skill_job = trainings.skill_job
    joint_job = trainings.joint_job
    evaluation_job = uses.evaluation_job
    measure_job = uses.measure_job
    usable_job = uses.usable_job
    goals_of = uses.goals_of
    hierarchy_job = uses.hierarchy_job


def _in(value: int | dict[str, int] | None, env: str) -> int | None:
    """One number for all environments, or some environments' own."""
    return value.get(env) if isinstance(value, dict) else value


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
    return parse(read([*files, *map(Path, presets)]))


def schema() -> dict[str, Any]:
    """JSON schema of `Config`, which Snakemake validates the merged config files against."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model().model_json_schema()}
