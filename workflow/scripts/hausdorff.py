"""hausdorff.py ENV TABLE SUMMARY FIGURE"""

import sys
from pathlib import Path

from disk.evaluation.tables import read_csv
from disk.figures import bars as plots_bars

env, *paths = sys.argv[1:]
table, summary, figure = map(Path, paths)
plots_bars.hausdorff(read_csv(table), read_csv(summary), figure, env=env)
