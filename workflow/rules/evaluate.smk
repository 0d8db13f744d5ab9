# The scripts are called through `shell:`. As a `script:`, a file that a git checkout merely touches would run again.


rule rollout:
    """Trajectories of a run's skills under their deterministic actions."""
    input:
        "<results>/{env}/{method}/seed{seed}/skills.safetensors",
    output:
        "<results>/{env}/{method}/seed{seed}/rollouts/{condition}.parquet",
    log:
        "<logs>/{env}/{method}/seed{seed}/rollout.{condition}.log",
    threads: CONFIG.evaluation.threads
    params:
        job=evaluation_job,
    shell:
        "python workflow/scripts/rollout.py {threads} {params.job:q} {input:q} {output:q} > {log:q} 2>&1"


rule rollout_snapshot:
    """The same of skills as they were at a step of their training together; stats.json lists the snapshots."""
    input:
        "<results>/{env}/{method}/seed{seed}/stats.json",
    output:
        "<results>/{env}/{method}/seed{seed}/rollouts/{condition}@{step}.parquet",
    log:
        "<logs>/{env}/{method}/seed{seed}/rollout.{condition}@{step}.log",
    wildcard_constraints:
        method="|".join(JOINT),
    threads: CONFIG.evaluation.threads
    params:
        job=evaluation_job,
        run=subpath(input[0], parent=True),
    shell:
        "python workflow/scripts/rollout.py {threads} {params.job:q} {params.run:q}/snapshots/{wildcards.step}.safetensors"
        " {output:q} > {log:q} 2>&1"


rule measure:
    """Every measure of every skill of a run, in every condition, and of its snapshots."""
    input:
        rollouts_and_snapshots_of_run,
    output:
        "<results>/{env}/{method}/seed{seed}/metrics.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/measure.log",
    params:
        job=measure_job,
    shell:
        "python workflow/scripts/measure.py {params.job:q} {input:q} {output:q} > {log:q} 2>&1"


rule tabulate:
    """An environment's tables over all its runs: one row a skill, and means with intervals over seeds."""
    input:
        of_all_runs("metrics.csv"),
    output:
        hausdorff="<results>/{env}/hausdorff.csv",
        summary="<results>/{env}/summary.csv",
    log:
        "<logs>/{env}/tabulate.log",
    shell:
        "python workflow/scripts/tabulate.py {output.hausdorff:q} {output.summary:q} {input:q} > {log:q} 2>&1"


rule statistics:
    """Interquartile means over all worlds and seeds, and performance profiles."""
    input:
        metrics_of_all_worlds,
    output:
        statistics="<results>/statistics.csv",
        profiles="<results>/profiles.csv",
        figure=report(
            "<results>/profiles.svg",
            caption="../report/profiles.rst",
            category="All worlds",
            labels={"environment": "all", "figure": "performance profiles"},
        ),
    log:
        "<logs>/statistics.log",
    shell:
        "python workflow/scripts/profiles.py {output.statistics:q} {output.profiles:q} {output.figure:q} {input:q}"
        " > {log:q} 2>&1"


rule list_runs:
    """What made each run: steps, time, commit and code."""
    input:
        stats_of_runs,
    output:
        report(
            "<results>/{env}/runs.csv",
            caption="../report/runs.rst",
            category="Runs",
            labels={"environment": "{env}", "table": "runs"},
        ),
    log:
        "<logs>/{env}/runs.log",
    params:
        runs=runs_label,
    shell:
        "python workflow/scripts/list_runs.py {output:q} {input:q} > {log:q} 2>&1"


rule measure_after_training:
    """How far each skill went right after its training, in every condition, from the file its training wrote."""
    input:
        policies=of_all_skills("policy.safetensors"),
        stats=of_all_skills("stats.json"),
    output:
        "<results>/{env}/{method}/seed{seed}/after_training.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/after_training.log",
    wildcard_constraints:
        method="|".join(INCREMENTAL),
    threads: CONFIG.evaluation.threads
    params:
        jobs=evaluation_jobs,
    shell:
        "python workflow/scripts/after_training.py {threads} {params.jobs:q} {output:q} {input.policies:q} > {log:q} 2>&1"


rule measure_usable:
    """How many skills of a run could be used at each moment of its training, in the world of that moment."""
    input:
        "<results>/{env}/{method}/seed{seed}/skills.safetensors",
    output:
        "<results>/{env}/{method}/seed{seed}/usable.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/usable.log",
    threads: CONFIG.evaluation.threads
    params:
        job=usable_job,
    shell:
        "python workflow/scripts/measure_usable.py {threads} {params.job:q} {input:q} {output:q} > {log:q} 2>&1"


rule track:
    """Fill MLflow from what has been computed; an unreachable store is reported, and stops nothing."""
    input:
        tables_and_figures(),
        downstream_files(),
    output:
        "<results>/tracked.txt",
    log:
        "<logs>/track.log",
    params:
        root=subpath(input[0], ancestor=2),
    shell:
        "python -m disk track {params.root:q} --lenient --log {log:q} > {output:q}"
