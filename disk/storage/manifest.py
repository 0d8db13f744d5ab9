"""Whether files are whole and belong together, asked whenever they are used.

A skill's stats.json holds a checksum of itself, those of its other files and those of the earlier skills' files that
it was learned from; files of tensors hold one of their own besides. A mismatch names the file, what was expected,
what was found and what to do.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from disk.config import SkillJob
from disk.errors import ArtefactError
from disk.skills import load
from disk.storage.files import checksum, inside, load_stats
from disk.storage.layout import CURVE, POLICY, REPLAY, STATS, VISITS

RESTORE = "Restore it, or delete it and run the same command again"
ELAPSED = ("time/time_elapsed", "time/fps")
CHECKED = (POLICY, VISITS, REPLAY)
"""Files of a skill whose checksums stand in its stats.json."""
FIRST_OBJECTIVE = tuple(f"objective.{key}" for key in ("neighbours", "recent_states", "past_states", "normaliser"))
"""What matters to the first skill of a chain, and to what it records, of its objective's settings."""


def identity(job: SkillJob, earlier: Sequence[Path]) -> dict[str, str]:
    """Checksums of what training reads from earlier skills; a damaged file is found here, not hours later."""
    found: dict[str, str] = {}
    for skill, folder in enumerate(earlier):
        policy, stats = load(folder / POLICY), read_stats(folder)
        world = job.world.model_dump(mode="json", exclude_none=True)
        for key, wanted in (("env", job.env), ("skill", skill), ("seed", job.seed), ("world", world)):
            if _without_nulls(policy.meta.get(key)) != wanted:
                raise ArtefactError(
                    f"{folder}/policy.safetensors: is of {key} {policy.meta.get(key)!r}, not {wanted!r}. {RESTORE}"
                )
        same_inputs(folder, stats, found)
        for name in _read_from_earlier(job):
            same_checksum(folder, name, stats)
            found[f"{folder.name}/{name}"] = stats["checksums"][name]
        means = [stats["mean_consistency"], stats["mean_diversity"]]
        released = job.objective.normaliser == "released"
        if released and "paid" not in stats:
            raise ArtefactError(f"{folder}/stats.json: has no `paid`, which normaliser `released` takes α and β from")
        if job.normaliser is not None:
            found["normaliser"] = json.dumps(stats.get("normaliser"))
        found["before"] = json.dumps([*means, stats["paid"]] if released else means)
    if job.budget:
        found["spent"] = json.dumps(
            [[stats["steps"], stats.get("own_diversity")] for stats in map(read_stats, earlier)]
        )
    return found


def same_chain(job: SkillJob, earlier: Sequence[Path], run: Path) -> None:
    """Refuse earlier skills of the run that other settings made than this one's. Before a fork, the run is another."""
    for folder in earlier:
        stats = read_stats(folder)
        if folder.parent != run or not isinstance(stats.get("job"), dict):
            continue
        wanted, found = _shared_settings(job.model_dump(mode="json")), _shared_settings(stats["job"])
        for key in wanted.keys() & found.keys():
            if wanted[key] != found[key]:
                raise ArtefactError(
                    f"{folder}/stats.json: this skill was trained with {key} {found[key]!r}, the next one has "
                    f"{wanted[key]!r}. {RESTORE}"
                )


