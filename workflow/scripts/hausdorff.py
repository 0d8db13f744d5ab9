"""hausdorff.py ENV TABLE SUMMARY FIGURE"""

import sys
from pathlib import Path

import pandas as pd

from disk import plots

env, table, summary, figure = sys.argv[1:]
plots.hausdorff(pd.read_csv(table), pd.read_csv(summary), Path(figure), env=env)
