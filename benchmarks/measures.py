"""Movers and distinct skills of runs that were shipped without them.

    python benchmarks/measures.py docs/results

Completes every `{env}/{method}/seed{n}/metrics.csv` there, in place; its other lines stay as they are. `movers` comes
from the `distance` of each skill, so every condition and snapshot gets it. `distinct` needs the ends of all episodes:
paths.csv has them in a run's first condition, with four digits. A run without `distance` or in an environment without
`moves` is left alone, and one that has both measures in its first condition too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from disk.config import Config, load
from disk.evaluation.metrics import WHOLE_RUN, distinct, ends
from disk.storage.files import save_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shipped", type=Path)
    config = load()
    for metrics in sorted(parser.parse_args().shipped.rglob("metrics.csv")):
        added = complete(metrics, config)
        print(f"{metrics}: {', '.join(added) or 'left alone'}")


def complete(metrics: Path, config: Config) -> list[str]:
    """Put the missing measures into a metrics.csv; return the lines that were added."""
    env = metrics.parts[-4] if len(metrics.parts) > 3 else ""
    moves = config.environments[env].moves if env in config.environments else None
    text, paths = metrics.read_text(), metrics.with_name("paths.csv")
    frame = pd.read_csv(metrics)
    away = frame[frame["metric"] == "distance"]
    if moves is None or away.empty:
        return []
    first, lines, added = str(frame["condition"].iloc[0]), [], []
    known = set(zip(frame["condition"], frame["metric"], strict=True))
    # Where a condition's lines end, its own new ones follow, as if they had been measured with the others.
    for condition, own in _blocks(text):
        lines += own
        mine = away[away["condition"] == condition]
        movers = mine.loc[mine["value"] > moves, "skill"].to_numpy()
        new = {"movers": float(len(movers))}
        if condition == first and paths.exists():
            new["distinct"] = told_apart(paths, movers)
        found = {metric: value for metric, value in new.items() if (condition, metric) not in known}
        added += [f"{condition},{WHOLE_RUN},{metric},{value:.9g}" for metric, value in found.items()]
        lines += added[len(added) - len(found) :]
    save_text(metrics, "\n".join([text.partition("\n")[0], *lines]) + "\n")
    return added


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """The lines of a metrics.csv by condition, in order."""
    blocks: dict[str, list[str]] = {}
    for line in text.splitlines()[1:]:
        blocks.setdefault(line.partition(",")[0], []).append(line)
    return list(blocks.items())


def told_apart(paths: Path, movers: np.ndarray) -> float:
    """How many of the movers can be told apart by the ends that a paths.csv has."""
    last = ends(pd.read_csv(paths))
    theirs = last[last["skill"].isin(movers)]
    return distinct(*(theirs[columns].to_numpy() for columns in (["x", "y"], "skill", "episode")))


if __name__ == "__main__":
    main()
