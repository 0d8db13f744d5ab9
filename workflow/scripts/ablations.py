"""ablations.py ENV CONDITION FIGURE METRICS..."""

import sys
from pathlib import Path

from disk.figures.ablations import draw_ablations

env, condition, figure, *metrics = sys.argv[1:]
draw_ablations(env, condition, [Path(path) for path in metrics], Path(figure))
