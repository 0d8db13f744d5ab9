"""Chains that are not plain: forks, warm starts, skills that end when they have converged."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, HOOKED, fingerprint, raw_config, tiny_config

from disk import config as configuration
from disk import projection
from disk.config import Adaptive, Config
from disk.errors import ConfigError, Interrupted
from disk.learning.build import skill_parts
from disk.learning.convergence import TERMS, Settling
from disk.learning.run import learn_skill, train_run
from disk.skills import load
from disk.storage.files import checksum

FORKS = {"methods": {name: {"fork": {"after": 2}} for name in ("disk_fork_reuse", "disk_fork_fresh")}}


def stats(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "stats.json").read_text())


# ---------------------------------------------------------------- forks


def test_after_six_of_ants_skills_both_forks_learn_four_of_250_000_steps():
    paper = configuration.load()
    for method, keep in (("disk_fork_reuse", 1.0), ("disk_fork_fresh", None)):
        jobs = [paper.skill_job("ant", method, 0, skill) for skill in range(6, 10)]
        assert [job.steps for job in jobs] == [250_000] * 4
        assert {job.replay_keep for job in jobs} == {keep}
        assert [paper.owner_of(method, skill) for skill in range(10)] == ["disk"] * 6 + [method] * 4
        assert paper.budget_of("ant", method) == 3_500_000 + 4 * 250_000
    base = paper.skill_job("ant", "disk", 0, 8)  # 250,000 steps in the schedule too
    assert paper.skill_job("ant", "disk_fork_reuse", 0, 8) == base


def test_in_a_changing_world_a_fork_goes_on_at_the_step_where_its_parent_was():
    changed = {"methods": {"disk_fork_reuse": {"steps": {"point_blocks": 1_000}}}}
    loaded = configuration.parse(raw_config(changed))
    starts = [loaded.skill_job("point_blocks", "disk_fork_reuse", 0, skill).start_step for skill in (6, 7)]
    assert starts == [24_000, 25_000]
    trained = loaded.evaluation_job("point_blocks", "trained", "disk_fork_reuse").world_steps
    assert trained == [4_000 * skill - 1 for skill in range(1, 7)] + [24_999, 25_999]


def test_forks_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="skill 05 is before the fork, it is one of disk's"):
        configuration.load().skill_job("ant", "disk_fork_reuse", 0, 5)
    for parent in ("dusk", "diayn", "disk_fork_fresh"):
        with pytest.raises(ConfigError, match=rf"disk_fork_reuse\.fork\.from: '{parent}': expected a chain.*disk, "):
            tiny_config({"methods": {"disk_fork_reuse": {"fork": {"from": parent}}}})
    with pytest.raises(ConfigError, match=r"fork\.after: 6 in point: expected fewer than its 3"):
        tiny_config({"runs": [{"envs": ["point"], "methods": ["disk_fork_fresh"]}]})
    with pytest.raises(ConfigError, match="schedule incremental"):
        tiny_config({"methods": {"diayn": {"fork": {"from": "disk", "after": 2}}}})


def test_the_six_are_trained_once_and_used_by_both(tmp_path: Path):
    tiny = tiny_config(FORKS)
    for method in ("disk_fork_reuse", "disk_fork_fresh"):
        train_run(tiny, tmp_path, "point", method, 0, None, lambda out: nullcontext())
    trained = sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("policy.safetensors"))
    parents = [f"point/disk/seed0/skill{skill:02d}" for skill in (0, 1)]
    assert trained == [*parents, *(f"point/disk_fork_{name}/seed0/skill02" for name in ("fresh", "reuse"))]
    runs = {name: load(tmp_path / f"point/disk_fork_{name}/seed0") for name in ("reuse", "fresh")}
    obs = np.array([0.2, -0.3])
    for skill in range(3):
        same = np.array_equal(runs["reuse"][skill].act(obs), runs["fresh"][skill].act(obs))
        assert same == (skill < 2)
    curve = (tmp_path / "point/disk_fork_fresh/seed0/progress.csv").read_text().splitlines()
    assert {line.partition(",")[0] for line in curve[1:]} == {"0", "1", "2"}


# ---------------------------------------------------------------- warm starts


def test_a_warm_skill_begins_as_an_earlier_one(chain: list[Path], tmp_path: Path):
    tiny = tiny_config()
    job = tiny.skill_job("point", "disk_warm", 0, 2)
    cold = skill_parts(tiny.skill_job("point", "disk", 0, 2), chain[:2], CPU)
    chosen = {"last": 1, "diverse": 1}  # of two, the second: the first has no r_d
    for warm, skill in chosen.items():
        parts = skill_parts(job.model_copy(update={"warm": warm}), chain[:2], CPU)
        expected = load(chain[skill] / "policy.safetensors").actor.state_dict()
        for name, value in parts.agents[0].actor.state_dict().items():
            assert torch.equal(value, expected[name])
            assert not torch.equal(value, cold.agents[0].actor.state_dict()[name])
        for name, value in parts.agents[0].critic.state_dict().items():
            assert torch.equal(value, cold.agents[0].critic.state_dict()[name]), "the critics are new"


def test_the_first_skill_has_nobody_to_start_from():
    tiny = tiny_config()
    assert tiny.skill_job("point", "disk_warm", 0, 0) == tiny.skill_job("point", "disk", 0, 0)


# ---------------------------------------------------------------- skills that end when they have converged


def settling(**changes: float) -> Settling:
    return Settling(Adaptive(**{"least": 0.4, "window": 0.1, "tolerance": 0.05, **changes}), 1000, CPU)


def shown(found: Settling, consistency: list[float], diversity: list[float]) -> None:
    """One value for each window of a hundred steps."""
    for window, values in enumerate(zip(consistency, diversity, strict=True)):
        for step in range(100 * window, 100 * (window + 1)):
            found.see(step, dict(zip(TERMS, map(torch.tensor, values), strict=True)))


def test_it_ends_when_neither_term_changes_by_more_than_the_tolerance():
    cases = (
        ([1.0, 1.0, 1.0, 1.0, 1.04], [2.0, 2.0, 2.0, 2.0, 1.91], True),
        ([1.0, 1.0, 1.0, 1.0, 1.06], [2.0, 2.0, 2.0, 2.0, 2.0], False),
        ([1.0, 1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0, 1.88], False),
        ([9.0, 7.0, 5.0, 1.0, 1.0], [0.1, 0.2, 0.5, 2.0, 2.0], True),
    )
    for consistency, diversity, expected in cases:
        found = settling()
        shown(found, consistency, diversity)
        assert found.done(500) == expected
        assert found.done(550) == expected, "the window that has begun does not count"


def test_it_never_ends_before_the_least_or_without_two_windows_of_updates():
    found = settling()
    shown(found, [1.0] * 6, [1.0] * 6)
    assert [found.done(step) for step in (100, 200, 399, 400, 600)] == [False, False, False, True, True]
    seeding = settling(least=0.01)
    shown(seeding, [1.0], [1.0])
    assert not seeding.done(300), "no updates in the second and third window"


ADAPTIVE = {"adaptive": {"least": 0.3, "window": 0.2, "tolerance": 0.3}}


def adaptive_config(*changes: dict[str, Any]) -> Config:
    return tiny_config(HOOKED, {"environments": {"point": {"steps": 600}}}, ADAPTIVE, *changes)


def test_an_adaptive_skill_reports_what_it_took_and_what_it_saved(tmp_path: Path):
    config = adaptive_config({"adaptive": {"tolerance": 100.0}})
    folders = [tmp_path / f"skill{skill:02d}" for skill in range(2)]
    for skill in range(2):
        learn_skill(
            config.skill_job("point", "disk_adaptive", 0, skill), folders[:skill], folders[skill], config.runtime
        )
    for folder in folders:
        assert [stats(folder)["steps"], stats(folder)["steps_saved"]] == [250, 350], "two windows, whole episodes"
        last = (folder / "progress.csv").read_text().splitlines()[-1]
        assert last.startswith("250,")
    never = adaptive_config({"adaptive": {"tolerance": 0.0}})
    learn_skill(never.skill_job("point", "disk_adaptive", 0, 0), [], tmp_path / "never", never.runtime)
    assert [stats(tmp_path / "never")["steps"], stats(tmp_path / "never")["steps_saved"]] == [600, 0]


def test_annealing_is_over_when_it_may_end(tmp_path: Path):
    parts = skill_parts(adaptive_config().skill_job("point", "disk_adaptive", 0, 0), [], CPU)
    assert [parts.progress(step) for step in (0, 90, 180, 500)] == [0.0, 0.5, 1.0, 1.0]


def test_in_a_changing_world_the_next_skill_begins_where_it_was_planned():
    loaded = configuration.load()
    assert loaded.skill_job("point_blocks", "disk_adaptive", 0, 3).start_step == 12_000


@pytest.mark.parametrize("step", [60, 240, 249])
def test_an_interrupted_adaptive_skill_ends_at_the_same_step_with_the_same_bytes(
    tmp_path: Path, hooked: Any, step: int
):
    """Also when it is stopped in the very episode after which it ends."""
    config = adaptive_config({"adaptive": {"tolerance": 100.0}})
    job = config.skill_job("point", "disk_adaptive", 0, 0)
    learn_skill(job, [], tmp_path / "straight", config.runtime)

    def stop(count: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if count == step:
            signal.raise_signal(signal.SIGTERM)
        return result

    hooked.steps, hooked.on_step = 0, stop
    with pytest.raises(Interrupted):
        learn_skill(job, [], tmp_path / "broken", config.runtime)
    hooked.on_step = None
    learn_skill(job, [], tmp_path / "broken", config.runtime)
    assert fingerprint(tmp_path / "broken") == fingerprint(tmp_path / "straight")
    assert stats(tmp_path / "broken")["steps"] == stats(tmp_path / "straight")["steps"] == 250


# ---------------------------------------------------------------- a learned σ


def test_in_a_changing_world_a_learned_projection_looks_at_old_skills_anew_and_lies_beside_its_own(tmp_path: Path):
    world = {"skills": 2, "steps": 100, "horizon": 25, "sac": {"hidden": [16], "batch_size": 32, "seed_steps": 50}}
    changes = {"environments": {"point_blocks": {**world, "sigma": "learned"}}, "projection": {"updates": 20}}
    config = tiny_config(changes)
    train_run(config, tmp_path, "point_blocks", "disk", 0, None, lambda out: nullcontext())
    first, second = (tmp_path / f"point_blocks/disk/seed0/skill{skill:02d}" for skill in range(2))
    assert np.load(first / "visits.npy").shape == (200, 2 * (2 + 2))  # velocity and position, before and after a step
    parts = skill_parts(config.skill_job("point_blocks", "disk", 0, 1), [first], CPU)
    assert parts.objective.past.shape == (200, 8)
    assert parts.collected == 200
    about = stats(second)
    projected, meta = projection.load(second / "projection.safetensors")
    assert meta == {"env": "point_blocks", "skill": 1, "projection": projected.shape}
    assert about["checksums"]["projection.safetensors"] == checksum(second / "projection.safetensors")
    assert 0.0 < about["projection_seconds"] < about["seconds"]
    (second / "projection.safetensors").unlink()  # an unfinished skill is trained again, to the same bytes
    before = fingerprint(second)
    learn_skill(config.skill_job("point_blocks", "disk", 0, 1), [first], second, config.runtime)
    assert checksum(second / "projection.safetensors") == about["checksums"]["projection.safetensors"]
    assert fingerprint(second) == before
