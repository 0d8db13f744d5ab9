"""The configuration, checked before anything is planned, and the functions that rules ask it with."""

import fcntl
import json
import os
import shlex
import socket
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import validate

import disk.config
import disk.controllers
import disk.figures
import disk.files
import disk.runs

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
# `python` in a rule is the one that Snakemake runs under, also where its environment is not activated. SLURM sends
# SIGTERM to all processes of a job: the shell must outlive its trainer, or SLURM kills that before it has saved.
# In a container, `python` is the container's.
OWN_PATH = f'PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"; '
contained = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
shell.prefix("set -euo pipefail; trap : TERM; " + ("" if contained else OWN_PATH))

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
    return disk.figures.environments(CONFIG)


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
    alive = (folder / "alive").open("a+")  # NFS wants it readable for a shared lock
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in [*folder.glob("[0-9]*.lock"), *folder.glob("alive-*")]:
            left.unlink()
    except BlockingIOError:
        pass  # another controller is at work: Snakemake's locks decide what this one may do
    fcntl.flock(alive, fcntl.LOCK_SH)
    # One of its own too, by which a trainer knows that it is orphaned, even when a later controller is at work.
    own = (folder / f"alive-{socket.gethostname()}-{os.getpid()}").open("a+")
    fcntl.flock(own, fcntl.LOCK_EX)
    os.environ.update(DISK_CONTROLLER=os.path.abspath(own.name))
    return alive, own


def claim_results():
    """Refuse results that a Snakemake of another directory is at work on."""
    try:
        return disk.controllers.claim(disk.runs.results_root(CONFIG))
    except disk.files.ArtefactError as error:
        raise WorkflowError(str(error))


if workflow.is_main_process and not workflow.dryrun:
    ALIVE, CLAIM = forget_dead_controllers(), claim_results()
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
    return disk.figures.runs_of(CONFIG, env)


def tables_and_figures():
    """Tables and figures of every environment in the runs. A list: of a generator Snakemake loses the first item."""
    tables = []
    for env in environments():
        tables += [f"<results>/{env}/{name}" for name in ENV_TABLES]
        if CONFIG.environment(env).evolution:
            tables += [f"<results>/{env}/{name}" for name in EVOLVING_TABLES]
    return tables + all_figures()


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


# What figures are drawn from. Which there are is said in disk/figures.py.


def all_figures():
    """Figures of every environment in the runs."""
    names = (disk.figures.figures_of(CONFIG, env) for env in environments())
    return [f"<results>/{name}" for own in names for name in own]


def runs_label(wildcards):
    """Methods, seeds and steps behind a figure, for its caption in the report."""
    return disk.figures.runs_text(CONFIG, wildcards.env)


def run_label(wildcards):
    """The same of one method."""
    return disk.figures.runs_text(CONFIG, wildcards.env, wildcards.method)


def variants_label(wildcards):
    """The same of DISk and its variants."""
    variants = disk.figures.variants_of(CONFIG, wildcards.env)
    return disk.figures.runs_text(CONFIG, wildcards.env, *variants)


def legs_label(wildcards):
    """The same of the methods that are compared under every condition."""
    chosen = disk.figures.beside_each_other(CONFIG, wildcards.env)
    return disk.figures.runs_text(CONFIG, wildcards.env, *chosen)


def all_rollouts(wildcards):
    """Rollouts of every run in every condition of the environment."""
    files = [
        of_all_runs(f"rollouts/{condition}.parquet")(wildcards)
        for condition in conditions_of(wildcards.env)
    ]
    return [path for own in files for path in own]


def first_rollout_of_run(wildcards):
    """Rollouts of a run in its environment's first condition."""
    return _rollouts(wildcards, conditions_of(wildcards.env)[:1])


def variants_metrics(wildcards):
    """Measures of DISk and its variants."""
    found = disk.figures.variants_of(CONFIG, wildcards.env)
    if not found:
        raise WorkflowError(
            f"environments.{wildcards.env}: no ablations: its runs have fewer than two methods with objective disk"
        )
    return _run_files(wildcards, "metrics.csv", found)


def legs_rollouts(wildcards):
    """Rollouts of two methods, one seed each, in every condition: at the end, and of the last snapshot."""
    env, row = wildcards.env, CONFIG.environment(wildcards.env)
    chosen = disk.figures.beside_each_other(CONFIG, env)
    if not chosen:
        raise WorkflowError(
            f"environments.{env}: no legs.svg: it needs actuators that die, two conditions or more, and a learned run"
        )
    files = []
    for method in chosen:
        run = f"<results>/{env}/{method}/seed{disk.figures.first_runs(CONFIG, env)[method]}"
        names = list(row.conditions)
        if not CONFIG.method(method).incremental:
            names += [f"{name}@{step}" for step in row.snapshots[-1:] for name in names]
        files += [f"{run}/rollouts/{name}.parquet" for name in names]
    return files


def steps_of_skills(wildcards):
    """Steps that each skill of a chain is trained for, at most."""
    env, method = wildcards.env, wildcards.method
    count = range(CONFIG.skills_of(env, method))
    return json.dumps([CONFIG.steps_of(env, method, skill) for skill in count])


