"""show.py DIRECTORY: print an environment's summary table and where its files are."""

import sys
from pathlib import Path

from disk.evaluation.metrics import FEWEST
from disk.evaluation.run import read_runs
from disk.evaluation.tables import read_csv
from disk.storage.layout import METRICS

directory = Path(sys.argv[1])
summary = read_csv(directory / "summary.csv")
runs = read_runs(sorted(directory.glob(f"*/seed*/{METRICS}")))


def shown(row):
    """Return the mean with its interval or, for fewer than five seeds, with each seed's value."""
    if row.seeds >= FEWEST:
        return f"{row.mean:.2f} [{row.ci_low:.2f}, {row.ci_high:.2f}]"
    own = [
        frame[(frame["condition"] == row.condition) & (frame["metric"] == row.metric)]
        for m, _, frame in runs
        if m == row.method
    ]
    values = [f"{frame['value'].mean():.2f}" for frame in own if frame["value"].notna().any()]
    return f"{row.mean:.2f} ({', '.join(values)})" if len(values) > 1 else f"{row.mean:.2f}"


summary["value"] = [shown(row) for row in summary.itertuples(name="Row")]
print(f"\n{directory}: means over skills and seeds (each seed's value; [95 % interval] from {FEWEST} seeds on)\n")
several = ["condition"] if summary["condition"].nunique() > 1 else []
index = ["method", *several, "seeds"]
print(summary.pivot(index=index, columns="metric", values="value").fillna("").to_string())
print("\n" + "\n".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in (".csv", ".svg")))
print("Compare the runs in MLflow: make ui")
