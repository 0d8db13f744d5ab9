"""The command line: `python -m disk …`.

`train`, `evaluate`, `recall`, `play`, `gallery`, `live`, `export`, `dataset`, `publish`, `track` and `doctor` are for
people and need no Snakemake. The workflow's rules call `train-skill`, `train-joint`, `train-hierarchy` and `bundle`.
This module reads the arguments and reports errors; `disk.commands` does the work.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from disk import __version__, commands
from disk.errors import DiskError, Interrupted
from disk.lazy import missing

AddCommand = Callable[..., argparse.ArgumentParser]
log = logging.getLogger("disk")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    from disk.process import use_threads

    use_threads(arguments.threads)
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Call the command and return its exit code. Errors that a user can mend are one line, without a traceback."""
    from disk.process import log_to

    try:
        log_to(arguments.log)
        arguments.call(arguments)
    except Interrupted as stopped:
        log.warning("%s. Run the same command again to resume.", stopped)
        return stopped.code
    except KeyboardInterrupt:
        log.warning("interrupted. Run the same command again to resume.")
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        known = missing(error.name) if isinstance(error, ModuleNotFoundError) else error
        if isinstance(known, DiskError):
            log.error("%s", known)
            return known.code
        log.exception("unexpected %s", type(error).__name__)
        return 1
    return 0


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        if "required" in message and "--configfile" in sys.argv:
            message += " (--configfile takes every path after it: write it last)"
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help\n")


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: expected a whole number, {least} or more")
        return int(text)

    return number


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text}: expected cpu, cuda, or one GPU, such as cuda:0")
    return text


def _place(text: str) -> Path | str:
    """A path, or an address of a hub, whose slashes a path would lose."""
    return text if text.startswith("hf://") else Path(text)


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="python -m disk", description="Learn skills without rewards, one after another.")
    top.add_argument("--version", action="version", version=f"disk {__version__}")
    common = _Parser(add_help=False)
    common.add_argument("--threads", type=_at_least(1), default=1, help="threads to use (default: 1)")
    common.add_argument("--log", type=Path, help="write messages to this file too")
    config = _Parser(add_help=False)
    config.add_argument("--configfile", type=Path, nargs="+", default=[], help="presets over config/config.yaml")
    added = top.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, call: Callable[[argparse.Namespace], None], text: str, presets: bool = False
    ) -> argparse.ArgumentParser:
        sub = added.add_parser(name, parents=[common, config] if presets else [common], help=text, description=text)
        sub.set_defaults(call=call)
        return sub

    _add_learning(command)
    _add_showing(command)
    _add_sharing(command)
    _add_workflow(command)
    return top


def _add_learning(command: AddCommand) -> None:
    train = command("train", commands.train, "train a run, or resume it", presets=True)
    train.add_argument("env")
    train.add_argument("method", nargs="?", default="disk")
    train.add_argument("--seed", type=_at_least(0), default=0)
    train.add_argument("--skills", type=_at_least(1), help="stop after this many skills")
    train.add_argument("--results", type=Path, help="where results go (default: the configuration's)")

    evaluate = command("evaluate", commands.evaluate, "roll out, measure and draw a run's skills", presets=True)
    evaluate.add_argument(
        "run", type=_place, help="a run, e.g. results/point/disk/seed0, or published skills, also hf://"
    )
    evaluate.add_argument(
        "--latent-sets",
        type=_at_least(1),
        metavar="N",
        help="instead, measure N random sets of latents of a run with a continuum of skills (dads, metra)",
    )

    recall = command("recall", commands.recall, "list what stored skills do in a world as it is", presets=True)
    recall.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="runs, files of skills or published folders")
    recall.add_argument("--world", required=True, metavar="NAME", help="an environment, e.g. ant_broken")
    recall.add_argument(
        "--at", type=_at_least(0), nargs="+", default=[], metavar="STEP", help="steps (default: of its conditions)"
    )
    recall.add_argument("--episodes", type=_at_least(1), help="episodes a skill (default: the configuration's)")
    recall.add_argument("--save", type=Path, metavar="FILE", help="write the skills that fit as one file of skills")

    doctor = command("doctor", commands.doctor, "describe this machine, and the state of results", presets=True)
    doctor.add_argument("results", type=Path, nargs="?", help="results to check, e.g. results/point")
    doctor.add_argument("--device", type=_device, help="compare the update on this device with the CPU's, e.g. cuda")


