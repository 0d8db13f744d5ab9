"""The commands of `python -m disk`: each imports its room, calls it and prints what the user needs to know next.

Imports stand inside the functions, so that `--help` answers at once and threads are set before torch loads.
"""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from disk.config import Config, HierarchyJob, JointJob, SkillJob

Job = TypeVar("Job", "SkillJob", "JointJob", "HierarchyJob")


def _config(arguments: Namespace) -> Config:
    from disk.config import load

    return load(*arguments.configfile)


def train(arguments: Namespace) -> None:
    from disk.learning.run import train_run
    from disk.process import equipped
    from disk.storage.layout import results_root
    from disk.tracking.mirror import mirror_or_warn, resolve_uri, watching

    config = _config(arguments)
    tracking, root = config.tracking, arguments.results or results_root(config)
    with equipped(config.runtime, arguments.threads):
        run = train_run(
            config,
            root,
            arguments.env,
            arguments.method,
            arguments.seed,
            skills=arguments.skills,
            watch=lambda out: watching(out, tracking),
        )
    if tracking.enabled and (added := mirror_or_warn(run, resolve_uri(tracking.uri))):
        print(added)
    presets = ["--configfile", *map(str, arguments.configfile)] if arguments.configfile else []
    print(f"{run}: trained. Next: {shlex.join(['python', '-m', 'disk', 'evaluate', str(run), *presets])}")


def evaluate(arguments: Namespace) -> None:
    from disk.process import configure_torch
    from disk.sharing.card import CARD

    configure_torch(arguments.threads)
    run = arguments.run
    if isinstance(run, str):
        from disk.sharing.hub import fetch

        run = fetch(run)
    if arguments.latent_sets:
        from disk.evaluation.run import evaluate_latent_sets

        config = _config(arguments)
        print(evaluate_latent_sets(config, run, arguments.latent_sets, arguments.threads))
    elif (run / CARD).exists():
        from disk.sharing.publish import check_published

        print(check_published(run, arguments.threads))
    else:
        from disk.evaluation.run import evaluate_run
        from disk.figures.trajectories import draw_run

        config = _config(arguments)
        print(f"{evaluate_run(config, run, arguments.threads)}, {draw_run(config, run)}")


def recall(arguments: Namespace) -> None:
    from disk.evaluation.library import Library
    from disk.process import configure_torch

    configure_torch(arguments.threads)
    library = Library(arguments.runs, arguments.world, arguments.at, _config(arguments), arguments.episodes)
    print(library.text())
    if arguments.save:
        library.skills().save(arguments.save)
        print(f"{arguments.save}: {len(library.skills())} skills, for disk.SkillEnv or train-hierarchy --skills")


def doctor(arguments: Namespace) -> None:
    from disk.doctor import examine
    from disk.errors import ArtefactError
    from disk.machine import machine

    print(machine())
    if arguments.device:
        from disk.learning.compare import report as compare

        config = _config(arguments)
        print(compare(config.sac, arguments.device, config.runtime.gpu_jobs_per_device))
    if arguments.results:
        report = examine(arguments.results, arguments.configfile)
        print(report.text())
        if not report.healthy:
            raise ArtefactError(f"{arguments.results}: files are damaged; each DAMAGED above names the remedy")


def play(arguments: Namespace) -> None:
    from disk.show.video import play_run

    config = _config(arguments)
    print(play_run(config, arguments.run, arguments.skill, arguments.condition, arguments.out))


def gallery(arguments: Namespace) -> None:
    from disk.show.gallery import build_from_results
    from disk.show.live import build_beside_gallery, evaluation, first_seeds

    config = _config(arguments)
    print(build_from_results(config, arguments.results))
    if runs := first_seeds(arguments.results, config):
        native = evaluation(config, Path(os.path.abspath(arguments.results)).name)
        print(build_beside_gallery(runs, arguments.results / "gallery" / "live.html", native))


def live(arguments: Namespace) -> None:
    from disk.show import physics

    if arguments.fetch:
        print(physics.fetch())
    if not arguments.runs:
        return
    from disk.show.live import build, pages

    config = _config(arguments)
    for run, out in pages(arguments.runs, arguments.out):
        print(build([run], out, config))


def track(arguments: Namespace) -> None:
    from disk.process import runtime_and_tracking
    from disk.tracking.mirror import follow, mirror, mirror_or_warn, resolve_uri

    uri = resolve_uri(arguments.uri or runtime_and_tracking()[1].uri)
    if arguments.follow:
        follow(arguments.follow, uri, arguments.interval, arguments.parent)
    elif added := (mirror_or_warn if arguments.lenient else mirror)(arguments.results, uri):
        print(added)


def export(arguments: Namespace) -> None:
    from disk.sharing.card import CARD
    from disk.sharing.export import export

    path = export(arguments.run, arguments.format, arguments.out)
    print(f"{path}: written, loaded back and compared with the skills. {path.with_name(CARD)} describes it")


def dataset(arguments: Namespace) -> None:
    from disk.sharing.dataset import write_dataset

    print(write_dataset(arguments.run, arguments.out, arguments.id))


def publish(arguments: Namespace) -> None:
    from disk.lazy import need
    from disk.process import configure_torch
    from disk.sharing.card import CARD
    from disk.sharing.hub import push, repository
    from disk.sharing.publish import publish

    if arguments.to:  # before the minutes that measuring takes
        need("huggingface_hub")
        repository(arguments.to)
    configure_torch(arguments.threads)
    path = publish(_config(arguments), arguments.run, arguments.out, arguments.threads)
    print(f"{path}: written and measured. {path.with_name(CARD)} has the measures")
    if arguments.to:
        print(f"{push(path.parent, arguments.to)}: uploaded and compared")


def _job(kind: type[Job], text: str) -> Job:
    """Read `--job`."""
    from pydantic import ValidationError

    from disk.config.messages import explain
    from disk.errors import ConfigError

    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        said = explain(error, kind)
        raise ConfigError(f"--job: expected the settings of a {kind.__name__} as JSON:\n{said}") from None


def train_skill(arguments: Namespace) -> None:
    from disk.config import SkillJob
    from disk.process import planned_skills, training

    job, out = _job(SkillJob, arguments.job), arguments.out.parent
    with training(out, arguments.threads) as runtime:
        from disk.learning.run import learn_skill
        from disk.storage.checkpoint import clear_finished

        for policy in arguments.earlier:
            clear_finished(policy.parent)
        learn_skill(job, [policy.parent for policy in arguments.earlier], out, runtime)
    from disk.evaluation.words import announce

    announce(job, out, planned_skills(out.parent))


def train_joint(arguments: Namespace) -> None:
    from disk.config import JointJob
    from disk.process import training

    job, out = _job(JointJob, arguments.job), arguments.out.parent
    with training(out, arguments.threads) as runtime:
        from disk.learning.run import learn_jointly

        learn_jointly(job, out, runtime)
    from disk.evaluation.words import announce

    announce(job, out)


def train_hierarchy(arguments: Namespace) -> None:
    from disk.config import HierarchyJob
    from disk.process import training

    job = _job(HierarchyJob, arguments.job)
    # PPO's networks are small and skills act in NumPy: a GPU would be idle.
    with training(arguments.out, arguments.threads, device="cpu" if job.sac is None else None) as runtime:
        from disk.downstream.run import learn_hierarchy

        learn_hierarchy(job, arguments.skills, arguments.out, runtime)


def bundle(arguments: Namespace) -> None:
    from disk.learning.run import bundle_run

    bundle_run(arguments.policies, arguments.out)