def stats_of_runs(wildcards):
    """stats.json of every training of an environment's runs."""
    files, skills = [], range(CONFIG.environment(wildcards.env).skills)
    for method, seed in runs_of(wildcards.env):
        run = f"<results>/{wildcards.env}/{method}/seed{seed}"
        if method in INCREMENTAL:
            own = [s for s in skills if CONFIG.owner_of(method, s) == method]
            files += [f"{run}/skill{skill:02d}/stats.json" for skill in own]
        else:
            files.append(f"{run}/stats.json")
    return files


# Videos and galleries.


def first_condition(wildcards):
    """The condition that a run's pictures are of, unless another is asked for."""
    return conditions_of(wildcards.env)[0]


def existing_videos(wildcards):
    """Videos of an environment's runs that there are, with their times.

    A parameter, no input: a gallery is made again when there are others, but never makes one, which needs OpenGL.
    """
    root = Path(config.get("pathvars", {}).get("results", "results"), wildcards.env)
    videos = [root / m / f"seed{seed}/skills.mp4" for m, seed in runs_of(wildcards.env)]
    return [f"{path} {int(path.stat().st_mtime)}" for path in videos if path.exists()]


# What jobs ask a cluster for. Resources are no reason to run anything again, so all of this may change at any time.


def memory_of(job):
    """A resource function: megabytes that the training asks for, half as many again with each retry."""

    def asked(wildcards, attempt):
        return _asked(wildcards, job, attempt)[0]

    return asked


def minutes_of(job):
    """The same of its walltime."""

    def asked(wildcards, attempt):
        return _asked(wildcards, job, attempt)[1]

    return asked


def _asked(wildcards, job, attempt):
    from disk import resources

    w, runtime = wildcards, CONFIG.runtime
    if not workflow.is_main_process:
        return (
            1000,
            60,
        )  # on the node the request has been granted: no need to build the world once more
    if job is skill_job:
        needed = CONFIG.skill_job(w.env, w.method, int(w.seed), int(w.skill))
        inherits = range(needed.skill) if needed.replay_keep is not None else []
        earlier = [CONFIG.steps_of(w.env, w.method, skill) for skill in inherits]
    else:
        needed, earlier = CONFIG.joint_job(w.env, w.method, int(w.seed)), []
    size = resources.size_of(needed.world)
    parts = resources.jobs_needed(needed, size, runtime)
    if (
        workflow.resource_settings.nodes
        and parts > workflow.execution_settings.retries + 1
    ):
        raise WorkflowError(
            f"runtime.longest_minutes: {runtime.longest_minutes}: a training of {needed.steps:,} steps in {w.env} is"
            f" spread over {parts} jobs: give --retries {parts + 2}, or more minutes"
        )
    return (
        resources.memory_mb(needed, earlier, size, runtime, attempt),
        resources.minutes(needed, size, runtime, attempt),
    )


def gpus(wildcards):
    """GPUs of a training: one where the configuration says so."""
    return int(CONFIG.runtime.device.startswith("cuda"))


def tend_slurm():
    """Two things that the SLURM plugin, version 2.8, has no options for, set before it runs.

    It waits longer with every look that finds nothing finished, up to three minutes, which each link of a chain
    would pay for: half a minute at most. And it waits for ever for a job that was preempted and cancelled: counted
    as cancelled, it is submitted again. A job that is requeued is not affected: it is pending, not preempted.
    """
    import snakemake_executor_plugin_slurm as plugin

    seconds = plugin.Executor.next_seconds_between_status_checks
    query = plugin.query_job_status

    async def query_job_status(*arguments):
        found, duration = await query(*arguments)
        preempted = {
            name for name, state in (found or {}).items() if state == "PREEMPTED"
        }
        return found and {**found, **dict.fromkeys(preempted, "CANCELLED")}, duration

    plugin.query_job_status = query_job_status
    plugin.Executor.next_seconds_between_status_checks = seconds.getter(
        lambda executor: min(seconds.fget(executor), 30)
    )


def check_slurm():
    """Say in a line what is missing, instead of failing at the first submission."""
    import shutil

    if "slurm" in workflow.executor_plugin.executor.__module__ and not shutil.which(
        "sbatch"
    ):
        raise WorkflowError(
            "--profile slurm: there is no sbatch here. Run it on a login node of a cluster, or with --cores 2 instead"
        )


if workflow.is_main_process:
    tend_slurm()


def clear_checkpoints():
    """Remove what trainings in SLURM jobs have left until their end was known."""
    from disk.checkpoint import clear_finished

    root = Path(CONFIG.pathvars.get("results", "results"))
    for found in root.glob("*/*/seed*/*checkpoint"):
        run = found.name == "checkpoint"
        clear_finished(found.parent if run else found.with_suffix(""))


onstart:
    check_slurm()


onsuccess:
    clear_checkpoints()


def limit_gpu_jobs():
    """As many trainings at a time as there are places on this machine's GPUs; `--resources gpu=N` says otherwise."""
    import disk.devices

    room = CONFIG.runtime.gpu_jobs_per_device * len(disk.devices.devices())
    workflow.global_resources.setdefault(
        "gpu", max(room, 1)
    )  # without a GPU, a training says so


here = workflow.resource_settings.nodes is None
if workflow.is_main_process and here and CONFIG.runtime.device.startswith("cuda"):
    limit_gpu_jobs()


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
