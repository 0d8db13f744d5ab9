"""Who may import whom: rooms depend on rooms below them, never on those above."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT, tiny_config

LAYERS = [
    {"errors", "lazy", "seeds", "registration", "config", "storage.files", "storage.layout", "storage.provenance"},
    {"envs", "networks", "projection", "skills", "storage"},
    {"evaluation"},
    {"learning"},
    {"downstream"},
    {"figures", "show", "sharing", "tracking"},
    {"doctor", "machine", "process", "commands", "cli", "__main__", "__init__"},
]
"""From the bottom up. A module belongs to the longest of these names that it begins with."""
MODULES = sorted((PROJECT / "disk").rglob("*.py"))
READERS = {"figures", "show", "sharing", "tracking"}
"""Rooms that read files of trainings and never import `learning`."""

HEAVY = """torch._dynamo torch._inductor sympy networkx pandas pyarrow scipy matplotlib PIL stable_baselines3 mlflow"""
"""Packages that cost a training job CPU time at its start and that it does not need."""


def layer_of(module: str) -> int:
    """The layer of a module, named from below the package: `learning.sac`."""
    found = [
        (name, level) for level, names in enumerate(LAYERS) for name in names if f"{module}.".startswith(f"{name}.")
    ]
    return max(found, key=lambda each: len(each[0]))[1]


def forbidden(module: str, tree: ast.AST) -> list[str]:
    """Modules of the package that `module` must not import and does. Imports for types alone are allowed."""
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("disk") and id(node) not in for_types:
            parent = (node.module or "").removeprefix("disk").removeprefix(".")
            names += [f"{parent}.{alias.name}".strip(".") for alias in node.names if alias.name != "__version__"]
    room = module.partition(".")[0]
    return [
        name
        for name in names
        if layer_of(name) > layer_of(module) or (room in READERS and name.partition(".")[0] == "learning")
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_room_imports_only_from_rooms_below_it(path: Path) -> None:
    module = ".".join(path.relative_to(PROJECT / "disk").with_suffix("").parts).removesuffix(".__init__")
    assert forbidden(module, ast.parse(path.read_text())) == []


def test_an_import_upwards_is_found() -> None:
    assert forbidden("envs", ast.parse("from disk.learning.sac import SAC")) == ["learning.sac.SAC"]
    assert forbidden("figures.bars", ast.parse("from disk.learning import sac")) == ["learning.sac"]
    assert forbidden("storage.files", ast.parse("from disk.storage.manifest import identity")) == [
        "storage.manifest.identity"
    ]
    assert forbidden("learning.loop", ast.parse("from disk.evaluation.rollout import visits")) == []


@pytest.mark.parametrize("method", ["disk", "diayn"])
def test_a_training_imports_no_compiler_no_tables_and_no_plots(method: str, tmp_path: Path) -> None:
    config = tiny_config({"tracking": {"enabled": False}})
    own = method == "disk"
    job = config.skill_job("point", method, 0, 0) if own else config.joint_job("point", method, 0)
    out = tmp_path / ("skill00/policy.safetensors" if own else "skills.safetensors")
    command = ["train-skill" if own else "train-joint", "--job", job.canonical(), "--out", str(out)]
    program = f"""
import sys
from disk.cli import main
code = main({command})
import torch
print(code, torch.are_deterministic_algorithms_enabled(), *sorted(set(sys.modules) & set({HEAVY.split()})))
"""
    settings = {name: getattr(config, name).model_dump(mode="json") for name in ("runtime", "tracking")}
    environment = {**os.environ, "DISK_RUNTIME": json.dumps(settings)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "True"]
    assert out.exists()
