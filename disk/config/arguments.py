"""Values from a command line, such as those of Snakemake's `--config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def typed(value: Any) -> Any:
    """Read text as YAML does, also within mappings and lists: `600` is a number, `false` a boolean.

    Snakemake reads `--config 'runtime={longest_minutes: 600}'` as {"runtime": {"longest_minutes": "600"}}.
    """
    import yaml

    if isinstance(value, Mapping):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    if not isinstance(value, str):
        return value
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return found if found is None or isinstance(found, int | float) else value  # a colon makes no mapping here
