"""What makes skills move: running means, own shares, shapes, first skills that cost little; by hand-computed cases."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, often, raw_config, sigma_batch, tiny_config
from hypothesis import given
from hypothesis import strategies as st
from test_incremental import HERE, THERE, make, reward
from walltime import START, expected_mb, expected_seconds, size_of

from disk import config as configuration
from disk.config import Budget, SkillJob
from disk.errors import ConfigError
from disk.learning.build import joint_parts, skill_parts
from disk.learning.convergence import Spending, cap_of, is_duplicate, verdict
from disk.learning.objectives.incremental import ANNEALING, IncrementalObjective
from disk.learning.replay import Batch, Replay, inherit
from disk.learning.run import learn_skill
from disk.storage.files import load_tensors
from disk.storage.manifest import identity
from disk.storage.replay import Columns, save_shard

RUNNING = {"normaliser": "running", "normaliser_window": 4}
# BUF is at the origin and 𝒯 at (10, 0): of a state (x, 0), r_c is x and r_d is 10 - x.


def row(**keys: Any) -> dict[str, Any]:
    return {"objective": "disk", "policies": "independent", "schedule": "incremental", **keys}


# ---------------------------------------------------------------- running means


def test_the_first_batch_is_its_own_mean():
    """α and β are defined at once: both terms of the first batch have mean 1."""
    values = reward(make(past=THERE, recent=HERE, anneal="none", **RUNNING), [[2.0, 0.0], [6.0, 0.0]])
    np.testing.assert_allclose(values, [8.0 / 6.0 - 2.0 / 4.0, 4.0 / 6.0 - 6.0 / 4.0], rtol=1e-6)


def test_later_batches_move_the_means_by_the_windows_share():
    """By hand, with a window of 4: means of x are 2, then (0.75·0.5 + 0.25·6) / (1 - 0.75²)."""
    objective = make(past=THERE, recent=HERE, alpha=3.0, beta=0.5, anneal="none", **RUNNING)
    reward(objective, [[2.0, 0.0]])
    mean = (0.75 * 0.25 * 2.0 + 0.25 * 6.0) / (1.0 - 0.75**2)
    assert float(reward(objective, [[6.0, 0.0]])) == pytest.approx(0.5 * 4.0 / (10.0 - mean) - 3.0 * 6.0 / mean)
    assert objective.weights() == pytest.approx((3.0 / mean, 0.5 / (10.0 - mean)))
    assert objective.mean_terms() == pytest.approx(
        [3.0 * (1.0 + 6.0 / mean) / 2.0, 0.5 * (1.0 + 4.0 / (10.0 - mean)) / 2.0]
    )


@given(st.lists(st.floats(0.1, 9.9), min_size=1, max_size=30), st.integers(1, 50))
def test_running_means_are_exponentially_weighted_averages(places: list[float], window: int):
    objective = make(past=THERE, recent=HERE, normaliser="running", normaliser_window=window)
    for place in places:
        reward(objective, [[place, 0.0]])
    weights = [(1.0 - 1.0 / window) ** age for age in reversed(range(len(places)))]
    mean = float(np.average(places, weights=weights))
    assert objective.weights() == pytest.approx((1.0 / mean, 1.0 / (10.0 - mean)), rel=1e-4)


def test_over_own_only_the_first_rows_of_a_batch_count():
    batch = sigma_batch(torch.tensor([[2.0, 0.0], [4.0, 0.0], [9.0, 0.0]]))
    own = Batch(batch.rows, batch.columns, own=2)
    for over, mean in (("own", 3.0), ("all", 5.0)):
        objective = make(past=THERE, recent=HERE, normaliser_over=over, **RUNNING)
        objective.reward(own, 1.0)
        assert objective.weights() == pytest.approx((1.0 / mean, 1.0 / (10.0 - mean)))


def test_running_means_are_clamped_and_the_raw_means_stay_raw():
    objective = make(past=THERE, recent=HERE, anneal="none", **RUNNING)
    assert float(reward(objective, [[10.0, 0.0]])) == pytest.approx(-1.0), "r_d is 0, and so is its term"
    assert objective.weights()[1] == pytest.approx(1000.0)
    assert objective.means() == pytest.approx((10.0, 0.0))


def test_alpha_is_annealed_on_top_of_running_means():
    for progress in (0.0, 1.0):
        objective = make(past=THERE, recent=HERE, **RUNNING)
        found = reward(objective, [[2.0, 0.0], [6.0, 0.0]], progress)
        factor = ANNEALING["tanh"](progress)
        np.testing.assert_allclose(found, [8 / 6 - factor * 0.5, 4 / 6 - factor * 1.5], rtol=1e-5)


def test_the_first_skill_does_not_look_at_any_of_it():
    """Its job is `disk`'s, so its bytes are."""
    settings = {**RUNNING, "normaliser_over": "own", "shape": "gated"}
    tiny = tiny_config({"methods": {"disk_all": row(settings=settings, own_share=0.5)}})
    assert tiny.skill_job("point", "disk_all", 0, 0) == tiny.skill_job("point", "disk", 0, 0)
    job = tiny.skill_job("point", "disk_all", 0, 1)
    assert (job.objective.normaliser, job.objective.normaliser_over, job.own_share) == ("running", "own", 0.5)


