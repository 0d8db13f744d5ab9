"""gallery.py JOB CONDITIONS CHAINS PAGE METRICS..."""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.show.gallery import build
from disk.storage.layout import Run

job, conditions, chains, page, *metrics = sys.argv[1:]
runs = [Run.of(Path(path)).path for path in metrics]
print(build(EvaluationJob.model_validate_json(job), conditions.split(), chains.split(), runs, Path(page)))
