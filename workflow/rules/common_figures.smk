"""Inputs of figures, videos and galleries. disk/figures/catalogue.py lists the figures themselves."""


def all_figures():
    """Return the figures of every environment in the runs."""
    names = (disk.figures.catalogue.figures_of(CONFIG, env) for env in environments())
    return [f"<results>/{name}" for own in names for name in own]


def runs_label(wildcards):
    """Return methods, seeds and steps for a caption in the report."""
    return disk.figures.catalogue.runs_text(CONFIG, wildcards.env)


def run_label(wildcards):
    """Return the same text for one method."""
    return disk.figures.catalogue.runs_text(CONFIG, wildcards.env, wildcards.method)


def variants_label(wildcards):
    """Return the same text for DISk and its variants."""
    variants = disk.figures.catalogue.variants_of(CONFIG, wildcards.env)
    return disk.figures.catalogue.runs_text(CONFIG, wildcards.env, *variants)


def legs_label(wildcards):
    """Return the same text for the methods of legs.svg."""
    chosen = disk.figures.catalogue.beside_each_other(CONFIG, wildcards.env)
    return disk.figures.catalogue.runs_text(CONFIG, wildcards.env, *chosen)


def all_rollouts(wildcards):
    """Return the rollouts of every run in every condition of the environment."""
    files = [
        of_all_runs(f"rollouts/{condition}.parquet")(wildcards)
        for condition in conditions_of(wildcards.env)
    ]
    return [path for own in files for path in own]


def first_rollout_of_run(wildcards):
    """Return the rollouts of a run in its environment's first condition."""
    return _rollouts(wildcards, conditions_of(wildcards.env)[:1])


def variants_metrics(wildcards):
    """Return metrics.csv of DISk and its variants."""
    found = disk.figures.catalogue.variants_of(CONFIG, wildcards.env)
    if not found:
        raise WorkflowError(
            f"environments.{wildcards.env}: no ablations: its runs have fewer than two methods with objective disk"
        )
    return _run_files(wildcards, "metrics.csv", found)


def legs_rollouts(wildcards):
    """Return the rollouts of two methods, one seed each, in every condition: at the end and at the last snapshot."""
    env, row = wildcards.env, CONFIG.environment(wildcards.env)
    chosen = disk.figures.catalogue.beside_each_other(CONFIG, env)
    if not chosen:
        raise WorkflowError(
            f"environments.{env}: no legs.svg: it needs actuators that die, two conditions or more, and a learned run"
        )
    files = []
    for method in chosen:
        run = f"<results>/{env}/{method}/seed{disk.figures.catalogue.first_runs(CONFIG, env)[method]}"
        names = list(row.conditions)
        if not CONFIG.method(method).incremental:
            names += [f"{name}@{step}" for step in row.snapshots[-1:] for name in names]
        files += [f"{run}/rollouts/{name}.parquet" for name in names]
    return files


def steps_of_skills(wildcards):
    """Return the most steps for which each skill of a chain is trained."""
    env, method = wildcards.env, wildcards.method
    count = range(CONFIG.skills_of(env, method))
    return json.dumps([CONFIG.steps_of(env, method, skill) for skill in count])


def last_stats(wildcards):
    """Return stats.json of a chain's last skill. It stands for projection.safetensors, which no rule declares."""
    env, method = wildcards.env, wildcards.method
    if not CONFIG.projection_of(env, method):
        raise WorkflowError(
            f"methods.{method}: no projection.svg: its σ in {env} is given, not learned"
        )
    return of_all_skills("stats.json")(wildcards)[-1:]


def training_world(wildcards):
    """Return the world that a method learns in."""
    return CONFIG.world_of(wildcards.env, wildcards.method).canonical()


def stats_of_runs(wildcards):
    """Return stats.json of every training in an environment."""
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


def learned_projections(wildcards):
    """Return the pictures of learned σ of an environment."""
    figures = disk.figures.catalogue.figures_of(CONFIG, wildcards.env)
    return [f"<results>/{name}" for name in figures if name.endswith("projection.svg")]


def existing_videos(wildcards):
    """Return the existing videos of an environment's runs, with their times.

    This is a parameter, not an input: new videos renew the gallery, but the gallery never renders any, since that needs
    OpenGL.
    """
    root = RESULTS / wildcards.env
    runs = [root / m / f"seed{seed}" for m, seed in runs_of(wildcards.env)]
    videos = sorted(path for run in runs for path in run.glob("skills*.mp4"))
    return [f"{path} {int(path.stat().st_mtime)}" for path in videos]


def live_rollouts(wildcards):
    """Return the first seed's rollouts of each method that learns, or of the first run if none does."""
    env, condition = wildcards.env, conditions_of(wildcards.env)[0]
    first = disk.figures.catalogue.first_runs(CONFIG, env) or dict(runs_of(env)[:1])
    return [
        f"<results>/{env}/{method}/seed{seed}/rollouts/{condition}.parquet"
        for method, seed in first.items()
    ]


def physics_for_browsers():
    """Return the version of MuJoCo for browsers, or none. Pages are renewed when it changes."""
    from disk.show import physics

    return physics.VERSION if physics.available() else "none"
