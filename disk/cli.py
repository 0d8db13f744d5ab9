"""The command line: `python -m disk …`.

`train`, `evaluate`, `play`, `gallery`, `live`, `export`, `publish`, `track` and `doctor` are for people and need no
Snakemake; `train-skill`, `train-joint`, `train-hierarchy` and `bundle` are what the workflow's rules call. Everything
heavy is imported after the arguments are read, so that `--help` answers at once and the number of threads is set before
torch loads.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from disk.errors import DiskError, Interrupted

log = logging.getLogger("disk")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    _log_to(arguments.log)
    _use_threads(arguments.threads)
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Call the command. An error that the user can mend is one line, without a traceback."""
    try:
        arguments.call(arguments)
    except Interrupted as stopped:
        log.warning("%s. Run the same command again to resume.", stopped)
        return stopped.code
    except DiskError as error:
        log.error("%s", error)
        return error.code
    except KeyboardInterrupt:
        log.warning("interrupted. Run the same command again to resume.")
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        log.exception("unexpected %s", type(error).__name__)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m disk", description="Learn skills without rewards, one after another.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int, default=1, help="threads to use (default: 1)")
    common.add_argument("--log", type=Path, help="write messages to this file too")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, call: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[common], help=text, description=text)
        sub.set_defaults(call=call)
        return sub

    train = command("train", _train, "train a run, going on from what is there")
    train.add_argument("env")
    train.add_argument("method", nargs="?", default="disk")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--skills", type=int, help="stop after this many skills")
    train.add_argument("--results", type=Path, help="where results go (default: the configuration's)")
    _add_config(train)

    evaluate = command("evaluate", _evaluate, "roll out a run's skills, measure them and draw their paths")
    evaluate.add_argument("run", type=Path, help="e.g. results/point/disk/seed0, or pretrained/ant: beside its card")
    evaluate.add_argument(
        "--latent-sets",
        type=int,
        metavar="N",
        help="instead, measure N random sets of latents of a run whose skills are a continuum (dads, metra)",
    )
    _add_config(evaluate)

    play = command("play", _play, "show a skill in MuJoCo's viewer, or write a video where there is no screen")
    play.add_argument("run", type=Path, help="e.g. results/point/disk/seed0")
    play.add_argument("--skill", type=int, default=0, help="its number, from 0: 3 is that of skill03 (default: 0)")
    play.add_argument("--condition", help="the world it is seen in (default: the environment's first condition)")
    play.add_argument("--out", type=Path, help="write a video to this file, also where there is a screen")
    _add_config(play)

    gallery = command("gallery", _gallery, "a page with all skills of an environment that have been measured")
    gallery.add_argument("results", type=Path, help="an environment's results, e.g. results/point")
    _add_config(gallery)

    _add_live(command)

    track = command("track", _track, "fill MLflow from results on disk; what is there already is left alone")
    track.add_argument("results", type=Path, nargs="?", default=Path("results"))
    track.add_argument("--uri", help="tracking store (default: the configuration's; MLFLOW_TRACKING_URI wins)")
    track.add_argument("--follow", type=Path, metavar="SKILL", help=argparse.SUPPRESS)
    track.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    track.add_argument("--interval", type=float, default=10.0, help=argparse.SUPPRESS)
    track.add_argument("--lenient", action="store_true", help="report an unreachable store, but succeed")

    export = command("export", _export, "a run's skills as a file for other programs, with a card")
    export.add_argument("run", type=Path, help="e.g. results/point/disk/seed0, or a file of skills")
    export.add_argument("--format", choices=("onnx", "safetensors"), default="onnx")
    export.add_argument("--out", type=Path, help="directory to write to (default: export/FORMAT in the run)")

    publish = command("publish", _publish, "a run's skills in 16 bits, with a card of what these do")
    publish.add_argument("run", type=Path, help="e.g. results/laptop/ant/disk/seed0")
    publish.add_argument("--out", type=Path, required=True, help="directory to write to, e.g. pretrained/ant")
    _add_config(publish)

    doctor = command("doctor", _doctor, "what this machine has; with a path, the state of the results there")
    doctor.add_argument("results", type=Path, nargs="?")
    _add_config(doctor)
    _for_the_workflow(command)
    return top


def _add_live(command: Callable[[str, Any, str], argparse.ArgumentParser]) -> None:
    live = command(
        "live", _live, "pages in which skills run in the browser: MuJoCo, the weights and the robot in one file"
    )
    live.add_argument("runs", type=Path, nargs="*", help="e.g. results/point/disk/seed0, or pretrained/*")
    live.add_argument("--out", type=Path, help="file to write, or a folder for several (default: live.html in the run)")
    live.add_argument("--fetch", action="store_true", help="fetch MuJoCo for browsers with npm, once, into the cache")
    _add_config(live)


