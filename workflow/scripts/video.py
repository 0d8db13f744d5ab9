"""video.py JOB LABEL SKILLS VIDEO CLIPS"""

import sys
from pathlib import Path

from disk.config import EvaluationJob
from disk.show.video import render_run
from disk.skills import load

job, label, skills, video, clips = sys.argv[1:]
render_run(EvaluationJob.model_validate_json(job), load(skills), Path(video), Path(clips), label)
