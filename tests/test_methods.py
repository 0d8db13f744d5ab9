"""The rows of methods.yaml: what each of them trains, and at what budget."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import learn, tiny_config

from disk import config
from disk.files import load_tensors


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


def test_without_reuse_a_skill_reads_no_replay_and_begins_with_none(tmp_path: Path):
    """The earlier replay is not even there, and the skill is another one than with it."""
    tiny = tiny_config()
    folders = learn(tiny, tmp_path / "disk", range(2))
    fresh = [folders[0], tmp_path / "fresh/skill01"]
    (folders[0] / "replay.safetensors").unlink()
    from disk.train import learn_skill

    learn_skill(tiny.skill_job("point", "disk_fresh", 0, 1), fresh[:1], fresh[1], tiny.runtime)
    own, reused = (load_tensors(folder / "policy.safetensors")[0] for folder in (fresh[1], folders[1]))
    assert not all(own[name].equal(reused[name]) for name in own)
