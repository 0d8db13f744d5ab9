# The downstream task: controllers that reach goals by choosing skills, and one without skills.


rule train_hierarchy:
    """Train PPO over the skills of a run."""
    input:
        "<results>/{env}/{method}/seed{seed}/skills.safetensors",
    output:
        curve="<results>/{env}/{method}/seed{seed}/hierarchy/seed{hierarchy_seed}.csv",
        weights="<results>/{env}/{method}/seed{seed}/hierarchy/seed{hierarchy_seed}.safetensors",
        stats="<results>/{env}/{method}/seed{seed}/hierarchy/seed{hierarchy_seed}.json",
    log:
        "<logs>/{env}/{method}/seed{seed}/hierarchy{hierarchy_seed}.log",
    benchmark:
        "<benchmarks>/{env}/{method}/seed{seed}/hierarchy{hierarchy_seed}.tsv"
    wildcard_constraints:
        hierarchy_seed=r"0|[1-9]\d*",
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of(hierarchy_job),
        runtime=minutes_of(hierarchy_job),
    params:
        job=hierarchy_job,
    shell:
        "python -m disk train-hierarchy --job {params.job:q} --skills {input:q} --out {output.curve:q}"
        " --threads {threads} --log {log:q}"


rule train_flat:
    """Train goal-conditioned SAC without skills, on the same observations and rewards."""
    output:
        curve="<results>/{env}/flat/seed{seed}/hierarchy/seed{hierarchy_seed}.csv",
        weights="<results>/{env}/flat/seed{seed}/hierarchy/seed{hierarchy_seed}.safetensors",
        stats="<results>/{env}/flat/seed{seed}/hierarchy/seed{hierarchy_seed}.json",
    log:
        "<logs>/{env}/flat/seed{seed}/hierarchy{hierarchy_seed}.log",
    benchmark:
        "<benchmarks>/{env}/flat/seed{seed}/hierarchy{hierarchy_seed}.tsv"
    wildcard_constraints:
        hierarchy_seed=r"0|[1-9]\d*",
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of(hierarchy_job),
        runtime=minutes_of(hierarchy_job),
        gpu=gpus,
    params:
        job=hierarchy_job,
    shell:
        "python -m disk train-hierarchy --job {params.job:q} --out {output.curve:q} --threads {threads} --log {log:q}"


rule downstream:
    """Tabulate and draw how fast controllers learn to reach goals with each method's skills."""
    input:
        curves_of_controllers,
    output:
        table="<results>/{env}/downstream.csv",
        figure=report(
            "<results>/{env}/downstream.svg",
            caption="../report/downstream.rst",
            category="Skills at work",
            labels={"environment": "{env}", "figure": "normalised distance"},
        ),
    log:
        "<logs>/{env}/downstream.log",
    params:
        threshold=CONFIG.hierarchy.threshold,
        runs=hierarchies_label,
        decisions=f"{CONFIG.hierarchy.decisions:,}",
    shell:
        run_script(
            "downstream.py {params.threshold} '{wildcards.env}: skills at work' {output.figure:q} {output.table:q}"
            " {input:q} > {log:q} 2>&1"
        )


rule downstream_worlds:
    """Draw one figure with a panel for each environment that has controllers."""
    input:
        curves_of_controllers,
    output:
        report(
            "<results>/downstream.svg",
            caption="../report/downstream.rst",
            category="Skills at work",
            labels={"environment": "all", "figure": "normalised distance"},
        ),
    log:
        "<logs>/downstream.log",
    params:
        threshold=CONFIG.hierarchy.threshold,
        runs=hierarchies_label,
        decisions=f"{CONFIG.hierarchy.decisions:,}",
    shell:
        run_script(
            "downstream.py {params.threshold} 'Skills at work' {output:q} - {input:q}"
            " > {log:q} 2>&1"
        )
