"""The doctor reads a whole tree of results, misses nothing, changes nothing and names the commands that continue."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import PROJECT, TINY, often, tiny_config

from disk import cli, doctor
from disk.config import Config, merge
from disk.doctor import Report, audit, examine, runs_below
from disk.downstream.run import learn_hierarchy
from disk.evaluation.run import evaluate, measure
from disk.learning.run import train_run
from disk.storage.files import save_stats
from disk.storage.lock import Lease

SMALL = {
    "environments": {"point": {"skills": 2, "steps": 60, "test_horizon": 10, "snapshots": [100]}},
    "diayn": {"hidden": [16]},
    "evaluation": {"episodes": 2},
}


@pytest.fixture(scope="module")
def config() -> Config:
    return tiny_config(SMALL)


@pytest.fixture(scope="module")
def trained(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain and a run whose skills were learned together, measured."""
    root = tmp_path_factory.mktemp("trained") / "results"
    for method in ("disk", "diayn"):
        run = train_run(config, root, "point", method, 0, None, lambda out: nullcontext())
        path = run / "rollouts" / "nominal.parquet"
        evaluate(config.evaluation_job("point", "nominal", method), run / "skills.safetensors", path)
        measure([path], run / "metrics.csv")
    return root


@pytest.fixture
def tree(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "results"))


def looked_at(root: Path, config: Config) -> Report:
    return Report([audit(run, config) for run in runs_below(root)], [])


def content(root: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in root.rglob("*") if path.is_file()}


def test_a_healthy_tree_is_healthy_and_stays_as_it_is(tree: Path, config: Config):
    before = content(tree)
    report = looked_at(tree, config)
    assert report.healthy, report.text()
    assert all(run.trained and not run.left and not run.again for run in report.audits), report.text()
    assert "2 of 2 skills finished" in report.text()
    assert content(tree) == before


def files(root: Path) -> list[str]:
    """Everything a run leaves."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_every_file_of_a_run_that_is_damaged_is_named(tree: Path, config: Config):
    for name in files(tree):
        path = tree / name
        whole = path.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        path.write_bytes(
            whole[:-2] if path.suffix == ".csv" else flipped
        )  # a table has no checksum: only tears are seen
        said = looked_at(tree, config).text()
        # A chain's own curve repeats those of its skills; nothing is made from it.
        if not (path.name == "progress.csv" and path.parent.name == "seed0" and "/disk/" in f"/{name}"):
            assert f"DAMAGED: {path}" in said, f"{name}\n{said}"
        path.write_bytes(whole)
    assert looked_at(tree, config).healthy


@pytest.fixture(scope="module")
def at_work(trained: Path, config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained runs, with a controller over the chain's skills and one without skills."""
    small = {"decisions": 256, "steps": 2, "episode": 16, "every": 256, "environments": 8, "seeds": [0]}
    own = tiny_config(SMALL, {"hierarchy": small, "environments": {"point": {"sac": {"updates_per_step": 0.02}}}})
    root = Path(shutil.copytree(trained, tmp_path_factory.mktemp("at_work") / "results"))
    for method in ("disk", "flat"):
        run, job = root / "point" / method / "seed0", own.hierarchy_job("point", method, 0, 0)
        skills = None if method == "flat" else run / "skills.safetensors"
        learn_hierarchy(job, skills, run / "hierarchy" / "seed0.csv", own.runtime)
    return root


