"""The configuration, checked before anything is planned, and the functions that rules ask it with."""

import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import validate

import disk.config
import disk.errors
import disk.figures.catalogue
import disk.storage.layout
import disk.storage.lock

try:
    CONFIG = disk.config.parse(config)
except disk.errors.ConfigError as error:
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
# `python` in a rule is the one that Snakemake runs under, also where its environment is not activated. SLURM sends
# SIGTERM to all processes of a job: the shell must outlive its trainer, or SLURM kills that before it has saved.
# In a container, `python` is the container's.
OWN_PATH = f'PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; '
contained = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
shell.prefix("set -euo pipefail; trap : TERM; " + ("" if contained else OWN_PATH))

STATISTICS = ["statistics.csv", "profiles.csv", "profiles.svg"]
ENV_TABLES = ["hausdorff.csv", "summary.csv", "runs.csv"]
EVOLVING_TABLES = ["forgetting.csv"]
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
    return disk.figures.catalogue.environments(CONFIG)


def check_worlds():
    """Build every world of the runs once: what its model does not have is refused before anything is planned."""
    import disk.envs

    for env in environments():
        row = CONFIG.environment(env)
        try:
            for world in {
                w.canonical(): w for w in (row.world(), row.training_world())
            }.values():
                disk.envs.make(world).close()
        except disk.errors.ConfigError as error:
            raise WorkflowError(f"environments.{env}: {error}")


def claim_results():
    """Refuse results that a Snakemake of another directory is at work on."""
    try:
        return disk.storage.lock.claim(disk.storage.layout.results_root(CONFIG))
    except disk.errors.ArtefactError as error:
        raise WorkflowError(str(error))


if workflow.is_main_process and not workflow.dryrun:
    # Locks that the kernel frees when this Snakemake ends. The next one then removes what a killed one left behind.
    ALIVE = disk.storage.lock.stay_alive(Path(".snakemake/locks"))
    CLAIM = claim_results()
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
    """(method, seed) of every run in an environment."""
    return disk.figures.catalogue.runs_of(CONFIG, env)


def tables_and_figures():
    """Tables and figures of every environment in the runs. A list: of a generator Snakemake loses the first item."""
    tables = []
    for env in environments():
        tables += [f"<results>/{env}/{name}" for name in ENV_TABLES]
        if CONFIG.environment(env).evolution:
            tables += [f"<results>/{env}/{name}" for name in EVOLVING_TABLES]
    if metrics_of_all_worlds():
        tables += [f"<results>/{name}" for name in STATISTICS]
    return tables + all_figures()


def metrics_of_all_worlds(wildcards=None):
    """Measures of every run in every environment whose movers are counted."""
    counted = [
        env for env in environments() if CONFIG.environment(env).moves is not None
    ]
    return [
        f"<results>/{env}/{method}/seed{seed}/metrics.csv"
        for env in counted
        for method, seed in runs_of(env)
    ]


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


def measure_job(wildcards):
    """What measures depend on besides the rollouts."""
    return CONFIG.measure_job(wildcards.env).canonical()


def usable_job(wildcards):
    """At which moments the skills of a run are counted, and in which worlds."""
    try:
        return CONFIG.usable_job(wildcards.env, wildcards.method).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def environment_row(wildcards):
    """A row of envs.yaml."""
    return CONFIG.environment(wildcards.env).canonical()
