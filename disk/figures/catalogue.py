"""The figures of a configuration, as paths below the root of the results.

The workflow makes all of them; a report shows those that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from disk.config import Config
from disk.storage.layout import results_root

OURS = "disk"
"""Ablations vary this method, and its skills are shown in the order learned."""
BESIDE = "dads"
"""The method that legs.svg compares it with, as in the paper."""


def environments(config: Config) -> list[str]:
    """Return the environments of all run groups, each once, in the order listed."""
    return list(dict.fromkeys(env for group in config.runs for env in group.envs))


def runs_of(config: Config, env: str) -> list[tuple[str, int]]:
    """Return (method, seed) of every run in an environment. If no group lists it, the first group's methods count."""
    groups = [group for group in config.runs if env in group.envs]
    found = [(method, seed) for group in groups for method in group.methods for seed in config.seeds_of(group)]
    methods = config.runs[0].methods if config.runs else list(config.methods)
    found = found or [(method, seed) for method in methods for seed in config.seeds]
    return list(dict.fromkeys(found))


def first_runs(config: Config, env: str) -> dict[str, int]:
    """Return the first seed of each method that learns anything."""
    first = dict(reversed(runs_of(config, env)))
    methods = dict.fromkeys(method for method, _ in runs_of(config, env))
    return {method: first[method] for method in methods if config.method(method).objective != "none"}


def chain_of(config: Config, env: str) -> str | None:
    """Return the method whose skills are shown one by one: DISk, or the first incremental one."""
    chains = [method for method in first_runs(config, env) if config.method(method).incremental]
    return OURS if OURS in chains else next(iter(chains), None)


def variants_of(config: Config, env: str) -> list[str]:
    """Return the methods with DISk's objective, for ablations; none if there is only one."""
    found = [method for method in first_runs(config, env) if config.method(method).objective == OURS]
    return found if len(found) > 1 else []


def beside_each_other(config: Config, env: str) -> list[str]:
    """Return the methods of legs.svg: a chain and a joint method, if actuators of the robot die."""
    row, learned = config.environment(env), list(first_runs(config, env))
    breaks = any(change.what == "actuator" for change in row.evolution.changes) if row.evolution else False
    if not breaks or len(row.conditions) < 2 or "trained" in row.moments.values():
        return []
    joint = [method for method in learned if not config.method(method).incremental]
    chosen = [chain_of(config, env), BESIDE if BESIDE in joint else next(iter(joint), None)]
    return [method for method in chosen if method is not None]


def figures_of(config: Config, env: str) -> Iterator[str]:
    """Yield the figures of one environment."""
    learned, chain = first_runs(config, env), chain_of(config, env)
    yield from (f"{env}/{name}.svg" for name in ("trajectories", "hausdorff", "consistency"))
    if learned:
        yield f"{env}/curves.svg"
    if variants_of(config, env):
        yield f"{env}/ablations.svg"
    if chain is not None:
        yield f"{env}/{chain}/seed{learned[chain]}/order.svg"
    for method, seed in learned.items():
        if config.method(method).incremental and config.projection_of(env, method):
            yield f"{env}/{method}/seed{seed}/projection.svg"
    if config.environment(env).evolution:
        yield f"{env}/forgetting.svg"
        if config.environment(env).moves is not None:
            yield from (f"{env}/{name}.svg" for name in ("usable", "recovery"))
        yield from (f"{env}/{method}/seed{seed}/worlds.svg" for method, seed in learned.items())
    if beside_each_other(config, env):
        yield f"{env}/legs.svg"
    if any(group.hierarchy for group in config.runs if env in group.envs):
        yield f"{env}/downstream.svg"


def computed(config: Config) -> list[Path]:
    """Return the figures and tables of runs that exist: the contents of a report."""
    root = results_root(config)
    wanted = [root / name for env in config.environments for name in (*figures_of(config, env), f"{env}/runs.csv")]
    return [path for path in (*wanted, root / "profiles.svg") if path.exists()]


def runs_text(config: Config, env: str, *methods: str) -> str:
    """Return methods, seeds and steps for the caption of a figure, of all methods or of some."""
    runs = runs_of(config, env)
    said = []
    for method in dict.fromkeys(method for method, _ in runs if not methods or method in methods):
        seeds = sum(1 for name, _ in runs if name == method)
        row = config.method(method)
        budget = f"{config.budget_of(env, method):,} steps" if row.objective != "none" else "untrained"
        most = "at most " if row.adaptive or row.budget else ""
        said.append(f"{method} ({seeds} seed{'' if seeds == 1 else 's'}, {most}{budget})")
    return ", ".join(said)
