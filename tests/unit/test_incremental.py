"""DISk's reward: nearest neighbours against brute force, and every sign, weight and formula of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, sigma_batch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from disk.config import Incremental, load
from disk.learning.objectives.incremental import ANNEALING, IncrementalObjective, Paid, inverse_mean, kth_distance


def brute_force(points: np.ndarray, others: np.ndarray, k: int) -> np.ndarray:
    """Sorted distances in 64 bits, one point at a time."""
    found = []
    for point in points.astype(np.float64):
        distances = sorted(math.dist(point, other) for other in others.astype(np.float64))
        found.append(distances[min(k, len(distances)) - 1])
    return np.array(found)


# ---------------------------------------------------------------- nearest neighbours

numbers = st.floats(-100, 100, width=32)


@given(data=st.data(), dimension=st.integers(1, 2), k=st.integers(1, 6))
def test_kth_distance_equals_brute_force(data: st.DataObject, dimension: int, k: int):
    shape = array_shapes(min_dims=1, max_dims=1, max_side=12)
    points, others = (
        data.draw(shape.flatmap(lambda n: arrays(np.float32, (n[0], dimension), elements=numbers))) for _ in range(2)
    )
    found = kth_distance(torch.from_numpy(points), torch.from_numpy(others), k)
    np.testing.assert_allclose(found.numpy(), brute_force(points, others, k), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("apart", [1e-6, 2e-5, 1e-4])
@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("size", [5, 60, 300])
def test_near_duplicates_have_a_distance(apart: float, dimension: int, size: int):
    """Where a consistent skill is, neighbours are this close: the fast form of cdist calls them the same point."""
    centre = torch.full((1, dimension), 1.0)
    steps = torch.arange(size)[:, None] * apart * torch.ones(dimension)
    others, points = centre + steps, centre + steps + 0.4 * apart
    found = kth_distance(points, others, 3)
    expected = brute_force(points.numpy(), others.numpy(), 3)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-9)
    assert (found > 0).all()


def test_a_point_counts_as_its_own_neighbour():
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    assert kth_distance(points, points, 1).tolist() == [0, 0, 0, 0]
    assert kth_distance(points, points, 2).tolist() == [1, 1, 2, 4]
    assert kth_distance(points, points, 3).tolist() == [3, 2, 3, 6]


def test_with_fewer_than_k_others_it_is_the_farthest():
    points, others = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    assert kth_distance(points, others, 3).tolist() == [5.0]
    assert kth_distance(points, others[1:], 3).tolist() == [1.0]


# ---------------------------------------------------------------- the objective


def settings(**changes: Any) -> Incremental:
    return Incremental.model_validate({**load().disk.model_dump(), **changes})


def make(
    past: Tensor | None = None,
    recent: Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = 1.0,
    bonus: float = 0.0,
    seed: int = 0,
    paid: Paid | None = None,
    **changes: Any,
) -> IncrementalObjective:
    size = next((tensor.shape[1] for tensor in (past, recent) if tensor is not None), 2)
    generator = torch.Generator().manual_seed(seed)
    objective = IncrementalObjective(settings(**changes), size, past, alpha, beta, bonus, generator, CPU, paid)
    for state in recent if recent is not None else []:
        objective.observe(0, state.numpy().astype(np.float64))
    return objective


def reward(objective: IncrementalObjective, sigma: list[list[float]], progress: float = 1.0) -> Tensor:
    return objective.reward(sigma_batch(torch.tensor(sigma)), progress)[0]


HERE, THERE = torch.zeros(60, 2), torch.tensor([[10.0, 0.0]]).expand(60, 2)


def test_closer_to_the_skills_own_recent_states_pays_more():
    values = reward(make(past=THERE, recent=HERE, beta=0.0), [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, -5.0]])
    assert values.tolist() == sorted(values.tolist(), reverse=True)
    assert values[0] > values[-1]


def test_farther_from_the_past_pays_more():
    values = reward(make(past=THERE, recent=HERE, alpha=0.0), [[10.0, 0.0], [9.0, 0.0], [0.0, 0.0], [-9.0, 0.0]])
    assert values.tolist() == sorted(values.tolist())
    assert values[-1] > values[0]


def test_the_reward_is_beta_diversity_minus_alpha_consistency():
    objective = make(past=THERE, recent=HERE, alpha=3.0, beta=0.5, anneal="none")
    sigma = [[0.0, 0.0], [3.0, 4.0], [10.0, 0.0]]
    np.testing.assert_allclose(
        reward(objective, sigma), [0.5 * 10.0, 0.5 * math.hypot(7, 4) - 3.0 * 5.0, -3.0 * 10.0], rtol=1e-5
    )


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_the_first_skill_gets_bonus_minus_alpha_consistency_throughout(progress: float):
    objective = make(recent=HERE, alpha=0.5, bonus=10.0)
    np.testing.assert_allclose(reward(objective, [[0.0, 0.0], [3.0, 4.0]], progress), [10.0, 10.0 - 0.5 * 5.0])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "tanh",
            {0.0: 0.5 * (1 - math.tanh(4)), 0.25: 0.5 * (1 - math.tanh(2)), 0.5: 0.5, 1.0: 0.5 * (1 + math.tanh(4))},
        ),
        ("signed", {0.0: -math.tanh(4), 0.5: 0.0, 0.75: math.tanh(2), 1.0: math.tanh(4)}),
        ("none", {0.0: 1.0, 0.5: 1.0, 1.0: 1.0}),
    ],
)
def test_alpha_is_annealed(kind: str, values: dict[float, float]):
    objective = make(past=THERE, recent=HERE, alpha=2.0, beta=0.0, anneal=kind)
    for progress, factor in values.items():
        assert ANNEALING[kind](progress) == pytest.approx(factor)
        assert float(reward(objective, [[3.0, 4.0]], progress)) == pytest.approx(-factor * 2.0 * 5.0, abs=1e-5)


def test_the_papers_curve_starts_at_nothing_ends_at_everything_and_never_falls():
    curve = [ANNEALING["tanh"](t / 100) for t in range(101)]
    assert curve[0] < 1e-3
    assert curve[-1] > 1 - 1e-3
    assert curve == sorted(curve)


def test_annealing_leaves_diversity_alone():
    early, late = (reward(make(past=THERE, recent=HERE, alpha=0.0), [[0.0, 0.0]], t) for t in (0.0, 1.0))
    assert early.tolist() == late.tolist() == [10.0]


# ---------------------------------------------------------------- BUF and 𝒯


def test_the_recent_states_are_the_last_fifty():
    objective = make(recent=torch.arange(130.0)[:, None] * torch.ones(2))
    assert sorted(objective.recent[:, 0].tolist()) == list(range(80, 130))
    assert load().disk.recent_states == 50


def test_before_fifty_states_only_those_seen_count():
    """A buffer that starts with zeros would draw the first skill to the origin."""
    objective = make(recent=torch.full((4, 2), 100.0), neighbours=1)
    np.testing.assert_allclose(
        objective.consistency(torch.tensor([[0.0, 0.0], [100.0, 100.0]])), [math.hypot(100, 100), 0]
    )


def test_consistency_is_the_third_nearest_of_the_recent_states():
    objective = make(recent=torch.tensor([[0.0], [1.0], [5.0], [9.0]]))
    assert objective.consistency(torch.tensor([[0.0]])).tolist() == [5.0]


def test_diversity_is_measured_against_all_earlier_skills():
    """Three skills far apart: standing at any of them, the newest included, must pay next to nothing."""
    corners = torch.tensor([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    objective = make(past=corners.repeat_interleave(500, dim=0), recent=HERE)
    assert objective.diversity(corners).tolist() == [0.0, 0.0, 0.0]
    assert float(objective.diversity(torch.tensor([[100.0, 100.0]]))) == 100.0


def test_each_update_draws_past_batch_states_afresh():
    past = torch.arange(10_000.0)[:, None]
    objective = make(past=past, recent=torch.zeros(3, 1), neighbours=256)
    # The 256th nearest of 256 is the farthest: with the point at -1 it tells the largest state drawn.
    largest = [float(objective.diversity(torch.tensor([[-1.0]]))) - 1.0 for _ in range(200)]
    assert len(set(largest)) > 50
    # The largest of 256 uniform draws from 10,000 has mean 10,000·256/257.
    assert np.mean(largest) == pytest.approx(10_000 * 256 / 257, rel=0.002)


def test_draws_are_reproducible():
    past, points = torch.randn(10_000, 2), torch.randn(20, 2)
    one, same, other = (make(past=past, recent=HERE, seed=seed).diversity(points) for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()


# ---------------------------------------------------------------- α, β and the means they come from


def test_means_are_raw_and_over_all_updates():
    """No weight, no sign, no annealing in them: the released code's mistake."""
    objective = make(past=THERE, recent=HERE, alpha=7.0, beta=3.0)
    for sigma, progress in (([[3.0, 4.0], [0.0, 0.0]], 0.0), ([[10.0, 0.0], [10.0, 0.0]], 0.9)):
        reward(objective, sigma, progress)
    consistency, diversity = objective.means()
    assert consistency == pytest.approx((2.5 + 10.0) / 2)
    assert diversity == pytest.approx(((math.hypot(7, 4) + 10.0) / 2 + 0.0) / 2)


