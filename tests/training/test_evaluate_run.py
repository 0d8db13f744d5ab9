"""`python -m disk evaluate` and `publish` measure a run in the worlds that the workflow measures it in."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import PROJECT, raw_config, tiny_config
from snakemake.iocontainers import Wildcards

from disk import config as configuration
from disk.config import Config
from disk.evaluation.run import evaluate_run, jobs_of, roll_out
from disk.learning.run import train_run
from disk.sharing.card import CARD
from disk.sharing.publish import evaluations, publish
from disk.skills import load

BLOCKS = {  # fewer steps for the chain than for methods that learn all skills together, and fewer skills
    **raw_config()["environments"]["point_blocks"],
    "skills": 2,
    "steps": 100,
    "test_horizon": 20,
    "sac": {"hidden": [16, 16], "batch_size": 32, "seed_steps": 50},
    "evolution": {"total": 300, "changes": [{"what": "remove", "names": "block*", "together": 2}]},
    "conditions": {"early": 0, "trained": "trained"},
}
MINE = {"objective": "diayn", "policies": "shared", "schedule": "uniform", "skills": {"blocks": 3}, "steps": 300}
SMALL = {
    "environments": {"blocks": BLOCKS},
    "methods": {"mine": MINE},
    "diayn": {"hidden": [16]},
    "evaluation": {"episodes": 2},
}


def workflow(config: Config) -> dict[str, Any]:
    """The workflow's own functions, from the file of its rules."""
    text = (PROJECT / "workflow/rules/common.smk").read_text()
    parts = re.findall(r"^def (?:conditions_of|evaluation_jobs)\(.*?(?=^\S)", text, re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {"CONFIG": config, "json": json}
    exec("\n".join(parts), found)  # noqa: S102
    return found


def test_the_command_line_evaluates_every_environment_and_method_as_the_workflow_does() -> None:
    config = configuration.load()
    expected = workflow(config)["evaluation_jobs"]
    for env in config.environments:
        for method in config.methods:
            jobs = {name: job.model_dump(mode="json") for name, job in jobs_of(config, env, method).items()}
            assert jobs == json.loads(expected(Wildcards(fromdict={"env": env, "method": method}))), f"{env}, {method}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three skills that were learned together where a chain would learn two. Read only, but for its measures."""
    root = tmp_path_factory.mktemp("results")
    return train_run(tiny_config(SMALL), root, "blocks", "mine", 0, None, lambda out: nullcontext())


def test_skills_learned_together_are_evaluated_in_the_world_of_their_own_last_step(run: Path) -> None:
    config = tiny_config(SMALL)
    evaluate_run(config, run)
    job = config.evaluation_job("blocks", "early").model_copy(update={"world_steps": 299})
    expected = roll_out(job, load(run))
    found = pd.read_parquet(run / "rollouts/trained.parquet")
    assert found["skill"].nunique() == 3
    assert found["x"].to_numpy() == pytest.approx(expected["x"].to_numpy(), abs=1e-6)


def test_a_card_names_the_last_step_of_skills_learned_together(run: Path, tmp_path: Path) -> None:
    publish(tiny_config(SMALL), run, tmp_path)
    about = evaluations(tmp_path / CARD)
    assert {name: each["world_steps"] for name, each in about.items()} == {"early": 0, "trained": 299}


def test_a_run_of_a_method_that_the_configuration_lacks_is_evaluated_with_the_schedule_of_its_environment() -> None:
    jobs = jobs_of(tiny_config(SMALL), "blocks", "somebody_elses")
    assert jobs["trained"].world_steps == [99, 199]