def test_a_job_holds_the_window_and_the_floor_only_where_they_are_used():
    tiny = tiny_config({"methods": {"disk_plain": row(settings={"shape": "difference", "normaliser_over": "all"})}})
    for word in ("normaliser", "log_floor", "shape", "own_share", "first_steps", '"first"'):
        assert word not in tiny.skill_job("point", "disk_plain", 0, 2).canonical()
    assert tiny.skill_job("point", "disk_plain", 0, 2) == tiny.skill_job("point", "disk", 0, 2)


@pytest.mark.parametrize("changes", [RUNNING, {**RUNNING, "shape": "gated"}, {"shape": "log"}])
def test_a_restored_objective_goes_on_the_same(changes: dict[str, Any]):
    one, two = (make(past=torch.randn(500, 2), recent=HERE, seed=seed, **changes) for seed in (0, 1))
    two.past = one.past
    for place in (1.0, 2.0, 7.0):
        reward(one, [[place, 0.0]])
    two.load_state({name: value.clone() for name, value in one.state().items()})
    two.generator.set_state(one.generator.get_state())
    assert reward(one, [[3.0, 1.0]], 0.7).tolist() == reward(two, [[3.0, 1.0]], 0.7).tolist()
    assert one.weights() == two.weights()
    assert one.mean_terms() == two.mean_terms()


# ---------------------------------------------------------------- own share

COLUMNS = Columns(obs=1, action=1, sigma=1)


def numbered(start: int, count: int) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.float32)[:, None].expand(count, COLUMNS.width).clone()


def inherited(tmp_path: Path, count: int, capacity: int) -> Replay:
    replay = Replay(capacity, COLUMNS, CPU)
    if count:
        shard = numbered(0, count)
        shard[:, COLUMNS.parts["terminated"]] = 0.0
        save_shard(tmp_path / "replay.safetensors", shard, COLUMNS, {})
        inherit(replay, [tmp_path / "replay.safetensors"], 1.0, torch.Generator())
    return replay


@pytest.mark.parametrize("own", [0, 1, 4, 9, 10])
def test_exactly_so_many_rows_of_every_batch_are_own_and_they_come_first(tmp_path: Path, own: int):
    replay, generator = inherited(tmp_path, 30, 100), torch.Generator().manual_seed(0)
    seen: set[float] = set()
    for count in range(1, 61):
        replay.extend(numbered(30 + count - 1, 1))
        batch = replay.sample(10, generator, own)
        found = batch.obs[:, 0].tolist()
        assert batch.own == own
        assert len(found) == 10
        assert all(30 <= each < 30 + count for each in found[:own])
        assert all(each < 30 for each in found[own:])
        seen |= set(found)
    if 0 < own < 10:
        assert len(seen) > 40, "from all of both parts"


def test_when_the_capacity_has_dropped_what_was_inherited_the_rest_is_own(tmp_path: Path):
    replay, generator = inherited(tmp_path, 30, 40), torch.Generator().manual_seed(0)
    for count in range(1, 60):
        replay.extend(numbered(29 + count, 1))
        found, alive = replay.sample(10, generator, 4), range(max(0, 30 + count - 40), 30)
        expected = 4 if alive else 10
        assert found.own == expected
        assert all(each >= 30 for each in found.obs[:expected, 0].tolist())
        assert all(each in alive for each in found.obs[expected:, 0].tolist())


