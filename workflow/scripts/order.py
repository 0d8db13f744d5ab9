"""order.py JOB DRAWN STEPS FIGURE ROLLOUTS, with the steps of each skill as a JSON list"""

import json
import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.figures.order import draw_order

job, drawn, steps, figure, rollouts = sys.argv[1:]
draw_order(EvaluationJob.model_validate_json(job), int(drawn), json.loads(steps), Path(rollouts), Path(figure))
