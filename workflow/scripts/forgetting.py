"""forgetting.py ENV TABLE FIGURE AFTER... FINAL..."""

import sys
from pathlib import Path

from disk.changing import forgetting_table
from disk.plots_worlds import forgetting
from disk.runs import save_csv

env, *paths = sys.argv[1:]
table, figure, *files = map(Path, paths)
half = len(files) // 2
rows = forgetting_table(files[:half], files[half:])
save_csv(rows, table)
forgetting(rows, figure, env=env)
