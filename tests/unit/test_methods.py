"""The rows of methods.yaml: what each of them trains, and at what budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from conftest import learn, raw_config, tiny_config

from disk import config
from disk.envs import Projected
from disk.learning.run import learn_jointly, learn_skill
from disk.storage.files import load_tensors


@pytest.fixture(scope="module")
def paper() -> config.Config:
    return config.load()


@pytest.mark.parametrize("env", ["ant", "ant_blocks_even"])
def test_valors_curriculum_has_its_own_skills_and_steps_where_the_paper_ran_it(paper: config.Config, env: str):
    job = paper.joint_job(env, "diayn_curriculum", 0)
    assert [job.skills, job.steps, job.policies] == [25, 4_000_000, "independent"]
    assert job.curriculum is not None
    assert [job.curriculum.first, job.curriculum.certainty, job.curriculum.episodes] == [2, 0.86, 20]


def test_elsewhere_joint_methods_have_the_environments_skills_and_steps(paper: config.Config):
    for method in ("diayn", "diayn_sigma", "diayn_disjoint"):
        for env, row in paper.environments.items():
            job = paper.joint_job(env, method, 0)
            assert [job.skills, job.steps] == [row.skills, row.start_of(row.skills)]
    assert paper.joint_job("hopper", "diayn_curriculum", 0).skills == 50


def test_ablations_of_disk_differ_from_it_in_one_thing(paper: config.Config):
    """And not at all where that thing has no effect: those skills need no training of their own."""
    expected = {
        "disk_fresh": ({}, None),
        "disk_keep_half": ({}, 0.5),
        "disk_signed": ({"anneal": "signed"}, 1.0),
        "disk_unannealed": ({"anneal": "none"}, 1.0),
    }
    for method, (settings, keep) in expected.items():
        assert paper.skill_job("ant", method, 0, 0) == paper.skill_job("ant", "disk", 0, 0)
        base, job = paper.skill_job("ant", "disk", 0, 2), paper.skill_job("ant", method, 0, 2)
        objective = base.objective.model_copy(update=settings)
        assert job == base.model_copy(update={"objective": objective, "replay_keep": keep})
        assert job != base


def test_strides_change_what_sigma_is_and_nothing_else(paper: config.Config):
    for skill in (0, 2):
        base, job = (paper.skill_job("ant", method, 0, skill) for method in ("disk", "disk_stride"))
        assert job.world.sigma_steps == 20
        assert job == base.model_copy(update={"world": base.world.model_copy(update={"sigma_steps": 20})})
    assert "sigma_steps" not in paper.skill_job("ant", "disk", 0, 0).canonical()


def test_the_released_normaliser_is_part_of_every_skill_of_its_chain(paper: config.Config):
    for skill in (0, 2):
        assert paper.skill_job("ant", "disk_released", 0, skill).objective.normaliser == "released"
    assert "normaliser" not in paper.skill_job("ant", "disk", 0, 2).canonical()


def test_without_reuse_a_skill_reads_no_replay_and_begins_with_none(tmp_path: Path):
    """The earlier replay is not even there, and the skill is another one than with it."""
    tiny = tiny_config()
    folders = learn(tiny, tmp_path / "disk", range(2))
    fresh = [folders[0], tmp_path / "fresh/skill01"]
    (folders[0] / "replay.safetensors").unlink()
    learn_skill(tiny.skill_job("point", "disk_fresh", 0, 1), fresh[:1], fresh[1], tiny.runtime)
    own, reused = (load_tensors(folder / "policy.safetensors")[0] for folder in (fresh[1], folders[1]))
    assert not all(own[name].equal(reused[name]) for name in own)


# ---------------------------------------------------------------- rows that are like others


def test_a_row_takes_the_keys_of_the_row_that_it_is_like():
    rows = {
        "one": {"like": "disk", "settings": {"alpha": 0.5, "beta": 2.0}, "sac": {"discount": 0.9}, "replay_keep": 0.25},
        "two": {"like": "one", "settings": {"alpha": 0.7}, "sac": {"batch_size": 8}, "reuse_replay": False},
    }
    made = tiny_config({"methods": rows})
    two = made.method("two")
    assert (two.objective, two.schedule, two.reuse_replay, two.replay_keep) == ("disk", "incremental", False, 0.25)
    assert (two.settings, two.sac) == ({"alpha": 0.7, "beta": 2.0}, {"discount": 0.9, "batch_size": 8})
    assert made.method("one").settings == {"alpha": 0.5, "beta": 2.0}, "and leaves that as it is"


def test_a_preset_changes_a_row_and_all_that_are_like_it():
    changed = tiny_config({"methods": {"disk": {"sac": {"discount": 0.5}}, "disk_warm": {"sac": {"discount": 0.6}}}})
    found = [changed.skill_job("point", name, 0, 1).sac.discount for name in ("disk", "disk_fresh", "disk_warm")]
    assert found == [0.5, 0.5, 0.6]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": {"like": "dusk"}}, r"methods\.a\.like: 'dusk' is unknown; did you mean 'disk'\? known: a, .*disk"),
        ({"a": {"like": "a"}}, r"methods\.a\.like: 'a': .*a → a"),
        ({"a": {"like": "b"}, "b": {"like": "c"}, "c": {"like": "a"}}, r"methods\.c\.like: 'a': .*a → b → c → a"),
        ({"a": {"like": 3}}, r"methods\.a\.like: 3"),
        ({"a": {"like": "disk", "setings": {}}}, r"methods\.a\.setings: unknown key; did you mean 'settings'"),
        ({"a": {"replay_keep": 0.5}}, r"methods\.a\.objective: missing"),
    ],
)
def test_rows_that_are_like_nothing_are_refused(rows: dict[str, Any], message: str):
    with pytest.raises(config.ConfigError, match=message):
        tiny_config({"methods": rows})


def test_the_schema_wants_a_whole_row_or_one_that_is_like_another():
    validator = jsonschema.Draft202012Validator(config.schema())
    assert validator.is_valid(raw_config())
    for row, valid in (({"like": "disk"}, True), ({"replay_keep": 0.5}, False), ({"like": "disk", "x": 1}, False)):
        assert validator.is_valid(raw_config({"methods": {"mine": row}})) == valid


# ---------------------------------------------------------------- worlds of training


def test_training_arguments_are_for_training_only(paper: config.Config):
    forgiving = config.parse(
        raw_config({"environments": {"ant": {"train_kwargs": {"terminate_when_unhealthy": False}}}})
    )
    plain = paper.skill_job("ant", "disk", 0, 1)
    trained = forgiving.skill_job("ant", "disk", 0, 1)
    assert trained.world.kwargs == {**plain.world.kwargs, "terminate_when_unhealthy": False}
    assert trained == plain.model_copy(update={"world": trained.world})
    assert forgiving.joint_job("ant", "diayn", 0).world == trained.world
    assert forgiving.evaluation_job("ant") == paper.evaluation_job("ant")
    assert "train_kwargs" not in plain.canonical()


JOINT = [name for name, row in config.load().methods.items() if not row.incremental and row.objective != "none"]


@pytest.mark.parametrize("method", JOINT)
def test_skills_learned_together_see_the_world_of_every_global_step(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a changing world, the n-th step of all is taken in the world of step n, as the chain's is."""
    change = {"what": "actuator", "names": ["east", "north"], "steps": [0, 240], "factors": [1.0, 0.0], "ramp": True}
    evolution = {"total": 240, "changes": [change]}
    tiny = tiny_config(
        {
            "normaliser": {"steps": 30},
            "environments": {"point": {"steps": 80, "evolution": evolution, "sac": {"seed_steps": 20}}},
            "methods": {
                "dads": {"sac": {"hidden": [8], "seed_steps": 20, "iteration": {"steps": 40, "policy_updates": 2}}}
            },
        }
    )
    taken: list[int] = []
    current: dict[int, int] = {}
    at, step = Projected.at, Projected.step

    def spy_at(self: Projected, when: int) -> None:
        current[id(self)] = when
        at(self, when)

    def spy_step(self: Projected, action: np.ndarray) -> Any:
        taken.append(current[id(self)])
        return step(self, action)

    monkeypatch.setattr(Projected, "at", spy_at)
    monkeypatch.setattr(Projected, "step", spy_step)
    learn_jointly(tiny.joint_job("point", method, 0), tmp_path, tiny.runtime)
    measuring = [0] * 30 if tiny.method(method).normalise else []  # the normaliser's steps come before all others
    assert taken == measuring + list(range(240))
