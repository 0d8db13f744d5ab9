"""Settings of what happens around trainings and after them: evaluation, controllers, tracking, the machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from disk.config.settings import Model, Retired

ROLLOUT = 2048
"""Decisions between two updates of PPO, SB3's default."""


class Evaluation(Model):
    episodes: PositiveInt
    """Episodes a skill, with deterministic actions and their own seeds."""
    drawn: PositiveInt
    """How many of them the figures draw."""
    seed: NonNegativeInt
    """Start of the evaluation's own seeds, apart from training's."""
    threads: PositiveInt = 2
    """Processes that share a run's rollouts, one thread each. The numbers do not depend on it."""


class Hierarchy(Model):
    """Skills put to work: a controller that reaches goals by choosing which skill runs next."""

    decisions: PositiveInt
    """Choices that a controller makes in training, each of a skill that then runs for `steps` steps."""
    steps: PositiveInt
    """Environment steps that a chosen skill runs for."""
    episode: PositiveInt
    """Decisions in an episode; then there is another goal."""
    every: PositiveInt
    """Decisions between two rows of a curve: whole episodes, so that each row is a mean over finished ones."""
    environments: PositiveInt
    """Worlds that a controller acts in at once. SB3's default is 1; with more, PPO's rollouts stay as long in all."""
    seeds: list[NonNegativeInt]
    """Seeds of controllers. Each run's skills get one controller per seed."""
    flat: bool
    """Train goal-conditioned SAC without skills too, for comparison, wherever there are hierarchies."""
    threshold: PositiveFloat
    """Normalised distance to the goal. downstream.csv holds the first decision below it."""
    sac: dict[str, Any] = {}
    """SAC settings of the flat controller that differ from the environment's."""

    @model_validator(mode="after")
    def _whole_episodes(self) -> Hierarchy:
        least = self.episode * self.environments
        if self.every % least:
            raise ValueError(
                f"every: {self.every}: expected a multiple of {least}, an episode of {self.episode} decisions in each "
                f"of {self.environments} environments"
            )
        if self.decisions % self.every:
            raise ValueError(f"decisions: {self.decisions}: expected a multiple of every, {self.every}")
        if ROLLOUT % self.environments:
            raise ValueError(f"environments: {self.environments}: expected a divisor of {ROLLOUT}, PPO's rollout")
        return self


class Tracking(Model):
    """MLflow, a mirror of results/."""

    enabled: bool
    uri: str
    """Tracking store; the environment variable MLFLOW_TRACKING_URI wins."""
    live_after_seconds: NonNegativeFloat
    """A training that lasts longer than this is mirrored while it runs; shorter ones when they are done."""
    interval_seconds: PositiveFloat
    """Seconds between two looks at a training's curve."""


class Runtime(Model):
    """How a job runs, as opposed to what it computes. Changing any of this retrains nothing."""

    device: str = Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto`: CUDA when there is one, otherwise the CPU. Or `cpu`, `cuda`, `cuda:0`, …"""
    checkpoint_minutes: PositiveFloat
    """The most that a kill can cost."""
    log_every: PositiveInt
    """Environment steps between two rows of progress.csv."""
    gpu_jobs_per_device: PositiveInt = 3
    """Trainings that share a GPU; more wait for a place."""
    scratch: Retired = None
    """No longer used: checkpoints lie beside the results."""
    scratch_minutes: Retired = None
    """No longer used."""
    speed: PositiveFloat = 1.0
    """How fast a core is, compared with that of docs/performance.md; walltimes are asked for accordingly."""
    longest_minutes: PositiveInt | None = None
    """The longest walltime that a cluster gives. A longer skill is trained over several jobs. Null: no limit."""
