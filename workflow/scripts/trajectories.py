"""trajectories.py JOB DRAWN FIGURE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.figures.trajectories import draw_trajectories

job, drawn, figure, *rollouts = sys.argv[1:]
draw_trajectories(EvaluationJob.model_validate_json(job), int(drawn), [Path(path) for path in rollouts], Path(figure))
