"""list_runs.py TABLE STATS..."""

import sys
from pathlib import Path

from disk.figures.draw import list_runs

table, *stats = sys.argv[1:]
list_runs([Path(path) for path in stats], Path(table))
