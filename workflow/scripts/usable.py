"""usable.py NAME TABLE FIGURE USABLE..."""

import sys
from pathlib import Path

from disk.evaluation.forgetting import usable_table
from disk.evaluation.tables import save_csv
from disk.figures.usable import usable

name, *paths = sys.argv[1:]
table, figure, *files = map(Path, paths)
rows = usable_table(files)
save_csv(rows, table)
usable(rows, figure, env=name)