def _add_showing(command: AddCommand) -> None:
    play = command("play", commands.play, "show a skill in MuJoCo's viewer, or write a video", presets=True)
    play.add_argument("run", type=Path, help="e.g. results/point/disk/seed0")
    play.add_argument("--skill", type=int, default=0, help="the skill's index: 3 is skill03 (default: 0)")
    play.add_argument("--condition", help="condition of the environment (default: its first)")
    play.add_argument("--out", type=Path, help="write a video to this file (default: only without a screen)")

    gallery = command(
        "gallery", commands.gallery, "write a page with all measured skills of an environment", presets=True
    )
    gallery.add_argument("results", type=Path, help="an environment's results, e.g. results/point")

    live = command("live", commands.live, "write pages that simulate skills in the browser", presets=True)
    live.add_argument("runs", type=Path, nargs="*", help="e.g. results/point/disk/seed0, or pretrained/*")
    live.add_argument("--out", type=Path, help="file to write, or a folder for several (default: live.html in the run)")
    live.add_argument("--fetch", action="store_true", help="download MuJoCo for browsers with npm, once")


def _add_sharing(command: AddCommand) -> None:
    track = command("track", commands.track, "add results to MLflow that it does not have yet")
    track.add_argument("results", type=Path, nargs="?", default=Path("results"))
    track.add_argument("--uri", help="tracking store (default: the configuration's; MLFLOW_TRACKING_URI wins)")
    track.add_argument("--follow", type=Path, metavar="SKILL", help=argparse.SUPPRESS)
    track.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    track.add_argument("--interval", type=float, default=10.0, help=argparse.SUPPRESS)
    track.add_argument("--lenient", action="store_true", help="report an unreachable store, but succeed")

    export = command("export", commands.export, "write a run's skills for other programs, with a card")
    export.add_argument("run", type=Path, help="e.g. results/point/disk/seed0, or a file of skills")
    export.add_argument("--format", choices=("onnx", "safetensors"), default="onnx")
    export.add_argument("--out", type=Path, help="folder to write to (default: export/FORMAT in the run)")

    dataset = command("dataset", commands.dataset, "write a chain's transitions as a Minari data set")
    dataset.add_argument("run", type=Path, help="e.g. results/point_broken/disk/seed0")
    dataset.add_argument("--out", type=Path, help="folder of data sets (default: export/minari in the run)")
    dataset.add_argument("--id", help="name of the data set (default: disk/ENV/METHOD-seedSEED-v0)")

    publish = command("publish", commands.publish, "write a run's skills in 16 bits, with a card", presets=True)
    publish.add_argument("run", type=Path, help="e.g. results/laptop/ant/disk/seed0")
    publish.add_argument("--out", type=Path, required=True, help="folder to write to, e.g. pretrained/ant")
    publish.add_argument("--to", metavar="hf://OWNER/NAME", help="also upload that folder to a model hub")


def _add_workflow(command: AddCommand) -> None:
    skill = command("train-skill", commands.train_skill, "train one skill of a chain (called by the workflow)")
    skill.add_argument("--job", required=True, help="the skill's settings as JSON")
    skill.add_argument("--earlier", type=Path, nargs="*", default=[], help="policies of the earlier skills, in order")
    skill.add_argument("--out", type=Path, required=True, help="policy to write, with other files beside it")

    joint = command("train-joint", commands.train_joint, "train all skills of a run together (called by the workflow)")
    joint.add_argument("--job", required=True, help="the run's settings as JSON")
    joint.add_argument("--out", type=Path, required=True, help="file of skills to write, with other files beside it")

    hierarchy = command("train-hierarchy", commands.train_hierarchy, "train a controller (called by the workflow)")
    hierarchy.add_argument("--job", required=True, help="the controller's settings as JSON")
    hierarchy.add_argument("--skills", type=Path, help="file of skills to choose from; none: a flat controller")
    hierarchy.add_argument("--out", type=Path, required=True, help="curve to write, with other files beside it")

    bundle = command("bundle", commands.bundle, "join the skills of a chain into one file (called by the workflow)")
    bundle.add_argument("policies", type=Path, nargs="+")
    bundle.add_argument("--out", type=Path, required=True)