def test_with_nothing_inherited_all_rows_are_own(tmp_path: Path):
    replay = inherited(tmp_path, 0, 10)
    replay.extend(numbered(0, 3))
    assert replay.sample(6, torch.Generator(), 2).own == 6


def test_a_batch_that_is_told_its_skill_still_knows_its_own_rows():
    batch = sigma_batch(torch.zeros(4, 2))
    assert Batch(batch.rows, batch.columns, own=3).given(torch.zeros(4, 2)).own == 3
    assert batch.own is None


def test_every_batch_of_a_chain_has_its_share(tmp_path: Path, chain: list[Path], monkeypatch: pytest.MonkeyPatch):
    tiny = tiny_config({"methods": {"disk_own": row(own_share=0.3)}})
    seen: list[tuple[int | None, int]] = []
    sample = Replay.sample

    def spy(self: Replay, size: int, generator: torch.Generator, own: int | None = None) -> Batch:
        batch = sample(self, size, generator, own)
        oldest = self.rows[self.inherited :, : self.columns.obs]
        known = {tuple(each) for each in oldest.tolist()}
        seen.append((batch.own, sum(tuple(each) in known for each in batch.obs.tolist())))
        return batch

    monkeypatch.setattr(Replay, "sample", spy)
    learn_skill(tiny.skill_job("point", "disk_own", 0, 1), chain[:1], tmp_path / "skill01", tiny.runtime)
    assert len(seen) == 250 + 10
    assert set(seen) == {(10, 10)}, "0.3 of 32"


def test_disk_plus_keeps_its_share_and_its_running_means_after_a_crash(
    tmp_path: Path, chain: list[Path], monkeypatch: pytest.MonkeyPatch
):
    """It crashes at its hundredth update. Run again, every batch and every α and β is that of a straight run."""
    config = tiny_config({"budget": {"tolerance": 1.0e-6}})
    job, pay = config.skill_job("point", "disk_plus", 0, 1), IncrementalObjective.reward
    assert (job.own_share, job.objective.normaliser) == (0.5, "running")
    seen: list[tuple[float, ...]] = []
    crash = -1

    def spy(self: IncrementalObjective, batch: Batch, progress: float) -> Any:
        if len(seen) == crash:
            raise RuntimeError("crash")
        result = pay(self, batch, progress)
        seen.append((float(batch.own or 0), float(batch.rows.sum()), *self.weights()))
        return result

    monkeypatch.setattr(IncrementalObjective, "reward", spy)
    learn_skill(job, chain[:1], tmp_path / "straight", often(config))
    straight = seen.copy()
    assert {each[0] for each in straight} == {16.0}, "half of 32"
    assert len({each[2:] for each in straight}) == len(straight), "both means move with every batch"
    seen.clear()
    crash = 100
    with pytest.raises(RuntimeError, match="crash"):
        learn_skill(job, chain[:1], tmp_path / "again", often(config))
    assert seen == straight[:100]
    seen.clear()
    crash = -1
    learn_skill(job, chain[:1], tmp_path / "again", often(config))
    assert len(straight) > len(seen) >= len(straight) - 100, "it resumes from a checkpoint"
    assert seen == straight[-len(seen) :]


