"""Targets of the workflow that no rule makes: why, and what to ask for instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path, PurePosixPath

from disk.config.files import SHIPPED, read
from disk.config.messages import unknown
from disk.config.uses import FLAT
from disk.errors import ConfigError

ROOT = "results"
"""Where results are unless a preset says otherwise."""
COMMAND = re.compile(r"--configfile((?: \S+\.yaml)+)")
"""How a preset is called, in the comment at its head."""


def advise(
    target: str,
    results: str,
    environments: Collection[str],
    methods: Collection[str],
    rules: Collection[str] = (),
    files: Collection[str] = (),
) -> str | None:
    """Return what is wrong with a target that no rule makes, in one line; None if it may be another workflow's.

    `rules` are the names of this workflow's rules, `files` the names of the files that they make.
    """
    path, here = PurePosixPath(target), PurePosixPath(results)
    parts = path.parts
    if parts[:1] not in {(ROOT,), here.parts[:1]}:
        meant = _similar(parts[0], [ROOT] if parts[1:] else rules) if parts else None
        return meant and f"{target}: no rule makes it; did you mean {PurePosixPath(meant, *parts[1:])}?"
    below = path.relative_to(here).parts if here in path.parents else ()
    if not below or below[0] not in environments:
        for preset, place in presets():
            if place != here and (place == path or place in path.parents):
                option = " ".join(map(_name, layers(preset)))
                return f"{target}: this configuration does not make it; add --configfile {option} after the target"
    if not below:
        return f"{target}: this configuration writes to {results}/; ask for {PurePosixPath(results, *parts[1:])}"
    said = _advise_below(path, below, environments, methods, files)
    return said and f"{target}: {said}"


def _advise_below(
    path: PurePosixPath,
    below: tuple[str, ...],
    environments: Collection[str],
    methods: Collection[str],
    files: Collection[str],
) -> str | None:
    """Return what is wrong with a target below this configuration's results."""
    meant = _similar(path.name, files)
    if below[1:] and below[0] not in environments:
        if not (meant or path.name in files or _similar(below[0], environments)):
            return None
        said = unknown(below[0], environments, "environment")
        return f"{said}; or add --configfile with the file that has its row after the target"
    if len(below) > 3 and below[2].startswith("seed") and below[1] not in {*methods, FLAT}:
        return unknown(below[1], [*methods, FLAT], "method")
    if len(below) == 1 and below[0] in environments:
        return f"is a folder; ask for a file in it, such as {path / 'hausdorff.csv'}"
    return f"no rule makes it; did you mean {path.with_name(meant)}?" if meant else None


def _similar(name: str, names: Collection[str]) -> str | None:
    """Return the name that was probably meant; None if this is a known name, or like none."""
    return None if name in names else next(iter(difflib.get_close_matches(name, [*names], n=1, cutoff=0.7)), None)


@cache
def presets(folder: Path = SHIPPED) -> list[tuple[Path, PurePosixPath]]:
    """Return the presets of config/ and where each writes, the deepest folder first."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        place = read([path]).get("pathvars", {}).get("results")
        if place is not None:
            found.append((path, PurePosixPath(place)))
    return sorted(found, key=lambda preset: -len(preset[1].parts))


def layers(preset: Path) -> list[Path]:
    """Return the files to give for a preset: those that it lies over, then itself.

    They are in the first command of its head: `snakemake --configfile config/quick.yaml config/compare.yaml`.
    """
    try:
        head = preset.read_text()
    except OSError as error:
        raise ConfigError(f"{preset}: cannot be read: {error}") from None
    for command in COMMAND.findall(head):
        *below, own = (PurePosixPath(name) for name in command.split())
        if own.name == preset.name:  # beside this one, or in another folder of the project
            beside, project = preset.parent, preset.parents[1]
            return [*(beside / over.name if over.parent == own.parent else project / over for over in below), preset]
    return [preset]


def _name(path: Path) -> str:
    """Return a file of the project as its documentation names it."""
    return f"config/{path.name}" if path.parent == SHIPPED else str(path)
