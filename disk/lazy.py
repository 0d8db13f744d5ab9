"""Modules that are imported when they are first used.

Planning and `--help` read the settings of objectives, and must not wait for torch.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class Lazy(ModuleType):
    """A stand-in for a module. Reading an attribute imports the module."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # the next look finds it here
        return value
