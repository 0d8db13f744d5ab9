"""live.py JOB PAGE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.show.live import build_beside_gallery

job, page, *rollouts = sys.argv[1:]
runs = [Path(path).parent.parent for path in rollouts]
print(build_beside_gallery(runs, Path(page), EvaluationJob.model_validate_json(job)))
