"""Objectives: how a batch of transitions is labelled with an intrinsic reward.

A file in this folder that defines `OBJECTIVE` is an objective, and its name is the file's. It holds the settings, the
class and what the class needs of a training; nothing else has to be edited (docs/extending.md). The chain's own
objective, `disk`, is `incremental.py`, and `parallel.py` where its skills are learned side by side.

Configurations read the settings without waiting for torch, so objective files import torch lazily (`disk.lazy`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

from disk.config.objectives import interchangeable
from disk.config.settings import Incremental, Model
from disk.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from disk.config import JointJob
    from disk.envs import Projected
    from disk.learning.replay import Batch
    from disk.learning.sac import SAC
    from disk.learning.schedules import Prior
    from disk.storage.replay import Columns


class Objective(Protocol):
    """What the training loop asks of an objective."""

    def observe(self, skill: int, sigma: np.ndarray) -> None:
        """See the projected state that a skill's action led to."""

    def start(self, sample: Callable[[], Batch]) -> None:
        """Prepare for a policy's first update. `sample` draws batches from its replay."""

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        """Improve the objective's own model on a batch of all skills' transitions; return detached metrics."""

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return rewards (B,) and metrics. `progress` is the share of the budget that is done."""

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed training needs, as named tensors."""

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class Setting:
    """The parts of a training that an objective may need."""

    job: JointJob
    env: Projected
    columns: Columns
    agents: Sequence[SAC]
    """One, or one for each skill."""
    seed: int
    """The objective's own."""
    device: torch.device


@dataclass(frozen=True)
class Kind:
    """An objective whose skills are learned together: its settings, its maker and its needs."""

    settings: type[Model]
    make: Callable[[Any, Setting], Objective]
    """Returns the objective, from its settings and the rest of the training."""
    prior: Callable[[Any, int], Prior] | None = None
    """Returns what z is drawn from, given the settings and the width of σ. None: skills are numbered."""
    sees_position: bool = False
    """Policies and the objective see the position behind the observation."""
    weighs_actions: bool = False
    """The replay keeps how likely each action was when it was taken."""
    certain: bool = False
    """The objective can say how certain it is of the skill that acted: VALOR's curriculum grows by that."""


@cache
def kinds() -> dict[str, Kind]:
    """Return the objectives of this folder by name. Refuse two whose settings have the same keys.

    A job names no objective: the keys of its settings tell which one it is.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names if name not in HELPERS}
    found = {name: module.OBJECTIVE for name, module in modules.items()}
    settings = {"incremental": Incremental, **{name: kind.settings for name, kind in found.items()}}
    for (name, one), (other, another) in combinations(settings.items(), 2):
        if interchangeable(one, another):
            raise ConfigError(
                f"disk/learning/objectives/{other}.py: its settings have the same keys as those of {name}.py, so jobs "
                "cannot tell the two objectives apart; give one of them a required key that the other lacks"
            )
    return found


HELPERS = ("incremental", "learned", "parallel")
"""Files of this folder that are no objectives of joint methods."""
