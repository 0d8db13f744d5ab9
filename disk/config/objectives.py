"""The objectives that a configuration may name, as the files in disk/learning/objectives/ define them.

This is the one place where the configuration looks up into a room above it: an objective is one file, and that file
holds its settings too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from disk.config.settings import Incremental, Model

if TYPE_CHECKING:
    from disk.learning.objectives import Kind


def objectives() -> dict[str, Kind]:
    """Return the objectives whose skills are learned together, by name."""
    found: dict[str, Kind] = importlib.import_module("disk.learning.objectives").kinds()
    return found


def settings_from(given: Any) -> Any:
    """Turn a job's JSON into the settings of the objective whose keys it has."""
    if not isinstance(given, dict):
        return given
    models: list[type[Model]] = [Incremental, *(kind.settings for kind in objectives().values())]
    fitting = [model for model in models if _required(model) <= given.keys() <= model.model_fields.keys()]
    if len(fitting) != 1:
        raise ValueError(f"expected the settings of one objective, not of {len(fitting)}: {sorted(given)}")
    return fitting[0].model_validate(given)


def interchangeable(one: type[Model], other: type[Model]) -> bool:
    """Return True if a job's JSON can have the keys of both settings, so that it does not say whose they are."""
    return _required(one) <= other.model_fields.keys() and _required(other) <= one.model_fields.keys()


def _required(model: type[Model]) -> set[str]:
    return {name for name, field in model.model_fields.items() if field.is_required()}


def name_of(settings: Model) -> str:
    """Return the name of the objective that these settings belong to."""
    names = {kind.settings: name for name, kind in objectives().items()}
    return names.get(type(settings), "disk")