def _for_the_workflow(command: Callable[[str, Any, str], argparse.ArgumentParser]) -> None:
    skill = command("train-skill", _train_skill, "one skill of a chain (called by the workflow)")
    skill.add_argument("--job", required=True, help="the skill's settings as JSON")
    skill.add_argument("--earlier", type=Path, nargs="*", default=[], help="policies of the skills before it, in order")
    skill.add_argument("--out", type=Path, required=True, help="the policy to write; its other files go beside it")

    joint = command("train-joint", _train_joint, "all skills of a run at once (called by the workflow)")
    joint.add_argument("--job", required=True, help="the run's settings as JSON")
    joint.add_argument(
        "--out", type=Path, required=True, help="the file of skills to write; its other files go beside it"
    )

    hierarchy = command("train-hierarchy", _train_hierarchy, "a controller over skills (called by the workflow)")
    hierarchy.add_argument("--job", required=True, help="the controller's settings as JSON")
    hierarchy.add_argument("--skills", type=Path, help="the file of skills it chooses from; none: a flat controller")
    hierarchy.add_argument("--out", type=Path, required=True, help="the curve to write; its other files go beside it")

    bundle = command("bundle", _bundle, "the skills of a chain as one file (called by the workflow)")
    bundle.add_argument("policies", type=Path, nargs="+")
    bundle.add_argument("--out", type=Path, required=True)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--configfile", type=Path, nargs="+", default=[], help="presets over config/config.yaml")


def _log_to(path: Path | None) -> None:
    log.setLevel(logging.INFO)
    log.handlers.clear()
    form = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    # On a terminal the bar says what the minute's line says: leave only what needs attention.
    handlers[0].setLevel(logging.WARNING if sys.stderr.isatty() and path else logging.INFO)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path))
    for handler in handlers:
        handler.setFormatter(form)
        log.addHandler(handler)


