"""forgetting.py TABLE AFTER... FINAL..."""

import sys
from pathlib import Path

from disk.runs import forgetting_table, save_csv

table, *files = map(Path, sys.argv[1:])
half = len(files) // 2
save_csv(forgetting_table(files[:half], files[half:]), table)
