"""The configuration, checked before anything is planned, and the functions that rules ask it with."""

import fcntl
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

import disk.config

try:
    CONFIG = disk.config.parse(config)
except disk.config.ConfigError as error:
    raise WorkflowError(str(error))
# The same models as a schema: for editors, and for readers who look for one.
validate(config, Path(workflow.basedir, "workflow/schemas/config.schema.yaml"))

# How jobs run, as opposed to what they compute. No rule's parameter, since a changed parameter retrains.
os.environ.update(
    DISK_RUNTIME=json.dumps(
        {
            "runtime": CONFIG.runtime.model_dump(),
            "tracking": CONFIG.tracking.model_dump(),
        }
    )
)
# `python` in a rule is the one that Snakemake runs under, also where its environment is not activated.
shell.prefix(
    f'set -euo pipefail; PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; '
)

ENV_FILES = ["hausdorff.csv", "summary.csv", "trajectories.svg", "hausdorff.svg"]
EVOLVING_FILES = ["forgetting.csv", "forgetting.svg"]
INCREMENTAL = [name for name, method in CONFIG.methods.items() if method.incremental]
JOINT = [name for name in CONFIG.methods if name not in INCREMENTAL]


def conditions_of(*envs):
    """Worlds that the skills of these environments, or of all, are evaluated in."""
    names = (
        name
        for env in envs or CONFIG.environments
        for name in CONFIG.environment(env).conditions
    )
    return list(dict.fromkeys(names))


def environments():
    """Environments of all run groups, each once, in the order they are listed."""
    return list(dict.fromkeys(env for group in CONFIG.runs for env in group.envs))


def check_worlds():
    """Build every world of the runs once: what its model does not have is refused before anything is planned."""
    import disk.envs

    for env in environments():
        try:
            disk.envs.make(CONFIG.environment(env).world()).close()
        except disk.config.ConfigError as error:
            raise WorkflowError(f"environments.{env}: {error}")


