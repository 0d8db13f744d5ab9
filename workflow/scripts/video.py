"""video.py JOB LABEL SKILLS VIDEO CLIPS"""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.skills import load
from disk.video import render_run

job, label, skills, video, clips = sys.argv[1:]
render_run(EvaluationJob.model_validate_json(job), load(skills), Path(video), Path(clips), label)
