"""profiles.py STATISTICS PROFILES FIGURE METRICS..."""

import sys
from pathlib import Path

from disk.evaluation.statistics import profiles_table, read_worlds, statistics_table
from disk.evaluation.tables import save_csv
from disk.figures.profiles import profiles

statistics, shares, figure, *metrics = map(Path, sys.argv[1:])
runs = read_worlds(metrics)
save_csv(statistics_table(runs), statistics)
save_csv(profiles_table(runs), shares)
profiles(profiles_table(runs), statistics_table(runs), figure)
