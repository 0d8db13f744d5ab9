"""show.py DIRECTORY: print what the runs of an environment came to, and where to look next."""

import sys
from pathlib import Path

import pandas as pd

from disk.evaluation.run import read_runs
from disk.figures.style import method_name
from disk.storage.layout import METRICS

MEASURES = {
    "distinct": "distinct skills ↑",
    "movers": "skills that move ↑",
    "hausdorff": "Hausdorff (m) ↑",
    "isolation": "isolation (m) ↑",
    "consistency": "variance ↓",
}

directory = Path(sys.argv[1])
rows = []
for method, seed, frame in read_runs(sorted(directory.glob(f"*/seed*/{METRICS}"))):
    first = frame[frame["condition"] == frame["condition"].iloc[0]]
    rows.append({"method": method, "seed": seed, **first.groupby("metric")["value"].mean()})
runs = pd.DataFrame(rows)
table = runs.groupby("method")[[name for name in MEASURES if name in runs]].mean()
table = table.sort_values([name for name in ("distinct", "hausdorff") if name in table], ascending=False)
table.insert(0, "seeds", runs.groupby("method")["seed"].count())
print(f"\n{directory}: means over seeds, the best method first\n")
print(table.rename(columns=MEASURES, index=method_name).round(3).to_string())

best = {MEASURES[name]: method_name(table[name].idxmax()) for name in ("distinct", "hausdorff") if name in table}
print("\nBest: " + "; ".join(f"{who} in {name.removesuffix(' ↑')}" for name, who in best.items()) + ".")
print(
    "DISk's first skill stands still: it is paid for repeating itself only. Later skills are paid for being elsewhere."
)
print(f"\nPicture   {directory / 'trajectories.svg'}")
print(f"Gallery   {(directory / 'gallery/index.html').resolve().as_uri()}")
print("Next      make ui (curves in MLflow) · make compare (every method) · python -m disk live pretrained/ant")
