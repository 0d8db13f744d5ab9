"""recovery.py NAME TABLE FIGURE USABLE..."""

import sys
from pathlib import Path

from disk.evaluation.forgetting import usable_table
from disk.evaluation.recovery import recovery_table
from disk.evaluation.tables import save_csv
from disk.figures.recovery import recovery

name, *paths = sys.argv[1:]
table, figure, *files = map(Path, paths)
rows = recovery_table(usable_table(files))
save_csv(rows, table)
recovery(rows, figure, env=name)