def test_metrics_are_the_means_of_the_batch():
    objective = make(past=THERE, recent=HERE, alpha=2.0, beta=3.0, anneal="none")
    values, metrics = objective.reward(sigma_batch(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), 0.3)
    assert float(metrics["reward/mean"]) == pytest.approx(float(values.mean()))
    assert float(metrics["reward/consistency"]) == pytest.approx(2.5)
    assert float(metrics["reward/diversity"]) == pytest.approx((math.hypot(7, 4) + 10.0) / 2)


def test_inverse_means_are_clamped():
    assert inverse_mean(4.0, 1e-3) == 0.25
    assert inverse_mean(1e-9, 1e-3) == inverse_mean(0.0, 1e-3) == 1000.0


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_the_second_skills_beta_is_the_inverse_mean_diversity_of_the_replay(weight: float):
    config, generator = settings(beta=weight), torch.Generator().manual_seed(0)
    objective = IncrementalObjective(config, 2, THERE, 0.0, None, 0.0, generator, CPU)
    objective.observe(1, np.zeros(2))
    batches = itertools.cycle(sigma_batch(torch.tensor(each)) for each in ([[10.0, 4.0]], [[10.0, 0.0], [10.0, 8.0]]))
    objective.start(lambda: next(batches))
    assert objective.beta == pytest.approx(weight / 4.0)
    assert float(reward(objective, [[0.0, 0.0]])) == pytest.approx(10.0 * weight / 4.0)


