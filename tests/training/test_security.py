"""Nothing that a stranger put into a file, a name or a configuration is run, or written where it does not belong."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import PROJECT, raw_config, tiny_config

from disk import config as configuration
from disk.errors import ArtefactError, ConfigError
from disk.figures.trajectories import trajectories
from disk.learning.artefacts import read_visits
from disk.learning.replay import Replay, inherit
from disk.learning.run import train_run
from disk.skills import load
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import load_tensors, save_stats, save_tensors
from disk.storage.manifest import as_recorded
from disk.storage.replay import Columns

SCRIPT = "<script>alert(1)</script>"
SOURCES = [*PROJECT.glob("disk/**/*.py"), *PROJECT.glob("workflow/**/*.py"), *PROJECT.glob("benchmarks/*.py")]


class Bomb:
    """Whoever unpickles this makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_unpickles_and_nothing_loads_yaml_that_may_hold_objects():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "cloudpickle", "joblib", "shelve", "marshal", "dill"} & set(names), path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "yaml.load", "yaml.unsafe_load", "eval", "exec", "os.system"), path
                if called in ("np.load", "numpy.load"):
                    assert "allow_pickle=False" in ast.unparse(node), path
                assert "shell=True" not in ast.unparse(node), path


def header(content: dict[str, Any] | bytes, length: int | None = None) -> bytes:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def tensor(shape: list[int], end: int) -> dict[str, Any]:
    return {"mlp.weights.0": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}


MALICE = {
    "a pickle": lambda mark: pickle.dumps(Bomb(mark)),
    "torch's own format": "torch",
    "a header as long as can be": lambda mark: header(b"{}", 2**64 - 1),
    "a header of 50 GB": lambda mark: header(b"{}", 50 << 30),
    "a tensor of 4 TB": lambda mark: header(tensor([1 << 20, 1 << 20], 4 << 40)),
    "a tensor that ends before it starts": lambda mark: header(tensor([2], -8)),
    "lengths that overflow": lambda mark: header(tensor([1 << 62, 1 << 62], 8)),
    "metadata nested without end": lambda mark: header({"__metadata__": {"disk": "[" * 100_000}}),
    "no JSON": lambda mark: header(b"\xff" * 64),
}


def malicious(path: Path, how: str, mark: Path) -> None:
    make: Any = MALICE[how]
    if make == "torch":
        torch.save(Bomb(mark), path)
    else:
        path.write_bytes(make(mark))


@pytest.mark.parametrize("how", MALICE)
def test_a_malicious_file_of_tensors_is_refused_and_runs_nothing(tmp_path: Path, how: str):
    mark, path = tmp_path / "executed", tmp_path / "policy.safetensors"
    malicious(path, how, mark)
    replay = Replay(10, Columns(1, 1, 1), torch.device("cpu"))
    for read in (load_tensors, load, lambda path: inherit(replay, [path], 1.0, torch.Generator())):
        with pytest.raises(ArtefactError, match=re.escape(str(path))):
            read(path)
    assert not mark.exists()


@pytest.mark.parametrize("how", MALICE)
def test_a_malicious_checkpoint_is_not_continued_and_runs_nothing(tmp_path: Path, how: str):
    mark, directory = tmp_path / "executed", tmp_path / "skill00.checkpoint"
    directory.mkdir()
    malicious(directory / "state.safetensors", how, mark)
    (directory / "replay.bin").write_bytes(pickle.dumps(Bomb(mark)))
    checkpoint = Checkpoint(directory, "stamp")
    said = checkpoint.load()
    assert isinstance(said, str)
    assert "restarts from step 0" in said
    assert not mark.exists()
    checkpoint.close()


def test_malicious_visits_are_refused_and_run_nothing(tmp_path: Path):
    mark, path = tmp_path / "executed", tmp_path / "visits.npy"
    np.save(path, np.array([[Bomb(mark)]], dtype=object), allow_pickle=True)
    whole = path.read_bytes()
    huge = whole[:10] + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000, 2)}".ljust(118) + b"\n"
    for content in (whole, huge, pickle.dumps(Bomb(mark))):
        path.write_bytes(content)
        with pytest.raises(ArtefactError, match=r"visits\.npy"):
            read_visits(tmp_path, 2)
    assert not mark.exists()


def test_a_file_of_skills_that_speaks_of_absurd_networks_builds_none(tmp_path: Path):
    path = tmp_path / "skills.safetensors"
    meta = {
        "observation_size": 4,
        "latent_size": 0,
        "action_size": 2,
        "hidden": [10**7, 10**7],
        "log_std_bounds": [-5, 2],
    }
    parts = {"which": torch.zeros(1, dtype=torch.int64), "latent": torch.zeros(1, 0)}
    save_tensors(path, {**parts, "mlp.weights.0": torch.zeros(1, 4, 4)}, meta)
    with pytest.raises(ArtefactError, match="is not a file of skills"):
        load(path)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd"])