def test_without_a_share_batches_are_drawn_as_before():
    replay = Replay(20, COLUMNS, CPU)
    replay.extend(numbered(0, 15))
    expected = torch.randint(15, (8,), generator=torch.Generator().manual_seed(3)).tolist()
    assert replay.sample(8, torch.Generator().manual_seed(3)).obs[:, 0].tolist() == expected


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize(("progress", "kind"), [(0.0, "tanh"), (1.0, "tanh"), (0.3, "none")])
def test_gated_is_diversity_times_a_gate(progress: float, kind: str):
    objective = make(past=THERE, recent=HERE, alpha=0.5, beta=2.0, anneal=kind, shape="gated")
    factor = ANNEALING[kind](progress)
    found = reward(objective, [[0.0, 0.0], [4.0, 0.0], [10.0, 0.0]], progress)
    np.testing.assert_allclose(found, [20.0, 12.0 * math.exp(-factor * 2.0), 0.0], rtol=1e-5)


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20), st.floats(0, 1))
def test_gated_is_never_negative(places: list[tuple[float, float]], progress: float):
    objective = make(past=THERE, recent=HERE, shape="gated", **RUNNING)
    assert bool((reward(objective, [list(each) for each in places], progress) >= 0.0).all())


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_log_is_the_difference_of_logarithms_with_the_bare_weights(progress: float):
    objective = make(past=THERE, recent=HERE, alpha=0.5, beta=2.0, shape="log", log_floor=0.1)
    factor = ANNEALING["tanh"](progress)
    found = reward(objective, [[0.0, 0.0], [4.0, 0.0], [10.0, 0.0]], progress)
    expected = [2.0 * math.log(10.1 - x) - factor * 0.5 * math.log(x + 0.1) for x in (0.0, 4.0, 10.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("shape", ["gated", "log"])
def test_shapes_pay_for_distance_from_the_past_and_for_repeating_oneself(shape: str):
    far = reward(make(past=THERE, recent=HERE, shape=shape, anneal="none"), [[0.0, 5.0], [0.0, 0.0]])
    assert far[1] > far[0], "as close to 𝒯 or closer, but at BUF"
    away = make(past=THERE, recent=torch.tensor([[0.0, 3.0]]).expand(60, 2), shape=shape, anneal="none")
    same_consistency = reward(away, [[-4.0, 0.0], [4.0, 0.0]])
    assert same_consistency[0] > same_consistency[1], "farther from 𝒯, as far from BUF"


@pytest.mark.parametrize("shape", ["gated", "log"])
def test_the_first_skill_has_no_shape(shape: str):
    objective = make(recent=HERE, alpha=0.5, bonus=10.0, shape=shape)
    np.testing.assert_allclose(reward(objective, [[3.0, 4.0]]), [7.5])


def test_a_chain_of_logs_takes_nothing_from_the_skill_before(chain: list[Path]):
    tiny = tiny_config({"methods": {"disk_log": row(settings={"shape": "log", "alpha": 0.7})}})
    objective: Any = skill_parts(tiny.skill_job("point", "disk_log", 0, 2), chain[:2], CPU).objective
    assert (objective.alpha, objective.beta) == (0.7, 1.0)


# ---------------------------------------------------------------- a first skill that costs little


def test_a_balanced_first_skill_has_two_terms_of_one_size():
    batches = itertools.cycle(sigma_batch(torch.tensor(each)) for each in ([[3.0, 4.0]], [[0.0, 1.0], [0.0, 5.0]]))
    objective = make(recent=HERE, alpha=99.0, bonus=10.0, first="balanced")
    objective.start(lambda: next(batches))
    assert objective.alpha == pytest.approx(10.0 / 4.0)
    assert float(reward(objective, [[0.0, 4.0]])) == pytest.approx(0.0, abs=1e-6)
    again = make(recent=HERE, alpha=0.0, bonus=10.0, first="balanced")
    again.load_state(objective.state())
    assert again.alpha == objective.alpha


def test_balance_is_for_the_first_skill_only():
    objective = make(past=THERE, recent=HERE, alpha=2.0, beta=0.5, bonus=10.0, first="balanced")
    objective.start(lambda: sigma_batch(HERE))
    assert objective.alpha == 2.0


def test_a_balanced_chain_measures_its_first_alpha_and_needs_no_other(tmp_path: Path):
    tiny = tiny_config({"methods": {"disk_balanced": row(settings={"first": "balanced"})}})
    first, second = (tiny.skill_job("point", "disk_balanced", 0, skill) for skill in (0, 1))
    assert (first.first_alpha, first.objective.first) == (None, "balanced")
    assert second == tiny.skill_job("point", "disk", 0, 1)
    learn_skill(first, [], tmp_path / "skill00", tiny.runtime)
    stats = json.loads((tmp_path / "skill00/stats.json").read_text())
    assert stats["alpha"] * stats["mean_consistency"] == pytest.approx(1.0, rel=0.5), "the bonus, at the first update"
    learn_skill(second, [tmp_path / "skill00"], tmp_path / "skill01", tiny.runtime)


def test_first_steps_are_those_of_the_first_skill_alone():
    steps = {"point_blocks": 700}
    loaded = configuration.parse(raw_config({"methods": {"disk_short": row(first_steps=steps)}}))
    moved = loaded.skill_job("point_blocks", "disk_short", 0, 2)
    assert (moved.steps, moved.start_step) == (4_000, 4_700), "the clock of a changing world is the chain's"
    assert loaded.skill_job("point_blocks", "disk_short", 0, 0).steps == 700
    assert loaded.skill_job("ant", "disk_short", 0, 0) == loaded.skill_job("ant", "disk", 0, 0)
    assert loaded.budget_of("point_blocks", "disk_short") == 700 + 7 * 4_000


# ---------------------------------------------------------------- critics that see σ

SEES: dict[str, Any] = {"sac": {"critic_sees": "sigma"}, "sigma_steps": 3}


def test_a_transition_holds_the_sigma_of_the_step_before(tmp_path: Path):
    """σ is 0 at the first step of an episode, and later what the last transition ended with."""
    tiny = tiny_config({"methods": {"mine": row(**SEES)}})
    folders = [tmp_path / f"skill{skill:02d}" for skill in range(2)]
    for skill in range(2):
        learn_skill(tiny.skill_job("point", "mine", 0, skill), folders[:skill], folders[skill], tiny.runtime)
    horizon = tiny.environments["point"].horizon
    for folder in folders:
        found, _ = load_tensors(folder / "replay.safetensors")
        before, after = (found[name].reshape(-1, horizon, 2) for name in ("sigma_before", "sigma"))
        assert (before[:, 0] == 0.0).all()
        assert torch.equal(before[:, 1:], after[:, :-1])
        assert (before[:, 1:] != 0.0).any()
    parts = skill_parts(tiny.skill_job("point", "mine", 0, 1), folders[:1], CPU)
    columns = parts.replays[0].columns
    assert (columns.sigma, columns.sigma_before) == (2, 2)
    first = load_tensors(folders[0] / "replay.safetensors")[0]["sigma_before"]
    assert torch.equal(parts.replays[0].newest(300)[:, columns.parts["sigma_before"]], first), "it is inherited"


@pytest.mark.parametrize("method", ["disk", "diayn"])
def test_critics_see_sigma_and_policies_do_not(method: str):
    paper, seeing = (tiny_config({"sac": {"critic_sees": sees}}) for sees in (None, "sigma"))
    agents = []
    for config in (paper, seeing):
        if config.methods[method].incremental:
            parts = skill_parts(config.skill_job("point", method, 0, 0), [], CPU)
        else:
            parts = joint_parts(config.joint_job("point", method, 0), CPU)
        agents.append(parts.agents[0])
    widths = [agent.critic.weights[0].shape[1] for agent in agents]
    assert widths[1] == widths[0] + 2
    states = [agent.actor.state_dict() for agent in agents]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_row_of_the_tournament_adds_what_critics_see_to_strides():
    config = configuration.load(configuration.PROJECT / "config" / "tournament.yaml")
    stride, sees = (config.skill_job("hopper", f"disk_crossq_{name}", 0, 1) for name in ("stride", "sees"))
    assert (sees.world.sigma_steps, sees.sac.critic) == (20, "crossq")
    assert sees == stride.model_copy(update={"sac": stride.sac.model_copy(update={"critic_sees": "sigma"})})


def test_without_it_jobs_and_files_stay_as_they_are(chain: list[Path]):
    assert "critic_sees" not in tiny_config().skill_job("point", "disk", 0, 1).canonical()
    found, _ = load_tensors(chain[0] / "replay.safetensors")
    assert set(found) == {"obs", "action", "next_obs", "sigma", "terminated"}


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("random", {"sac": {"critic_sees": "sigma"}}, r"methods\.random: objective none has no critics"),
        ("random", {"sac_in": {"point": {"critic_sees": "sigma"}}}, r"methods\.random: objective none has no critics"),
        ("disk_learned", {"sac": {"critic_sees": "sigma"}}, r"disk_learned\.sac\.critic_sees: sigma in point, whose σ"),
        ("disk_fork_reuse", {"sac": {"critic_sees": "sigma"}}, r"disk_fork_reuse\.sac\.critic_sees: .*expected None"),
        ("disk", {"sac": {"critic_sees": "speed"}}, r"methods\.disk\.sac\.critic_sees: 'speed'"),
    ],
)
def test_critics_that_cannot_see_sigma_are_refused(name: str, keys: dict[str, Any], message: str):
    asked = {"methods": {name: keys}, "runs": [{"envs": ["point"], "methods": [name, "disk_fork_reuse"]}]}
    with pytest.raises(ConfigError, match=message):
        tiny_config({"methods": {"disk_fork_reuse": {"fork": {"after": 1}}}}, asked)


