"""The first page of MLflow's UI: a few methods of one experiment side by side, and how far apart their skills end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from disk.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Run

METHODS = ("disk", "diayn", "metra")
"""Methods to compare. Where there are no runs of a method, those of its variants count: `diayn_sigma`."""
CHARTS = "hausdorff"
"""Charts that are shown first: those whose metrics match it."""
VIEW = "methods"
"""Name of the view, which MLflow keeps as a tag of the experiment."""


def first_page(uri: str) -> str:
    """Return the address of the comparison, below that of the server; empty if nothing has been measured yet."""
    store = Store(uri)
    shown: list[Run] = []
    for experiment in store.client.search_experiments(order_by=["last_update_time DESC"]):
        runs = store.client.search_runs(
            [experiment.experiment_id], "tags.level = 'run'", order_by=["attributes.run_name"]
        )
        found = choose(run for run in runs if f"eval/{CHARTS}" in run.data.metrics)
        shown = found if len(found) > len(shown) else shown
    if not shown:
        return ""
    chosen = ", ".join(f"'{run.info.run_id}'" for run in shown)
    view = {"searchFilter": f"attributes.run_id IN ({chosen})", "chartsSearchFilter": CHARTS}
    place = shown[0].info.experiment_id
    store.client.set_experiment_tag(place, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))
    return f"#/experiments/{place}/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={VIEW}"


def choose(runs: Iterable[Run]) -> list[Run]:
    """Return the first run of each method, or of its first variant."""
    found = {run.data.params["method"]: run for run in reversed(list(runs))}
    names = (
        next((name for name in (each, *sorted(found)) if _is(name, each) and name in found), None) for each in METHODS
    )
    return [found[name] for name in names if name]


def _is(name: str, method: str) -> bool:
    return name == method or name.startswith(f"{method}_")
