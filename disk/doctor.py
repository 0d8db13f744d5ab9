"""`python -m disk doctor RESULTS`: the state of results on disk.

The audit reads everything and changes nothing. It compares all checksums, and examines checkpoints as a training would.
For each run it lists what is finished, unfinished, damaged or left over. It ends with the commands that continue.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from disk.config import DEFAULT_FILES, FLAT, PROJECT, SHIPPED, Config, targets
from disk.config import load as load_config
from disk.downstream.run import read_controller
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.tables import COLUMNS, read_csv, read_rollouts
from disk.evaluation.words import skill_label
from disk.figures.catalogue import environments, figures_of, runs_of
from disk.skills import bundle, load
from disk.storage import layout
from disk.storage.checkpoint import verify
from disk.storage.files import checksum, load_rows, load_stats, load_tensors
from disk.storage.layout import CURVE, HAUSDORFF, METRICS, SKILLS, STATS, SUMMARY, Run
from disk.storage.lock import holder
from disk.storage.manifest import CHECKED, RESTORE, same_checksum, same_inputs, undeclared
from disk.storage.provenance import code_hash

UNKNOWN = "no preset in config/ made these; give --configfile with the one that did"
NO_RUNS = "no runs here; a run is a folder like results/point/disk/seed0"
PUBLISHED = "published skills, not a run; `python -m disk evaluate {}` compares them with their card"
Preset = tuple[Sequence[Path], Config]


@dataclass
class Audit:
    """The state of one run, or of a tree's tables."""

    path: Path
    state: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Files that nothing will use."""
    codes: dict[str, object] = field(default_factory=dict)
    """The code hash of each training, by its folder."""
    again: list[Path] = field(default_factory=list)
    """Damaged files, and missing ones from which other files were made. Snakemake does not make these by itself."""
    trained: bool = True

    def check(self, target: Path, look: Callable[..., object], *arguments: Any) -> bool:
        """Return True if `look` accepts its arguments. Otherwise note the damage; making `target` again mends it."""
        try:
            look(*arguments)
            return True
        except ArtefactError as error:
            self.damaged.append(str(error))
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            self.damaged.append(f"{target}: is damaged ({error!r}). {RESTORE}")
        self.again += [target] if target not in self.again else []
        return False


@dataclass
class Report:
    audits: list[Audit]
    commands: list[str]

    @property
    def healthy(self) -> bool:
        return not any(found.damaged for found in self.audits)

    def text(self) -> str:
        today, lines = code_hash(), list[str]()
        for found in self.audits:
            lines += [f"{found.path}: {', '.join(found.state)}"] if found.state else []
            lines += [f"  DAMAGED: {fault}" for fault in found.damaged]
            lines += [f"  left over: {path}" for path in found.left]
        stale = [path for found in self.audits for path, code in found.codes.items() if code != today]
        if stale:
            lines.append(f"made by other code than today's ({today}): {', '.join(stale)}")
            lines.append("  they are used as they are; `retrain_on_code_change: true` retrains them")
        return "\n".join([*lines, *self.commands])


def examine(root: Path, presets: Sequence[Path] = ()) -> Report:
    """Examine all results below a folder. Without `presets`, find out for each tree which preset made it."""
    if not root.is_dir():
        raise ArtefactError(f"{root}: is not a directory")
    known, report, runs = _presets(presets), Report([], []), runs_below(root)
    for tree in sorted({run.root for run in runs}):
        own = [run for run in runs if run.root == tree]
        preset = known[0] if presets else _made_by(tree, own, known)
        audits = [*(audit(run, preset and preset[1]) for run in own), Audit(tree)]
        for path in sorted(path for name in (HAUSDORFF, SUMMARY) for path in tree.glob(f"*/{name}")):
            if path.is_relative_to(root):
                audits[-1].check(path, read_csv, path)
        report.audits += audits
        report.commands += _commands(root, audits, *preset) if preset else [f"{tree}: {UNKNOWN}"]
    packs = [path.parent for path in sorted(root.rglob(SKILLS))] if not runs else []
    report.commands += [f"{path}: {PUBLISHED.format(shlex.quote(str(path)))}" for path in packs]
    report.commands += [f"{root}: {NO_RUNS}"] if not runs and not packs else []
    return report


def runs_below(root: Path) -> list[Run]:
    paths = [root] if layout.RUN_NAME.fullmatch(root.name) else sorted(root.rglob("seed*"))
    runs = [path for path in paths if path.is_dir() and layout.RUN_NAME.fullmatch(path.name)]
    return [Run.of(path) for path in runs if len(path.parts) > 2]


def _presets(given: Sequence[Path]) -> list[Preset]:
    found: list[Preset] = [(given, load_config(*given))]
    for path in () if given else sorted({*SHIPPED.glob("*.yaml")} - {*DEFAULT_FILES}):
        with suppress(ConfigError):
            found.append((targets.layers(path), load_config(*targets.layers(path))))
    return found


def _made_by(tree: Path, runs: Sequence[Run], presets: Sequence[Preset]) -> Preset | None:
    """Return the preset that trained most of these runs, by the job hashes in their stats.json; None if none did.

    Presets with the same jobs are told apart by the place they write to, then by the number of skills.
    """

    def rank(preset: Preset) -> tuple[int, bool, int]:
        files, config = preset
        found = [(run, stats) for run in runs for stats in (run.path / STATS, *run.path.glob(f"skill*/{STATS}"))]
        own = [run for run in runs if run.env in config.environments and run.method in config.methods]
        absent = sum(not run.skill(k).exists() for run in own for k in range(config.skills_of(run.env, run.method)))
        return sum(_is_of(config, *each) for each in found), bool(files) and tree.resolve() == _home(config), -absent

    best = max(presets, key=rank)
    return best if rank(best)[0] else None


def _home(config: Config) -> Path:
    return (PROJECT / layout.results_root(config)).resolve()


def _is_of(config: Config, run: Run, stats: Path) -> bool:
    """Return True if a configuration has the job that left this stats.json."""
    place, skill = (run.env, run.method, run.seed), layout.SKILL_NAME.fullmatch(stats.parent.name)
    try:
        job = config.skill_job(*place, int(skill[1])) if skill else config.joint_job(*place)
        return bool(load_stats(stats)["config_hash"] == job.digest())
    except (ArtefactError, ConfigError, KeyError):
        return False


def audit(run: Run, config: Config | None) -> Audit:
    """Examine one run. Without a configuration, it has as many skills as there are."""
    found, path = Audit(run.path), run.path
    _audit_controllers(found, path / layout.HIERARCHY)
    if run.method == FLAT:  # it has no skills
        return found
    skills, metrics, table = path / SKILLS, path / METRICS, run.root / run.env / HAUSDORFF
    if config and not (run.env in config.environments and run.method in config.methods):
        found.left.append(f"{path}: the configuration has no {run.env} with {run.method}")
        config = None
    readable = skills.exists() and found.check(skills, load, skills)
    if config.methods[run.method].incremental if config else any(path.glob("skill[0-9][0-9]")):
        policies = _audit_chain(found, run, config)
        if readable and all(policy.exists() for policy in policies):
            found.check(skills, _same_bundle, skills, policies)
    else:
        found.trained = _audit_training(found, path, layout.RUN_FILES, {}, needed=metrics.exists())
        found.state.append("trained" if found.trained else "not trained yet")
    for folder in sorted(path.glob(f"*{layout.CHECKPOINT}")):
        _audit_checkpoint(found, folder)
    found.trained &= skills.exists()
    found.state.append(f"{SKILLS} is there" if skills.exists() else f"no {SKILLS} yet")
    found.state.append("measured" if metrics.exists() else "not measured yet")
    found.again += [file for file, later in ((skills, metrics), (metrics, table)) if later.exists() > file.exists()]
    for rollouts in sorted(path.glob("rollouts/*.parquet")):
        found.check(rollouts, read_rollouts, rollouts)
    for measured in sorted(file for file in path.glob("*.csv") if file.name in COLUMNS):
        found.check(measured, read_csv, measured)
    found.left += [f"{file}: a killed write; delete it" for file in sorted(path.rglob(".*.tmp"))]
    return found


def _audit_chain(found: Audit, run: Run, config: Config | None) -> list[Path]:
    """Examine the skills of a chain. Return the policies that its file of skills is made from."""
    present = {int(match[1]) for path in run.path.iterdir() if (match := layout.SKILL_NAME.fullmatch(path.name))}
    wanted = config.skills_of(run.env, run.method) if config else max(present, default=-1) + 1
    owners = [config.owner_of(run.method, k) if config else run.method for k in range(max(wanted - 1, *present, 0) + 1)]
    folders = [Run(run.root, run.env, owner, run.seed).skill(skill) for skill, owner in enumerate(owners)]
    own, done, sums = owners[:wanted].count(run.method), 0, dict[str, str]()
    for skill, folder in enumerate(folders):
        if owners[skill] == run.method:
            needed = skill < wanted and (run.path / SKILLS).exists()
            finished = _audit_training(found, folder, layout.SKILL_FILES, sums, needed)
            done += finished
            if finished and skill >= wanted:
                found.left.append(f"{folder}: the configuration has {wanted} skills")
        sums |= {f"{folder.name}/{name}": checksum(folder / name) for name in CHECKED if (folder / name).is_file()}
    count = f"{done} of {own}" if config else f"{done}"
    found.state.append(f"{count} skills finished" if own else "all its skills are another run's")
    found.trained &= done >= own
    return [folder / layout.POLICY for folder in folders[:wanted]]


def _audit_training(found: Audit, folder: Path, names: Sequence[str], earlier: dict[str, str], needed: bool) -> bool:
    """Compare a training's files with its stats.json and the `earlier` skills' checksums. Return True if none lacks."""
    lacking, file = [name for name in names if not (folder / name).exists()], folder / STATS
    found.again += [folder / name for name in lacking[:1] if needed]
    if 0 < len(lacking) < len(names):
        found.left.append(f"{folder}: unfinished, without {', '.join(lacking)}")
    if STATS in lacking or not found.check(file, load_stats, file):
        return not lacking
    stats = load_stats(file)
    sums = stats.get("checksums", {})
    for name in sums:
        if undeclared(name) or name not in lacking:
            found.check(file if undeclared(name) else folder / name, same_checksum, folder, name, stats)
    if CURVE not in lacking:
        found.check(folder / CURVE, load_rows, folder / CURVE)
    found.check(file, same_inputs, folder, stats, earlier)
    for path in sorted(folder.glob("snapshots/*")):
        if path.relative_to(folder).as_posix() not in sums:
            found.left.append(f"{path}: no snapshot of this training")
    found.codes[str(folder)] = stats.get("code_hash")
    return not lacking


def _audit_controllers(found: Audit, folder: Path) -> None:
    """Compare the files of each controller with the checksums in its JSON, and examine the checkpoints."""
    written = sorted(folder.glob("seed*.json"))
    for file in written:
        if found.check(file, read_controller, file):
            about = read_controller(file)
            lacking = [name for name in about["checksums"] if not (folder / name).exists()]
            found.left += [f"{file}: unfinished, without {', '.join(lacking)}"] if lacking else []
            for name in sorted(about["checksums"].keys() - lacking):
                found.check(folder / name, same_checksum, folder, name, about)
    for checkpoint in sorted(folder.glob(f"*.{layout.CHECKPOINT}")):
        _audit_checkpoint(found, checkpoint)
    found.state += [f"{len(written)} controllers" if len(written) > 1 else "1 controller"] if written else []


def _same_bundle(bundled: Path, policies: Sequence[Path]) -> None:
    """Refuse a run's file of skills if it differs from the policies of its chain."""
    found, expected = load(bundled).actor.state_dict(), bundle(policies).actor.state_dict()
    if found.keys() != expected.keys() or not all(torch.equal(found[name], expected[name]) for name in expected):
        raise ArtefactError(f"{bundled}: holds other skills than the policies beside it. {RESTORE}")