def test_a_flat_controller_has_no_sigma_to_see():
    with pytest.raises(ConfigError, match=r"hierarchy\.sac\.critic_sees: a flat controller is not paid by σ"):
        tiny_config({"sac": {"critic_sees": "sigma"}}).hierarchy_job("point", "flat", 0, 0)


# ---------------------------------------------------------------- refusals


def job_of(keys: dict[str, Any]) -> SkillJob:
    return tiny_config({"methods": {"mine": row(**keys)}}).skill_job("point", "mine", 0, 1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"settings": {"normaliser": "runing"}}, r"methods\.mine\.settings\.normaliser: 'runing'"),
        (
            {"settings": {"normaliser": "running", "normaliser_window": None}},
            r"mine\.settings: normaliser_window: null",
        ),
        ({"settings": {"shape": "log", "normaliser": "running"}}, r"mine\.settings: normaliser: running: shape log"),
        ({"settings": {"shape": "log", "log_floor": None}}, r"mine\.settings: log_floor: null"),
        ({"settings": {"shape": "gated", "normaliser": "released"}}, r"mine\.settings: normaliser: released: shape"),
        (
            {"settings": {"normaliser": "running", "normaliser_over": "own"}},
            r"methods\.mine\.own_share: None: normaliser_over own needs own transitions.*at least one in 32",
        ),
        ({"own_share": 1.5}, r"methods\.mine\.own_share: 1\.5"),
        ({"first_steps": {"pint": 100}}, r"methods\.mine\.first_steps\.pint: 'pint' is unknown"),
        ({"first_steps": 50}, r"methods\.mine\.first_steps: 50: expected more than the 50 seed steps"),
        ({"schedule": "round_robin", "own_share": 0.5}, r"methods\.mine: own_share: only chains have it"),
        ({"schedule": "round_robin", "settings": {"shape": "log"}}, r"methods\.mine: settings\.shape: only chains"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(keys: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        job_of(keys)


# ---------------------------------------------------------------- a budget instead of a schedule

BUDGET = Budget(least=0.4, most=3.0, window=0.1, tolerance=0.05, duplicate=0.25, retries=1)


def test_the_most_a_skill_may_take_is_what_others_have_saved_or_a_multiple_of_its_own():
    """Four skills of 100 are planned; the first saves 60, the second 10."""
    assert cap_of(BUDGET, 100, 100, []) == 100
    assert cap_of(BUDGET, 100, 200, [40]) == 160
    assert cap_of(BUDGET, 100, 300, [40, 90]) == 170
    assert cap_of(BUDGET, 100, 400, [40, 40, 10]) == 300, "three times its own, though 310 are left"


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=12), st.floats(1, 5))
def test_a_chain_never_takes_more_than_its_schedule_and_a_skill_can_always_have_its_own(
    skills: list[tuple[int, float]], most: float
):
    config, planned, used = BUDGET.model_copy(update={"most": most}), 0, list[int]()
    for steps, share in skills:
        planned += steps
        cap = cap_of(config, steps, planned, used)
        assert cap >= steps
        used.append(round(share * cap))
        assert sum(used) <= planned


