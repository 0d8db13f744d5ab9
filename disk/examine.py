"""The state of results on disk: what is finished, half-way, damaged or left over, and what command goes on.

Everything is read: the checksums of all artefacts are compared, with each other's too, and checkpoints are looked at
as a training would. Nothing is changed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from disk.config import DEFAULT_FILES, PROJECT, Config
from disk.config import load as load_config
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.tables import check
from disk.skills import bundle, load
from disk.storage.checkpoint import verify
from disk.storage.files import checksum, load_stats, load_tensors
from disk.storage.layout import (
    CURVE,
    LEASE,
    METRICS,
    POLICY,
    RUN_FILES,
    RUN_NAME,
    SKILL_FILES,
    SKILL_NAME,
    SKILLS,
    STATE,
    STATS,
    Run,
    results_root,
)
from disk.storage.lock import holder
from disk.storage.manifest import CHECKED, RESTORE, as_recorded, same_checksum, same_curve, same_inputs
from disk.storage.provenance import code_hash


@dataclass
class Found:
    """The state of one run."""

    run: Run
    state: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Files that nothing will use."""
    stale: list[str] = field(default_factory=list)
    """Made by other code than today's."""
    complete: bool = True

    @property
    def path(self) -> Path:
        return self.run.path


@dataclass
class Report:
    runs: list[Found]
    damaged: list[str]
    """Tables of environments."""
    left: list[str]
    going_on: list[str]

    @property
    def healthy(self) -> bool:
        return not self.damaged and not any(run.damaged for run in self.runs)

    def text(self) -> str:
        lines = []
        for run in self.runs:
            lines.append(f"{run.path}: {', '.join(run.state)}")
            lines += [f"  DAMAGED: {fault}" for fault in run.damaged]
            lines += [f"  left over: {path}" for path in run.left]
        lines += [f"DAMAGED: {fault}" for fault in self.damaged]
        lines += [f"left over: {path}" for path in self.left]
        stale = [path for run in self.runs for path in run.stale]
        if stale:
            lines.append(f"made by other code than today's ({code_hash()}): {', '.join(stale)}")
            lines.append("  they are used as they are; `retrain_on_code_change: true` retrains them")
        return "\n".join([*lines, *self.going_on])


def examine(root: Path, presets: Sequence[Path] = ()) -> Report:
    """Look at everything below a results root, an environment or a run. Without presets, they are found out."""
    if not root.is_dir():
        raise ArtefactError(f"{root}: is not a directory")
    runs = [Found(Run.of(path)) for path in _runs(root)]
    config, files, whose = _configuration(root, [run.path for run in runs], presets)
    for run in runs:
        _look_at(run, config)
    inside = [run.path for run in runs]
    tables = [path for path in sorted(root.rglob("*.sha256")) if not any(path.is_relative_to(run) for run in inside)]
    damaged = [fault for path in tables for fault in _faults(check, path.with_suffix(""))]
    left = [f"{path}: a write that was killed; delete it" for path in root.glob(".*.tmp")]
    return Report(runs, damaged, left, _going_on(root, runs, config, files, whose))


def _runs(root: Path) -> list[Path]:
    paths = [root] if RUN_NAME.fullmatch(root.name) else sorted(root.rglob("seed*"))
    return [path for path in paths if path.is_dir() and RUN_NAME.fullmatch(path.name) and len(path.parts) > 2]


def _configuration(root: Path, runs: Iterable[Path], presets: Sequence[Path]) -> tuple[Config, Sequence[Path], int]:
    """The configuration that results were made with: the presets whose jobs most of their stats.json speak of."""
    if presets:
        return load_config(*presets), presets, -1
    made = [(stats, run) for run in runs for stats in (run / STATS, *run.glob("skill[0-9][0-9]/stats.json"))]
    found = [(_hash(stats), run, stats) for stats, run in made]
    others = [path for path in sorted((PROJECT / "config").glob("*.yaml")) if path not in DEFAULT_FILES]
    best: tuple[tuple[int, bool], Config, Sequence[Path]] | None = None
    for files in ([], *([path] for path in others)):
        try:
            config = load_config(*files)
        except ConfigError:
            continue
        agree = sum(digest is not None and digest == _expected(config, run, stats) for digest, run, stats in found)
        here = root.resolve().is_relative_to((PROJECT / results_root(config)).resolve()) and bool(files)
        if best is None or (agree, here) > best[0]:
            best = (agree, here), config, files
    assert best is not None
    return best[1], best[2], best[0][0]


