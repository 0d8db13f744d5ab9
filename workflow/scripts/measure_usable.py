"""measure_usable.py THREADS JOB SKILLS TABLE"""

import sys
from pathlib import Path

from disk.config import UsableJob
from disk.evaluation.forgetting import measure_usable

threads, job, skills, table = sys.argv[1:]
measure_usable(UsableJob.model_validate_json(job), Path(skills).parent, Path(table), int(threads))