def forget_dead_controllers():
    """Remove the locks that a killed Snakemake left behind, so that the same command goes on.

    A controller holds a lock of the kernel's for as long as it lives, shared with others. Whoever gets
    it for itself is alone, and Snakemake's own lock files, if there are any, belong to the dead.
    """
    folder = Path(".snakemake/locks")
    folder.mkdir(parents=True, exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob("[0-9]*.lock"):
            left.unlink()
    except BlockingIOError:
        pass  # another controller is at work: Snakemake's locks decide what this one may do
    fcntl.flock(alive, fcntl.LOCK_SH)
    os.environ.update(
        DISK_CONTROLLER=os.path.abspath(alive.name)
    )  # by which a trainer knows that it is orphaned
    return alive


if workflow.is_main_process and not workflow.dryrun:
    ALIVE = forget_dead_controllers()
if workflow.is_main_process:
    check_worlds()


wildcard_constraints:
    env="|".join(CONFIG.environments),
    method="|".join(CONFIG.methods),
    seed=r"0|[1-9]\d*",
    skill=r"\d{2}",
    condition="|".join(conditions_of()),
    step=r"[1-9]\d*",


def runs_of(env):
    """(method, seed) of every run in an environment; where no group lists it, with the methods of the first group."""
    groups = [group for group in CONFIG.runs if env in group.envs]
    found = [
        (method, seed)
        for group in groups
        for method in group.methods
        for seed in CONFIG.seeds_of(group)
    ]
    methods = CONFIG.runs[0].methods if CONFIG.runs else CONFIG.methods
    found = found or [(m, seed) for m in methods for seed in CONFIG.seeds]
    return list(dict.fromkeys(found))


def tables_and_figures():
    """Tables and figures of every environment in the runs."""
    for env in environments():
        yield from (f"<results>/{env}/{name}" for name in ENV_FILES)
        if CONFIG.environment(env).evolution:
            yield from (f"<results>/{env}/{name}" for name in EVOLVING_FILES)
            first = {method: seed for method, seed in reversed(runs_of(env))}
            for method, seed in first.items():
                if CONFIG.method(method).objective != "none":
                    yield f"<results>/{env}/{method}/seed{seed}/worlds.svg"


def of_all_runs(path):
    """An input function: a file of every run in the environment."""
    return lambda wildcards: _run_files(wildcards, path, CONFIG.methods)


def of_learned_runs(path):
    """The same of those runs in which anything is learned."""
    learned = [name for name, row in CONFIG.methods.items() if row.objective != "none"]
    return lambda wildcards: _run_files(wildcards, path, learned)


def of_incremental_runs(path):
    """The same of those runs whose skills are learned one after another."""
    return lambda wildcards: _run_files(wildcards, path, INCREMENTAL)


def _run_files(wildcards, path, methods):
    runs = [f"{m}/seed{seed}" for m, seed in runs_of(wildcards.env) if m in methods]
    return collect(f"<results>/{wildcards.env}/{{run}}/{path}", run=runs)


def first_rollouts(wildcards):
    """Rollouts of every run in the environment's first condition."""
    condition = conditions_of(wildcards.env)[0]
    return of_all_runs(f"rollouts/{condition}.parquet")(wildcards)


def rollouts_of_run(wildcards):
    """Rollouts of a run in every condition of its environment."""
    return _rollouts(wildcards, conditions_of(wildcards.env))


def rollouts_and_snapshots_of_run(wildcards):
    """The same, and those of the run's snapshots."""
    w, conditions = wildcards, conditions_of(wildcards.env)
    row = CONFIG.method(w.method)
    taken = CONFIG.environment(w.env).snapshots
    steps = [] if row.incremental or row.objective == "none" else taken
    names = [f"{name}@{step}" for step in steps for name in conditions]
    return _rollouts(w, [*conditions, *names])


def _rollouts(w, names):
    run = f"<results>/{w.env}/{w.method}/seed{w.seed}"
    return collect(f"{run}/rollouts/{{name}}.parquet", name=names)


def of_earlier_skills(name):
    """An input function: a file of every skill before this one, in the order they were learned."""

    def files(wildcards):
        # A later skill than the configuration has is refused here, before anything is planned.
        skill_job(wildcards)
        return _skill_files(wildcards, range(int(wildcards.skill)), name)

    return files


def earlier_visits(wildcards):
    """States of the earlier skills, where the world stands still: elsewhere they are seen anew."""
    evolving = CONFIG.environment(wildcards.env).evolution
    return [] if evolving else of_earlier_skills("visits.npy")(wildcards)


def earlier_replays(wildcards):
    """Replays of the earlier skills, for methods that reuse them: without, the edges are missing."""
    reuse = CONFIG.method(wildcards.method).reuse_replay
    return of_earlier_skills("replay.safetensors")(wildcards) if reuse else []


def of_all_skills(name):
    """An input function: a file of every skill of a run."""

    def files(wildcards):
        return _skill_files(
            wildcards, range(CONFIG.environment(wildcards.env).skills), name
        )

    return files


def _skill_files(wildcards, skills, name):
    """Of a fork, the skills before it are another run's."""
    w = wildcards
    return [
        f"<results>/{w.env}/{CONFIG.owner_of(w.method, skill)}/seed{w.seed}/skill{skill:02d}/{name}"
        for skill in skills
    ]


def skill_job(wildcards):
    """What a skill depends on besides its inputs, and nothing else: Snakemake compares it between runs."""
    w = wildcards
    try:
        return CONFIG.skill_job(w.env, w.method, int(w.seed), int(w.skill)).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def joint_job(wildcards):
    """What a run whose skills are made together depends on."""
    w = wildcards
    try:
        return CONFIG.joint_job(w.env, w.method, int(w.seed)).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def evaluation_job(wildcards):
    """What rollouts depend on besides the skills; without a condition, in the environment's first."""
    w = wildcards
    job = CONFIG.evaluation_job(w.env, w.get("condition"), w.get("method"))
    return job.canonical()


def evaluation_jobs(wildcards):
    """The same for every condition of the environment."""
    env, method = wildcards.env, wildcards.get("method")
    jobs = {
        name: CONFIG.evaluation_job(env, name, method).model_dump(mode="json")
        for name in conditions_of(env)
    }
    return json.dumps(jobs, sort_keys=True)


def environment_row(wildcards):
    """A row of envs.yaml."""
    return CONFIG.environment(wildcards.env).canonical()


def runs_label(wildcards):
    """Methods and seeds behind a figure, for its caption in the report."""
    runs = runs_of(wildcards.env)
    methods = dict.fromkeys(method for method, _ in runs)
    return ", ".join(
        f"{m} × {sum(1 for name, _ in runs if name == m)}" for m in methods
    )


# Skills at work: controllers over the skills of runs.


def hierarchies_of(env):
    """(method, seed, hierarchy seed) of every controller in an environment.

    Those of run groups that ask for them; where none does, of all its runs, for whoever asks by path.
    """
    groups = [g for g in CONFIG.runs if env in g.envs and g.hierarchy]
    runs = [
        (method, seed)
        for group in groups
        for method in group.methods
        for seed in CONFIG.seeds_of(group)
    ] or runs_of(env)
    # A controller without skills has no run of skills: its seeds are the controllers' own.
    flat = [(disk.config.FLAT, 0)] if CONFIG.hierarchy.flat else []
    return [
        (m, s, h) for m, s in dict.fromkeys(runs + flat) for h in CONFIG.hierarchy.seeds
    ]


def worlds_at_work():
    """Environments whose skills are put to work, in the order they are listed."""
    groups = [group for group in CONFIG.runs if group.hierarchy]
    return list(dict.fromkeys(env for group in groups for env in group.envs))


def curves_of(*envs):
    """An input function: the curves of every controller in these environments, or in the one that is asked for."""
    return lambda wildcards: [
        f"<results>/{env}/{method}/seed{seed}/hierarchy/seed{h}.csv"
        for env in envs or [wildcards.env]
        for method, seed, h in hierarchies_of(env)
    ]


def downstream_files():
    """Tables and figures of skills at work; a figure with all worlds where there are several."""
    worlds = worlds_at_work()
    for env in worlds:
        yield from (f"<results>/{env}/downstream.{form}" for form in ("csv", "svg"))
    if len(worlds) > 1:
        yield "<results>/downstream.svg"


def hierarchy_job(wildcards):
    """What a controller depends on besides its skills."""
    w = wildcards
    method = w.get("method", disk.config.FLAT)
    try:
        job = CONFIG.hierarchy_job(w.env, method, int(w.seed), int(w.hierarchy_seed))
        return job.canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def hierarchies_label(wildcards):
    """Methods and controllers behind a figure, for its caption in the report."""
    env = wildcards.get("env")
    found = [
        method
        for world in ([env] if env else worlds_at_work())
        for method, _, _ in hierarchies_of(world)
    ]
    return ", ".join(f"{m} × {found.count(m)}" for m in dict.fromkeys(found))
