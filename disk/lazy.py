"""Modules that are imported when they are first used, and packages that only some uses need.

Planning and `--help` read the settings of objectives, and must not wait for torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from disk.errors import ExtraError

EXTRAS = {
    "workflow": ("snakemake", "snakemake_executor_plugin_slurm", "pygments"),
    "tracking": ("mlflow",),
    "figures": ("pandas", "pyarrow", "scipy", "matplotlib", "imageio", "imageio_ffmpeg", "PIL"),
    "downstream": ("stable_baselines3",),
    "onnx": ("onnx", "onnxruntime"),
}
"""Modules that come with an extra of the package, in pyproject.toml."""


class Lazy(ModuleType):
    """A stand-in for a module. Reading an attribute imports the module."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # the next look finds it here
        return value


def need(name: str) -> Any:
    """Import a module of an extra. If it is missing, name the command that installs it."""
    if error := missing(name):
        raise error
    return importlib.import_module(name)


def missing(name: str | None) -> ExtraError | None:
    """Return the error for a module that an extra brings and that is not installed; None for any other module."""
    for extra, modules in EXTRAS.items():
        if name in modules and importlib.util.find_spec(name) is None:
            return ExtraError(f"{name} is not installed: run pip install 'disk-skills[{extra}]'")
    return None


def extras() -> str:
    """Say of each extra whether it is installed, and if not, how to install it."""
    found = {extra: list(filter(None, map(missing, modules))) for extra, modules in EXTRAS.items()}
    return "; ".join(f"{extra}: {errors[0] if errors else 'installed'}" for extra, errors in found.items())
