rule live:
    """Write a page in which skills run in the browser. Without MuJoCo for browsers the page says so."""
    input:
        live_rollouts,
    output:
        "<results>/{env}/gallery/live.html",
    log:
        "<logs>/{env}/live.log",
    params:
        job=evaluation_job,
        physics=lambda wildcards: physics_for_browsers(),
    shell:
        run_script("live.py {params.job:q} {output:q} {input:q} > {log:q} 2>&1")