def test_files_that_others_speak_of_are_only_looked_for_beside_them(tmp_path: Path, name: str):
    run = tmp_path / "results" / "point" / "diayn" / "seed0"
    run.mkdir(parents=True)
    (tmp_path / "secret").write_text("")
    save_stats(run / "stats.json", {"checksums": {name: "0" * 64}})
    from disk.storage.manifest import same_checksum

    with pytest.raises(ArtefactError, match="not in it"):
        same_checksum(run, name, {"checksums": {name: "0" * 64}})
    (run / "skills.safetensors").write_bytes(b"")
    as_recorded(run / "skills.safetensors")  # looks at nothing that it was not asked for


@pytest.mark.parametrize("name", ["../outside", "a/b", SCRIPT, "$(touch x)", "a b", "", ".", "a\n", "{env}", "é"])
@pytest.mark.parametrize("table", ["environments", "methods"])
def test_names_that_become_paths_are_plain_words(name: str, table: str):
    rows = raw_config()[table]
    with pytest.raises(ConfigError, match=table):
        configuration.parse(raw_config({table: {name: next(iter(rows.values()))}}))


@pytest.mark.parametrize("name", ["../outside", SCRIPT])
def test_conditions_and_runs_are_plain_words_too(name: str):
    with pytest.raises(ConfigError, match=r"environments\.point\.conditions"):
        configuration.parse(raw_config({"environments": {"point": {"conditions": {name: 0}}}}))
    for field in ("envs", "methods"):
        group = {"envs": ["point"], "methods": ["disk"], field: [name]}
        with pytest.raises(ConfigError, match=rf"runs\.0\.{field}"):
            configuration.parse(raw_config({"runs": [group]}))


@pytest.mark.parametrize("run", [("../../outside", "disk"), ("point", "../../../outside"), ("/tmp", "disk")])
def test_a_run_whose_name_leads_out_of_results_is_refused(tmp_path: Path, run: tuple[str, str]):
    root = tmp_path / "a" / "b" / "results"
    with pytest.raises(ConfigError, match="unknown"):
        train_run(tiny_config(), root, *run, 0, None, lambda out: None)  # type: ignore[arg-type, return-value]
    assert not list(tmp_path.iterdir())


def test_snakemake_makes_nothing_outside_results():
    """Wildcards match the configuration's names, and nothing with a dot or a slash in it."""
    words = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "results/../outside/disk/seed0/metrics.csv"]
    done = subprocess.run(words, check=False, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "MissingRuleException" in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_configuration_file_runs_nothing(tmp_path: Path):
    preset = tmp_path / "preset.yaml"
    preset.write_text(f"seeds: !!python/object/apply:os.mkdir ['{tmp_path}/executed']\n")
    with pytest.raises(ConfigError, match=re.escape(str(preset))):
        configuration.load(preset)
    assert not (tmp_path / "executed").exists()


def test_figures_escape_names(tmp_path: Path):
    rows = [{"skill": 0, "episode": 0, "step": t, "x": t / 9, "y": 0.0, "vx": 0.0, "vy": 0.0} for t in range(9)]
    named = f"{SCRIPT} & 'x' --><script>alert(2)</script>"
    figure = tmp_path / "figure.svg"
    trajectories({named: pd.DataFrame(rows)}, figure, title=named, one_dimensional=False, drawn=1)
    assert "<script" not in figure.read_text().lower()
    import xml.etree.ElementTree

    tags = {element.tag.rsplit("}", 1)[-1] for element in xml.etree.ElementTree.parse(figure).iter()}
    assert "script" not in tags


def test_captions_hold_names_and_nothing_else_of_the_configuration():
    """Names are plain words, so what a caption may quote are wildcards, numbers, and labels made of names."""
    allowed = {
        "wildcards.env",
        "wildcards.method",
        "wildcards.seed",
        "params.runs",
        "params.drawn",
        "params.condition",
        "params.decisions",
    }
    for caption in (PROJECT / "workflow" / "report").glob("*.rst"):
        quoted = set(re.findall(r"{{ *snakemake\.([\w.]+) *}}", caption.read_text()))
        assert quoted <= allowed, f"{caption.name}: {quoted - allowed}"
        assert caption.read_text().count("{{") == len(re.findall(r"{{ *snakemake\.[\w.]+ *}}", caption.read_text()))
        assert "raw::" not in caption.read_text()


def test_the_ui_listens_to_this_machine_alone():
    [words] = [line for line in (PROJECT / "workflow/scripts/ui.py").read_text().splitlines() if "--host" in line]
    assert '"--host", "127.0.0.1"' in words
    assert not [path for path in SOURCES if "0.0.0.0" in path.read_text()]  # noqa: S104


def test_a_password_in_a_tracking_uri_is_on_no_command_line(tmp_path: Path):
    from disk.tracking.mirror import Sidecar

    beside = Sidecar(tmp_path / "skill00", "http://user:secret@127.0.0.1:9", after=60.0, interval=1.0)
    assert not [word for word in beside._command if "secret" in word]
