"""consistency.py ENV FIGURE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.figures.consistency import draw_consistency

env, figure, *rollouts = sys.argv[1:]
draw_consistency(env, [Path(path) for path in rollouts], Path(figure))
