"""Errors that a user can mend. Each message names the file or key, the value and what was expected.

This module imports nothing of the package and no torch, so the command line can catch its classes cheaply.
"""

from __future__ import annotations

import signal
from pathlib import Path


class DiskError(Exception):
    """Base of every error that is reported in one line, without a traceback."""

    code = 1
    """Exit code of the command line."""


class ConfigError(DiskError, ValueError):
    """The configuration cannot be used."""

    code = 2


class ArtefactError(DiskError, RuntimeError):
    """A file of an earlier job is missing, damaged or of another kind."""


class NotFiniteError(DiskError, RuntimeError):
    """A loss, a reward or an observation is NaN or infinite. Nothing after it can be trusted."""


class RenderError(DiskError, RuntimeError):
    """This machine cannot draw. The message says what to install."""


class TrackingError(DiskError, RuntimeError):
    """MLflow cannot be reached, or it refuses a request."""


class Interrupted(DiskError, RuntimeError):
    """A signal stopped the training. Its state is saved, and the same command resumes it."""

    def __init__(self, signum: int, where: Path, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} at step {step}; state saved in {where}")
        self.signum = signum
        self.code = 128 + signum
