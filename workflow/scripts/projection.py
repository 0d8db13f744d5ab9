"""projection.py WORLD TITLE DRAWN FIGURE STATS VISITS..., with the stats.json of the last skill"""

import sys
from pathlib import Path

from disk.config import World
from disk.figures.projection import draw_projection

world, title, drawn, figure, stats, *visits = sys.argv[1:]
draw_projection(World.model_validate_json(world), title, int(drawn), Path(stats), list(map(Path, visits)), Path(figure))
