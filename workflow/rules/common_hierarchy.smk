"""Skills at work: controllers over the skills of runs."""


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
    files = [
        f"<results>/{env}/downstream.{form}"
        for env in worlds
        for form in ("csv", "svg")
    ]
    return files + (["<results>/downstream.svg"] if len(worlds) > 1 else [])


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
