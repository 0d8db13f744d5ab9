"""legs.py ENVIRONMENT DRAWN TITLE FIGURE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.config import Environment
from disk.figures.legs import draw_legs

environment, drawn, title, figure, *rollouts = sys.argv[1:]
row = Environment.model_validate_json(environment)
draw_legs(row, title, int(drawn), [Path(path) for path in rollouts], Path(figure))
