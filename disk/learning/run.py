"""Train whole runs without Snakemake, and bundle the skills of a chain.

The workflow does the same in rules of its own. Both write the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from disk.config import Config
from disk.errors import ArtefactError
from disk.evaluation.run import refuse_strangers
from disk.learning.loop import learn_jointly, learn_skill
from disk.skills import bundle
from disk.storage.files import load_stats, save_text, sweep
from disk.storage.layout import (
    CHECKPOINT,
    CURVE,
    POLICY,
    RUN_FILES,
    SKILLS,
    STATS,
    Run,
    checkpoint_beside,
    is_finished,
    snapshot_name,
)
from disk.storage.manifest import same_checksum, same_curve


def train_run(
    config: Config,
    root: Path,
    env: str,
    method: str,
    seed: int,
    skills: int | None,
    watch: Callable[[Path], AbstractContextManager[Any]],
) -> Path:
    """Train what is missing of a run. `watch` is entered around each skill's training."""
    run = Run(root, env, method, seed).path
    row, environment = config.method(method), config.environment(env)
    if not row.incremental:
        joint = config.joint_job(env, method, seed)
        snapshots = [snapshot_name(step) for step in joint.snapshots or []]
        complete = all((run / name).exists() for name in (*RUN_FILES, *snapshots))
        if complete:
            _refuse_others(run, joint.digest())
        if not complete or (run / CHECKPOINT).exists():  # left by a process that was killed as its last act
            with watch(run):
                learn_jointly(joint, run, config.runtime)
        return run
    count = environment.skills if skills is None else skills
    owners = [config.owner_of(method, skill) for skill in range(count)]
    folders = [Run(root, env, owner, seed).skill(skill) for skill, owner in enumerate(owners)]
    for skill, folder in enumerate(folders):
        job = config.skill_job(env, owners[skill], seed, skill)
        complete = is_finished(folder)
        if complete:
            _refuse_others(folder, job.digest())
        if not complete or checkpoint_beside(folder).exists():
            with watch(folder):
                learn_skill(job, folders[:skill], folder, config.runtime)
    bundle_run([folder / POLICY for folder in folders], run / SKILLS)
    return run


def _refuse_others(folder: Path, expected: str) -> None:
    """A finished training is left alone, if it is this one and whole."""
    stats = load_stats(folder / STATS)
    if stats.get("config_hash") != expected:
        raise ArtefactError(f"{folder}: was trained with other settings; delete it, or give another --results")
    for name in stats.get("checksums", {}):
        same_checksum(folder, name, stats)
    same_curve(folder, stats)


def bundle_run(policies: Sequence[Path], out: Path) -> None:
    """All skills of a chain as one file, and their curves as one, with a column that says whose."""
    for name in (out.name, CURVE):
        sweep(out.parent, name)
    stats = [load_stats(policy.with_name(STATS)) for policy in policies]
    seed = stats[0].get("job", {}).get("seed")
    for skill, (policy, about) in enumerate(zip(policies, stats, strict=True)):
        same_checksum(policy.parent, policy.name, about)
        found = about.get("skill", skill), about.get("job", {}).get("seed")
        if found != (skill, seed):
            raise ArtefactError(
                f"{policy}: is skill {found[0]} of seed {found[1]}, expected {skill} of seed {seed}. Restore "
                f"{policy.parent}, or delete it and run the same command again"
            )
    skills = bundle(policies)
    refuse_strangers(out, skills.meta)
    skills.save(out)
    lines: list[str] = []
    for skill, policy in enumerate(policies):
        header, *rows = same_curve(policy.parent, stats[skill]).splitlines() or [""]
        lines = lines or [f"skill,{header}"]
        lines += [f"{skill},{row}" for row in rows]
    save_text(out.with_name(CURVE), "\n".join(lines) + "\n")