def _shared_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Settings that all skills of a chain have in common; the first one lacks those about earlier skills."""
    first = job.get("skill") == 0
    later = () if first else ("replay_keep", "own_share", "warm")
    names = ("sac", "replay_capacity", "adaptive", "budget", "code", "normaliser", *later)
    objective = {f"objective.{key}": value for key, value in (job.get("objective") or {}).items()}
    if objective.get("objective.normaliser") == "running":  # the first skill has none, and later ones have its window
        objective["objective.normaliser"] = None
    of_all = (
        FIRST_OBJECTIVE if first else objective.keys() - {"objective.second_beta"}
    )  # which only the second looks at
    objective = {key: value for key, value in objective.items() if key in of_all}
    return {**{name: _without_nulls(job.get(name)) for name in names}, **objective}


def _without_nulls(value: Any) -> Any:
    """Options that were added later are null, or absent from older files."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def same_checksum(folder: Path, name: str, stats: dict[str, Any]) -> None:
    """Refuse a file that is not the one which its stats.json speaks of."""
    path, checksums = inside(folder, name), stats.get("checksums")
    is_, expected = checksum(path), checksums.get(name) if isinstance(checksums, dict) else None
    if is_ != expected:
        # A snapshot is no output that the workflow knows of: it comes with the training whose stats.json lists it.
        snapshot = f"Restore it, or delete {folder}/stats.json and run the same command again"
        raise ArtefactError(
            f"{path}: is damaged, or not of this skill: its checksum is {is_}, stats.json has {expected}. "
            f"{snapshot if '/' in name else RESTORE}"
        )


def same_inputs(folder: Path, stats: dict[str, Any], found: dict[str, str]) -> None:
    """Refuse a skill that was learned from other earlier skills than those that are there."""
    for name, expected in (stats.get("inputs") or {}).items():
        if found.get(name, expected) != expected:
            raise ArtefactError(
                f"{folder}/stats.json: this skill was learned after another {name}: {expected}, found {found[name]}. "
                f"Restore that, or delete {folder} and run the same command again"
            )


def same_curve(folder: Path, stats: dict[str, Any]) -> str:
    """The text of a progress.csv that is the one its stats.json speaks of."""
    path = folder / CURVE
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path}: cannot be read: {error}. {RESTORE}") from None
    is_, expected = curve_checksum(text), stats.get("curve")
    if is_ != expected and expected is not None:
        raise ArtefactError(f"{path}: is damaged: the curve's checksum is {is_}, stats.json has {expected}. {RESTORE}")
    return text


def curve_checksum(text: str) -> str:
    """Of a curve but for the times, which differ between trainings that give the same skill."""
    lines = [line.split(",") for line in text.splitlines()]
    timed = {index for index, name in enumerate(lines[0] if lines else []) if name in ELAPSED}
    kept = [[value for index, value in enumerate(line) if index not in timed] for line in lines]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


def as_recorded(path: Path) -> None:
    """Refuse a file of skills, or a snapshot, that is not the one which the stats.json of its training speaks of."""
    for folder in path.parents[:2]:
        if (folder / STATS).exists():
            stats = load_stats(folder / STATS)
            if path.relative_to(folder).as_posix() in (stats.get("checksums") or {}):
                same_checksum(folder, path.relative_to(folder).as_posix(), stats)
            return


def _read_from_earlier(job: SkillJob) -> list[str]:
    """Which files of each earlier skill this training reads."""
    read = {VISITS: job.start_step is None, REPLAY: job.replay_keep is not None}
    return [name for name in CHECKED if read.get(name, True)]


def is_done(out: Path, expected: str, files: Iterable[str]) -> bool:
    """Return True if these files exist, match their checksums and carry the stamp `expected`."""
    try:
        stats = load_stats(out / STATS)
        for name in files:
            same_checksum(out, name, stats)
        same_curve(out, stats)
        return bool(stats.get("stamp") == expected)
    except ArtefactError:
        return False


def read_stats(folder: Path) -> dict[str, Any]:
    """An earlier skill's stats.json, with the numbers that training takes from it."""
    path = folder / STATS
    stats = load_stats(path)
    for key in ("mean_consistency", "mean_diversity", "steps"):
        first = key == "mean_diversity" and stats.get("skill") == 0  # the first skill has nothing to be far from
        value = stats.get(key)
        if not (isinstance(value, int | float) and math.isfinite(value)) and not (first and value is None):
            raise ArtefactError(f"{path}: {key} is {value!r}, not a number; restore it, or delete it and run again")
    return stats