def test_controllers_are_compared_with_their_checksums(at_work: Path, config: Config, tmp_path: Path):
    tree = Path(shutil.copytree(at_work, tmp_path / "results"))
    report = looked_at(tree, config)
    assert report.healthy, report.text()
    assert not any(run.left or run.again for run in report.audits), report.text()
    assert "point/flat/seed0: 1 controller\n" in report.text() + "\n"
    for path in sorted(tree.glob("point/*/seed0/hierarchy/seed0.*")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        [damaged] = [run for run in looked_at(tree, config).audits if run.damaged]
        assert damaged.damaged[0].startswith(str(path)), damaged
        assert damaged.again == [path]
        path.write_bytes(whole)
    (tree / "point/disk/seed0/hierarchy/seed0.csv").unlink()
    report = looked_at(tree, config)
    assert report.healthy
    assert "hierarchy/seed0.json: unfinished, without seed0.csv" in report.text()


def test_a_checkpoint_of_a_controller_is_examined(at_work: Path, config: Config, tmp_path: Path):
    tree = Path(shutil.copytree(at_work, tmp_path / "results"))
    left = tree / "point/disk/seed0/hierarchy/seed1.checkpoint"
    Lease(left).release()
    assert "controller seed1 restarts from step 0: nothing is saved yet" in looked_at(tree, config).text()
    (left / "state.safetensors").write_bytes(b"no tensors")
    report = looked_at(tree, config)
    assert f"DAMAGED: {left}/state.safetensors: is damaged" in report.text()
    assert all(run.trained for run in report.audits), "the skills are"


def test_a_missing_file_is_no_damage_but_unfinished(tree: Path, config: Config):
    (tree / "point/disk/seed0/skill01/visits.npy").unlink()
    (tree / "point/diayn/seed0/stats.json").unlink()
    report = looked_at(tree, config)
    assert report.healthy
    assert "1 of 2 skills finished" in report.text()
    assert "skill01: unfinished, without visits.npy" in report.text()
    assert not any(run.trained for run in report.audits)


def test_skills_that_were_not_learned_after_one_another_are_named(tree: Path, config: Config):
    other = tree.parent / "other"
    train_run(tiny_config(SMALL), other, "point", "disk", 1, 1, lambda out: nullcontext())
    first = tree / "point/disk/seed0/skill00"
    shutil.rmtree(first)
    shutil.copytree(other / "point/disk/seed1/skill00", first)
    said = looked_at(tree, config).text()
    assert "skill01/stats.json: this skill was learned after another skill00/policy.safetensors" in said
    assert "skills.safetensors: holds other skills" in said


def test_what_is_left_over_is_listed(tree: Path, config: Config):
    (tree / "point/disk/seed0/skill00/.policy.safetensors.x.tmp").write_text("")
    (tree / "point/diayn/seed0/snapshots/50.safetensors").write_bytes(
        (tree / "point/diayn/seed0/snapshots/100.safetensors").read_bytes()
    )
    shutil.copytree(tree / "point/disk", tree / "point/unknown")
    report = looked_at(tree, config)
    left = "\n".join(path for run in report.audits for path in run.left)
    for what in (".tmp: a killed write", "50.safetensors: no snapshot", "no point with unknown"):
        assert what in left


def test_checkpoints_are_those_that_a_training_would_go_on_from(tree: Path, config: Config, monkeypatch):
    run = tree / "point/disk/seed0"
    shutil.rmtree(run / "skill01")
    monkeypatch.setenv("DISK_CONTROLLER", str(tree / "nobody"))  # an orphan leaves its checkpoint
    often_saved = config.model_copy(update={"runtime": often(config)})
    train_run(often_saved, tree, "point", "disk", 0, None, lambda out: nullcontext())
    assert "skill 2 (index 1) can resume from step 60" in looked_at(tree, config).text()
    lease = Lease(run / "skill01.checkpoint")
    assert "skill 2 (index 1) is being trained by process" in looked_at(tree, config).text()
    lease.release()
    rows = run / "skill01.checkpoint/replay.bin"
    rows.write_bytes(b"\0" + rows.read_bytes()[1:])
    report = looked_at(tree, config)
    assert "skill 2 (index 1) restarts from step 0" in report.text()
    assert "replay.bin is damaged (checksum" in report.text()
    assert not report.healthy


def test_trainings_with_other_code_are_named_and_the_code_is_read_once(tree: Path, config: Config, monkeypatch):
    assert "made by other code" not in looked_at(tree, config).text()
    older = [tree / "point/disk/seed0/skill01", tree / "point/diayn/seed0"]
    for folder in older:
        stats = json.loads((folder / "stats.json").read_text())
        (folder / "stats.json").write_text(json.dumps({**stats, "code_hash": "older"}))
    parse, parsed = ast.parse, Counter[str]()

    def counted(source: str, *more: str) -> ast.AST:
        parsed[source] += 1
        return parse(source, *more)

    monkeypatch.setattr(ast, "parse", counted)
    report = looked_at(tree, config)
    [line] = [line for line in report.text().splitlines() if line.startswith("made by other code")]
    assert {Path(path) for path in line.partition("): ")[2].split(", ")} == set(older)
    sources = Counter(path.read_text() for path in (PROJECT / "disk").rglob("*.py"))
    assert parsed
    assert all(count <= sources[source] for source, count in parsed.items())
    assert report.healthy


def preset_tree(root: Path, *presets: str) -> Path:
    """A run that only one of the project's presets would have made, as far as its stats.json says."""
    from disk.config import load

    run = root / "point" / "random" / "seed0"
    job = load(*(PROJECT / "config" / name for name in presets)).joint_job("point", "random", 0)
    save_stats(run / "stats.json", {"config_hash": job.digest(), "checksums": {}})
    return root


def test_the_command_to_go_on_with_is_that_of_the_preset_that_made_the_tree(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(doctor, "PROJECT", tmp_path)
    monkeypatch.setattr(doctor, "SHIPPED", tmp_path / "config")
    shutil.copytree(PROJECT / "config", tmp_path / "config")
    quick = preset_tree(tmp_path / "results" / "quick", "quick.yaml")
    assert examine(quick).text().endswith("to continue: snakemake --cores 2 --configfile config/quick.yaml")
    compare = preset_tree(tmp_path / "results" / "compare", "quick.yaml", "compare.yaml")
    assert examine(compare).text().endswith("--configfile config/quick.yaml config/compare.yaml"), "what it lies over"
    moved = preset_tree(tmp_path / "elsewhere", "quick.yaml")
    [line] = examine(moved).commands
    assert line.startswith(f"to continue: python -m disk train point random --seed 0 --results {moved}")
    both = [line.partition(": ")[2].split()[0] for line in examine(tmp_path).commands]
    assert both == ["python", "snakemake", "snakemake"], "each tree has its own preset"


def test_skills_are_counted_by_the_preset_that_made_them_or_not_at_all(trained: Path, tmp_path: Path, monkeypatch):
    """The tree has two skills of the point robot; the project's own presets have eight."""
    monkeypatch.setattr(doctor, "PROJECT", tmp_path)
    monkeypatch.setattr(doctor, "SHIPPED", tmp_path / "config")
    text = examine(trained).text()
    assert "point/disk/seed0: 2 skills finished" in text
    assert "no preset in config/ made these; give --configfile" in text
    (tmp_path / "config").mkdir()
    for name, skills in (("eight.yaml", 8), ("two.yaml", 2)):
        row = {"environments": {"point": {"skills": skills}}}
        (tmp_path / "config" / name).write_text(json.dumps(merge(merge(TINY, SMALL), row)))
    tree = Path(shutil.copytree(trained, tmp_path / "elsewhere"))
    shutil.rmtree(tree / "point/diayn")  # its job says how many skills there are, a chain's jobs do not
    report = examine(tree)
    assert "point/disk/seed0: 2 of 2 skills finished" in report.text()
    assert report.commands == [f"{tree}: everything is finished"]
    (tree / "point/disk/seed0/metrics.csv").unlink()
    [line] = examine(tree).commands
    assert line == f"to continue: python -m disk evaluate {tree}/point/disk/seed0 --configfile config/two.yaml"


def test_a_folder_without_runs_says_what_it_holds(tmp_path: Path):
    assert examine(tmp_path).text() == f"{tmp_path}: no runs here; a run is a folder like results/point/disk/seed0"
    [line] = examine(PROJECT / "pretrained/ant").commands
    assert "published skills, not a run" in line
    assert f"`python -m disk evaluate {PROJECT}/pretrained/ant`" in line


def test_the_command_line_fails_for_a_damaged_tree(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tree = Path(shutil.copytree(trained, tmp_path / "results"))
    preset = tmp_path / "preset.yaml"
    preset.write_text(json.dumps(merge(TINY, SMALL)))
    assert cli.main(["doctor", str(tree), "--configfile", str(preset)]) == 0
    path = tree / "point/disk/seed0/skill00/replay.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert cli.main(["doctor", str(tree), "--configfile", str(preset)]) == 1
    assert f"DAMAGED: {path}: is damaged" in capsys.readouterr().out
    assert cli.main(["doctor", str(tmp_path / "nowhere")]) == 1