@pytest.mark.parametrize(
    ("step", "before", "now", "expected"),
    [
        (399, (1.0, 2.0), (1.0, 2.0), None),  # before the least
        (400, (1.0, 2.0), (1.0, 2.0), "settled"),
        (400, (1.0, 2.0), (1.04, 1.91), "settled"),
        (400, (1.0, 2.0), (1.06, 2.0), None),
        (400, (1.0, 2.0), (1.0, 1.88), None),
        (400, None, (1.0, 2.0), None),
        (999, (1.0, 2.0), (0.5, 2.0), None),
        (1000, (1.0, 2.0), (1.0, 2.2), None),  # beyond its own steps it goes on while it gets farther,
        (1000, (1.0, 2.0), (3.0, 2.2), None),
        (1000, (1.0, 2.0), (0.9, 2.0), None),  # or steadier without coming closer,
        (1000, (1.0, 2.0), (0.9, 1.8), "stalled"),  # not by coming closer,
        (1000, (1.0, 2.0), (1.2, 2.0), "stalled"),  # nor when it gets worse
        (1000, (1.0, 0.0), (0.9, 0.0), None),  # a first skill has no r_d
        (1700, (1.0, 2.0), (1.0, 9.0), "cap"),
    ],
)
def test_when_a_skill_with_a_budget_ends(step: int, before: Any, now: Any, expected: str | None):
    assert verdict(BUDGET, step, 1000, 1700, before, now) == expected


