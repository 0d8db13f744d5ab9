"""The configuration, typed and checked.

The YAML files under ``config/`` hold every number; `disk.settings`, `disk.worlds` and `disk.methods` say which
keys there are, what they mean and which values make sense. `Config` is what a user writes; from it come the jobs
(`disk.jobs`), the part of it that one training depends on. Nothing may enter a job that does not change its
result: device, threads, logging and tracking are `Runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import NonNegativeInt, PositiveInt, ValidationError, model_validator

from disk.faults import explain
from disk.jobs import EvaluationJob, JointJob, SkillJob
from disk.methods import Method, RunGroup
from disk.provenance import code_hash
from disk.settings import (
    Adaptive,
    ConfigError,
    Curriculum,
    Dads,
    Diayn,
    Evaluation,
    Incremental,
    Iteration,
    Metra,
    Model,
    Name,
    ObjectiveSettings,
    Runtime,
    Sac,
    Share,
    Tracking,
)
from disk.worlds import Change, Coordinates, Environment, Evolution, World

__all__ = [
    "Adaptive",
    "Change",
    "Config",
    "ConfigError",
    "Coordinates",
    "Curriculum",
    "Dads",
    "Diayn",
    "Environment",
    "Evaluation",
    "EvaluationJob",
    "Evolution",
    "Incremental",
    "Iteration",
    "JointJob",
    "Method",
    "Metra",
    "Model",
    "Name",
    "ObjectiveSettings",
    "RunGroup",
    "Runtime",
    "Sac",
    "Share",
    "SkillJob",
    "Tracking",
    "World",
    "load",
    "merge",
    "parse",
    "schema",
]

PROJECT = Path(__file__).resolve().parent.parent
DEFAULT_FILES = tuple(PROJECT / "config" / name for name in ("config.yaml", "envs.yaml", "methods.yaml"))
M = TypeVar("M", bound=Model)


class Config(Model):
    """All of the configuration: config.yaml, envs.yaml, methods.yaml and a preset over them."""

    seeds: list[NonNegativeInt]
    runs: list[RunGroup]
    environments: dict[Name, Environment]
    methods: dict[Name, Method]
    sac: Sac
    disk: Incremental
    diayn: Diayn
    dads: Dads
    metra: Metra
    curriculum: Curriculum
    adaptive: Adaptive
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
        if method.fork:
            parent = self.methods.get(method.fork.parent)
            if parent is None or not parent.incremental or parent.fork:
                known = ", ".join(sorted(n for n, row in self.methods.items() if row.incremental and not row.fork))
                raise ValueError(
                    f"methods.{name}.fork.from: {method.fork.parent!r}: expected a chain that is no fork: {known}"
                )
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
                    raise ValueError(f"methods.{name}.{field}.{env}: {env!r} is unknown; known: {known}")

    def _enough_steps(self, env: str, method: str) -> None:
        """Refuse budgets in which some policy would never be updated, and snapshots that would never be taken."""
        environment, row, seed_steps = self.environments[env], self.methods[method], self.sac_of(env, method).seed_steps
        if row.incremental:
            for skill in range(environment.skills):
                if self.steps_of(env, method, skill) <= seed_steps:
                    raise ConfigError(
                        f"environments.{env}.steps: {self.steps_of(env, method, skill)}: expected more than the "
                        f"{seed_steps} seed steps of {method}, or skill {skill} would never be updated"
                    )
            if row.fork and row.fork.after >= environment.skills:
                raise ConfigError(
                    f"methods.{method}.fork.after: {row.fork.after} in {env}: expected fewer than its "
                    f"{environment.skills} skills, or there is nothing to learn after the fork"
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
            if row.objective == "disk" and (policies < 2 or seed_steps < 1):
                raise ConfigError(
                    f"methods.{method}: {policies} skills with {seed_steps} seed steps in {env}: expected two or more "
                    "skills and a seed step, so that every skill has others to be far from"
                )
            beyond = [step for step in environment.snapshots if step > budget]
            if beyond:
                raise ConfigError(
                    f"environments.{env}.snapshots: {beyond[0]}: expected at most {budget}, the steps of {method}"
                )

    def budget_of(self, env: str, method: str) -> int:
        """Environment steps of a whole run."""
        environment, row = self.environments[env], self.methods[method]
        if row.incremental:
            return self.start_of(env, method, environment.skills)
        own = row.steps.get(env) if isinstance(row.steps, dict) else row.steps
        return environment.start_of(environment.skills) if own is None else own

    def owner_of(self, method: str, skill: int) -> str:
        """The method whose run holds a skill of a chain: another one before a fork."""
        fork = self.method(method).fork
        return fork.parent if fork and skill < fork.after else method

    def steps_of(self, env: str, method: str, skill: int) -> int:
        """Environment steps of a skill of a chain."""
        steps = self.methods[self.owner_of(method, skill)].steps
        own = steps.get(env) if isinstance(steps, dict) else steps
        return self.environments[env].steps_of(skill) if own is None else own

    def start_of(self, env: str, method: str, skill: int) -> int:
        """The global step at which the training of a chain's skill begins."""
        return sum(self.steps_of(env, method, earlier) for earlier in range(skill))

    def skills_of(self, env: str, method: str) -> int:
        return self.methods[method].skills.get(env, self.environments[env].skills)

    def settings_of(self, method: str) -> ObjectiveSettings | None:
        """Settings of a method's objective; null where nothing is learned."""
        row = self.methods[method]
        if row.objective == "none":
            return None
        base: ObjectiveSettings = getattr(self, row.objective)
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
        owner = self.owner_of(method, skill)
        if owner != method:
            raise ConfigError(f"methods.{method}.fork: skill {skill:02d} is before the fork, it is one of {owner}'s")
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
            steps=self.steps_of(env, method, skill),
            start_step=self.start_of(env, method, skill) if environment.evolution else None,
            sac=self.sac_of(env, method),
            objective=settings.relevant_to(skill),
            first_alpha=environment.first_alpha if first else None,
            alive_bonus=environment.alive_bonus if first else None,
            replay_capacity=environment.replay_capacity,
            replay_keep=row.replay_keep if inherits else None,
            warm=None if first else row.warm,
            adaptive=self.adaptive if row.adaptive else None,
            code=code_hash() if self.retrain_on_code_change else None,
        )

    def evaluation_job(self, env: str, condition: str | None = None, method: str | None = None) -> EvaluationJob:
        """How skills are rolled out in a condition, by default the environment's first.

        Without a method, or for untrained policies, a skill's last training step is that of the chain's.
        """
        environment = self.environment(env)
        name = condition or next(iter(environment.conditions))
        step = environment.conditions[_known(environment.conditions, name, f"condition of {env}")]
        steps = [environment.last_of(skill) for skill in range(environment.skills)] if step == "trained" else step
        if step == "trained" and method and self.method(method).incremental:
            ends = [self.start_of(env, method, skill + 1) for skill in range(environment.skills)]
            steps = [max(0, end - 1) for end in ends]
        elif step == "trained" and method and self.budget_of(env, method):
            steps = self.budget_of(env, method) - 1
        return EvaluationJob(
            env=env,
            world=environment.world(),
            horizon=environment.test_horizon,
            world_steps=steps,
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
                "objective": settings.relevant_to_all() if isinstance(settings, Incremental) else settings,
                "policies": row.policies,
                "schedule": row.schedule,
                "curriculum": curriculum if row.schedule == "curriculum" else None,
                "replay_capacity": row.replay_capacity or environment.replay_capacity,
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
