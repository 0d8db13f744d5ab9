"""The layout of results: the one owner of file and folder names.

{root}/{env}/{method}/seed{seed}/       a run, `Run`
  skill{NN}/                            a skill of a chain: SKILL_FILES, and PROJECTION if its σ is learned
  skill{NN}.checkpoint/                 its training; `checkpoint/` where all skills are learned together
  skills.safetensors  progress.csv      all skills of the run, and their curves
  snapshots/{step}.safetensors          skills of a joint method during training
  rollouts/{condition}.parquet          trajectories, from which everything else is measured and drawn
  metrics.csv  after_training.csv  usable.csv  changes.csv
  hierarchy/seed{h}.csv                 a controller over the run's skills
{root}/{env}/hausdorff.csv summary.csv  tables over all runs of an environment
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from disk.config import Config
from disk.errors import ArtefactError

POLICY, REPLAY, VISITS = "policy.safetensors", "replay.safetensors", "visits.npy"
PROJECTION = "projection.safetensors"
"""φ of a skill, or of a joint run, whose σ is learned."""
STATS, CURVE = "stats.json", "progress.csv"
SKILLS, METRICS = "skills.safetensors", "metrics.csv"
AFTER_TRAINING, USABLE = "after_training.csv", "usable.csv"
CHANGES = "changes.csv"
"""Probes of a run that is not told when its world changes, and what it decided."""
HAUSDORFF, SUMMARY = "hausdorff.csv", "summary.csv"
"""Tables of an environment."""
LATENT_SETS = "latent_sets.csv"
CHECKPOINT = "checkpoint"
"""The checkpoint of a run whose skills are learned together."""
HIERARCHY = "hierarchy"
"""The folder of a run's controllers."""
STATE, JOB, LEASE = "state.safetensors", "job.json", "lease"
"""Files of a checkpoint."""
SKILL_FILES = (POLICY, REPLAY, VISITS, STATS, CURVE)
RUN_FILES = (SKILLS, STATS, CURVE)
"""Files of a run whose skills were learned together."""
RUN_NAME, SKILL_NAME = re.compile(r"seed(\d+)"), re.compile(r"skill(\d{2,})")


@dataclass(frozen=True, order=True)
class Run:
    """The place of a run in the tree of results."""

    root: Path
    env: str
    method: str
    seed: int

    @classmethod
    def of(cls, path: Path) -> Run:
        """Return the run that a file or folder belongs to, or is."""
        for folder in (path, *path.parents):
            match = RUN_NAME.fullmatch(folder.name)
            if match and folder.parent.name != HIERARCHY and len(folder.parts) > 2:
                return cls(folder.parents[2], folder.parents[1].name, folder.parent.name, int(match[1]))
        raise ArtefactError(f"{path}: is not in a run: expected a path like results/point/disk/seed0")

    @property
    def path(self) -> Path:
        return self.root / self.env / self.method / f"seed{self.seed}"

    def skill(self, number: int) -> Path:
        return self.path / f"skill{number:02d}"


def results_root(config: Config) -> Path:
    """Return the folder that a configuration writes its results to."""
    return Path(config.pathvars.get("results", "results"))


def checkpoint_beside(outputs: Path) -> Path:
    """Return the checkpoint of the training that writes a skill's folder, or a controller's curve."""
    return outputs.with_name(f"{outputs.stem}.{CHECKPOINT}")


def snapshot_name(step: int) -> str:
    """Return the path, below its run, of a joint method's skills after `step` steps."""
    return f"snapshots/{step}.safetensors"


def rollouts_of(run: Path, condition: str) -> Path:
    """Return the file of a run's rollouts in a condition."""
    return run / "rollouts" / f"{condition}.parquet"


def is_finished(skill: Path) -> bool:
    """Return True if a skill has all its files."""
    return all((skill / name).exists() for name in SKILL_FILES)
