"""curves.py ENV FIGURE PROGRESS..."""

import sys
from pathlib import Path

from disk.figures.curves import draw_curves

env, figure, *progress = sys.argv[1:]
draw_curves(env, [Path(path) for path in progress], Path(figure))
