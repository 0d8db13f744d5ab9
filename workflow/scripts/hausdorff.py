"""hausdorff.py ENV TABLE SUMMARY FIGURE"""

import sys
from pathlib import Path

from disk.evaluation.tables import read_csv
from disk.figures.hausdorff import hausdorff

env, *paths = sys.argv[1:]
table, summary, figure = map(Path, paths)
hausdorff(read_csv(table), read_csv(summary), figure, env=env)
