rule trajectories:
    """Paths of all methods' skills side by side, one seed each."""
    input:
        first_rollouts,
    output:
        report(
            "<results>/{env}/trajectories.svg",
            caption="../report/trajectories.rst",
            category="Skills",
            labels={"environment": "{env}", "figure": "trajectories"},
        ),
    log:
        "<logs>/{env}/trajectories.log",
    params:
        job=evaluation_job,
        drawn=CONFIG.evaluation.drawn,
        runs=runs_label,
    shell:
        "python workflow/scripts/trajectories.py {params.job:q} {params.drawn} {output:q} {input:q} > {log:q} 2>&1"


rule hausdorff_bars:
    """Mean Hausdorff distance of each method, with intervals over seeds and the paper's values."""
    input:
        table="<results>/{env}/hausdorff.csv",
        summary="<results>/{env}/summary.csv",
    output:
        report(
            "<results>/{env}/hausdorff.svg",
            caption="../report/hausdorff.rst",
            category="Skills",
            labels={"environment": "{env}", "figure": "mean Hausdorff distance"},
        ),
    log:
        "<logs>/{env}/hausdorff.log",
    params:
        runs=runs_label,
    shell:
        "python workflow/scripts/hausdorff.py {wildcards.env} {input.table:q} {input.summary:q} {output:q} > {log:q} 2>&1"


rule worlds:
    """A world from above at several moments, with a run's skills in it."""
    input:
        rollouts_of_run,
    output:
        report(
            "<results>/{env}/{method}/seed{seed}/worlds.svg",
            caption="../report/worlds.rst",
            category="Worlds that change",
            labels={"environment": "{env}", "figure": "{method}, seed {seed}"},
        ),
    log:
        "<logs>/{env}/{method}/seed{seed}/worlds.log",
    params:
        environment=environment_row,
        drawn=CONFIG.evaluation.drawn,
        title="{env}: {method}, seed {seed}",
    shell:
        "python workflow/scripts/worlds.py {params.environment:q} {params.drawn} {params.title:q} {output:q} {input:q}"
        " > {log:q} 2>&1"


rule forgetting:
    """Every skill in every condition, right after its training and at the end of the run."""
    input:
        after=of_incremental_runs("after_training.csv"),
        final=of_learned_runs("metrics.csv"),
    output:
        table="<results>/{env}/forgetting.csv",
        figure=report(
            "<results>/{env}/forgetting.svg",
            caption="../report/forgetting.rst",
            category="Worlds that change",
            labels={"environment": "{env}", "figure": "forgetting"},
        ),
    log:
        "<logs>/{env}/forgetting.log",
    params:
        environment=environment_row,
        runs=runs_label,
    shell:
        "python workflow/scripts/forgetting.py {params.environment:q} {wildcards.env} {output.table:q} {output.figure:q}"
        " {input.after:q} {input.final:q} > {log:q} 2>&1"