def test_a_duplicate_is_far_closer_to_the_past_than_earlier_skills_were():
    assert not is_duplicate(BUDGET, 0.0, []), "the second skill has nothing to be compared with"
    assert is_duplicate(BUDGET, 0.24, [1.0])
    assert not is_duplicate(BUDGET, 0.26, [1.0])
    assert is_duplicate(BUDGET, 0.4, [0.1, 2.0, 3.0])
    assert not is_duplicate(BUDGET, 0.6, [0.1, 2.0, 3.0])


def spending(curve: Any, cap: int, others: list[float], **changes: Any) -> Spending:
    """States that say which step led to them, and terms that `curve` gives for each."""

    def terms(sigma: torch.Tensor) -> torch.Tensor:
        return torch.tensor([curve(int(each)) for each in sigma[:, 0]]).T

    return Spending(BUDGET.model_copy(update=changes), 1000, cap, 50, others, terms)


def lived(found: Spending, start: int = 0, episode: int = 50) -> int:
    """Take steps until an attempt ends: after how many."""
    for step in range(start, found.cap):
        found.observe(step, np.array([float(step)]))
        if (step + 1) % episode == 0 and found.done(step + 1):
            return step + 1
    raise AssertionError("it goes on beyond its cap")


def test_a_flat_curve_ends_at_the_least_and_a_rising_one_goes_on_to_the_cap():
    flat = spending(lambda step: (1.0, 2.0), 1700, [])
    assert (lived(flat), flat.ended) == (400, "settled")
    rising = spending(lambda step: (1.0, 1.001**step), 1700, [])
    assert (lived(rising), rising.ended) == (1700, "cap")
    assert rising.final(1700)[1] == pytest.approx(np.mean([1.001**step for step in range(1600, 1700)]))


def test_a_curve_that_rises_for_1300_steps_ends_when_a_window_has_brought_nothing():
    found = spending(lambda step: (1.0, 1.001 ** min(step, 1300)), 1700, [])
    assert (lived(found), found.ended) == (1500, "stalled"), "windows 13 and 14 are alike"


def test_steps_at_random_are_not_counted():
    found = spending(lambda step: (100.0, 100.0) if step < 50 else (1.0, 2.0), 1000, [], window=0.5, least=0.1)
    assert (lived(found), found.ended) == (1000, "cap")
    assert found._mean(0) == (1.0, 2.0)


def test_a_duplicate_is_tried_again_once_if_its_least_is_left():
    found = spending(lambda step: (1.0, 0.1), 1700, [2.0])
    assert lived(found) == 400
    assert found.again(400)
    assert (found.attempt, found.began) == (1, 400)
    assert [found.progress(step) for step in (400, 600, 800, 1200)] == [0.0, 0.5, 1.0, 1.0], "annealed again"
    assert lived(found, 400) == 800
    assert not found.again(800), "once"
    short = spending(lambda step: (1.0, 0.1), 750, [2.0])
    assert lived(short) == 400
    assert not short.again(400), "350 steps are left, an attempt takes 400"
    other = spending(lambda step: (1.0, 1.0), 1700, [2.0])
    assert lived(other) == 400
    assert not other.again(400), "no duplicate"


def test_beyond_its_steps_a_duplicate_is_tried_again_rather_than_given_time():
    """It gets farther, by a tenth in a window, but is a duplicate still."""
    found = spending(lambda step: (1.0, 0.1 * 1.001**step), 1700, [2.0])
    assert (lived(found), found.ended) == (1000, "stalled")
    assert found.again(1000)
    without = spending(lambda step: (1.0, 0.1 * 1.001**step), 1300, [2.0])
    assert (lived(without), without.ended) == (1300, "cap"), "300 steps are too few for another attempt"


