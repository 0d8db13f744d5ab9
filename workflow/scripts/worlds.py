"""worlds.py ENVIRONMENT DRAWN TITLE FIGURE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.config import Environment
from disk.figures.worlds import draw_worlds

environment, drawn, title, figure, *rollouts = sys.argv[1:]
files = {Path(path).stem: Path(path) for path in rollouts}
draw_worlds(Environment.model_validate_json(environment), files, Path(figure), title=title, drawn=int(drawn))
