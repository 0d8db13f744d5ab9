"""The configuration, checked before anything is planned, and the functions through which rules read it."""

import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import validate

import disk.config
import disk.config.targets
import disk.errors
import disk.figures.catalogue
import disk.storage.layout
import disk.storage.lock

# A module's configuration, or that of a working directory, may hold changes only.
try:
    # Snakemake has read these files already, but it drops a key that is in a file twice.
    disk.config.read(map(Path, workflow.configfiles))
    SETTINGS = disk.config.merge(disk.config.read(disk.config.DEFAULT_FILES), config)
    if workflow.modifier.parent_modifier is None:
        # Snakemake leaves numbers within the braces or brackets of --config as text.
        given = disk.config.typed(workflow.config_settings.config)
        SETTINGS = disk.config.merge(SETTINGS, given)
    CONFIG = disk.config.parse(SETTINGS)
except disk.errors.ConfigError as error:
    raise WorkflowError(str(error))
# The same models as a schema: for editors, and for readers who look for one. Rows are checked with the keys of the rows
# that they are `like`.
ROWS = SETTINGS["methods"]
ROWS = {name: disk.config.alike(ROWS, name) for name in ROWS}
validate({**SETTINGS, "methods": ROWS}, "../schemas/config.schema.yaml")

# This folder, or one at a code host, and where results are: a module may move them.
HERE = workflow.current_basedir
RESULTS = Path(workflow.pathvars.apply(workflow.modifier.modify_path("<results>")))

# Settings that change how jobs run, not what they compute. A parameter of a rule would retrain when it changes.
os.environ.update(
    DISK_RUNTIME=json.dumps(
        {
            "runtime": CONFIG.runtime.model_dump(),
            "tracking": CONFIG.tracking.model_dump(),
            "skills": {
                f"{env}/{method}": CONFIG.skills_of(env, method)
                for group in CONFIG.runs
                for env in group.envs
                for method in group.methods
            },
        }
    )
)
# Rules use Snakemake's own Python, even if its environment is not activated; in a container, the container's. SLURM sends
# SIGTERM to all processes of a job: the shell must outlive its trainer, or SLURM kills the trainer before it has saved.
OWN_PATH = f'PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; '
contained = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
shell.prefix("set -euo pipefail; trap : TERM; " + ("" if contained else OWN_PATH))

STATISTICS = ["statistics.csv", "profiles.csv", "profiles.svg"]
ENV_TABLES = ["hausdorff.csv", "summary.csv", "runs.csv"]
EVOLVING_TABLES = ["forgetting.csv"]
INCREMENTAL = [name for name, method in CONFIG.methods.items() if method.incremental]
JOINT = [name for name in CONFIG.methods if name not in INCREMENTAL]


def file_of_workflow(name):
    """Return the path of a file below workflow/. A file at a code host is fetched."""
    file = HERE.join(f"../{name}")
    if not file.is_local:
        return workflow.sourcecache.get_path(file)
    return os.path.normpath(file.get_path_or_uri(secret_free=True))


# Modules of the workflow's own.
for own in ("walltime.py", "invocation.py"):
    sys.path.insert(0, os.path.dirname(file_of_workflow(own)))
import invocation


def run_script(call):
    """Return the command that calls a script of this workflow, given its name and arguments.

    In its own checkout the path is relative, so that the command is the same text everywhere: Snakemake compares it.
    """
    name, _, arguments = call.partition(" ")
    path, beside = file_of_workflow(f"scripts/{name}"), f"workflow/scripts/{name}"
    if os.path.exists(beside) and os.path.samefile(path, beside):
        path = beside
    return f"python {shlex.quote(path)} {arguments}"


def conditions_of(*envs):
    """Return the conditions in which the skills of these environments, or of all, are evaluated."""
    names = (
        name
        for env in envs or CONFIG.environments
        for name in CONFIG.environment(env).conditions
    )
    return list(dict.fromkeys(names))


def environments():
    """Return the environments of all run groups, each once, in the order listed."""
    return disk.figures.catalogue.environments(CONFIG)


def check_worlds():
    """Build every world of the runs once, so that unknown names in it are refused before anything is planned."""
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


wildcard_constraints:
    env="|".join(CONFIG.environments),
    method="|".join(CONFIG.methods),
    seed=r"0|[1-9]\d*",
    skill=r"\d{2}",
    condition="|".join(conditions_of()),
    step=r"[1-9]\d*",


def runs_of(env):
    """Return (method, seed) of every run in an environment."""
    return disk.figures.catalogue.runs_of(CONFIG, env)


def tables_and_figures():
    """Return all tables and figures of the runs, as a list: Snakemake loses the first item of a generator."""
    tables = []
    for env in environments():
        tables += [f"<results>/{env}/{name}" for name in ENV_TABLES]
        if CONFIG.environment(env).evolution:
            tables += [f"<results>/{env}/{name}" for name in EVOLVING_TABLES]
    if metrics_of_all_worlds():
        tables += [f"<results>/{name}" for name in STATISTICS]
    return tables + all_figures()


def metrics_of_all_worlds(wildcards=None):
    """Return metrics.csv of every run in every environment that counts movers."""
    counted = [
        env for env in environments() if CONFIG.environment(env).moves is not None
    ]
    return [
        f"<results>/{env}/{method}/seed{seed}/metrics.csv"
        for env in counted
        for method, seed in runs_of(env)
    ]


def of_all_runs(path):
    """Return an input function: a file of every run in the environment."""
    return lambda wildcards: _run_files(wildcards, path, CONFIG.methods)


