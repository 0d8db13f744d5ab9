"""show.py DIRECTORY: print what the runs of an environment came to, and where to look next."""

import os
import sys
import webbrowser
from pathlib import Path

import pandas as pd

from disk.evaluation.run import read_runs
from disk.figures.style import method_name
from disk.storage.layout import METRICS

MEASURES = {
    "distinct": "distinct skills ↑",
    "movers": "moving skills ↑",
    "hausdorff": "Hausdorff (m) ↑",
    "isolation": "isolation (m) ↑",
    "consistency": "variance ↓",
}
LEADS = {"distinct": "the most distinct skills", "hausdorff": "the largest Hausdorff distance"}

directory = Path(sys.argv[1])
rows = []
for method, seed, frame in read_runs(sorted(directory.glob(f"*/seed*/{METRICS}"))):
    first = frame[frame["condition"] == frame["condition"].iloc[0]]
    means = first.groupby("metric")["value"].mean()
    rows.append({"method": method, "seed": seed, "skills": first["skill"].max() + 1, **means})
runs = pd.DataFrame(rows)
table = runs.groupby("method")[["skills", *(name for name in MEASURES if name in runs)]].mean()
table = table.sort_values([name for name in LEADS if name in table], ascending=False)
table.insert(0, "seeds", runs.groupby("method")["seed"].count())
print(f"\n{directory}: means over seeds, the best method first; ↑ more is better, ↓ less is better\n")
shown = table.astype({"skills": int}).rename(columns=MEASURES, index=method_name).rename_axis(None)
print(shown.round(3).to_string())

best = [f"{method_name(str(table[name].idxmax()))} has {what}" for name, what in LEADS.items() if name in table]
print(f"\n{'; '.join(best)} (how far apart skills end).")
print(
    "DISk's first skill stands still: it is paid for repeating itself only. Later skills are paid for being elsewhere."
)
gallery = (directory / "gallery/index.html").resolve()
print(f"\nPicture   {directory / 'trajectories.svg'}")
print(f"Gallery   {gallery.as_uri()}")
print("Next      make ui      compare the methods' curves in MLflow")
print("          make compare, every method of methods.yaml; python -m disk live pretrained/ant, an ant to break")
screen = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
if screen and sys.stdout.isatty() and gallery.exists():
    webbrowser.open(gallery.as_uri())