def _use_threads(threads: int) -> None:
    """Exactly these threads, for every library; more than one a job slows a shared machine tenfold."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def _configure_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products on CUDA need it
    torch.use_deterministic_algorithms(True)


def _settings() -> tuple[Any, Any]:
    """Runtime and tracking: from the workflow, which hands them over in DISK_RUNTIME, or the configuration.

    They are no parameters of a rule, because a changed parameter retrains.
    """
    from disk.config import Runtime, Tracking, load

    if "DISK_RUNTIME" in os.environ:
        given = json.loads(os.environ["DISK_RUNTIME"])
        return Runtime.model_validate(given["runtime"]), Tracking.model_validate(given["tracking"])
    config = load()
    return config.runtime, config.tracking


@contextmanager
def _equipped(runtime: Any, threads: int) -> Iterator[None]:
    """Hold a place on a GPU where there is one, and set torch up once that is known."""
    from disk.storage.devices import place

    with place(runtime.device, runtime.gpu_jobs_per_device):
        _configure_torch(threads)
        if runtime.device.startswith("cuda"):
            _check_cuda(runtime.device)
        yield


def _check_cuda(device: str) -> None:
    import torch

    from disk.errors import ConfigError

    if not torch.cuda.is_available():
        raise ConfigError(f"runtime.device: {device!r}, but torch {torch.__version__} finds no GPU that it can use")


def _mirrored(out: Path, tracking: Any) -> AbstractContextManager[Any]:
    if not tracking.enabled:
        return nullcontext()
    from disk.tracking.mirror import Sidecar, resolve_uri

    return Sidecar(out, resolve_uri(tracking.uri), tracking.live_after_seconds, tracking.interval_seconds)


def _train_skill(arguments: argparse.Namespace) -> None:
    from disk.config import SkillJob

    runtime, tracking = _settings()
    job, out = SkillJob.model_validate_json(arguments.job), arguments.out.parent
    with _equipped(runtime, arguments.threads), _mirrored(out, tracking):
        from disk.learning.run import learn_skill
        from disk.storage.checkpoint import clear_finished

        for policy in arguments.earlier:
            clear_finished(policy.parent)
        learn_skill(job, [policy.parent for policy in arguments.earlier], out, runtime)


def _train_joint(arguments: argparse.Namespace) -> None:
    from disk.config import JointJob

    runtime, tracking = _settings()
    job, out = JointJob.model_validate_json(arguments.job), arguments.out.parent
    with _equipped(runtime, arguments.threads), _mirrored(out, tracking):
        from disk.learning.run import learn_jointly

        learn_jointly(job, out, runtime)


def _train_hierarchy(arguments: argparse.Namespace) -> None:
    from disk.config.jobs import HierarchyJob

    runtime, tracking = _settings()
    job = HierarchyJob.model_validate_json(arguments.job)
    if job.sac is None:  # PPO's networks are small, and skills act in NumPy: a place on a GPU would stay empty
        runtime = runtime.model_copy(update={"device": "cpu"})
    with _equipped(runtime, arguments.threads), _mirrored(arguments.out, tracking):
        from disk.downstream.run import learn_hierarchy

        learn_hierarchy(job, arguments.skills, arguments.out, runtime)


def _bundle(arguments: argparse.Namespace) -> None:
    from disk.learning.run import bundle_run

    bundle_run(arguments.policies, arguments.out)


def _train(arguments: argparse.Namespace) -> None:
    from disk.config import load
    from disk.learning.run import train_run
    from disk.storage.layout import results_root

    config = load(*arguments.configfile)
    root = arguments.results or results_root(config)
    with _equipped(config.runtime, arguments.threads):
        run = train_run(
            config,
            root,
            arguments.env,
            arguments.method,
            arguments.seed,
            skills=arguments.skills,
            watch=lambda out: _mirrored(out, config.tracking),
        )
    if config.tracking.enabled:
        _mirror(run, config.tracking.uri, lenient=True)
    print(f"{run}: trained. Next: python -m disk evaluate {run}")


def _evaluate(arguments: argparse.Namespace) -> None:
    from disk.config import load
    from disk.evaluation.run import evaluate_run
    from disk.sharing.card import CARD
    from disk.sharing.publish import check

    _configure_torch(arguments.threads)
    if arguments.latent_sets is not None:
        print(_evaluate_latents(load(*arguments.configfile), arguments.run, arguments.latent_sets, arguments.threads))
    elif (arguments.run / CARD).exists():
        print(check(arguments.run, arguments.threads))
    else:
        from disk.figures.trajectories import draw_run

        config = load(*arguments.configfile)
        print(f"{evaluate_run(config, arguments.run, arguments.threads)}, {draw_run(config, arguments.run)}")


def _evaluate_latents(config: Any, run: Path, sets: int, threads: int) -> str:
    from disk.errors import ArtefactError
    from disk.evaluation.run import evaluate_latents
    from disk.learning.schedules import Prior
    from disk.skills import load
    from disk.storage.layout import Run

    place = Run.of(run.resolve())
    env, method = place.env, place.method
    skills, row = load(run), config.method(method)
    shape: Any = {"dads": "cube", "metra": "sphere"}.get(row.objective)
    size = skills.latent.shape[1]
    if shape is None or sets < 1 or (size > 1 and bool(((skills.latent == 0) | (skills.latent == 1)).all())):
        raise ArtefactError(f"{run}: --latent-sets {sets}: expected a continuum of skills and one set or more")
    drawn = [Prior(shape, size).random_set(number, len(skills)) for number in range(sets)]
    out = run / "latent_sets.csv"
    found = evaluate_latents(
        config.evaluation_job(env, method=method), skills, drawn, config.measure_job(env), out, threads
    )
    spread = found.groupby("metric", sort=False)["value"].agg(["mean", "min", "max"])
    return f"{spread.round(3).to_string()}\n{out}: {sets} random sets of {len(skills)} latents"


def _play(arguments: argparse.Namespace) -> None:
    from disk.config import load
    from disk.show.video import play_run

    config = load(*arguments.configfile)
    print(play_run(config, arguments.run, arguments.skill, arguments.condition, arguments.out))


def _gallery(arguments: argparse.Namespace) -> None:
    from disk.config import load
    from disk.show.gallery import build_from_results
    from disk.show.live import build_beside_gallery, first_seeds

    config = load(*arguments.configfile)
    print(build_from_results(config, arguments.results))
    job = config.evaluation_job(Path(os.path.abspath(arguments.results)).name)
    page = arguments.results / "gallery" / "live.html"
    print(build_beside_gallery(first_seeds(arguments.results, config), page, job))


def _live(arguments: argparse.Namespace) -> None:
    from disk.show import physics

    if arguments.fetch:
        print(physics.fetch())
    if not arguments.runs:
        return
    from disk.config import load
    from disk.show.live import build, pages

    config = load(*arguments.configfile)
    for run, out in pages(arguments.runs, arguments.out):
        print(build([run], out, config))


def _track(arguments: argparse.Namespace) -> None:
    uri = arguments.uri or _settings()[1].uri
    if not arguments.follow:
        _mirror(arguments.results, uri, arguments.lenient)
        return
    from disk.tracking.mirror import follow, resolve_uri

    follow(arguments.follow, resolve_uri(uri), arguments.interval, arguments.parent)


def _mirror(results: Path, uri: str, lenient: bool) -> None:
    from disk.errors import TrackingError
    from disk.tracking.mirror import mirror, resolve_uri

    try:
        print(mirror(results, resolve_uri(uri)))
    except TrackingError as error:
        if not lenient:
            raise
        log.warning("%s. Training and results are not affected; later: python -m disk track results/", error)


def _export(arguments: argparse.Namespace) -> None:
    from disk.sharing.export import export

    path = export(arguments.run, arguments.format, arguments.out)
    print(f"{path}: written, loaded back and compared, action for action; {path.with_name('README.md')} describes it")


def _publish(arguments: argparse.Namespace) -> None:
    from disk.config import load
    from disk.sharing.publish import publish

    _configure_torch(arguments.threads)
    path = publish(load(*arguments.configfile), arguments.run, arguments.out, arguments.threads)
    print(f"{path}: written and measured; {path.with_name('README.md')} has the measures")


def _doctor(arguments: argparse.Namespace) -> None:
    from disk.doctor import examine, machine
    from disk.errors import ArtefactError

    print(machine())
    if arguments.results:
        report = examine(arguments.results, arguments.configfile)
        print(report.text())
        if not report.healthy:
            raise ArtefactError(f"{arguments.results}: files are damaged; each DAMAGED above names the remedy")
