"""The downstream task: controllers over the skills of runs."""


def hierarchies_of(env):
    """Return (method, seed, hierarchy seed) of every controller in an environment.

    If no run group asks for controllers, all its runs count, so that a target can still be given by path.
    """
    groups = [g for g in CONFIG.runs if env in g.envs and g.hierarchy]
    runs = [
        (method, seed)
        for group in groups
        for method in group.methods
        for seed in CONFIG.seeds_of(group)
    ] or runs_of(env)
    # A controller without skills belongs to no run, so only its own seeds count.
    flat = [(disk.config.FLAT, 0)] if CONFIG.hierarchy.flat else []
    return [
        (m, s, h) for m, s in dict.fromkeys(runs + flat) for h in CONFIG.hierarchy.seeds
    ]


def worlds_at_work():
    """Return the environments with controllers, in the order listed."""
    groups = [group for group in CONFIG.runs if group.hierarchy]
    return list(dict.fromkeys(env for group in groups for env in group.envs))


def curves_of_controllers(wildcards):
    """Return the curves of every controller in an environment, or in all that have any."""
    env = wildcards.get("env")
    worlds = [env] if env else worlds_at_work()
    if not worlds:
        raise WorkflowError(
            "runs: no group has `hierarchy: true`, so this figure has no panels; an environment has its own:"
            f" {RESULTS / next(iter(CONFIG.environments))}/downstream.svg"
        )
    return [
        f"<results>/{env}/{method}/seed{seed}/hierarchy/seed{h}.csv"
        for env in worlds
        for method, seed, h in hierarchies_of(env)
    ]


def downstream_files():
    """Return tables and figures of all controllers, and a common figure if there are several environments."""
    worlds = worlds_at_work()
    files = [
        f"<results>/{env}/downstream.{form}"
        for env in worlds
        for form in ("csv", "svg")
    ]
    return files + (["<results>/downstream.svg"] if len(worlds) > 1 else [])


def hierarchy_job(wildcards):
    """Return all settings that change a controller over given skills."""
    w = wildcards
    method = w.get("method", disk.config.FLAT)
    try:
        job = CONFIG.hierarchy_job(w.env, method, int(w.seed), int(w.hierarchy_seed))
        return job.canonical()
    except ValueError as error:
        raise WorkflowError(str(error))


def hierarchies_label(wildcards):
    """Return methods and numbers of controllers for a caption in the report."""
    env = wildcards.get("env")
    found = [
        method
        for world in ([env] if env else worlds_at_work())
        for method, _, _ in hierarchies_of(world)
    ]
    return ", ".join(f"{m} × {found.count(m)}" for m in dict.fromkeys(found))
