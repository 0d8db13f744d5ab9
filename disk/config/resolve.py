"""What must fit together in a configuration, beyond what each of its models can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disk.config.messages import unknown
from disk.config.objectives import objectives
from disk.config.settings import Incremental, changed
from disk.errors import ConfigError

if TYPE_CHECKING:
    from disk.config import Config


def names(config: Config) -> None:
    """Check that run groups name known environments and methods, and that environments override known settings."""
    for g, group in enumerate(config.runs):
        for field, table in (("envs", config.environments), ("methods", config.methods)):
            for name in getattr(group, field):
                if name not in table:
                    raise ValueError(f"runs.{g}.{field}: {unknown(name, table)}")
    for name, environment in config.environments.items():
        changed(config.sac, environment.sac, f"environments.{name}.sac")
        where = environment.downstream.env
        if where is not None and where not in config.environments:
            raise ValueError(f"environments.{name}.downstream.env: {unknown(where, config.environments)}")
    changed(config.sac, config.hierarchy.sac, "hierarchy.sac")
    if "flat" in config.methods:
        raise ValueError("methods.flat: the controller without skills goes by this name; give it another")


def method(config: Config, name: str) -> None:
    """Check that a method overrides known settings and names known environments and methods."""
    row = config.methods[name]
    if row.fork:
        parent = config.methods.get(row.fork.parent)
        if parent is None or not parent.incremental or parent.fork:
            known = ", ".join(sorted(n for n, other in config.methods.items() if other.incremental and not other.fork))
            raise ValueError(
                f"methods.{name}.fork.from: {row.fork.parent!r}: expected a chain that is no fork: {known}"
            )
        for key in ("normalise", "sigma"):
            own, inherited = getattr(row, key), getattr(parent, key)
            if own != inherited:
                raise ValueError(
                    f"methods.{name}.{key}: {own}: expected {inherited}, as {row.fork.parent} has it: a fork inherits "
                    "its transitions"
                )
    sac = changed(config.sac, row.sac, f"methods.{name}.sac")
    levels = {"sac": sac} | {
        f"sac_in.{env}": changed(sac, own, f"methods.{name}.sac_in.{env}") for env, own in row.sac_in.items()
    }
    for level, settings in levels.items():
        kind = objectives().get(row.objective)
        if kind and kind.weighs_actions and settings.seed_steps and settings.seed_actions is None:
            raise ValueError(
                f"methods.{name}.{level}.seed_actions: null: objective {row.objective} weighs actions by how likely "
                "they were: expected policy, or no seed_steps"
            )
    changed(config.curriculum, row.curriculum, f"methods.{name}.curriculum")
    changed(config.projection, row.projection, f"methods.{name}.projection")
    config.settings_of(name)
    if row.objective == "none" and row.steps != 0:
        raise ValueError(f"methods.{name}.steps: {row.steps!r}: objective none learns nothing, so steps 0")
    for field in ("steps", "first_steps", "skills", "sac_in"):
        listed = getattr(row, field)
        for env in listed if isinstance(listed, dict) else ():
            if env not in config.environments:
                raise ValueError(f"methods.{name}.{field}.{env}: {unknown(env, config.environments)}")


def budget(config: Config, env: str, method: str) -> None:
    """Refuse budgets in which some policy would never be updated, and snapshots that would never be taken."""
    environment, row, sac = config.environments[env], config.methods[method], config.sac_of(env, method)
    seed_steps = sac.seed_steps
    alone = row.incremental or row.policies == "shared" or row.objective == "none"
    if sac.environments and not alone:
        raise ConfigError(
            f"methods.{method}: {sac.environments} environments: expected one policy that acts in them: schedule "
            "incremental or policies shared"
        )
    if row.objective != "none":
        _critics(config, env, method)
    if row.incremental:
        _parts(config, env, method)
        for skill in range(environment.skills):
            steps, owner = config.steps_of(env, method, skill), config.owner_of(method, skill)
            where = f"environments.{env}.steps" if config.methods[owner].steps is None else f"methods.{owner}.steps"
            if skill == 0 and config.methods[owner].first_steps is not None:
                where = f"methods.{owner}.first_steps"
            if steps <= seed_steps:
                raise ConfigError(
                    f"{where}: {steps}: expected more than the "
                    f"{seed_steps} seed steps of {method}, or skill {skill} would never be updated"
                )
        if row.fork and row.fork.after >= environment.skills:
            raise ConfigError(
                f"methods.{method}.fork.after: {row.fork.after} in {env}: expected fewer than its "
                f"{environment.skills} skills, or there is nothing to learn after the fork"
            )
    elif row.objective != "none":
        budget = config.budget_of(env, method)
        policies = 1 if row.policies == "shared" else config.skills_of(env, method)
        if budget <= policies * seed_steps:
            raise ConfigError(
                f"methods.{method}.steps: {budget} in {env}: expected more than the {seed_steps} seed steps "
                f"of each of its {policies} policies"
            )
        if sac.iteration and budget < policies * (seed_steps + sac.iteration.steps):
            raise ConfigError(
                f"methods.{method}.steps: {budget} in {env}: expected at least the {seed_steps} seed steps and "
                f"{sac.iteration.steps} steps before the first updates, of each of its {policies} policies"
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


def _critics(config: Config, env: str, method: str) -> None:
    """Refuse critics that would see a σ that their replay does not hold."""
    row, sees = config.methods[method], config.sac_of(env, method).critic_sees
    if sees and config.world_of(env, method).sigma == "learned":
        raise ConfigError(
            f"methods.{method}.sac.critic_sees: {sees} in {env}, whose σ is learned after transitions are stored: "
            "expected null, or a given σ"
        )
    theirs = config.sac_of(env, row.fork.parent).critic_sees if row.fork and row.reuse_replay else sees
    if sees != theirs:
        raise ConfigError(
            f"methods.{method}.sac.critic_sees: {sees} in {env}: expected {theirs}, as the row has it that it forks "
            "from: a fork inherits its transitions"
        )


def _parts(config: Config, env: str, method: str) -> None:
    """Refuse parts of a chain that do not fit its batches or its world."""
    row, settings, batch = config.methods[method], config.settings_of(method), config.sac_of(env, method).batch_size
    over_own = isinstance(settings, Incremental) and (settings.normaliser, settings.normaliser_over)
    if over_own == ("running", "own") and row.reuse_replay and round((row.own_share or 0.0) * batch) < 1:
        raise ConfigError(
            f"methods.{method}.own_share: {row.own_share}: normaliser_over own needs own transitions in every batch: "
            f"expected a share of at least one in {batch}"
        )
    if row.warm == "recall" and config.projection_of(env, method):
        raise ConfigError(
            f"methods.{method}.warm: recall in {env}, whose σ is learned before each skill: recall compares states "
            "before that: expected last or diverse, or a given σ"
        )
    if row.aware and config.projection_of(env, method):
        raise ConfigError(
            f"methods.{method}.aware: true in {env}, whose σ is learned anew for each skill: expected a given σ, in "
            "which a frozen skill's states can be compared with those of its training"
        )
