"""Finished runs in small: what docs/results.md is made from, for the repository.

    python benchmarks/ship.py results/laptop docs/results/laptop

Of every run that has been measured, `{env}/{method}/seed{n}/` there gets metrics.csv; curve.csv, the training curve,
thinned; paths.csv, where its skills went, thinned, with the ends of all episodes; and about.json, what it took and
which code made it. An environment's forgetting.csv and downstream.csv, the curves of controllers, and a run's
usable.csv and changes.csv come along. Runs that were shipped before and are not among the results stay, so that
runs of several machines come together.
benchmarks/tables.py prints the tables of what was shipped.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from disk.evaluation.tables import read_rollouts
from disk.storage.files import load_stats, save_json

ROWS = 250
"""Rows of a curve, at most."""
EVERY = 20
"""Steps between two points of a path."""
DRAWN = 5
"""Episodes of a skill whose paths are kept; of the others, where they end."""
WHOLE = (
    *("*/forgetting.csv", "*/downstream.csv", "*/*/seed*/hierarchy/seed*.csv"),
    *("*/*/seed*/usable.csv", "*/*/seed*/changes.csv"),
)
"""Small tables that are kept as they are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("results", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    for metrics in sorted(options.results.glob("*/*/seed*/metrics.csv")):
        run = metrics.parent.relative_to(options.results)
        ship(metrics.parent, options.out / run)
        print(options.out / run)
    for table in sorted(path for name in WHOLE for path in options.results.glob(name)):
        out = options.out / table.relative_to(options.results)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(table, out)


def ship(run: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / "metrics.csv", out / "metrics.csv")
    curve = pd.read_csv(run / "progress.csv")
    curve.iloc[:: -(-len(curve) // ROWS) or 1].to_csv(out / "curve.csv", index=False, float_format="%.4g")
    condition = pd.read_csv(run / "metrics.csv")["condition"].iloc[0]
    paths = read_rollouts(run / "rollouts" / f"{condition}.parquet")
    last = paths.groupby(["skill", "episode"])["step"].transform("max")
    kept = (paths["step"] == last) | ((paths["episode"] < DRAWN) & (paths["step"] % EVERY == 0))
    paths.loc[kept, ["skill", "episode", "step", "x", "y"]].to_csv(out / "paths.csv", index=False, float_format="%.4g")
    save_json(out / "about.json", about(run))


def about(run: Path) -> dict[str, object]:
    """Steps and CPU-hours of a run's trainings, the code that they were made by, and how large the reward's terms were.

    `mean_terms`, the means of α·r_c and β·r_d, begins with the second skill: the first one has no r_d.
    """
    stats = stats_of(run)
    code = {key: sorted({str(each.get(key)) for each in stats}) for key in ("commit", "code_hash")}
    job = stats[0]["job"]
    settings = {key: job["sac"][key] for key in ("batch_size", "updates_per_step", "seed_steps")}
    precision = job["sac"].get("precision")
    steps = [int(each.get("steps") or 0) for each in stats]
    return {
        "steps": sum(steps),
        "steps_by_training": steps,
        "collected_steps": sum(int(each.get("collected_steps") or 0) for each in stats),
        **({} if None in (terms := [mean_terms(each) for each in stats[1:]]) else {"mean_terms": terms}),
        **({} if (probes := probe_steps(stats)) is None else {"probe_steps": probes}),
        "cpu_hours": round(cpu_seconds(run) / 3600, 5),
        **settings,
        **({"precision": precision} if precision else {}),
        **code,
    }


def mean_terms(stats: Mapping[str, Any]) -> list[float] | None:
    """Return the means of α·r_c and β·r_d over a skill's updates, or None if its reward is no difference of the two."""
    if "mean_terms" in stats:
        terms: list[float] = stats["mean_terms"]
        return terms
    pairs = [(stats.get("alpha"), stats.get("mean_consistency")), (stats.get("beta"), stats.get("mean_diversity"))]
    if any(value is None for pair in pairs for value in pair) or stats["job"]["objective"].get("shape"):
        return None
    return [weight * mean for weight, mean in pairs]


def stats_of(run: Path) -> list[dict[str, Any]]:
    """Return stats.json of each of a run's trainings: one for each skill of a chain, or one in all."""
    paths = sorted(run.glob("skill[0-9][0-9]/stats.json")) or [run / "stats.json"]
    return [load_stats(path) for path in paths]


def cpu_seconds(run: Path) -> float:
    """CPU time of a run's trainings. Snakemake's benchmark files look every half minute and miss the end of a job."""
    return sum(float(each["cpu_seconds"]) for each in stats_of(run))


def probe_steps(stats: Sequence[Mapping[str, Any]]) -> int | None:
    """Steps of frozen skills that probed the world, or None if no skill of the run does that."""
    aware = [each["aware"] for each in stats if "aware" in each]
    return sum(sum(each["spent"]) for each in aware) if aware else None


if __name__ == "__main__":
    main()
