"""live.py JOB PAGE ROLLOUTS..."""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.show.live import Evaluation, build_beside_gallery
from disk.storage.layout import Run

job, page, *rollouts = sys.argv[1:]
runs = [Run.of(Path(path)).path for path in rollouts]
native = Evaluation(Path(rollouts[0]).stem, EvaluationJob.model_validate_json(job))
print(build_beside_gallery(runs, Path(page), native))