def _hash(stats: Path) -> str | None:
    try:
        return str(load_stats(stats).get("config_hash"))
    except ArtefactError:
        return None


def _expected(config: Config, run: Path, stats: Path) -> str | None:
    """The hash of the job that a configuration has for a place in the tree."""
    place = Run.of(run)
    env, method, seed = place.env, place.method, place.seed
    try:
        if match := SKILL_NAME.fullmatch(stats.parent.name):
            return config.skill_job(env, method, seed, int(match[1])).digest()
        return config.joint_job(env, method, seed).digest()
    except ConfigError:
        return None


def _faults(look: object, *arguments: object) -> Iterator[str]:
    try:
        look(*arguments)  # type: ignore[operator]
    except ArtefactError as error:
        yield str(error)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        yield f"{arguments[0]}: is damaged ({error!r}). {RESTORE}"


def _look_at(run: Found, config: Config) -> None:
    env, method = run.run.env, run.run.method
    known = env in config.environments and method in config.methods
    if not known:
        run.left.append(f"{run.path}: the configuration has no {env} with {method}")
    chain = config.methods[method].incremental if known else any(run.path.glob("skill[0-9][0-9]"))
    if chain:
        _look_at_chain(run, config if known else None)
    else:
        _look_at_joint(run)
    for folder in sorted(run.path.glob("*checkpoint")):
        _look_at_checkpoint(run, folder)
    skills = run.path / SKILLS
    run.state.append("skills.safetensors is there" if skills.exists() else "no skills.safetensors yet")
    run.state.append("measured" if (run.path / METRICS).exists() else "not measured yet")
    run.complete &= skills.exists() and (run.path / METRICS).exists()
    for sums in sorted(run.path.rglob("*.sha256")):
        if sums.with_suffix("").exists():
            run.damaged += _faults(check, sums.with_suffix(""))
        else:
            run.left.append(f"{sums}: its table is not there")
    run.left += [f"{path}: a write that was killed; delete it" for path in sorted(run.path.rglob(".*.tmp"))]


def _look_at_chain(run: Found, config: Config | None) -> None:
    env, method, seed = run.run.env, run.run.method, run.run.seed
    present = {int(match[1]) for path in run.path.iterdir() if (match := SKILL_NAME.fullmatch(path.name))}
    wanted = config.environments[env].skills if config else max(present, default=-1) + 1
    owners = [config.owner_of(method, skill) if config else method for skill in range(max(wanted, *present, 0) + 1)]
    folders = [Run(run.run.root, env, owner, seed).skill(k) for k, owner in enumerate(owners)]
    own = [skill for skill in range(wanted) if owners[skill] == method]
    done = 0
    sums: dict[str, str] = {}
    for skill, folder in enumerate(folders):
        lacking = [name for name in SKILL_FILES if not (folder / name).exists()]
        if owners[skill] == method and folder.exists():
            if lacking and any(folder.iterdir()):
                run.left.append(f"{folder}: unfinished, without {', '.join(lacking)}; the same command makes it anew")
            elif not lacking and skill >= wanted:
                run.left.append(f"{folder}: the configuration has {wanted} skills")
            done += not lacking
            run.damaged += _skill_faults(folder, sums)
            run.stale += [str(folder)] if _is_stale(folder) else []
        sums |= {f"{folder.name}/{name}": checksum(folder / name) for name in CHECKED if (folder / name).is_file()}
    run.state.append(f"{done} of {len(own)} skills finished" if own else "all its skills are another run's")
    run.complete &= done >= len(own)
    policies, bundled = [folder / POLICY for folder in folders[:wanted]], run.path / SKILLS
    if bundled.exists() and all(path.exists() for path in policies):
        run.damaged += _faults(_same_bundle, bundled, policies)


