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
