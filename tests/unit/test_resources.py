"""What a training asks a cluster for: enough, not much more, and more with every retry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walltime import Size, expected_mb, expected_seconds, jobs_needed, memory_mb, minutes, size_of, steps_of

from disk import config as configuration
from disk.config import Config, Runtime

PAPER = configuration.load()
ANT = Size(27, 8, 2, 70)


def runtime(**changes: object) -> Runtime:
    return Runtime.model_validate({**PAPER.runtime.model_dump(), **changes})


def test_worlds_are_measured_by_looking_at_them():
    assert size_of(PAPER.environment("ant").world()) == ANT
    assert size_of(PAPER.environment("point").world()) == Size(2, 4, 2, 4)


def test_what_is_expected_is_what_docs_performance_measured():
    """Ant: 174 steps a CPU-second with one update each; 824 MB in the twentieth skill, and 250 beside it."""
    job = PAPER.skill_job("ant", "disk", 0, 1)
    assert 140 < job.steps / expected_seconds(job, ANT) < 190
    short = job.model_copy(update={"steps": 2_000})
    assert 950 < expected_mb(short, [125_000] * 19, ANT) < 1_250
    for method, measured in (("diayn", 107), ("dads", 265), ("metra_raw", 95)):
        joint = PAPER.joint_job("ant", method, 0)
        assert 0.75 < joint.steps / expected_seconds(joint, ANT) / measured < 1.3, method


@given(st.integers(1_000, 3_000_000), st.integers(0, 10), st.integers(1, 5), st.floats(0.1, 4.0))
def test_more_steps_skills_and_attempts_ask_for_more(steps: int, skills: int, attempt: int, speed: float):
    job = PAPER.skill_job("ant", "disk", 0, 1).model_copy(update={"steps": steps})
    earlier, settings = [steps] * skills, runtime(speed=speed)
    longer = job.model_copy(update={"steps": 2 * steps})
    for now, more in (
        (memory_mb(job, earlier, ANT, settings, attempt), memory_mb(longer, earlier, ANT, settings, attempt)),
        (memory_mb(job, earlier, ANT, settings, attempt), memory_mb(job, earlier, ANT, settings, attempt + 1)),
        (minutes(job, ANT, settings, attempt), minutes(longer, ANT, settings, attempt)),
        (minutes(job, ANT, settings, attempt), minutes(job, ANT, settings, attempt + 1)),
    ):
        assert now <= more
    assert memory_mb(job, earlier, ANT, settings) >= 1.2 * expected_mb(job, earlier, ANT)
    assert 60 * minutes(job, ANT, settings) >= 1.2 * expected_seconds(job, ANT) / speed


def test_a_walltime_is_never_longer_than_the_cluster_gives():
    job, short = PAPER.skill_job("ant", "disk", 0, 2), runtime(longest_minutes=30)
    assert minutes(job, ANT, runtime()) > 100
    assert [minutes(job, ANT, short, attempt) for attempt in (1, 4)] == [30, 30]
    with_margin = 1.55 * expected_seconds(job, ANT) / 60
    assert (jobs_needed(job, ANT, short) - 1) * 30 < with_margin <= jobs_needed(job, ANT, short) * 30
    assert jobs_needed(job, ANT, runtime()) == 1


def test_planned_retries_of_a_long_training_raise_its_memory_once():
    """A job that ends with its walltime has not run out of memory; one that was killed gets half as much again."""
    job = PAPER.joint_job("ant_broken", "diayn", 0)
    planned = [memory_mb(job, [], ANT, runtime(longest_minutes=600), attempt) for attempt in range(1, 7)]
    assert planned == [planned[0], *[planned[1]] * 5]
    assert 1.4 * planned[0] < planned[1] < 1.6 * planned[0]
    killed = [memory_mb(job, [], ANT, runtime(), attempt) for attempt in range(1, 5)]
    assert killed[:2] == planned[:2]
    assert 3.2 * killed[0] < killed[3] < 3.5 * killed[0]


def test_a_training_that_the_margin_carries_beyond_the_longest_walltime_is_spread_over_two_jobs():
    job = PAPER.skill_job("ant", "disk", 0, 2)
    expected = expected_seconds(job, ANT) / 60
    barely = runtime(longest_minutes=round(1.2 * expected))
    assert minutes(job, ANT, barely) == barely.longest_minutes, "its request is cut"
    assert jobs_needed(job, ANT, barely) == 2


def test_a_replay_that_is_full_or_not_inherited_asks_for_no_more():
    job = PAPER.skill_job("ant", "disk", 0, 9)
    full = expected_mb(job, [1_000_000] * 2, ANT)
    assert expected_mb(job, [1_000_000] * 9, ANT) == full
    assert expected_mb(job, [], ANT) < full


def test_untrained_policies_and_gpus(tiny: Config):
    job = tiny.joint_job("point", "random", 0)
    point = size_of(job.world)
    assert minutes(job, point, tiny.runtime) == 2
    assert memory_mb(job, [], point, runtime(device="cuda")) > memory_mb(job, [], point, runtime()) + 2_000


def test_controllers_ask_for_what_they_need():
    """At the paper's scale, 5,000,000 steps of the Ant: flat SAC takes hours, PPO over skills about one."""
    ppo, flat = (PAPER.hierarchy_job("ant", method, 0, 0) for method in ("disk", "flat"))
    assert [steps_of(job) for job in (ppo, flat)] == [5_000_000, 5_000_000]
    assert 6 * 3600 < expected_seconds(flat, ANT) < 12 * 3600
    assert 0.5 * 3600 < expected_seconds(ppo, ANT) < 2.5 * 3600
    assert minutes(flat, ANT, runtime()) > 480
    assert minutes(flat, ANT, runtime(longest_minutes=60)) == 60
    assert jobs_needed(flat, ANT, runtime(longest_minutes=60)) > 5
    assert expected_mb(flat, [], ANT) > 1_000 > expected_mb(ppo, [], ANT) > 800
    gpu = runtime(device="cuda")
    assert memory_mb(flat, [], ANT, gpu) > memory_mb(flat, [], ANT, runtime()) + 2_000
    assert memory_mb(ppo, [], ANT, gpu) == memory_mb(ppo, [], ANT, runtime())


def test_rollouts_of_earlier_skills_are_counted():
    first, last = (PAPER.skill_job("hopper", "disk", 0, skill) for skill in (0, 49))
    size = size_of(first.world)
    rolled_out = 49 * last.objective.past_states * size.step_seconds
    last = last.model_copy(update={"steps": first.steps})
    assert expected_seconds(last, size) - expected_seconds(first, size) == pytest.approx(rolled_out)
