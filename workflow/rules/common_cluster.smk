"""What jobs ask a cluster, or this machine's GPUs, for.

Changed requests rerun nothing.
"""

import walltime


def memory_of(job):
    """Return a resource function: the megabytes that a training asks for."""
    return lambda wildcards, attempt: _request(wildcards, job, attempt)[0]


def minutes_of(job):
    """Return a resource function: the walltime that a training asks for."""
    return lambda wildcards, attempt: _request(wildcards, job, attempt)[1]


def _request(w, job, attempt):
    """Megabytes and minutes of one training; `job` is the rule's function of the same name."""
    if not workflow.is_main_process:
        # On the node the request has been granted: the world need not be built again.
        return 1000, 60
    earlier, runtime = [], CONFIG.runtime
    if job is skill_job:
        needed = CONFIG.skill_job(w.env, w.method, int(w.seed), int(w.skill))
        if needed.replay_keep is not None:
            skills = range(needed.skill)
            earlier = [CONFIG.steps_of(w.env, w.method, skill) for skill in skills]
    elif job is joint_job:
        needed = CONFIG.joint_job(w.env, w.method, int(w.seed))
    else:
        method = w.get("method", disk.config.FLAT)
        seeds = int(w.seed), int(w.hierarchy_seed)
        needed = CONFIG.hierarchy_job(w.env, method, *seeds)
    size = walltime.size_of(needed.world)
    _check_retries(w.env, needed, size)
    return (
        walltime.memory_mb(needed, earlier, size, runtime, attempt),
        walltime.minutes(needed, size, runtime, attempt),
    )


def _check_retries(env, job, size):
    """Refuse a training on a cluster that needs more jobs than Snakemake may submit."""
    jobs = walltime.jobs_needed(job, size, CONFIG.runtime)
    allowed = workflow.execution_settings.retries + 1
    if workflow.resource_settings.nodes and jobs > allowed:
        raise WorkflowError(
            f"runtime.longest_minutes: {CONFIG.runtime.longest_minutes}: a training of {walltime.steps_of(job):,} steps in {env} is"
            f" spread over up to {jobs} jobs: give --retries {jobs + 1}, or more minutes"
        )


def gpus(wildcards):
    """Return the number of GPUs of a training: one if the device is CUDA."""
    return int(CONFIG.runtime.device.startswith("cuda"))


def tend_slurm():
    """Change two habits of the SLURM plugin, version 2.8, for which it has no options.

    It polls less and less often, down to every three minutes, and each skill of a chain would wait that long: here it
    polls at least every 30 seconds. It also waits for ever for a job that was preempted and cancelled: here such a job
    counts as cancelled and is submitted again. Requeued jobs are pending, not preempted, so nothing changes for them.
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
    """Refuse to start without sbatch, instead of failing at the first submission."""
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
    """Remove the checkpoints of finished trainings, which SLURM jobs keep until Snakemake knows of their end."""
    from disk.storage.checkpoint import clear_finished

    for pattern in ("*checkpoint", "hierarchy/*.checkpoint"):
        for found in RESULTS.glob(f"*/*/seed*/{pattern}"):
            run = found.name == disk.storage.layout.CHECKPOINT
            clear_finished(found.parent if run else found.with_suffix(""))


def calm_scheduler():
    """Let the scheduler look for jobs when one has ended, and not every second as often as jobs have ended.

    Snakemake 9.27 limits its rate by default. So each of its looks starts a timer for another look a second later, and a
    job that ends may add such a chain. After 130 trainings it looked twenty times a second.
    """
    default = (100, 1)  # jobs in a second; another limit is one that somebody asked for
    limit = workflow.scheduling_settings.max_jobs_per_timespan
    if limit and (limit.max_jobs, limit.timespan) == default:
        workflow.scheduler.job_rate_limiter = None


onstart:
    calm_scheduler()
    check_slurm()


onsuccess:
    clear_checkpoints()


def limit_gpu_jobs():
    """Limit trainings to the places on this machine's GPUs; `--resources gpu=N` overrides it."""
    import disk.storage.devices

    room = CONFIG.runtime.gpu_jobs_per_device * len(disk.storage.devices.devices())
    # Without a GPU the training itself says so.
    workflow.global_resources.setdefault("gpu", max(room, 1))


here = workflow.resource_settings.nodes is None
if workflow.is_main_process and here and CONFIG.runtime.device.startswith("cuda"):
    limit_gpu_jobs()
