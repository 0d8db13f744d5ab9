"""list_runs.py TABLE STATS..."""

import sys
from pathlib import Path

from disk.evaluation.tables import runs_table, save_csv

table, *stats = map(Path, sys.argv[1:])
save_csv(runs_table(stats), table)
