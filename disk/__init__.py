"""DISk: learning incremental skills for a changing world, one after another."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from disk.registration import register

if TYPE_CHECKING:
    from disk.downstream.goals import GoalEnv
    from disk.downstream.skill_env import SkillEnv
    from disk.envs.worlds import Evolving, make
    from disk.evaluation.library import Library
    from disk.evaluation.protocol import benchmark
    from disk.sharing.export import load
    from disk.skills import Skill, Skills

__all__ = ["Evolving", "GoalEnv", "Library", "Skill", "SkillEnv", "Skills", "benchmark", "load", "make"]
__version__ = "0.1.0"

register()
_PLACES = {
    "Evolving": "envs.worlds",
    "GoalEnv": "downstream.goals",
    "Library": "evaluation.library",
    "Skill": "skills",
    "SkillEnv": "downstream.skill_env",
    "Skills": "skills",
    "benchmark": "evaluation.protocol",
    "load": "sharing.export",
    "make": "envs.worlds",
}


def __getattr__(name: str) -> Any:  # lazily: `python -m disk --help` must not wait for torch
    if name in _PLACES:
        return getattr(importlib.import_module(f"disk.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'disk' has no attribute {name!r}")
