rule figures:
    """Draw all figures of the configuration."""
    input:
        all_figures(),


rule trajectories:
    """Draw the paths of all methods' skills side by side, one seed each."""
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
        run_script(
            "trajectories.py {params.job:q} {params.drawn} {output:q} {input:q} > {log:q} 2>&1"
        )


rule hausdorff_bars:
    """Draw the mean Hausdorff distance of each method, with intervals over seeds and the paper's values."""
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
        run_script(
            "hausdorff.py {wildcards.env} {input.table:q} {input.summary:q} {output:q} > {log:q} 2>&1"
        )


rule worlds:
    """Draw a world at several steps, with a run's skills in it."""
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
        runs=run_label,
    shell:
        run_script(
            "worlds.py {params.environment:q} {params.drawn} {params.title:q} {output:q} {input:q}"
            " > {log:q} 2>&1"
        )


rule forgetting:
    """Compare every skill in every condition, right after its training and at the end of the run."""
    input:
        after=in_changing_worlds(of_incremental_runs("after_training.csv")),
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
        run_script(
            "forgetting.py {params.environment:q} {wildcards.env} {output.table:q} {output.figure:q}"
            " {input.after:q} {input.final:q} > {log:q} 2>&1"
        )


rule usable:
    """Draw the number of usable skills of each method over training."""
    input:
        of_learned_runs("usable.csv"),
    output:
        table="<results>/{env}/usable.csv",
        figure=report(
            "<results>/{env}/usable.svg",
            caption="../report/usable.rst",
            category="Worlds that change",
            labels={"environment": "{env}", "figure": "usable skills"},
        ),
    log:
        "<logs>/{env}/usable.log",
    params:
        runs=runs_label,
    shell:
        run_script(
            "usable.py {wildcards.env} {output.table:q} {output.figure:q} {input:q} > {log:q} 2>&1"
        )


rule recovery:
    """Draw what each method has left after a change of the world, and how fast it is back."""
    input:
        of_learned_runs("usable.csv"),
    output:
        table="<results>/{env}/recovery.csv",
        figure=report(
            "<results>/{env}/recovery.svg",
            caption="../report/recovery.rst",
            category="Worlds that change",
            labels={"environment": "{env}", "figure": "recovery"},
        ),
    log:
        "<logs>/{env}/recovery.log",
    params:
        runs=runs_label,
    shell:
        run_script(
            "recovery.py {wildcards.env} {output.table:q} {output.figure:q} {input:q} > {log:q} 2>&1"
        )


rule consistency:
    """Draw how much the episodes of a skill differ over time, in every condition."""
    input:
        all_rollouts,
    output:
        report(
            "<results>/{env}/consistency.svg",
            caption="../report/consistency.rst",
            category="Skills",
            labels={"environment": "{env}", "figure": "consistency"},
        ),
    log:
        "<logs>/{env}/consistency.log",
    params:
        runs=runs_label,
    shell:
        run_script("consistency.py {wildcards.env} {output:q} {input:q} > {log:q} 2>&1")


rule order:
    """Draw the skills of a chain in the order learned, one panel each."""
    input:
        first_rollout_of_run,
    output:
        report(
            "<results>/{env}/{method}/seed{seed}/order.svg",
            caption="../report/order.rst",
            category="Skills",
            labels={
                "environment": "{env}",
                "figure": "order learned, {method}, seed {seed}",
            },
        ),
    log:
        "<logs>/{env}/{method}/seed{seed}/order.log",
    wildcard_constraints:
        method="|".join(INCREMENTAL),
    params:
        job=evaluation_job,
        drawn=CONFIG.evaluation.drawn,
        steps=steps_of_skills,
        runs=run_label,
    shell:
        run_script(
            "order.py {params.job:q} {params.drawn} {params.steps:q} {output:q} {input:q} > {log:q} 2>&1"
        )


rule projection:
    """Draw a learned σ: φ's coordinates over the position, and skills in φ's space beside skills in space."""
    input:
        stats=last_stats,
        visits=of_all_skills("visits.npy"),
    output:
        report(
            "<results>/{env}/{method}/seed{seed}/projection.svg",
            caption="../report/projection.rst",
            category="Skills",
            labels={
                "environment": "{env}",
                "figure": "learned σ, {method}, seed {seed}",
            },
        ),
    log:
        "<logs>/{env}/{method}/seed{seed}/projection.log",
    wildcard_constraints:
        method="|".join(INCREMENTAL),
    params:
        world=training_world,
        title="{env}: what {method} has learned to see, seed {seed}",
        drawn=CONFIG.evaluation.drawn,
        runs=run_label,
    shell:
        run_script(
            "projection.py {params.world:q} {params.title:q} {params.drawn} {output:q} {input.stats:q}"
            " {input.visits:q} > {log:q} 2>&1"
        )


rule ablations:
    """Draw DISk and its variants, measure by measure, in the environment's first condition."""
    input:
        variants_metrics,
    output:
        report(
            "<results>/{env}/ablations.svg",
            caption="../report/ablations.rst",
            category="Ablations",
            labels={"environment": "{env}", "figure": "DISk and its variants"},
        ),
    log:
        "<logs>/{env}/ablations.log",
    params:
        condition=lambda wildcards: conditions_of(wildcards.env)[0],
        runs=variants_label,
    shell:
        run_script(
            "ablations.py {wildcards.env} {params.condition} {output:q} {input:q} > {log:q} 2>&1"
        )


rule legs:
    """Draw DISk and Off-DADS in every condition, at the end and at the last snapshot."""
    input:
        legs_rollouts,
    output:
        report(
            "<results>/{env}/legs.svg",
            caption="../report/legs.rst",
            category="Worlds that change",
            labels={"environment": "{env}", "figure": "every condition"},
        ),
    log:
        "<logs>/{env}/legs.log",
    params:
        environment=environment_row,
        drawn=CONFIG.evaluation.drawn,
        title="{env}: the same skills in every condition",
        runs=legs_label,
    shell:
        run_script(
            "legs.py {params.environment:q} {params.drawn} {params.title:q} {output:q} {input:q}"
            " > {log:q} 2>&1"
        )


rule curves:
    """Draw the training curves of all methods, with the terms of their rewards."""
    input:
        of_learned_runs("progress.csv"),
    output:
        report(
            "<results>/{env}/curves.svg",
            caption="../report/curves.rst",
            category="Training",
            labels={"environment": "{env}", "figure": "training curves"},
        ),
    log:
        "<logs>/{env}/curves.log",
    params:
        runs=runs_label,
    shell:
        run_script("curves.py {wildcards.env} {output:q} {input:q} > {log:q} 2>&1")
