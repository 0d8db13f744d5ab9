"""downstream.py THRESHOLD TITLE FIGURE TABLE|- CURVES..."""

import sys
from pathlib import Path

from disk.hierarchy import downstream_table, read_curves
from disk.plots_downstream import downstream
from disk.runs import save_csv

threshold, title, figure, table, *paths = sys.argv[1:]
curves = [Path(path) for path in paths]
if table != "-":
    save_csv(downstream_table(curves, float(threshold)), Path(table))
downstream(read_curves(curves), Path(figure), title=title)