def test_the_second_skills_beta_is_clamped():
    objective = make(past=THERE, recent=HERE, beta=None)
    objective.start(lambda: sigma_batch(THERE))
    assert objective.beta == pytest.approx(1000.0)


def test_measuring_beta_leaves_the_means_alone():
    objective = make(past=THERE, recent=HERE, beta=None)
    objective.start(lambda: sigma_batch(HERE))
    reward(objective, [[10.0, 0.0]])
    assert objective.means() == (10.0, 0.0)


def test_a_beta_that_is_known_is_not_measured_again():
    objective = make(past=THERE, recent=HERE, beta=0.7)
    objective.start(lambda: sigma_batch(HERE))
    assert objective.beta == 0.7


def test_a_reward_before_beta_was_measured_is_refused():
    with pytest.raises(RuntimeError, match="β"):
        reward(make(past=THERE, recent=HERE, beta=None), [[0.0, 0.0]])


# ---------------------------------------------------------------- the released code's normaliser


def test_the_released_normaliser_counts_what_was_paid_with_its_sign():
    """By hand: HERE is BUF. The first skill pays 0.5 · 10, the second, annealed to almost 1, -0.1 · 10 · 2."""
    first = make(past=None, recent=HERE, alpha=0.5, bonus=3.0)
    reward(first, [[10.0, 0.0]])
    assert first.paid() == pytest.approx((-5.0, 3.0, 1))
    alpha, beta = first.paid().weights(1e-3)
    assert (alpha, beta) == pytest.approx((-0.2, 1.0 / 3.0))

    second = make(past=THERE, recent=HERE, alpha=alpha, beta=beta, paid=first.paid())
    assert float(reward(second, [[4.0, 0.0]], 1.0)) > float(reward(second, [[4.0, 0.0]], 0.0)), "paid for being away"
    annealed = ANNEALING["tanh"](1.0) * 4.0 + ANNEALING["tanh"](0.0) * 4.0
    assert second.paid() == pytest.approx(((-5.0 + 0.2 * annealed) / 3.0, (3.0 + 2.0 * beta * 6.0) / 3.0, 3))


def test_released_weights_keep_their_signs_and_are_clamped():
    assert Paid(-4.0, 2.0, 1).weights(1e-3) == (-0.25, 0.5)
    assert Paid(1e-9, -1e-9, 1).weights(1e-3) == (1000.0, -1000.0)


# ---------------------------------------------------------------- saving


@pytest.mark.parametrize("beta", [None, 0.1])
@pytest.mark.parametrize("seen", [0, 7, 120])
def test_a_restored_objective_goes_on_the_same(beta: float | None, seen: int):
    past, states = torch.randn(500, 2), torch.randn(seen + 80, 2)
    one = make(past=past, recent=states[:seen], beta=beta, alpha=0.3)
    if seen and beta:
        reward(one, [[1.0, 2.0]])
    saved, noise = {name: value.clone() for name, value in one.state().items()}, one.generator.get_state()
    two = make(past=past, beta=None, alpha=0.3, seed=9)
    two.load_state(saved)
    two.generator.set_state(noise)
    assert two.beta == one.beta
    for objective in (one, two):
        for state in states[seen:]:
            objective.observe(0, state.numpy())
        if beta is None:
            objective.start(lambda: sigma_batch(states))
    assert one.beta == two.beta
    assert reward(one, [[0.5, 0.5]], 0.7).tolist() == reward(two, [[0.5, 0.5]], 0.7).tolist()
    assert one.means() == two.means()


def test_diversity_is_measured_against_the_past_that_is_gathered_after_a_change():
    objective = make(past=torch.zeros(20, 2))
    here = torch.tensor([[3.0, 4.0]])
    assert objective.diversity(here).tolist() == [5.0]
    objective.past = torch.full((20, 2), 3.0)
    assert objective.diversity(here).tolist() == [1.0]
