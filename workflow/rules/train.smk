# Training uses `shell:`, so that an edit of the code retrains nothing (docs/workflow.md).


rule train_skill:
    """Learn one skill, given the files of all skills before it."""
    input:
        policies=of_earlier_skills("policy.safetensors"),
        stats=of_earlier_skills("stats.json"),
        visits=earlier_visits,
        replays=earlier_replays,
    output:
        policy="<results>/{env}/{method}/seed{seed}/skill{skill}/policy.safetensors",
        replay="<results>/{env}/{method}/seed{seed}/skill{skill}/replay.safetensors",
        visits="<results>/{env}/{method}/seed{seed}/skill{skill}/visits.npy",
        stats="<results>/{env}/{method}/seed{seed}/skill{skill}/stats.json",
        progress="<results>/{env}/{method}/seed{seed}/skill{skill}/progress.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/skill{skill}.log",
    benchmark:
        "<benchmarks>/{env}/{method}/seed{seed}/skill{skill}.tsv"
    wildcard_constraints:
        method="|".join(INCREMENTAL),
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of(skill_job),
        runtime=minutes_of(skill_job),
        gpu=gpus,
    params:
        job=skill_job,
    shell:
        "python -m disk train-skill --job {params.job:q} --earlier {input.policies:q}"
        " --out {output.policy:q} --threads {threads} --log {log:q}"


rule bundle_skills:
    """Join the skills of a chain into one file, and their training curves into another."""
    input:
        policies=of_all_skills("policy.safetensors"),
        progress=of_all_skills("progress.csv"),
    output:
        skills="<results>/{env}/{method}/seed{seed}/skills.safetensors",
        progress="<results>/{env}/{method}/seed{seed}/progress.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/bundle.log",
    wildcard_constraints:
        method="|".join(INCREMENTAL),
    shell:
        "python -m disk bundle {input.policies:q} --out {output.skills:q} --log {log:q}"


# Snapshots, snapshots/{step}.safetensors, are not declared, since their number depends on the environment, nor is φ of a
# learned σ, projection.safetensors. stats.json lists them with their checksums: a rule that needs one takes stats.json.
rule train_joint:
    """Learn all skills of a run together."""
    output:
        skills="<results>/{env}/{method}/seed{seed}/skills.safetensors",
        stats="<results>/{env}/{method}/seed{seed}/stats.json",
        progress="<results>/{env}/{method}/seed{seed}/progress.csv",
    log:
        "<logs>/{env}/{method}/seed{seed}/joint.log",
    benchmark:
        "<benchmarks>/{env}/{method}/seed{seed}/joint.tsv"
    wildcard_constraints:
        method="|".join(JOINT),
    threads: CONFIG.threads
    resources:
        mem_mb=memory_of(joint_job),
        runtime=minutes_of(joint_job),
        gpu=gpus,
    params:
        job=joint_job,
    shell:
        "python -m disk train-joint --job {params.job:q} --out {output.skills:q} --threads {threads} --log {log:q}"
