"""rollout.py THREADS JOB SKILLS ROLLOUTS"""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.evaluation.run import evaluate

threads, job, skills, rollouts = sys.argv[1:]
evaluate(EvaluationJob.model_validate_json(job), Path(skills), Path(rollouts), int(threads))
