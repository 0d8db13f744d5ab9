"""measure.py JOB ROLLOUTS... METRICS"""

import sys
from pathlib import Path

from disk.config import MeasureJob
from disk.evaluation.run import measure

job, *paths = sys.argv[1:]
*rollouts, metrics = map(Path, paths)
measure(rollouts, metrics, MeasureJob.model_validate_json(job))
