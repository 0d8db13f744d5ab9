"""tabulate.py HAUSDORFF SUMMARY METRICS..."""

import sys
from pathlib import Path

from disk.evaluation.metrics import hausdorff_table, summarise
from disk.evaluation.run import read_runs
from disk.evaluation.tables import save_csv

hausdorff, summary, *metrics = map(Path, sys.argv[1:])
runs = read_runs(metrics)
save_csv(hausdorff_table(runs), hausdorff)
save_csv(summarise(runs), summary)
