"""What jobs ask a cluster, or this machine's GPUs, for.

Resources are no reason to run anything again, so all of this may change at any time.
"""


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
    elif job is joint_job:
        needed, earlier = CONFIG.joint_job(w.env, w.method, int(w.seed)), []
    else:
        method = w.get("method", disk.config.FLAT)
        seeds = int(w.seed), int(w.hierarchy_seed)
        needed, earlier = CONFIG.hierarchy_job(w.env, method, *seeds), []
    size = resources.size_of(needed.world)
    parts = resources.jobs_needed(needed, size, runtime)
    if (
        workflow.resource_settings.nodes
        and parts > workflow.execution_settings.retries + 1
    ):
        raise WorkflowError(
            f"runtime.longest_minutes: {runtime.longest_minutes}: a training of {resources.steps_of(needed):,} steps in {w.env} is"
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
    from disk.storage.checkpoint import clear_finished

    root = Path(CONFIG.pathvars.get("results", "results"))
    for found in [
        *root.glob("*/*/seed*/*checkpoint"),
        *root.glob("*/*/seed*/hierarchy/*.checkpoint"),
    ]:
        run = found.name == "checkpoint"
        clear_finished(found.parent if run else found.with_suffix(""))


onstart:
    check_slurm()


onsuccess:
    clear_checkpoints()


def limit_gpu_jobs():
    """As many trainings at a time as there are places on this machine's GPUs; `--resources gpu=N` says otherwise."""
    import disk.storage.devices

    room = CONFIG.runtime.gpu_jobs_per_device * len(disk.storage.devices.devices())
    workflow.global_resources.setdefault(
        "gpu", max(room, 1)
    )  # without a GPU, a training says so


here = workflow.resource_settings.nodes is None
if workflow.is_main_process and here and CONFIG.runtime.device.startswith("cuda"):
    limit_gpu_jobs()
