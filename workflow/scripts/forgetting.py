"""forgetting.py ENVIRONMENT NAME TABLE FIGURE AFTER_TRAINING... METRICS..."""

import sys
from pathlib import Path

from disk.config import Environment
from disk.evaluation.forgetting import forgetting_table
from disk.evaluation.tables import save_csv
from disk.figures.forgetting import forgetting
from disk.storage.layout import METRICS

environment, name, *paths = sys.argv[1:]
table, figure, *files = map(Path, paths)
after = [path for path in files if path.name != METRICS]
final = [path for path in files if path.name == METRICS]
rows = forgetting_table(Environment.model_validate_json(environment), after, final)
save_csv(rows, table)
forgetting(rows, figure, env=name)
