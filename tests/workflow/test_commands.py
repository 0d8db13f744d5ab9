"""Every command of README and docs: run, planned or at least parsed, as it stands on the page.

A shell that finds no program on its PATH reads each block and each inline command. What it would have started comes
back as a list of words. Then:

- Snakemake plans its commands, all with the same options in one dry run.
- Commands of `python -m disk` run on small runs that lie where the pages say. Those that train for hours, need a screen
  or measure at full length resolve their arguments and their configuration instead.
- Make plans its targets.
- Commands of other programs are parsed, and the files and options that they name must exist.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
import torch
import yaml
from conftest import PROJECT, once, raw_config

from disk.cli import main, parser

PAGES = sorted(
    path.relative_to(PROJECT).as_posix()
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "config/*.md", "pretrained/*.md", "pretrained/*/*.md")
    for path in PROJECT.glob(pattern)
)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PROGRAMS = ("apt-get", "make", "mlflow", "npm", "pip", "python", "sbatch", "snakemake", "squeue", "ssh")
INLINE = re.compile(rf"`((?:{'|'.join(PROGRAMS)})[\w./-]* [^`]+)`")
RECORDER = r"""
command_not_found_handle() { local one; printf -v one '%s\x1f' "$@"; printf '%s\x1e' "$one" >&3; }
cd() { command_not_found_handle cd "$@"; }
source() { command_not_found_handle source "$@"; }
EDITOR=editor
"""
ELSEWHERE = ("apptainer", "apt-get", "cd", "editor", "git", "ls", "npm", "pip", "pip-audit", "podman", "pre-commit",
             "sbatch", "source", "squeue", "ssh", "tmux")  # fmt: skip
"""Programs of the reader's machine or cluster: the shell parses their commands, nothing starts them."""
PLANNED = {"--profile", "--config", "--configfile", "--directory"}
"""Options of Snakemake that a dry run has as they stand."""
UNPLANNED = {
    "-n": "every command is planned",
    "--": "targets come first",
    "--cores": "one will do",
    "--quiet": "the plan is read",
    "--sdm": "even a plan needs apptainer itself",
    "--lint": "make lint does it",
    "--unlock": "nothing is locked",
}
"""Options that it has not, and why."""
HOURS = ("train",)
LOCKS = ("requirements.lock", "requirements-torch.lock")
SCREEN = ("play",)


@dataclass(frozen=True)
class Call:
    """One command of a page, as the words that the shell makes of it."""

    page: str
    words: tuple[str, ...]
    folder: Path
    """Where the shell read it. Files that the page writes are there."""

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, small_runs: dict[str, Path]) -> Path:
    """A copy of the workflow, README's rows added, with small runs in the places that the pages name."""

    def make(folder: Path) -> None:
        for name in ("workflow", "config", "profiles", "pretrained", "benchmarks"):
            shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Snakefile", "Makefile", "pyproject.toml", *LOCKS, "slurm", "gpu"):
            shutil.copy(PROJECT / name, folder / name, follow_symlinks=False)
        for method, run in small_runs.items():
            for root in ("results/point", "results/quick/point"):
                shutil.copytree(run, folder / root / method / "seed0")
        for env in ("ant", "ant_broken"):
            shutil.copytree(PROJECT / "pretrained" / env, folder / "results" / env / "disk/seed0")
            (folder / "results" / env / "disk/seed0/README.md").unlink()
        mine = "".join(blocks("README.md", "yaml"))
        (folder / "mine.yaml").write_text(mine)
        for key, name in {"environments": "envs.yaml", "methods": "methods.yaml"}.items():  # other pages put rows there
            with (folder / "config" / name).open("a") as file:
                file.write(indent(yaml.safe_dump(yaml.safe_load(mine)[key]), "  "))

    return once(tmp_path_factory, "documented", make)


def blocks(page: str, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall((PROJECT / page).read_text()) if name == language]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """Every command of every page, each once."""
    folder, found = tmp_path_factory.mktemp("shell"), []
    (folder / "pretrained").symlink_to(PROJECT / "pretrained")
    for page in PAGES:
        prose = BLOCK.sub("", (PROJECT / page).read_text())
        inline = [" ".join(text.split()) for text in INLINE.findall(prose)]
        for text in [*blocks(page, "bash"), *inline]:
            found += [Call(page, words, folder) for words in read_by_a_shell(text, folder, page)]
    first: dict[tuple[str, ...], Call] = {}
    for call in found:
        first.setdefault(call.words, call)
    return list(first.values())