def _audit_checkpoint(found: Audit, folder: Path) -> None:
    of_skills, number = folder.parent.name != layout.HIERARCHY, layout.SKILL_NAME.match(folder.name)
    name = skill_label(int(number[1])) if number else "training" if of_skills else f"controller {folder.stem}"
    if trainer := holder(folder / layout.LEASE):
        found.state.append(f"{name} is being trained by {trainer}")
        return
    found.trained &= not of_skills
    if not (folder / layout.STATE).exists():
        found.state.append(f"{name} restarts from step 0: nothing is saved yet")
        return
    try:
        _, meta = load_tensors(folder / layout.STATE)
        verify(folder, meta)
        found.state.append(f"{name} can resume from step {meta['step']}")
    except (ArtefactError, KeyError, TypeError, ValueError, OSError) as error:
        found.state.append(f"{name} restarts from step 0")
        found.damaged.append(f"{error}; nothing to do: the same command notices and restarts this training")


def _commands(root: Path, audits: Sequence[Audit], files: Sequence[Path], config: Config) -> list[str]:
    """Say what to type: Snakemake for results where a preset writes them, `python -m disk` for others."""
    tree, runs, lines = audits[-1].path, audits[:-1], []
    names = shlex.join(str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path) for path in files)
    option = f" --configfile {names}" if files else ""
    if tree.resolve() != _home(config):
        for found in (found for found in runs if Run.of(found.path).method != FLAT):  # `train` makes no controllers
            run, path = Run.of(found.path), shlex.quote(str(found.path))
            train = f"train {run.env} {run.method} --seed {run.seed} --results {shlex.quote(str(tree))}"
            if found.damaged or not (found.trained and (found.path / METRICS).exists()):
                command = f"evaluate {path}" if found.trained and not found.damaged else train
                lines.append(f"to continue: python -m disk {command}{option}")
        return lines or [f"{tree}: everything is finished"]
    again = [path for found in audits for path in found.again]
    if again:
        targets = shlex.join(str(layout.results_root(config) / path.relative_to(tree)) for path in again)
        lines.append(f"to make missing or damaged files: snakemake {targets} --forcerun {targets} --cores 2{option}")
    wanted = [tree / name for env in environments(config) for name in (*figures_of(config, env), f"{env}/{SUMMARY}")]
    wanted += [Run(tree, env, *run).path / METRICS for env in environments(config) for run in runs_of(config, env)]
    absent = [path for path in wanted if path.is_relative_to(root) and not path.exists() and path not in again]
    if absent or not all(found.trained or found.again for found in runs):
        lines.append(f"to continue: snakemake --cores 2{option}")
    return lines or [f"{tree}: everything is finished"]
