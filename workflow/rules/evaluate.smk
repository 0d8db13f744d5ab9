# Scripts are called through `shell:`. A `script:` would run again whenever a git checkout touches its file.


rule rollout:
    """Roll out a run's skills with deterministic actions."""
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
        run_script(
            "rollout.py {threads} {params.job:q} {input:q} {output:q} > {log:q} 2>&1"
        )


rule rollout_snapshot:
    """Roll out a snapshot of skills that are learned together; stats.json lists the snapshots."""
    input:
        stats_of_snapshot,
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
        run_script(
            "rollout.py {threads} {params.job:q} {params.run:q}/snapshots/{wildcards.step}.safetensors"
            " {output:q} > {log:q} 2>&1"
        )


rule measure:
    """Measure every skill of a run, and of its snapshots, in every condition."""
    input:
        rollouts_and_snapshots_of_run,
    output:
        "<results>/{env}/{method}/seed{seed}/metrics.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/measure.log",
    params:
        job=measure_job,
    shell:
        run_script("measure.py {params.job:q} {input:q} {output:q} > {log:q} 2>&1")


rule tabulate:
    """Tabulate all runs of an environment: one row for each skill, and means with intervals over seeds."""
    input:
        of_all_runs("metrics.csv"),
    output:
        hausdorff="<results>/{env}/hausdorff.csv",
        summary="<results>/{env}/summary.csv",
    log:
        "<logs>/{env}/tabulate.log",
    shell:
        run_script(
            "tabulate.py {output.hausdorff:q} {output.summary:q} {input:q} > {log:q} 2>&1"
        )


rule statistics:
    """Compute interquartile means and performance profiles over all worlds and seeds."""
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
        run_script(
            "profiles.py {output.statistics:q} {output.profiles:q} {output.figure:q} {input:q}"
            " > {log:q} 2>&1"
        )


rule list_runs:
    """List steps, time, commit and code of each run."""
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
        run_script("list_runs.py {output:q} {input:q} > {log:q} 2>&1")


rule measure_after_training:
    """Measure each skill of a chain right after its training, in every condition."""
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
        run_script(
            "after_training.py {threads} {params.jobs:q} {output:q} {input.policies:q} > {log:q} 2>&1"
        )


rule measure_usable:
    """Count the usable skills of a run over its training, each time in the world of that step."""
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
        run_script(
            "measure_usable.py {threads} {params.job:q} {input:q} {output:q} > {log:q} 2>&1"
        )


rule track:
    """Log all results to MLflow. An unreachable store is reported and stops nothing."""
    input:
        tables_and_figures(),
        downstream_files(),
    output:
        "<results>/tracked.txt",
    log:
        "<logs>/track.log",
    # SQLite's locks do not hold on every shared file system.
    localrule: True
    params:
        root=subpath(output[0], parent=True),
    shell:
        "python -m disk track {params.root:q} --lenient --log {log:q} > {output:q}"
