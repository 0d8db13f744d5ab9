"""show.py DIRECTORY: print an environment's summary table and where its files are."""

import sys
from pathlib import Path

import pandas as pd

directory = Path(sys.argv[1])
summary = pd.read_csv(directory / "summary.csv")
summary["value"] = [
    f"{m:.2f} [{low:.2f}, {high:.2f}]" for m, low, high in summary[["mean", "ci_low", "ci_high"]].values
]
print(f"\n{directory}: mean over skills and seeds [95 % interval over seeds]\n")
print(summary.pivot(index=["method", "seeds"], columns="metric", values="value").to_string())
print("\n" + "\n".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in (".csv", ".svg")))
print("Compare the runs in MLflow: make ui")