def _skill_faults(folder: Path, earlier: dict[str, str]) -> Iterator[str]:
    if not (folder / STATS).exists():
        return
    unreadable = list(_faults(load_stats, folder / STATS))
    if unreadable:
        yield from unreadable
        return
    stats = load_stats(folder / STATS)
    for name in CHECKED:
        if (folder / name).exists():
            yield from _faults(same_checksum, folder, name, stats)
    if (folder / CURVE).exists():
        yield from _faults(same_curve, folder, stats)
    yield from _faults(same_inputs, folder, stats, earlier)


def _same_bundle(bundled: Path, policies: Sequence[Path]) -> None:
    """Raise unless a run's skills are those of its chain."""
    there, made = load(bundled), bundle(policies)
    theirs, ours = there.actor.state_dict(), made.actor.state_dict()
    if theirs.keys() != ours.keys() or not all(torch.equal(theirs[name], ours[name]) for name in ours):
        raise ArtefactError(f"{bundled}: holds other skills than the policies beside it. {RESTORE}")


def _look_at_joint(run: Found) -> None:
    lacking = [name for name in RUN_FILES if not (run.path / name).exists()]
    run.complete &= not lacking
    run.state.append("trained" if not lacking else "not trained yet")
    bundled = run.path / SKILLS
    for path in (bundled, *sorted(run.path.glob("snapshots/*.safetensors"))):
        if path.exists():
            run.damaged += _faults(load, path)
    if STATS in lacking:
        if len(lacking) < len(RUN_FILES):
            run.left.append(f"{run.path}: unfinished, without {', '.join(lacking)}; the same command makes it anew")
        return
    unreadable = list(_faults(load_stats, run.path / STATS))
    run.damaged += unreadable
    if unreadable:
        return
    stats = load_stats(run.path / STATS)
    for name in stats.get("checksums", {}):
        run.damaged += _faults(as_recorded if (run.path / name).exists() else checksum, run.path / name)
    if (run.path / CURVE).exists():
        run.damaged += _faults(same_curve, run.path, stats)
    for path in sorted(run.path.glob("snapshots/*")):
        if path.relative_to(run.path).as_posix() not in stats.get("checksums", {}):
            run.left.append(f"{path}: no snapshot of this training")
    run.stale += [str(run.path)] if _is_stale(run.path) else []


def _look_at_checkpoint(run: Found, folder: Path) -> None:
    whose = folder.name.removesuffix("checkpoint").removesuffix(".") or "training"
    if trainer := holder(folder / LEASE):
        run.state.append(f"{whose} is being trained by {trainer}")
        return
    run.complete = False
    if not (folder / STATE).exists():
        run.state.append(f"{whose} begins anew: it has not been saved yet")
        return
    try:
        _, meta = load_tensors(folder / STATE)
        verify(folder, meta)
        run.state.append(f"{whose} can go on from step {meta['step']}")
    except (ArtefactError, KeyError, TypeError, ValueError, OSError) as error:
        run.state.append(f"{whose} starts over")
        run.damaged.append(f"{error}; nothing to do: the same command notices and starts this training over")


def _is_stale(folder: Path) -> bool:
    try:
        return bool(load_stats(folder / STATS).get("code_hash") != code_hash())
    except ArtefactError:
        return False


def _going_on(root: Path, runs: Sequence[Found], config: Config, files: Sequence[Path], whose: int) -> list[str]:
    """What to type. Snakemake for a preset's own results, `disk train` for results that lie elsewhere."""
    if not runs:
        return [f"{root}: no runs"]
    names = [str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path) for path in files]
    preset = f" --configfile {shlex.join(names)}" if names else ""
    if whose == 0:
        return ["to go on: no configuration here has made these; give --configfile with the one that has"]
    home = (PROJECT / results_root(config)).resolve()
    tree = runs[0].run.root.resolve()
    if tree == home:
        return [f"to go on: snakemake --cores 2{preset}"]
    open_runs = [run for run in runs if not run.complete or run.damaged]
    lines = [
        f"to go on: python -m disk train {env} {method} --seed {seed} --results {shlex.quote(str(tree))}{preset}"
        for env, method, seed in ((found.run.env, found.run.method, found.run.seed) for found in open_runs)
    ]
    return lines or ["all of it is finished"]
