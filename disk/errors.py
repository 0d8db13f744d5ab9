"""Errors that a user can mend. Each message names the file or key, the value and what was expected.

This module imports nothing of the package and no torch, so the command line can catch its classes cheaply.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

LARGEST = 3.4028234663852886e38
"""The largest finite 32-bit number."""


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


class ExtraError(DiskError, ImportError):
    """A package that only this use needs is not installed. The message says how to install it."""


class Interrupted(DiskError, RuntimeError):
    """A signal stopped the training. Its state is saved, and the same command resumes it."""

    def __init__(self, signum: int, where: Path, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} at step {step}; state saved in {where}")
        self.signum = signum
        self.code = 128 + signum


def must_be_finite(what: str, values: np.ndarray, step: int) -> None:
    """Raise if any of the values is NaN, infinite or too large for 32 bits."""
    if not (abs(values) <= LARGEST).all():  # which is False for NaN too
        raise NotFiniteError(f"{what} is {values} at step {step}; the last good checkpoint is kept.")


@contextmanager
def to_blame(path: Path) -> Iterator[None]:
    """Name the file that a number which is not finite belongs to."""
    try:
        yield
    except NotFiniteError as error:
        raise NotFiniteError(
            f"{path}: {error} If the same command run again ends here too, change a setting."
        ) from None
