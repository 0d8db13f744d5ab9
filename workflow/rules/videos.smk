# Videos need OpenGL, so `rule all` leaves them out. It includes the gallery, which shows paths in place of missing clips.


rule video:
    """Render all skills of a run in one video, and a clip of each, in the environment's first condition."""
    input:
        "<results>/{env}/{method}/seed{seed}/skills.safetensors",
    output:
        video="<results>/{env}/{method}/seed{seed}/skills.mp4",
        clips=directory("<results>/{env}/{method}/seed{seed}/clips"),
    log:
        "<logs>/{env}/{method}/seed{seed}/video.log",
    params:
        job=evaluation_job,
        label="{method}, seed {seed}",
    shell:
        run_script(
            "video.py {params.job:q} {params.label:q} {input:q} {output.video:q} {output.clips:q}"
            " > {log:q} 2>&1"
        )


rule video_in_condition:
    """Render all skills of a run, and a clip of each, in another condition."""
    input:
        "<results>/{env}/{method}/seed{seed}/skills.safetensors",
    output:
        video="<results>/{env}/{method}/seed{seed}/skills.{condition}.mp4",
        clips=directory("<results>/{env}/{method}/seed{seed}/clips.{condition}"),
    log:
        "<logs>/{env}/{method}/seed{seed}/video.{condition}.log",
    params:
        job=evaluation_job,
        label="{method}, seed {seed}, {condition}",
    shell:
        run_script(
            "video.py {params.job:q} {params.label:q} {input:q} {output.video:q} {output.clips:q}"
            " > {log:q} 2>&1"
        )


rule gallery:
    """Write a page with every skill of an environment: numbers, paths and existing clips."""
    input:
        metrics=of_all_runs("metrics.csv"),
        rollouts=all_rollouts,
        projections=learned_projections,
    output:
        "<results>/{env}/gallery/index.html",
    log:
        "<logs>/{env}/gallery.log",
    params:
        job=evaluation_job,
        conditions=lambda wildcards: " ".join(conditions_of(wildcards.env)),
        videos=existing_videos,
        chains=" ".join(INCREMENTAL),
    shell:
        run_script(
            "gallery.py {params.job:q} {params.conditions:q} {params.chains:q} {output:q}"
            " {input.metrics:q} > {log:q} 2>&1"
        )


rule videos:
    """Render videos of every run in the configuration."""
    input:
        [
            f"<results>/{env}/{method}/seed{seed}/skills.mp4"
            for env in environments()
            for method, seed in runs_of(env)
        ],


rule galleries:
    """Write the gallery and the live page of every environment in the runs."""
    input:
        collect(
            "<results>/{env}/gallery/{page}.html",
            env=environments(),
            page=["index", "live"],
        ),
