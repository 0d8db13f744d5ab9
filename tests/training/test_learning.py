"""Learning must work, not just run: DISk on the point robot, at the settings of config/envs.yaml."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from disk import config
from disk.evaluation import metrics
from disk.evaluation.rollout import rollout, table
from disk.evaluation.run import roll_out
from disk.learning.run import train_run
from disk.seeds import seed_of
from disk.skills import load


@pytest.mark.slow
def test_disk_finds_diverse_and_consistent_skills_on_the_point_robot(tmp_path: Path) -> None:
    """Mean Hausdorff at least 5 times the random policies', and 6 of 8 skills clearly apart from all others."""
    settings = config.load(config.PROJECT / "config/quick.yaml")
    measured = {}
    for method in ("disk", "random"):
        run = train_run(settings, tmp_path, "point", method, seed=0, skills=None, watch=lambda out: nullcontext())
        job = settings.evaluation_job("point")
        starts = [seed_of("evaluation", job.seed, episode) for episode in range(10)]
        skills = load(run)
        frame = metrics.measure(table(rollout(skills, job.world, job.horizon, [starts] * len(skills))))
        measured[method] = frame[frame["skill"] >= 0].pivot_table(index="skill", columns="metric", values="value")
    disk = measured["disk"]
    assert disk["hausdorff"].mean() >= 5 * measured["random"]["hausdorff"].mean()
    assert (disk["isolation"] >= 3 * disk["spread"]).sum() >= 6


@pytest.mark.slow
def test_later_skills_go_where_the_world_has_opened(tmp_path: Path) -> None:
    """Two of the last four skills at least leave the ring of vanishing blocks, in the worlds they were trained in."""
    settings = config.load(config.PROJECT / "config/changing.yaml")
    run = train_run(settings, tmp_path, "point_blocks", "disk", seed=0, skills=None, watch=lambda out: nullcontext())
    frame = metrics.measure(roll_out(settings.evaluation_job("point_blocks", "trained"), load(run)))
    distance = frame[frame["metric"] == "distance"].set_index("skill")["value"]
    ring = 2.5 + 0.6  # the outer edge of the blocks
    assert distance[0] < ring  # closed all the time
    assert (distance[4:] > ring).sum() >= 2, distance
