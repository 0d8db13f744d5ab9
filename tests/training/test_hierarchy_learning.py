"""Skills must be worth something: PPO over DISk's reaches goals where PPO over random ones gets nowhere."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
from conftest import raw_config

from disk import config
from disk.downstream.run import learn_hierarchy
from disk.learning.run import train_run


@pytest.mark.slow
def test_disks_skills_reach_goals_that_random_skills_do_not(tmp_path: Path) -> None:
    """On the point robot, within the quick preset's decisions: below 0.4 with all of three seeds, above 0.8 without."""
    import yaml

    quick = yaml.safe_load((config.PROJECT / "config/quick.yaml").read_text())
    runs = [{"envs": ["point"], "methods": ["disk", "random"]}]  # forks need more skills than five
    settings = config.parse(raw_config(quick, {"runs": runs, "environments": {"point": {"skills": 5}}}))
    final: dict[str, list[float]] = {}
    for method in ("disk", "random"):
        run = train_run(settings, tmp_path, "point", method, seed=0, skills=None, watch=lambda out: nullcontext())
        for seed in range(3):
            curve = run / f"hierarchy/seed{seed}.csv"
            job = settings.hierarchy_job("point", method, 0, seed)
            learn_hierarchy(job, run / "skills.safetensors", curve, settings.runtime)
            final.setdefault(method, []).append(float(pd.read_csv(curve)["normalised_distance"].iloc[-1]))
    print(final)
    assert max(final["disk"]) < 0.4, final
    assert min(final["random"]) > 0.8, final
