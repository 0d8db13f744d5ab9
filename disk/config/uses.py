"""Jobs that use finished skills: rollouts, measures and controllers. `Config` has these functions as its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from disk.config.environments import Downstream, World
from disk.config.jobs import EvaluationJob, HierarchyJob, MeasureJob, UsableJob
from disk.config.settings import changed, known
from disk.errors import ConfigError
from disk.storage.provenance import DOWNSTREAM, code_hash

if TYPE_CHECKING:
    from disk.config import Config

FLAT = "flat"
"""The controller without skills goes by this name where there would be a method's."""


def evaluation_job(config: Config, env: str, condition: str | None = None, method: str | None = None) -> EvaluationJob:
    """How skills are rolled out in a condition, by default the environment's first.

    For condition `trained`, the steps are those of the method's training. Without a method, and for untrained policies,
    they are the environment's schedule.
    """
    environment = config.environment(env)
    name = condition or next(iter(environment.conditions))
    condition = known(environment.conditions, name, f"condition of {env}")
    step, world = environment.moments[condition], environment.world_in(condition)
    steps = [environment.last_of(skill) for skill in range(environment.skills)] if step == "trained" else step
    if step == "trained" and method and config.method(method).incremental:
        ends = [config.start_of(env, method, skill + 1) for skill in range(environment.skills)]
        steps = [max(0, end - 1) for end in ends]
    elif step == "trained" and method and config.budget_of(env, method):
        steps = config.budget_of(env, method) - 1
    return EvaluationJob(
        env=env,
        world=world,
        horizon=environment.test_horizon,
        world_steps=steps,
        episodes=config.evaluation.episodes,
        seed=config.evaluation.seed,
    )


def measure_job(config: Config, env: str) -> MeasureJob:
    """What the skills of an environment are measured by."""
    row, (_, goals) = config.environment(env), downstream_of(config, env)
    return MeasureJob(moves=row.moves, goals=goals.size, coordinates=len(row.position.entries))


def usable_job(config: Config, env: str, method: str) -> UsableJob:
    """At which moments of a run, and in which worlds, its skills are counted."""
    row, chain = config.environment(env), config.method(method).incremental
    if row.evolution is None or row.moves is None:
        missing = "evolution" if row.evolution is None else "moves"
        raise ConfigError(f"environments.{env}.{missing}: missing: usable skills are counted where worlds change")
    finished = [config.start_of(env, method, skill + 1) for skill in range(row.skills)] if chain else []
    return UsableJob(
        evaluation=config.evaluation_job(env, method=method).model_copy(update={"world_steps": 0}),
        measure=MeasureJob(moves=row.moves),
        ends=finished or list(dict.fromkeys([*row.snapshots, config.budget_of(env, method)])),
        chain=chain,
        conditions={name: step for name, step in row.moments.items() if step != "trained"},
    )


def downstream_of(config: Config, env: str) -> tuple[str, Downstream]:
    """The environment in which an environment's skills are put to work, and its goal task."""
    name = config.environment(env).downstream.env or env
    return name, config.environment(name).downstream


def goals_of(config: Config, env: str) -> tuple[World, float]:
    """The world that an environment's skills are put to work in, and how far its goals are away."""
    name, row = downstream_of(config, env)
    if row.size is None:
        raise ConfigError(f"environments.{name}.downstream.size: missing: expected the size of the square of goals")
    world = config.environment(name).world()
    if world.evolution is not None:
        raise ConfigError(
            f"environments.{name}.downstream: its world changes over time: expected env, one that stands still"
        )
    return world.model_copy(update={"kwargs": {**world.kwargs, **row.kwargs}}), row.size


def hierarchy_job(config: Config, env: str, method: str, seed: int, hierarchy_seed: int) -> HierarchyJob:
    """A controller over the skills of a run; of method `flat`, one without."""
    world, size = config.goals_of(env)
    settings = config.hierarchy
    own: dict[str, Any] = {}
    if method == FLAT:
        base = changed(config.sac, config.environments[env].sac, f"environments.{env}.sac")
        own["sac"] = changed(base, settings.sac, "hierarchy.sac")
        own["replay_capacity"] = config.environments[env].replay_capacity
        own["reward_scale"] = 1.0 / size  # PPO's decisions are paid the mean of the same over their steps
        if own["sac"].environments:
            raise ConfigError("hierarchy.sac.environments: a flat controller acts in one world")
        if own["sac"].critic_sees:
            raise ConfigError("hierarchy.sac.critic_sees: a flat controller is not paid by σ: expected null")
        if settings.decisions * settings.steps <= own["sac"].seed_steps:
            raise ConfigError(
                f"hierarchy.decisions: {settings.decisions}: expected more steps than the "
                f"{own['sac'].seed_steps} seed steps of a flat controller"
            )
    else:
        if config.method(method).acts:
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
        code=code_hash(DOWNSTREAM) if config.retrain_on_code_change else None,
    )
