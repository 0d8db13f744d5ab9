"""hausdorff.py ENV TABLE SUMMARY FIGURE"""

import sys
from pathlib import Path

from disk import plots_bars
from disk.tables import read_csv

env, *paths = sys.argv[1:]
table, summary, figure = map(Path, paths)
plots_bars.hausdorff(read_csv(table), read_csv(summary), figure, env=env)
