"""A learned σ: what φ finds, what its environments, objectives and files hold, and which jobs know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from conftest import CPU, sigma_batch, tiny_config

from disk import projection
from disk.config import Incremental, Projection
from disk.envs import make
from disk.envs.point import PointEnv
from disk.errors import ArtefactError, ConfigError
from disk.figures.projection import paths
from disk.learning.objectives.incremental import IncrementalObjective
from disk.learning.projection import LearnedProjection, spread
from disk.learning.replay import Batch
from disk.storage.files import save_tensors

SETTINGS = tiny_config().projection


def walkers(random: np.random.Generator, mixed: np.ndarray) -> torch.Tensor:
    """Moves of a robot that goes straight for 40 steps in two coordinates, among random walks, under a linear map."""
    size, episodes = len(mixed), []
    for _ in range(40):
        steps = random.standard_normal((40, size))
        steps[:, :2] = random.uniform(-1.0, 1.0, 2) + 0.1 * steps[:, :2]
        states = np.concatenate((np.zeros((1, size)), steps.cumsum(axis=0))) @ mixed
        episodes.append(np.concatenate((states[:-1], states[1:]), axis=1))
    return torch.from_numpy(np.concatenate(episodes)).float()


def learned(moves: torch.Tensor, **changes: Any) -> LearnedProjection:
    generator = torch.Generator().manual_seed(0)
    phi = LearnedProjection(SETTINGS.model_copy(update=changes), moves.shape[1] // 2, 0, CPU)

    def sample() -> Batch:
        return sigma_batch(moves[torch.randint(len(moves), (256,), generator=generator)])

    phi.learn(sample)
    return phi


@pytest.fixture(scope="module")
def moves() -> torch.Tensor:
    random = np.random.default_rng(0)
    return walkers(random, random.standard_normal((8, 8)))


@pytest.fixture(scope="module")
def phi(moves: torch.Tensor) -> LearnedProjection:
    return learned(moves)


def test_phi_finds_the_two_directions_that_go_farthest_for_their_steps(moves: torch.Tensor, phi: LearnedProjection):
    """The oracle is slow feature analysis: the generalised eigenvectors of the covariances of states and of steps."""
    before, after = np.split(moves.double().numpy(), 2, axis=1)
    _, vectors = scipy.linalg.eigh(np.cov(after.T), np.cov((after - before).T))
    found = (phi.network.mlp.weights[0][0] / phi.network.scale[:, None]).double().numpy()
    assert scipy.linalg.subspace_angles(found, vectors[:, -2:]).max() < 0.3  # a random plane: 1.4


def test_a_step_is_hardly_ever_longer_than_one(moves: torch.Tensor, phi: LearnedProjection):
    lengths = phi(moves).norm(dim=1)
    assert lengths.quantile(0.95) < 1.1
    assert lengths.quantile(0.95) > 0.7, "or there is room to spread further"


def test_the_spread_is_the_sum_of_deviations_along_principal_axes():
    corners = torch.tensor([[2.0, 3.0], [2.0, -3.0], [-2.0, 3.0], [-2.0, -3.0]])
    turned = corners @ torch.linalg.matrix_exp(torch.tensor([[0.0, 0.7], [-0.7, 0.0]]))
    expected = (4.0 / 3.0) ** 0.5 * (2.0 + 3.0)  # the unbiased deviation of ±2 and ±3, four times
    assert spread(corners).item() == pytest.approx(expected)
    assert spread(turned).item() == pytest.approx(expected, rel=1e-5)
    assert spread(corners[:, :1]).item() == pytest.approx((4.0 / 3.0) ** 0.5 * 2.0)


def test_a_projection_comes_back_from_its_file_and_its_state(
    moves: torch.Tensor, phi: LearnedProjection, tmp_path: Path
):
    phi.network.save(tmp_path / "projection.safetensors", {"skill": 3})
    found, meta = projection.load(tmp_path / "projection.safetensors")
    assert meta["skill"] == 3
    assert torch.equal(found(moves), phi(moves))
    before, after = moves.chunk(2, dim=1)
    torch.testing.assert_close(phi(moves), found.place(after) - found.place(before))
    other = LearnedProjection(SETTINGS, 8, 1, CPU)
    with pytest.raises(RuntimeError, match="call learn first"):
        other(moves)
    other.load_state(phi.state())
    assert torch.equal(other(moves), phi(moves))
    save_tensors(tmp_path / "other.safetensors", {"x": torch.zeros(1)}, {})
    with pytest.raises(ArtefactError, match="is not a projection"):
        projection.load(tmp_path / "other.safetensors")


def test_distances_in_phi_itself_see_the_state_after_a_step_alone(moves: torch.Tensor):
    phi = learned(moves, distance="place", updates=3, hidden=[4], width=1)
    assert phi(moves).shape == (len(moves), 1)
    torch.testing.assert_close(phi(moves), phi.network.place(moves[:, 8:]))


def test_the_reward_measures_distances_between_projected_states(moves: torch.Tensor, phi: LearnedProjection):
    config = tiny_config().disk.model_copy(update={"recent_states": 5, "past_batch": 7})
    assert isinstance(config, Incremental)
    past = moves[:50]
    objective = IncrementalObjective(config, 16, past, 1.0, 1.0, 0.0, torch.Generator().manual_seed(1), CPU, None, phi)
    for move in moves[100:108]:
        objective.observe(0, move.numpy())
    sigma = phi(moves[200:210])
    own = torch.cdist(sigma, phi(moves[103:108]), compute_mode="donot_use_mm_for_euclid_dist").sort(dim=1).values
    torch.testing.assert_close(objective.consistency(sigma), own[:, config.neighbours - 1])
    chosen = torch.randint(50, (7,), generator=torch.Generator().manual_seed(1))
    others = torch.cdist(sigma, phi(past[chosen]), compute_mode="donot_use_mm_for_euclid_dist").sort(dim=1).values
    torch.testing.assert_close(objective.diversity(sigma), others[:, config.neighbours - 1])


def test_a_world_with_a_learned_sigma_shows_states_before_and_after_a_step():
    env = make(tiny_config().world_of("point", "disk_learned"))
    obs, info = env.reset(seed=3)
    start = np.concatenate((obs, info["position"]))
    assert np.array_equal(info["sigma"], np.concatenate((start, start)))
    obs, _, _, _, info = env.step(np.ones(4))
    state = np.concatenate((obs, info["position"]))
    assert np.array_equal(info["sigma"], np.concatenate((start, state)))
    np.testing.assert_allclose(info["velocity"], (state - start)[2:] / env.dt)


def test_distractors_walk_behind_the_observation_whatever_the_thrusters_do():
    plain, distracted = PointEnv(), PointEnv(distractors=3, distractor_step=0.5)
    walks = []
    for thrust in (np.zeros(4), np.array([1.0, 0.0, 0.5, 0.0])):
        first, _ = distracted.reset(seed=5)
        assert np.array_equal(first[:2], plain.reset(seed=5)[0])
        assert not first[2:].any()
        seen = np.array([distracted.step(thrust)[0] for _ in range(400)])
        assert np.array_equal(seen[0, :2], plain.step(thrust)[0])
        walks.append(seen[:, 2:])
    assert np.array_equal(walks[0], walks[1])
    assert np.diff(walks[0], axis=0).std() == pytest.approx(0.5, rel=0.1)


def test_only_jobs_whose_sigma_is_learned_know_of_phi():
    config = tiny_config({"environments": {"point_blocks": {"sigma": "learned"}}})
    assert config.skill_job("point", "disk_learned", 0, 1).projection == SETTINGS
    assert "projection" not in config.skill_job("point", "disk", 0, 1).canonical()
    assert config.joint_job("point_blocks", "diayn_sigma", 0).projection == SETTINGS
    assert config.joint_job("point_blocks", "metra", 0).projection is None, "METRA learns a φ of its own"
    assert config.evaluation_job("point_blocks").world.sigma == "velocity"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"disk_learned": {"projection": {"widht": 2}}}}, "methods.disk_learned.projection.widht"),
        ({"methods": {"disk_fork_fresh": {"sigma": "learned"}}}, "methods.disk_fork_fresh.sigma"),
        ({"environments": {"point": {"position": {"qpos": [0, 1, 2]}}}}, "one or two"),
        ({"projection": {"width": 0}}, "projection.width"),
        ({"methods": {"disk": {"sigma": "learned", "warm": "recall"}}}, "methods.disk.warm: recall in point, whose σ"),
    ],
)
def test_a_wrong_setting_of_phi_is_refused_by_its_path(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        tiny_config(changes)


def test_visited_states_become_paths_of_their_episodes(phi: LearnedProjection, moves: torch.Tensor, tmp_path: Path):
    np.save(tmp_path / "visits.npy", moves[:100].numpy())  # two episodes of 40 steps and a half
    table = paths(phi.network, [tmp_path / "visits.npy"], 2)
    assert table.groupby("episode")["step"].max().tolist() == [39, 39, 19]
    before = moves[:100, :8]
    np.testing.assert_array_equal(table[["x", "y"]], before[:, -2:])
    np.testing.assert_allclose(table[["phi1", "phi2"]], phi.network.place(before), rtol=1e-6)


def test_the_default_is_two_numbers_wide():
    assert isinstance(SETTINGS, Projection)
    assert SETTINGS.width == 2