def in_changing_worlds(files):
    """Return an input function that asks for these files in worlds that change, and is refused in others."""

    def own(wildcards):
        if not CONFIG.environment(wildcards.env).evolution:
            raise WorkflowError(
                f"environments.{wildcards.env}.evolution: missing: nothing is forgotten where the world never changes"
            )
        return files(wildcards)

    return own


def of_learned_runs(path):
    """Return an input function: a file of every run in which anything is learned."""
    learned = [name for name, row in CONFIG.methods.items() if row.objective != "none"]
    return lambda wildcards: _run_files(wildcards, path, learned)


def of_incremental_runs(path):
    """Return an input function: a file of every run whose skills are learned one after another."""
    return lambda wildcards: _run_files(wildcards, path, INCREMENTAL)


def _run_files(wildcards, path, methods):
    runs = [f"{m}/seed{seed}" for m, seed in runs_of(wildcards.env) if m in methods]
    return collect(f"<results>/{wildcards.env}/{{run}}/{path}", run=runs)


def first_rollouts(wildcards):
    """Return the rollouts of every run in the environment's first condition."""
    condition = conditions_of(wildcards.env)[0]
    return of_all_runs(f"rollouts/{condition}.parquet")(wildcards)


def rollouts_of_run(wildcards):
    """Return the rollouts of a run in every condition of its environment."""
    return _rollouts(wildcards, conditions_of(wildcards.env))


def rollouts_and_snapshots_of_run(wildcards):
    """Return the rollouts of a run and of its snapshots in every condition."""
    w, conditions = wildcards, conditions_of(wildcards.env)
    row = CONFIG.method(w.method)
    taken = CONFIG.environment(w.env).snapshots
    steps = [] if row.incremental or row.objective == "none" else taken
    names = [f"{name}@{step}" for step in steps for name in conditions]
    return _rollouts(w, [*conditions, *names])


def stats_of_snapshot(wildcards):
    """Return stats.json of a run that has the snapshot; the configuration says which are taken."""
    w = wildcards
    if CONFIG.method(w.method).objective == "none":
        raise WorkflowError(
            f"methods.{w.method}: learns nothing, so it has no snapshots"
        )
    taken = CONFIG.environment(w.env).snapshots
    if int(w.step) not in taken:
        steps = ", ".join(map(str, taken)) or "none at all"
        raise WorkflowError(
            f"environments.{w.env}.snapshots: no snapshot is taken at step {w.step}; expected one of: {steps}"
        )
    return f"<results>/{w.env}/{w.method}/seed{w.seed}/stats.json"


def _rollouts(w, names):
    run = f"<results>/{w.env}/{w.method}/seed{w.seed}"
    return collect(f"{run}/rollouts/{{name}}.parquet", name=names)


def of_earlier_skills(name):
    """Return an input function: a file of every earlier skill, in the order learned."""

    def files(wildcards):
        # Refuses a skill beyond those of the configuration, before anything is planned.
        skill_job(wildcards)
        return _skill_files(wildcards, range(int(wildcards.skill)), name)

    return files


def earlier_visits(wildcards):
    """Return the visited states of earlier skills. In a changing world they are collected again instead."""
    evolving = CONFIG.environment(wildcards.env).evolution
    return [] if evolving else of_earlier_skills("visits.npy")(wildcards)


def earlier_replays(wildcards):
    """Return the replays of earlier skills, for methods that reuse them."""
    reuse = CONFIG.method(wildcards.method).reuse_replay
    return of_earlier_skills("replay.safetensors")(wildcards) if reuse else []


def of_all_skills(name):
    """Return an input function: a file of every skill of a run."""

    def files(wildcards):
        return _skill_files(
            wildcards, range(CONFIG.environment(wildcards.env).skills), name
        )

    return files


def _skill_files(wildcards, skills, name):
    """Return a file of some skills. The early skills of a fork belong to another run."""
    w = wildcards
    return [
        f"<results>/{w.env}/{CONFIG.owner_of(w.method, skill)}/seed{w.seed}/skill{skill:02d}/{name}"
        for skill in skills
    ]


def skill_job(wildcards):
    """Return all settings that change a skill, and no others: Snakemake compares them between runs."""
    w = wildcards
    try:
        return CONFIG.skill_job(w.env, w.method, int(w.seed), int(w.skill)).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def joint_job(wildcards):
    """Return all settings that change a run whose skills are learned together."""
    w = wildcards
    try:
        return CONFIG.joint_job(w.env, w.method, int(w.seed)).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def evaluation_job(wildcards):
    """Return all settings that change rollouts. Without a condition, the environment's first one counts."""
    w = wildcards
    job = CONFIG.evaluation_job(w.env, w.get("condition"), w.get("method"))
    return job.canonical()


def evaluation_jobs(wildcards):
    """Return the settings of rollouts for every condition of the environment."""
    env, method = wildcards.env, wildcards.get("method")
    jobs = {
        name: CONFIG.evaluation_job(env, name, method).model_dump(mode="json")
        for name in conditions_of(env)
    }
    return json.dumps(jobs, sort_keys=True)


def measure_job(wildcards):
    """Return all settings that change the measures of given rollouts."""
    return CONFIG.measure_job(wildcards.env).canonical()


def usable_job(wildcards):
    """Return the steps at which usable skills are counted, and their worlds."""
    try:
        return CONFIG.usable_job(wildcards.env, wildcards.method).canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def environment_row(wildcards):
    """Return a row of envs.yaml."""
    return CONFIG.environment(wildcards.env).canonical()
