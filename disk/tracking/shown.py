"""What MLflow shows around a run: a description of the experiment, the world as a dataset, and skills as models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from disk.evaluation.words import skill_label
from disk.tracking.record import Record

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

BY_SKILL = "by_skill/"
"""Metrics of a run whose steps are the numbers of its skills."""


def experiment_tags(name: str) -> dict[str, str]:
    """Return the tags of an experiment. Without the first, MLflow's UI expects language models and hides the runs."""
    about = f"""Skills learned without rewards in `{name.rpartition("/")[2]}`. A run is a method and a seed.

- Search `tags.level = "run"`: one row a method and seed. Without it the runs of single skills are in the table too.
- `eval/hausdorff`, `eval/isolation`, `eval/distance`, `eval/distinct`, `eval/movers`: more is better.
  `eval/consistency` (a variance), `eval/spread`, `eval/goal_distance`: less is better.
- **Models** ranks single skills: sort by a column `{BY_SKILL}…`.
- The run `all methods` has the figures and tables of the environment.

`python -m disk track` fills this mirror of the results. docs/tracking.md explains every name.
"""
    return {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": about}


def log_world(client: MlflowClient, run: Run, record: Record) -> None:
    """Log the world of a run as its input, once."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if not record.world or (run.inputs and run.inputs.dataset_inputs):
        return
    digest = hashlib.sha256(record.world.encode()).hexdigest()[:16]
    world = Dataset(name=record.params["env"], digest=digest, source_type="world", source=record.world)
    client.log_inputs(run.info.run_id, [DatasetInput(world, [InputTag("mlflow.data.context", "training")])])


def skill_models(client: MlflowClient, run: Run, record: Record) -> dict[int, str]:
    """Return the id of the model of each measured skill of a run. Create those that MLflow lacks."""
    skills = _measured(record.results)
    if not skills:
        return {}
    place, source = run.info.experiment_id, run.info.run_id
    known = {
        model.name: model.model_id for model in client.search_logged_models([place], f"source_run_id = '{source}'")
    }
    found = {}
    for skill in skills:
        name = f"{skill_label(skill)} {record.name.replace('/', ' ')}"
        if name not in known:
            params = {key: record.params[key] for key in ("method", "seed")} | {"skill": str(skill)}
            model = client.create_logged_model(place, name, source, params=params, model_type="skill")
            client.finalize_logged_model(model.model_id, "READY")
            known[name] = model.model_id
        found[skill] = known[name]
    return found


def _measured(results: Mapping[str, Iterable[int]]) -> list[int]:
    return sorted({skill for name, skills in results.items() if name.startswith(BY_SKILL) for skill in skills})
