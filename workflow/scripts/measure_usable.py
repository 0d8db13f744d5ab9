"""measure_usable.py THREADS JOB SKILLS TABLE"""

import sys
from pathlib import Path

from disk.config import UsableJob
from disk.evaluation.forgetting import measure_usable
from disk.storage.layout import Run

threads, job, skills, table = sys.argv[1:]
measure_usable(UsableJob.model_validate_json(job), Run.of(Path(skills)).path, Path(table), int(threads))
