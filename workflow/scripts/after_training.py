"""after_training.py THREADS JOBS TABLE POLICIES..."""

import json
import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.evaluation.forgetting import measure_after_training

threads, jobs, table, *policies = sys.argv[1:]
parsed = {name: EvaluationJob.model_validate(job) for name, job in json.loads(jobs).items()}
measure_after_training(parsed, [Path(policy) for policy in policies], Path(table), int(threads))
