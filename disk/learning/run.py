"""Train a skill, a set of skills or a whole run: from a job to its files, however often it is killed on the way.

`resumable` is what every training shares: a lease, a stamp, a checkpoint that only the same job continues, and the
checkpoint's removal after success. The workflow calls `learn_skill` and `learn_jointly`; `train_run` does the same for
a whole run without Snakemake.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from disk.config import Config, HierarchyJob, JointJob, Runtime, SkillJob
from disk.errors import ArtefactError, ConfigError, to_blame
from disk.evaluation.run import refuse_strangers
from disk.evaluation.words import announce
from disk.learning.artefacts import writable, write_run, write_skill, write_untrained
from disk.learning.awareness import changes_table
from disk.learning.build import choose_device, joint_parts, skill_parts
from disk.learning.loop import train
from disk.learning.training import Training
from disk.skills import bundle
from disk.storage.checkpoint import Checkpoint, stamp
from disk.storage.files import load_rows, load_stats, save_json, save_text, sweep
from disk.storage.layout import (
    CHANGES,
    CHECKPOINT,
    CURVE,
    JOB,
    POLICY,
    RUN_FILES,
    SKILLS,
    STATS,
    Run,
    checkpoint_beside,
    is_finished,
    snapshot_name,
)
from disk.storage.lock import snakemake_is_gone
from disk.storage.manifest import CHECKED, identity, is_done, same_chain, same_checksum, with_projection


@contextmanager
def resumable(
    directory: Path, expected: str, done: Callable[[str], bool], replays: int = 1
) -> Iterator[Checkpoint | None]:
    """Hold the checkpoint of one training, and remove it when the training has written its files.

    `expected` is the training's stamp. Yields None if `done` finds that another process has finished the training.
    """
    checkpoint = Checkpoint(directory, expected, replays)
    try:
        if done(expected):
            checkpoint.remove()
            yield None
            return
        with to_blame(checkpoint.directory):
            yield checkpoint
        if not snakemake_is_gone():
            checkpoint.remove()
    finally:
        checkpoint.close()


def finish(training: Training, job: SkillJob | JointJob | HierarchyJob) -> None:
    """Resume a training where an earlier process of the same job stopped, and train to the end."""
    sweep(training.checkpoint.directory)
    training.resume()
    training.look_around()
    save_json(training.checkpoint.directory / JOB, job.model_dump(mode="json"))  # for whoever watches
    with until_signal() as asked_to_stop:
        train(training, asked_to_stop)


def learn_skill(job: SkillJob, earlier: Sequence[Path], out: Path, runtime: Runtime) -> None:
    """Learn the next skill after the `earlier` ones (their directories, in order) into directory `out`."""
    if len(earlier) != job.skill:
        raise ArtefactError(f"skill {job.skill:02d} needs the {job.skill} skills before it, {len(earlier)} were given")
    writable(out)
    inputs = identity(job, earlier)
    same_chain(job, earlier, out.parent)
    expected, files = stamp(job.canonical(), inputs), with_projection(job, *CHECKED)
    with resumable(checkpoint_beside(out), expected, lambda mark: _is_whole(out, mark, files)) as checkpoint:
        if checkpoint is not None:
            training = Training(skill_parts(job, earlier, choose_device(runtime.device)), runtime, checkpoint)
            finish(training, job)
            write_skill(job, training.parts, training.progress, expected, inputs, out)


def learn_jointly(job: JointJob, out: Path, runtime: Runtime) -> None:
    """Learn all skills of a run together into directory `out`. Without steps they are the paper's random skills."""
    writable(out)
    if job.steps is None:
        write_untrained(job, out)
        return
    expected, policies = stamp(job.canonical(), {}), job.skills if job.policies == "independent" else 1
    files = with_projection(job, SKILLS, *map(snapshot_name, job.snapshots or []))
    with resumable(out / CHECKPOINT, expected, lambda mark: _is_whole(out, mark, files), policies) as checkpoint:
        if checkpoint is not None:
            training = Training(joint_parts(job, choose_device(runtime.device)), runtime, checkpoint)
            finish(training, job)
            write_run(job, training.parts, training.progress, expected, training.publish(out), out)


def _is_whole(out: Path, expected: str, files: Sequence[str]) -> bool:
    sweep(out)
    return is_done(out, expected, files)


def train_run(
    config: Config,
    root: Path,
    env: str,
    method: str,
    seed: int,
    skills: int | None,
    watch: Callable[[Path], AbstractContextManager[Any]],
) -> Path:
    """Train what is missing of a run: all of it, or a chain's first `skills`.

    `watch` is entered around each skill's training.
    """
    run = Run(root, env, method, seed).path
    row, environment = config.method(method), config.environment(env)
    if not row.incremental:
        if skills is not None:
            raise ConfigError(
                f"--skills: {skills}: {method} makes all its skills together: expected a method that learns them one "
                f"after another, such as disk; or set environments.{env}.skills and leave --skills out"
            )
        joint = config.joint_job(env, method, seed)
        snapshots = [snapshot_name(step) for step in joint.snapshots or []]
        complete = all((run / name).exists() for name in (*RUN_FILES, *snapshots))
        if complete:
            _refuse_others(run, joint.digest())
        if not complete or (run / CHECKPOINT).exists():  # left by a process that was killed as its last act
            with watch(run):
                learn_jointly(joint, run, config.runtime)
            announce(joint, run)
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
            announce(job, folder, count)
    bundle_run([folder / POLICY for folder in folders], run / SKILLS)
    return run


def _refuse_others(folder: Path, expected: str) -> None:
    """Refuse a finished training that has other settings or damaged files."""
    stats = load_stats(folder / STATS)
    if stats.get("config_hash") != expected:
        raise ArtefactError(f"{folder}: was trained with other settings; delete it, or give another --results")
    for name in stats.get("checksums", {}):
        same_checksum(folder, name, stats)
    load_rows(folder / CURVE)


def bundle_run(policies: Sequence[Path], out: Path) -> None:
    """Write all skills of a chain as one file, and their curves as one with a column `skill`."""
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
        header, *rows = load_rows(policy.with_name(CURVE))
        lines = lines or [f"skill,{header}"]
        lines += [f"{skill},{row}" for row in rows]
    save_text(out.with_name(CURVE), "\n".join(lines) + "\n")
    if all("aware" in about for about in stats):
        save_text(out.with_name(CHANGES), changes_table([about["aware"] for about in stats]))


@contextmanager
def until_signal() -> Iterator[Callable[[], int]]:
    """Let SIGTERM and SIGINT ask for a stop. Yields a function that returns the signal's number, or 0.

    A second SIGINT stops at once. A second SIGTERM does not: SLURM sends it to every process of a job, and its `srun`
    passes on another, which would end the training in the middle of its last save.
    """
    asked: list[int] = []
    previous: dict[int, Any] = {}

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)
        if signal.SIGINT in previous:
            signal.signal(signal.SIGINT, previous[signal.SIGINT])

    try:
        for watched in (signal.SIGTERM, signal.SIGINT):
            previous[watched] = signal.signal(watched, ask)
    except ValueError:  # not in the main thread: whoever embeds us handles signals
        pass
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
