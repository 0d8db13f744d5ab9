"""Check that files are whole and belong together, whenever they are used.

A skill's stats.json is its manifest. It holds a checksum of itself, those of the skill's other files, and those of the
earlier skills' files that it was learned from. Files of tensors also hold a checksum of their own. An error names the
file, the expected and the found value, and the remedy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from disk.config import JointJob, SkillJob
from disk.errors import ArtefactError
from disk.skills import load
from disk.storage.files import checksum, inside, load_rows, load_stats
from disk.storage.layout import CURVE, POLICY, PROJECTION, REPLAY, STATS, VISITS

RESTORE = "Restore it, or delete it and run the same command again"
CHECKED = (POLICY, VISITS, REPLAY)
"""Files of a skill whose checksums stand in its stats.json."""
FIRST_OBJECTIVE = tuple(f"objective.{key}" for key in ("neighbours", "recent_states", "past_states", "normaliser"))
"""Settings of the objective that change the first skill of a chain, or what it records."""


def with_projection(job: SkillJob | JointJob, *files: str) -> list[str]:
    """Return a training's files whose checksums stand in its stats.json: `files`, and φ where σ is learned."""
    return [*files, *([PROJECTION] if job.projection else [])]


def identity(job: SkillJob, earlier: Sequence[Path]) -> dict[str, str]:
    """Return the checksums of what training reads from earlier skills.

    Damage is found here, not hours later.
    """
    found: dict[str, str] = {}
    for skill, folder in enumerate(earlier):
        policy, stats = load(folder / POLICY), read_stats(folder)
        world = job.world.model_dump(mode="json", exclude_none=True)
        for key, wanted in (("env", job.env), ("skill", skill), ("seed", job.seed), ("world", world)):
            if _without_nulls(policy.meta.get(key)) != wanted:
                raise ArtefactError(
                    f"{folder / POLICY}: is of {key} {policy.meta.get(key)!r}, not {wanted!r}. {RESTORE}"
                )
        same_inputs(folder, stats, found)
        for name in _read_from_earlier(job):
            same_checksum(folder, name, stats)
            found[f"{folder.name}/{name}"] = stats["checksums"][name]
        means = [stats["mean_consistency"], stats["mean_diversity"]]
        released = job.objective.normaliser == "released"
        if released and "paid" not in stats:
            raise ArtefactError(f"{folder / STATS}: has no `paid`; normaliser `released` needs it for α and β")
        if job.normaliser is not None:
            found["normaliser"] = json.dumps(stats.get("normaliser"))
        found["before"] = json.dumps([*means, stats["paid"]] if released else means)
    if job.budget:
        found["spent"] = json.dumps(
            [[stats["steps"], stats.get("own_diversity")] for stats in map(read_stats, earlier)]
        )
    if job.aware:
        found["aware"] = json.dumps([read_stats(folder).get("aware") for folder in earlier], sort_keys=True)
    return found


def same_chain(job: SkillJob, earlier: Sequence[Path], run: Path) -> None:
    """Refuse earlier skills of the same run that were trained with other settings than `job` has."""
    for folder in earlier:
        stats = read_stats(folder)
        if folder.parent != run or not isinstance(stats.get("job"), dict):  # a fork begins with another run's skills
            continue
        wanted, found = _shared_settings(job.model_dump(mode="json")), _shared_settings(stats["job"])
        for key in wanted.keys() & found.keys():
            if wanted[key] != found[key]:
                raise ArtefactError(
                    f"{folder / STATS}: this skill was trained with {key} {found[key]!r}, the next one has "
                    f"{wanted[key]!r}. {RESTORE}"
                )


def _shared_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Settings that all skills of a chain have in common. The first skill lacks those about earlier skills."""
    first = job.get("skill") == 0
    later = () if first else ("replay_keep", "own_share", "warm")
    names = ("sac", "replay_capacity", "adaptive", "budget", "aware", "code", "normaliser", "projection", *later)
    objective = {f"objective.{key}": value for key, value in (job.get("objective") or {}).items()}
    if objective.get("objective.normaliser") == "running":  # the first skill has none, and later ones have its window
        objective["objective.normaliser"] = None
    # Only the second skill uses second_beta.
    of_all = FIRST_OBJECTIVE if first else objective.keys() - {"objective.second_beta"}
    objective = {key: value for key, value in objective.items() if key in of_all}
    return {**{name: _without_nulls(job.get(name)) for name in names}, **objective}


def _without_nulls(value: Any) -> Any:
    """Leave out settings that are null, as a job's canonical JSON does: a new setting changes no finished skill."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def undeclared(name: str) -> bool:
    """Return True for files that the workflow does not know of, snapshots and φ: stats.json comes with them."""
    return "/" in name or name == PROJECTION


def same_checksum(folder: Path, name: str, stats: dict[str, Any]) -> None:
    """Refuse a file that does not match its checksum in stats.json."""
    path = inside(folder, name)
    found, expected = checksum(path), stats.get("checksums", {}).get(name)
    if found != expected:
        whole = f"Restore it, or delete {folder / STATS} and run the same command again"
        raise ArtefactError(
            f"{path}: is damaged, or not of this skill: its checksum is {found}, stats.json has {expected}. "
            f"{whole if undeclared(name) else RESTORE}"
        )


def same_inputs(folder: Path, stats: dict[str, Any], found: dict[str, str]) -> None:
    """Refuse a skill that was learned after other skills than those in place, whose checksums are `found`."""
    for name, expected in stats.get("inputs", {}).items():
        if found.get(name, expected) != expected:
            raise ArtefactError(
                f"{folder / STATS}: this skill was learned after another {name}: {expected}, found {found[name]}. "
                f"Restore that, or delete {folder} and run the same command again"
            )


def as_recorded(path: Path) -> None:
    """Refuse a file of skills, or a snapshot, that does not match its checksum in its run's stats.json."""
    for folder in path.parents[:2]:
        if (folder / STATS).exists():
            stats = load_stats(folder / STATS)
            name = path.relative_to(folder).as_posix()
            if name in stats.get("checksums", {}):
                same_checksum(folder, name, stats)
            return


def _read_from_earlier(job: SkillJob) -> list[str]:
    """Names of the files of each earlier skill that this training reads."""
    read = {VISITS: job.start_step is None or job.aware is not None, REPLAY: job.replay_keep is not None}
    return [name for name in CHECKED if read.get(name, True)]


def is_done(out: Path, expected: str, files: Iterable[str]) -> bool:
    """Return True if these files exist, match their checksums and carry the stamp `expected`."""
    try:
        stats = load_stats(out / STATS)
        for name in files:
            same_checksum(out, name, stats)
        load_rows(out / CURVE)
        return bool(stats.get("stamp") == expected)
    except ArtefactError:
        return False


def read_stats(folder: Path) -> dict[str, Any]:
    """Read the stats.json of an earlier skill. Refuse one without the numbers that training takes from it."""
    path = folder / STATS
    stats = load_stats(path)
    for key in ("mean_consistency", "mean_diversity", "steps"):
        first = key == "mean_diversity" and stats.get("skill") == 0  # the first skill has nothing to be far from
        value = stats.get(key)
        if not (isinstance(value, int | float) and math.isfinite(value)) and not (first and value is None):
            raise ArtefactError(f"{path}: {key} is {value!r}, not a number; restore it, or delete it and run again")
    return stats
