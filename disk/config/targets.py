"""Targets of the workflow that no rule makes: why, and what to ask for instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from disk.config.files import SHIPPED, read
from disk.config.uses import FLAT

ROOT = "results"
"""Where results are unless a preset says otherwise."""


def advise(target: str, results: str, environments: Collection[str], methods: Collection[str]) -> str | None:
    """Return what is wrong with a target below results/, in one line; None if its folders are this configuration's."""
    parts, here = PurePosixPath(target).parts, PurePosixPath(results)
    if parts[:1] != (ROOT,) or len(parts) < 3:
        return None
    below = PurePosixPath(target).relative_to(here).parts if here in PurePosixPath(target).parents else None
    if below is None or below[0] not in environments:
        for preset, place in presets():
            if place != here and place in PurePosixPath(target).parents:
                return f"{target}: this configuration does not make it; add --configfile {preset} after the target"
    if below is None:
        return f"{target}: this configuration writes to {results}/; ask for {PurePosixPath(results, *parts[1:])}"
    tables = [("environment", environments)]
    if len(below) > 3 and below[2].startswith("seed"):
        tables.append(("method", [*methods, FLAT]))
    for name, (what, names) in zip(below, tables, strict=False):
        similar = difflib.get_close_matches(name, list(names), n=1)
        if name not in names and similar:
            return f"{target}: unknown {what} {name!r}; did you mean {similar[0]!r}?"
    return None


def presets(folder: Path = SHIPPED) -> list[tuple[str, PurePosixPath]]:
    """Return the presets of config/ and where each writes, the deepest folder first."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        place = read([path]).get("pathvars", {}).get("results")
        if place is not None:
            found.append((f"config/{path.name}", PurePosixPath(place)))
    return sorted(found, key=lambda preset: -len(preset[1].parts))