def read_by_a_shell(text: str, folder: Path, page: str) -> list[tuple[str, ...]]:
    """Return the words of each command that a block starts. Nothing is found on the PATH, so nothing starts."""
    readable, writable = os.pipe()
    shell = subprocess.run(
        ["/bin/bash", "-u", "-c", f"exec 3>&{writable}\n{RECORDER}\n{text}"],
        cwd=folder, env={"PATH": "/nowhere"}, pass_fds=[writable], capture_output=True, text=True, check=False,
    )  # fmt: skip
    os.close(writable)
    with os.fdopen(readable) as pipe:
        recorded = pipe.read()
    assert shell.returncode == 0, f"{page}: {text}\n{shell.stderr}"
    return [undecorated(command.split("\x1f")[:-1]) for command in recorded.split("\x1e")[:-1]]


def undecorated(words: list[str]) -> tuple[str, ...]:
    """Drop `env time -v` before a command."""
    return tuple(words[3:] if words[:3] == ["env", "time", "-v"] else words)


def kind(call: Call) -> str:
    """Return how a command is tried; fail for one that belongs nowhere."""
    match call.words:
        case ("snakemake", *_):
            return "snakemake"
        case ("python", "-m", "disk", *_):
            return "disk"
        case ("make", *_):
            return "make"
        case ("python", script, *_) if script.endswith(".py"):
            return "script"
        case ("mlflow", "server", *_):
            return "mlflow"
        case (program, *_) if program in ELSEWHERE or (PROJECT / program).is_file():
            return "elsewhere"
    raise AssertionError(f"{call}: no class of commands that this test knows")


def of(calls: list[Call], name: str) -> list[Call]:
    found = [call for call in calls if kind(call) == name]
    assert found, f"no page has a command of the class {name!r}"
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_its_language_so_that_no_command_hides(page: str) -> None:
    known = {"bash", "python", "yaml", "diff", "text"}
    assert {name for name, _ in BLOCK.findall((PROJECT / page).read_text())} <= known


def test_every_command_belongs_to_a_class(calls: list[Call]) -> None:
    counts = Counter(map(kind, calls))
    print("\n".join(f"{kind(call)}: {call}" for call in calls))
    print(f"{len(calls)} different commands on {len(PAGES)} pages: {dict(counts)}")
    assert set(counts) == {"snakemake", "disk", "make", "script", "mlflow", "elsewhere"}
    assert counts["snakemake"] > 20
    assert counts["disk"] > 20


def test_snakemake_plans_every_documented_target(calls: list[Call], project: Path) -> None:
    """One dry run for all commands with the same options."""
    from snakemake.cli import get_argument_parser

    documented = [call.words[1:] for call in of(calls, "snakemake")]
    script = "profiles/slurm/in-one-allocation.sh"  # hands its arguments to snakemake
    documented += [
        call.words[call.words.index(script) + 1 :] for call in of(calls, "elsewhere") if script in call.words
    ]
    for recipe in (recipe_of(call, project) for call in of(calls, "make")):
        documented += [words[1:] for words in recipe if words[0] == "snakemake"]
    together: dict[tuple[str, ...], set[str]] = defaultdict(set)
    planned = parsed = 0
    for words in documented:
        assert {word for word in words if word.startswith("-")} <= PLANNED | UNPLANNED.keys(), words
        given = get_argument_parser().parse_args(words)
        if given.lint or given.unlock:
            parsed += 1
            continue
        options = [*(["--profile", *given.profile] if given.profile else []),
                   *(["--config", *given.config] if given.config else []),
                   *(["--directory", str(given.directory)] if given.directory else []),
                   *(["--configfile", *map(str, given.configfile)] if given.configfile else [])]  # fmt: skip
        together[tuple(options)] |= set(given.targets or ["all"])
        planned += 1
    for options, targets in together.items():
        command = [sys.executable, "-m", "snakemake", *sorted(targets), "-n", "--cores", "1", *options]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        assert re.search(r"^total +[1-9]", done.stdout, re.MULTILINE), done.stdout
    print(f"snakemake: {planned} commands planned in {len(together)} dry runs, {parsed} parsed (--lint, --unlock)")
    assert planned > 20


def recipe_of(call: Call, project: Path) -> list[tuple[str, ...]]:
    """Return the commands that a target of the Makefile starts; fail if there is no such target."""
    words = ["make", "-n", *call.words[1:]]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{call}\n{done.stderr}"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("snakemake ", "python -m disk"))]
    return [words for line in lines for words in read_by_a_shell(line, project, call.page)]


def test_targets_of_make_exist(calls: list[Call], project: Path) -> None:
    targets = of(calls, "make")
    for call in targets:
        recipe_of(call, project)
    print(f"make: {len(targets)} commands planned")


