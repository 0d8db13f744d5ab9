"""hausdorff.py ENV TABLE SUMMARY FIGURE"""

import sys
from pathlib import Path

import pandas as pd

from disk import plots_bars

env, table, summary, figure = sys.argv[1:]
plots_bars.hausdorff(pd.read_csv(table), pd.read_csv(summary), Path(figure), env=env)
