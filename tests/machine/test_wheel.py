"""The wheel, in an environment that holds nothing but what it declares, outside the checkout.

Its requirements are linked from the environment of the tests instead of downloaded: torch alone takes minutes.
`pip check` compares what is linked with what is declared. No other package can be imported.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from conftest import PROJECT, TINY, once, tiny_config
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

USE = """
import sys
import gymnasium
import disk

env = gymnasium.make("disk:disk/AntBroken-v0", step=2_000_000)
skills = disk.load(sys.argv[1])
obs, _ = env.reset(seed=0)
for _ in range(20):
    obs, reward, terminated, truncated, info = env.step(skills[3].act(obs))
goals = disk.SkillEnv(disk.GoalEnv("ant"), skills, steps=5)
goals.reset(seed=0)
print(disk.__file__, len(skills), goals.step(1)[4]["steps"], len(info["position"]))
"""


class Empty:
    """A virtual environment with the wheel and what some of its extras need."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "venv/bin/python"

    def make(self) -> None:
        source = self.folder / "source"
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(PROJECT / name, source)
        shutil.copytree(PROJECT / "config", source / "config")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / "disk", source / "disk", symlinks=True, ignore=ignored)
        pip = [sys.executable, "-m", "pip", "--quiet"]
        wheels, no_build = str(self.folder), "--no-build-isolation"  # setuptools is in the lock
        subprocess.run([*pip, "wheel", "--no-deps", no_build, "--wheel-dir", wheels, str(source)], check=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")], check=True)
        shutil.rmtree(source)
        subprocess.run([*pip, "--python", str(self.python), "install", "--no-deps", str(self.wheel)], check=True)
        self.link()

    @property
    def wheel(self) -> Path:
        [path] = self.folder.glob("disk_skills-*.whl")
        return path

    def link(self, *extras: str) -> None:
        """Link what the wheel, with these extras, requires, and what that requires."""
        [site] = self.folder.glob("venv/lib/python*/site-packages")
        with ZipFile(self.wheel) as content:
            [name] = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
            declared = Parser().parsestr(content.read(name).decode()).get_all("Requires-Dist")
        pending, seen = applying(declared, extras), set[tuple[str, str]]()
        while pending:
            requirement = pending.pop()
            if canonicalize_name(requirement.name) == "disk-skills":
                pending += applying(declared, requirement.extras)
                continue
            found = distribution(requirement.name)
            for part in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (site / part).exists():
                    (site / part).symlink_to(Path(str(found.locate_file(part))))
            for extra in ("", *requirement.extras):
                if (found.name, extra) not in seen:
                    seen.add((found.name, extra))
                    pending += applying(found.requires, [extra])

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run its Python in a folder of its own, with no variable that could lead it elsewhere."""
        command = [str(self.python), *map(str, arguments)]
        there = self.folder / "there"
        there.mkdir(exist_ok=True)
        variables = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(there)}
        return subprocess.run(command, cwd=there, env=variables, capture_output=True, text=True, check=False)

    def disk(self, *arguments: object) -> str:
        done = self.run("-m", "disk", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def applying(lines: list[str] | None, extras: object) -> list[Requirement]:
    """The requirements that apply with these extras; "" is none."""
    wanted = {"", *extras}  # type: ignore[misc]
    found = [Requirement(line) for line in lines or ()]
    return [each for each in found if not each.marker or any(each.marker.evaluate({"extra": e}) for e in wanted)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Empty:
    return Empty(once(tmp_path_factory, "wheel", lambda folder: Empty(folder).make()))


@pytest.fixture(scope="module")
def trained(empty: Empty) -> Path:
    """A short run, trained by the wheel alone."""
    (empty.folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY, "evaluation": {"episodes": 2, "drawn": 2}}))
    said = empty.disk("train", "point", "disk", "--skills", "1", "--configfile", empty.folder / "tiny.yaml")
    assert (
        "mlflow is not installed: run pip install 'disk-skills[tracking]'. Training and results are not affected"
        in said
    )
    empty.disk("train", "point", "random", "--configfile", empty.folder / "tiny.yaml")
    return empty.folder / "there/results/point/random/seed0"


def test_the_wheel_carries_the_defaults_and_declares_what_it_needs(empty: Empty) -> None:
    with ZipFile(empty.wheel) as content:
        for path in (PROJECT / "config").glob("*.yaml"):
            assert content.read(f"disk/config/defaults/{path.name}") == path.read_bytes()
    checked = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(empty.python), "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_skills_are_loaded_and_act_in_a_changing_world_with_no_extra(empty: Empty) -> None:
    done = empty.run("-c", USE, PROJECT / "pretrained/ant_broken")
    assert done.returncode == 0, done.stderr
    file, skills, steps, coordinates = done.stdout.split()
    assert Path(file).is_relative_to(empty.folder)
    assert (int(skills) > 3, steps, coordinates) == (True, "5", "2")


def test_runs_are_trained_and_exported_with_no_extra(empty: Empty, trained: Path) -> None:
    assert (trained / "skills.safetensors").exists()
    assert (trained.parents[1] / "disk/seed0/skill00/policy.safetensors").exists()
    empty.disk("export", trained, "--format", "safetensors", "--out", empty.folder / "exported")
    assert (empty.folder / "exported/skills.safetensors").exists()


@pytest.mark.parametrize(
    ("extra", "module", "words"),
    [
        ("figures", "pandas", ["evaluate", "{run}"]),
        ("tracking", "mlflow", ["track", "{run}"]),
        ("onnx", "onnx", ["export", "{run}", "--format", "onnx"]),
        (
            "downstream",
            "stable_baselines3",
            ["train-hierarchy", "--job", "{job}", "--skills", "{skills}", "--out", "c.csv"],
        ),
        ("datasets", "minari", ["dataset", "{chain}"]),
        ("workflow", "snakemake", ["doctor"]),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    empty: Empty, trained: Path, extra: str, module: str, words: list[str]
) -> None:
    job = tiny_config().hierarchy_job("point", "random", 0, 0).canonical()
    chain = trained.parents[1] / "disk/seed0"
    given = {"{run}": trained, "{chain}": chain, "{skills}": trained / "skills.safetensors", "{job}": job}
    done = empty.run("-m", "disk", *[given.get(word, word) for word in words])
    assert "Traceback" not in done.stderr
    hint = f"{module} is not installed: run pip install 'disk-skills[{extra}]'"
    if extra == "workflow":  # which `disk` itself never imports
        assert f"workflow: {hint}" in done.stdout
    else:
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert hint in done.stderr


@pytest.mark.needs("gl")
def test_runs_are_measured_drawn_and_played_with_the_extra_for_figures(
    trained: Path, empty: Empty, tmp_path: Path
) -> None:
    more = Empty(tmp_path)
    shutil.copytree(empty.folder / "venv", tmp_path / "venv", symlinks=True)
    shutil.copy(empty.wheel, tmp_path)
    more.link("figures")
    shutil.copytree(trained.parents[2], tmp_path / "there/results")
    run, preset = "results/point/random/seed0", empty.folder / "tiny.yaml"
    assert "Hausdorff" in more.disk("evaluate", run, "--configfile", preset)
    more.disk("play", run, "--configfile", preset, "--out", "skill.mp4")
    assert (tmp_path / "there/skill.mp4").stat().st_size > 1000