def test_commands_of_disk_run_or_resolve(calls: list[Call], project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the pages, so that `publish` comes before `evaluate` of what it published."""
    from disk.show import live, physics

    monkeypatch.chdir(project)
    monkeypatch.delenv("DISK_RUNTIME", raising=False)
    monkeypatch.setattr("torch.set_num_interop_threads", lambda threads: None)  # torch allows it once a process
    tried: Counter[str] = Counter()
    for written in calls[0].folder.glob("*.yaml"):
        shutil.copy(written, project)
    for call in of(calls, "disk"):
        words = [replaced(word) for word in call.words[3:]]
        if words == ["--help"]:
            assert parser().format_help()
            tried["run"] += 1
            continue
        arguments = parser().parse_args(words)
        name = words[0]
        if name in HOURS or name in SCREEN:
            resolve(name, arguments, call)
            tried["resolved"] += 1
        elif name == "live" and (arguments.fetch or not physics.available()):
            tried["parsed: needs npm"] += 1
        elif name == "doctor" and arguments.device == "cuda":
            assert main(words) == (0 if torch.cuda.is_available() else 2), str(call)
            tried["run" if torch.cuda.is_available() else "refused: needs a GPU"] += 1
        elif name == "live" and len(arguments.runs) > 1:
            for run, _ in live.pages(arguments.runs, arguments.out):
                resolve(name, argparse.Namespace(run=run, configfile=[]), call)
            tried["resolved"] += 1
        elif name == "evaluate" and (arguments.latent_sets or "pretrained/half" in str(arguments.run)):
            resolve(name, arguments, call)  # tests/training measure these
            tried["resolved"] += 1
        else:
            assert main(words) == 0, str(call)
            tried["run"] += 1
    print(f"python -m disk: {dict(tried)}")
    assert tried["run"] > 10


def replaced(word: str) -> str:
    """Put a run and a folder in the place of the pages' words in capitals."""
    return {"RUN": "results/quick/point/metra/seed0", "DIRECTORY": "published"}.get(word, word)


def resolve(name: str, arguments: argparse.Namespace, call: Call) -> None:
    """Do what a command does before its first step: read the configuration and what it names."""
    import disk
    from disk.config import load

    config = load(*arguments.configfile)
    if name == "play" and arguments.run.parts[0] == "results":
        environment = config.environment(arguments.run.parts[-3])
        assert arguments.skill < environment.skills, str(call)
        assert arguments.condition in (None, *environment.conditions), str(call)
    elif name != "train":
        skills = disk.load(arguments.run)
        assert name != "play" or arguments.skill < len(skills), str(call)
    elif call.page != "docs/extending.md":  # whose method tests/training/test_extending.py adds and trains
        incremental = config.methods[arguments.method].incremental
        make = config.skill_job if incremental else config.joint_job
        assert make(arguments.env, arguments.method, arguments.seed, *([0] if incremental else [])).env == arguments.env


def test_scripts_and_files_that_commands_name_exist(calls: list[Call]) -> None:
    for call in of(calls, "script"):
        script = (PROJECT / call.words[1]).read_text()
        for option in (word.partition("=")[0] for word in call.words[2:] if word.startswith("--")):
            assert f'"{option}"' in script, f"{call}: {option} is no option of the script"
    for call in of(calls, "elsewhere"):
        for word in call.words:
            if word.startswith(("profiles/", "tests/", "workflow/")):
                assert (PROJECT / word).exists(), str(call)
        for extra in re.findall(r"disk-skills\[(\w+)\]", " ".join(call.words)):
            assert extra in tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_options_of_the_tracking_server_are_mlflows(calls: list[Call]) -> None:
    import click
    from mlflow.cli import server

    for call in of(calls, "mlflow"):
        server.make_parser(click.Context(server)).parse_args([*call.words[2:]])


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page != "docs/extending.md"])
def test_python_on_the_pages_runs(page: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/extending.md is followed by tests/training/test_extending.py."""
    import disk

    monkeypatch.chdir(project)
    card = (PROJECT / page).with_name("skills.safetensors")  # cards leave `obs` to the reader
    given = {"obs": np.zeros(disk.load(card).observation_size)} if card.exists() else {}
    for text in blocks(page, "python"):
        exec(compile(text, page, "exec"), given)  # noqa: S102


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")])
def test_settings_on_the_pages_are_valid(page: str) -> None:
    from disk.config import parse

    settings = [yaml.safe_load(text) for text in blocks(page, "yaml")]
    for own in settings:
        parse(raw_config(own))
    for runs in re.findall(r"`(runs: \[[^`]+)`", (PROJECT / page).read_text()):
        parse(raw_config(*settings, yaml.safe_load(runs)))  # run groups that name the page's rows
