"""Jobs of trainings, of one skill or of all together. `Config` has these functions as its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from disk.config import resolve
from disk.config.jobs import JointJob, SkillJob
from disk.config.settings import Incremental, changed
from disk.errors import ConfigError
from disk.storage.provenance import code_hash

if TYPE_CHECKING:
    from disk.config import Config


def skill_job(config: Config, env: str, method: str, seed: int, skill: int) -> SkillJob:
    """What training `skill` (counted from 0) depends on, and nothing else."""
    environment, row = config.environment(env), config.method(method)
    if not row.incremental:
        raise ConfigError(f"methods.{method}: its skills are learned together, not one after another")
    if skill >= environment.skills:
        count = environment.skills
        raise ConfigError(
            f"environments.{env}: has {count} skills, skill00 to skill{count - 1:02d}; there is no skill{skill:02d}"
        )
    owner = config.owner_of(method, skill)
    if owner != method:
        raise ConfigError(f"methods.{method}.fork: skill {skill:02d} is before the fork, it is one of {owner}'s")
    resolve.budget(config, env, method)
    settings = config.settings_of(method)
    assert isinstance(settings, Incremental)
    first = skill == 0
    inherits = row.reuse_replay and not first
    spends = row.budget and not environment.evolution  # a changing world has a schedule of its own, which skills follow
    return SkillJob(
        env=env,
        world=config.world_of(env, method),
        seed=seed,
        skill=skill,
        steps=config.steps_of(env, method, skill),
        start_step=config.start_of(env, method, skill) if environment.evolution or row.aware else None,
        sac=config.sac_of(env, method),
        objective=settings.relevant_to(skill),
        first_alpha=environment.first_alpha if first and settings.first is None else None,
        alive_bonus=environment.alive_bonus if first else None,
        replay_capacity=environment.replay_capacity,
        replay_keep=row.replay_keep if inherits else None,
        own_share=row.own_share if inherits else None,
        warm=None if first else row.warm,
        adaptive=config.adaptive if row.adaptive else None,
        normaliser=config.normaliser_of(env, method),
        projection=config.projection_of(env, method),
        budget=config.budget if spends else None,
        planned=config.start_of(env, method, skill + 1) if spends else None,
        aware=config.aware if row.aware else None,
        code=code_hash() if config.retrain_on_code_change else None,
    )


def joint_job(config: Config, env: str, method: str, seed: int) -> JointJob:
    environment, row = config.environment(env), config.method(method)
    if row.incremental:
        raise ConfigError(f"methods.{method}: its skills are learned one after another, not together")
    settings = config.settings_of(method)
    learned: dict[str, Any] = {}
    if settings is not None:
        resolve.budget(config, env, method)
        curriculum = changed(config.curriculum, row.curriculum, f"methods.{method}.curriculum")
        learned = {
            "steps": config.budget_of(env, method),
            "objective": settings.relevant_to_all() if isinstance(settings, Incremental) else settings,
            "policies": row.policies,
            "schedule": row.schedule,
            "curriculum": curriculum if row.schedule == "curriculum" else None,
            "replay_capacity": row.replay_capacity or environment.replay_capacity,
            "snapshots": environment.snapshots or None,
            "normaliser": config.normaliser_of(env, method),
            "projection": config.projection_of(env, method),
        }
    return JointJob(
        env=env,
        world=config.world_of(env, method),
        seed=seed,
        skills=config.skills_of(env, method),
        sac=config.sac_of(env, method),
        acts=row.acts,
        code=code_hash() if config.retrain_on_code_change else None,
        **learned,
    )
