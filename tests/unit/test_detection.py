"""The test that a world has changed: its p-values, its false alarms, and what it says about a change."""

from __future__ import annotations

import numpy as np
import pytest

from disk.evaluation.rollout import Trajectory
from disk.learning.detection import Detector, bets, features, p_value


def test_an_episode_is_its_displacement_speed_and_length() -> None:
    position = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]])
    path = Trajectory(position, np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]))
    assert features(path, 8) == pytest.approx([3.0, 4.0, 3.5, 0.25])


def test_a_p_value_is_the_rank_of_the_most_unusual() -> None:
    earlier = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert p_value(earlier, np.array([40.0])) == pytest.approx(1 / 5)
    # Summed distances of 0, 1, 1.5, 2, 3 to the others: 7.5, 4.5, 4, 4.5, 7.5.
    assert p_value(earlier, np.array([1.5])) == 1.0
    assert p_value(np.zeros((4, 1)), np.array([0.0])) == 1.0


@pytest.mark.parametrize("episodes", [5, 41, 201])
def test_no_bet_gains_on_uniform_ranks(episodes: int) -> None:
    factors = np.array([bets(rank / episodes, episodes) for rank in range(1, episodes + 1)])
    assert (factors.mean(axis=0) <= 1.0 + 1e-12).all()
    assert factors[0, 0] == 0.25 + 0.75 * episodes
    assert factors[0, 1:3] == pytest.approx([0.5 + 0.5 / 0.1 * (episodes >= 10), 0.5 + 0.5 / 0.3])


@pytest.mark.parametrize("draw", ["normal", "heavy", "mixed"])
def test_false_alarms_stay_below_the_stated_rate_whatever_the_distribution(draw: str) -> None:
    """400 runs of 25 probes at one false alarm in 50: 200 would be the bound."""
    random, probes, rate, alarms = np.random.default_rng(0), 25, 0.02, 0

    def episode(count: int) -> np.ndarray:
        if draw == "mixed":  # a skill that sometimes falls
            return np.where(random.random((count, 1)) < 0.1, 9.0, random.normal(size=(count, 3)))
        return random.normal(size=(count, 3)) if draw == "normal" else random.standard_cauchy((count, 3))

    for _ in range(400):
        detector = Detector(rate, 0)
        detector.references = {skill: episode(20) for skill in range(3)}
        for probe in range(probes):
            detector.see(probe, detector.next(), episode(1)[0])
            if detector.change():
                alarms += 1
                break
    assert alarms <= 400 * probes * rate


def test_a_change_is_found_with_its_start_and_size() -> None:
    random, detector = np.random.default_rng(1), Detector(1e-3, 0)
    detector.references = {skill: random.normal(0.0, 0.01, (40, 4)) for skill in range(3)}
    for step in range(10, 100, 10):
        moved = np.array([0.0, 2.0, 0.0, 0.0]) if step > 50 else np.zeros(4)
        detector.see(step, detector.next(), random.normal(0.0, 0.01, 4) + moved)
        change = detector.change()
        if change:
            break
    assert change
    assert change.step in (80, 90)
    assert change.since == 50
    assert change.shift == pytest.approx(2.0, abs=0.1)
    assert change.statistic >= 1000.0


def test_suspicion_turns_to_the_least_usual_skill() -> None:
    detector = Detector(1e-3, 0)
    detector.references = {skill: np.random.default_rng(skill).normal(size=(40, 2)) for skill in range(3)}
    order = []
    for step in range(3):
        order.append(detector.next())
        detector.see(step, order[-1], np.full(2, 50.0) if step == 0 else np.zeros(2))
        if step == 0:
            assert detector.suspicious
    assert order == [0, 1, 2]
    detector.see(3, 1, np.zeros(2))
    detector.see(4, 2, np.full(2, 50.0))
    assert detector.suspicious
    assert detector.next() == 0  # its last p-value was the lowest


def test_steady_movers_are_the_sensors() -> None:
    random, detector = np.random.default_rng(0), Detector(1e-3, 0)
    ways = [0.0, 5.0, 0.1, 9.0, 0.0, 7.0]
    detector.references = {k: random.normal((way, 0.0, 0.0, 0.0), 0.5, (30, 4)) for k, way in enumerate(ways)}
    order = []
    for step in range(6):
        order.append(detector.next())
        detector.see(step, order[-1], np.array([ways[order[-1]], 0.0, 0.0, 0.0]))
    assert order == [1, 3, 5, 1, 3, 5]