def test_spending_goes_on_the_same_after_a_resume():
    def curve(step: int) -> tuple[float, float]:
        return 1.0 + math.sin(step), 0.01 * (1.0 + step % 7)

    one, two = (spending(curve, 1700, [2.0]) for _ in range(2))
    end = lived(one)
    assert one.again(end)
    two.load_state({name: value.clone() for name, value in one.state().items()})
    assert not two.done(end), "what it is asked on a resume"
    assert lived(one, end) == lived(two, end)
    assert one.final(one.cap) == two.final(two.cap)


SPENDING: dict[str, Any] = {
    "environments": {"point": {"steps": 200}},
    "budget": {"least": 0.4, "window": 0.2, "tolerance": 100.0, "duplicate": 1000.0},
}


def test_what_a_chain_saves_is_spent_on_trying_a_duplicate_again(tmp_path: Path):
    """All skills settle at once; the third is a duplicate by decree, and its second attempt has other weights."""
    config = tiny_config(SPENDING)
    folders = [tmp_path / f"skill{skill:02d}" for skill in range(3)]
    made: list[dict[str, torch.Tensor]] = []
    for skill in range(3):
        job = config.skill_job("point", "disk_budget", 0, skill)
        assert job.planned == 200 * (skill + 1)
        parts = skill_parts(job, folders[:skill], CPU)
        if skill == 2:
            made = [dict(parts.agents[0].actor.state_dict())]
            first = parts.objective
            parts.start_over(1)
            made.append(dict(parts.agents[0].actor.state_dict()))
            assert parts.objective is not first
        learn_skill(job, folders[:skill], folders[skill], config.runtime)
    found = [json.loads((folder / "stats.json").read_text()) for folder in folders]
    # Windows of 40 steps, the first without any that was not random; episodes of 25. The third has 125 and 100 steps.
    assert [each["steps"] for each in found] == [125, 125, 225]
    assert [each["most_steps"] for each in found] == [200, 275, 350]
    assert [each["attempts"] for each in found] == [1, 1, 2]
    assert [each["ended"] for each in found] == ["settled"] * 3
    assert [each["duplicate"] for each in found] == [False, False, True]
    assert found[0]["own_diversity"] is None
    assert found[1]["own_diversity"] > 0.0
    assert load_tensors(folders[2] / "replay.safetensors")[0]["obs"].shape[0] == 225, "both attempts'"
    assert not any(made[0][name].equal(made[1][name]) for name in made[0] if "weight" in name)


def test_adding_a_skill_plans_exactly_that_skill():
    jobs = [
        [tiny_config({"environments": {"point": {"skills": count}}}).skill_job("point", "disk_budget", 0, skill)]
        for count in (3, 5)
        for skill in range(3)
    ]
    assert jobs[:3] == jobs[3:]


def test_other_earlier_steps_make_another_training(chain: list[Path], tmp_path: Path):
    """The stamp of a skill with a budget knows what the skills before it used."""
    job = tiny_config().skill_job("point", "disk_budget", 0, 1)
    assert json.loads(identity(job, chain[:1])["spent"]) == [[300, None]]
    assert "spent" not in identity(tiny_config().skill_job("point", "disk", 0, 1), chain[:1])


def test_a_cluster_is_asked_for_all_that_a_skill_may_take():
    tiny = tiny_config()
    plain, spending = (tiny.skill_job("point", method, 0, 2) for method in ("disk", "disk_budget"))
    size = size_of(plain.world)
    assert expected_seconds(spending, size) > 2.0 * expected_seconds(plain, size) - START * 2.0
    assert expected_mb(spending, [300, 300], size) >= expected_mb(plain, [300, 300], size)


@pytest.mark.parametrize(
    ("keys", "env", "message"),
    [
        ({"adaptive": True, "budget": True}, "point", r"methods\.mine: adaptive and budget both"),
        ({"schedule": "round_robin", "budget": True}, "point", r"methods\.mine: .*budget and aware are for chains"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(keys: dict[str, Any], env: str, message: str):
    with pytest.raises(ConfigError, match=message):
        tiny_config({"methods": {"mine": row(**keys)}}).skill_job(env, "mine", 0, 1)


def test_a_changing_world_keeps_its_schedule_under_a_budget():
    """A skill that took more steps than its own would leave the next one in a world of the past."""
    told, spending = (tiny_config().skill_job("point_blocks", method, 0, 1) for method in ("disk", "disk_budget"))
    assert spending == told
    assert spending.budget is None
    assert tiny_config().skill_job("point", "disk_budget", 0, 1).budget is not None
