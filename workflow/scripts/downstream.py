"""downstream.py THRESHOLD TITLE FIGURE TABLE|- CURVES..."""

import sys
from pathlib import Path

from disk.downstream.run import downstream_table, read_curves
from disk.evaluation.tables import save_csv
from disk.figures.downstream import downstream

threshold, title, figure, table, *paths = sys.argv[1:]
curves = [Path(path) for path in paths]
if table != "-":
    save_csv(downstream_table(curves, float(threshold)), Path(table))
downstream(read_curves(curves), Path(figure), title=title)
