"""DISk: learning incremental skills for a changing world, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disk.skills import Skill, Skills, load

__all__ = ["Skill", "Skills", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # lazily: `python -m disk --help` must not wait for torch
    if name in __all__:
        from disk import skills

        return getattr(skills, name)
    raise AttributeError(f"module 'disk' has no attribute {name!r}")
