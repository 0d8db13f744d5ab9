"""Which skill acts next."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_config
from scipy.spatial.distance import pdist

from disk.learning.schedules import GrowingSkills, One, Prior, RoundRobin, Schedule, Uniform


def test_a_link_of_a_chain_is_always_the_same_skill():
    assert {One(3).next(0, episode) for episode in range(9)} == {3}


def test_uniform_draws_every_skill_equally_often_and_the_same_again():
    drawn = [Uniform(seed=5, skills=8).next(0, episode) for episode in range(4000)]
    assert drawn == [Uniform(seed=5, skills=8).next(0, episode) for episode in range(4000)]
    assert drawn != [Uniform(seed=6, skills=8).next(0, episode) for episode in range(4000)]
    counts = Counter(drawn)
    # 500 of each are expected; the standard deviation is 21.
    assert set(counts) == set(range(8))
    assert all(abs(count - 500) < 100 for count in counts.values())
    pairs = Counter(pairwise(drawn))
    assert len(pairs) == 64, "a draw does not depend on the one before"


def test_in_turns_every_skill_has_a_world_of_its_own():
    schedule = RoundRobin(4)
    assert schedule.lanes == 4
    assert [schedule.next(lane, 7) for lane in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("schedule", [One(1), Uniform(0, 3), RoundRobin(3)])
def test_what_is_fixed_has_no_state_and_looks_at_no_episode(schedule: Schedule):
    def never() -> Any:
        raise AssertionError("nobody asked for the episode")

    schedule.finished(never)
    assert schedule.state() == {}
    schedule.load_state({})


class Watched:
    """Stands for a discriminator that is as certain as a test says; the schedule is what is tested."""

    certain = 0.0
    skills_in_play = 0

    def certainty(self, batch: float) -> float:
        return self.certain


def growing(most: int, **changes: Any) -> tuple[GrowingSkills, Watched]:
    watched = Watched()
    return GrowingSkills(tiny_config({"curriculum": changes}).curriculum, 0, most, watched), watched  # type: ignore[arg-type]


def end_episodes(schedule: GrowingSkills, count: int) -> None:
    for _ in range(count):
        schedule.finished(lambda: None)  # type: ignore[arg-type, return-value]


def test_the_curriculum_grows_as_valor_does():
    schedule, watched = growing(25)
    watched.certain = 0.9
    sizes = [schedule.skills]
    for _ in range(8):
        end_episodes(schedule, 19)
        assert schedule.skills == sizes[-1], "not before twenty episodes"
        end_episodes(schedule, 1)
        assert watched.skills_in_play == schedule.skills
        sizes.append(schedule.skills)
    assert sizes == [2, 4, 7, 11, 17, 25, 25, 25, 25]


@pytest.mark.parametrize(("certain", "grows"), [(0.8599, False), (0.8601, True)])
def test_it_grows_at_the_threshold(certain: float, grows: bool):
    schedule, watched = growing(10)
    watched.certain = certain
    end_episodes(schedule, 200)
    assert (schedule.skills > 2) == grows
    other, watched = growing(10, certainty=0.95)
    watched.certain = 0.94
    end_episodes(other, 200)
    assert other.skills == 2


def test_the_mean_is_over_the_last_episodes_and_starts_anew_at_each_growth():
    schedule, watched = growing(10, episodes=4)
    watched.certain = 0.0
    end_episodes(schedule, 50)
    watched.certain = 1.0
    end_episodes(schedule, 3)
    assert schedule.skills == 2, "three of four are not 0.86"
    end_episodes(schedule, 1)
    assert schedule.skills == 4
    watched.certain = 0.0
    end_episodes(schedule, 1)
    watched.certain = 1.0
    end_episodes(schedule, 3)
    assert schedule.skills == 4, "the first of the four was of the new skills"
    end_episodes(schedule, 1)
    assert schedule.skills == 7


def test_it_draws_from_the_skills_in_play_only():
    schedule, watched = growing(25)
    assert {schedule.next(0, episode) for episode in range(100)} == {0, 1}
    watched.certain = 1.0
    end_episodes(schedule, 20)
    assert {schedule.next(0, episode) for episode in range(200)} == {0, 1, 2, 3}


def test_it_never_starts_with_more_skills_than_there_are():
    assert growing(1)[0].skills == 1


def test_it_goes_on_from_its_state():
    schedule, watched = growing(25)
    watched.certain = 1.0
    end_episodes(schedule, 33)
    other, seen = growing(25)
    other.load_state(schedule.state())
    seen.certain = 1.0
    assert seen.skills_in_play == other.skills == schedule.skills == 4
    end_episodes(other, 6)
    assert other.skills == 4
    end_episodes(other, 1)
    assert other.skills == 7


# ---------------------------------------------------------------- latents that stand for a continuum


@pytest.mark.parametrize("count", [1, 2, 5, 10, 16])
def test_latents_on_a_circle_have_equal_angles_between_them(count: int):
    latents = Prior("sphere", 2).evaluated(count).numpy()
    assert latents.dtype == np.float32
    angles = np.sort(np.arctan2(latents[:, 1], latents[:, 0]) % (2 * np.pi))
    gaps = np.diff(np.append(angles, angles[0] + 2 * np.pi))
    np.testing.assert_allclose(gaps, 2 * np.pi / count, atol=1e-6)


def test_latents_on_a_line_have_equal_gaps_and_stand_for_equal_shares():
    np.testing.assert_allclose(Prior("cube", 1).evaluated(5)[:, 0], [-0.8, -0.4, 0.0, 0.4, 0.8], atol=1e-7)
    assert Prior("sphere", 1).evaluated(4)[:, 0].tolist() == [-1, -1, 1, 1]


@pytest.mark.parametrize("count", [4, 5, 10, 20, 50])
@pytest.mark.parametrize(("shape", "size"), [("cube", 2), ("cube", 3), ("sphere", 2)])
def test_latents_are_more_even_than_random_ones(shape: Any, size: int, count: int):
    """The nearest two of them are farther apart than those of nine of ten random sets."""
    prior = Prior(shape, size)

    def nearest(latents: Any) -> float:
        return float(pdist(latents.numpy()).min())

    even = prior.evaluated(count)
    assert even.shape == (count, size)
    random = [nearest(prior.random_set(number, count)) for number in range(50)]
    assert nearest(even) > np.quantile(random, 0.9)


def test_latents_in_a_cube_fill_it():
    even = Prior("cube", 2).evaluated(400).numpy()
    counts = np.histogram2d(even[:, 0], even[:, 1], bins=4, range=[[-1, 1], [-1, 1]])[0]
    assert counts.min() >= 21  # of 25; random draws have 15 to 35
    assert counts.max() <= 29
    assert np.abs(even).max() < 1


def test_latents_on_a_sphere_have_length_one_and_no_preferred_side():
    even = Prior("sphere", 3).evaluated(200)
    np.testing.assert_allclose(even.norm(dim=1), 1.0, atol=1e-6)
    assert even.mean(dim=0).abs().max() < 0.03


def test_random_sets_differ_and_come_again():
    prior = Prior("cube", 2)
    sets = [prior.random_set(number, 6) for number in range(20)]
    assert len({tuple(each.flatten().tolist()) for each in sets}) == 20
    assert torch.equal(prior.random_set(3, 6), sets[3])
