"""Live pages compute what Python computes: the skills' actions, the observations, and what a page is made of."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import PROJECT, tiny_config
from gymnasium.envs.mujoco.ant_v5 import AntEnv

from disk.cli import main
from disk.config import World
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.show import live, physics
from disk.show.live import build, build_beside_gallery, build_missing, evaluation, pages
from disk.show.world import describe
from disk.skills import Skills, load
from disk.storage.files import load_tensors, save_tensors

PRETRAINED = PROJECT / "pretrained"
EXACT_WORLDS = ("halfcheetah", "hopper", "swimmer")
STEPS = 100


def node(task: str, given: Any) -> Any:
    """Run a task of tests/live.mjs, which imports the page's own modules."""
    command = ["node", str(PROJECT / "tests" / "live.mjs"), task]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.needs("node")
@pytest.mark.parametrize("name", ["ant", "hopper"])
def test_the_page_computes_the_actions_that_python_computes(name: str) -> None:
    skills = load(PRETRAINED / name)
    seen = 2.0 * np.random.default_rng(0).standard_normal((1000, skills.observation_size)).astype(np.float32)
    found = np.array(node("act", {"policy": live._policy(skills), "observations": seen.tolist()}))
    for skill in skills:
        np.testing.assert_allclose(found[skill.index], skill.act(seen), atol=1e-5, rtol=0)


@pytest.mark.needs("node")
def test_latents_positions_and_bounds_reach_the_page(tmp_path: Path) -> None:
    """One network, three latents, an actor that also sees the position, and bounds other than -1 and 1."""
    tensors, meta = load_tensors(PRETRAINED / "swimmer" / "skills.safetensors")
    generator = np.random.default_rng(1)
    latent = generator.standard_normal((3, 2)).astype(np.float32)
    import torch

    extra = meta["observation_size"] + 2  # the position behind the observation
    weight = torch.from_numpy(generator.standard_normal((1, extra + 2, 256)).astype(np.float16).astype(np.float32))
    tensors = {name: value[:1].float() for name, value in tensors.items()} | {"mlp.weights.0": weight}
    tensors |= {"which": torch.zeros(3, dtype=torch.int64), "latent": torch.from_numpy(latent)}
    meta |= {"observation_size": extra, "latent_size": 2, "sees_position": True}
    meta |= {"action_low": [0.0, -3.0], "action_high": [1.0, 5.0]}
    save_tensors(tmp_path / "skills.safetensors", tensors, meta)
    skills = load(tmp_path)
    policy = live._policy(skills)
    assert policy["seesPosition"]
    seen = generator.standard_normal((50, extra)).astype(np.float32)
    found = np.array(node("act", {"policy": policy, "observations": seen.tolist()}))
    for skill in skills:
        np.testing.assert_allclose(found[skill.index], skill.act(seen), atol=1e-5, rtol=0)


@pytest.mark.needs("node")
def test_the_page_chooses_skills_as_a_trained_controller_does(tmp_path: Path) -> None:
    """Weights as SB3's PPO names them: two layers of 64 with tanh, and an output for each skill."""
    import torch

    draw = torch.Generator().manual_seed(0)
    sizes = (("mlp_extractor.policy_net.0", 29, 64), ("mlp_extractor.policy_net.2", 64, 64), ("action_net", 64, 10))
    tensors = {}
    for name, inputs, outputs in sizes:
        tensors[f"policy/{name}.weight"] = torch.randn(outputs, inputs, generator=draw)
        tensors[f"policy/{name}.bias"] = torch.randn(outputs, generator=draw)
    (tmp_path / "hierarchy").mkdir()
    meta = {"kind": "controller", "skills": 10, "steps": 10}
    save_tensors(tmp_path / "hierarchy" / "seed0.safetensors", tensors, meta)
    (tmp_path / "hierarchy" / "seed0.json").write_text(json.dumps({"job": {"size": 15.0}}))
    seen, ways = torch.randn(200, 27, generator=draw), 10.0 * torch.randn(200, 2, generator=draw)
    x = torch.cat((seen, ways / 15.0), dim=1)
    for name, _, outputs in sizes:
        x = x @ tensors[f"policy/{name}.weight"].T + tensors[f"policy/{name}.bias"]
        x = x if outputs == 10 else x.tanh()
    controller = live._controller(tmp_path, 10)
    given = {"controller": controller, "observations": seen.tolist(), "ways": ways.tolist()}
    assert node("choose", given) == x.argmax(dim=1).tolist()
    assert live._controller(tmp_path, 9) is None  # of other skills


def episodes_of(skills: Skills, count: int) -> tuple[list[dict[str, Any]], list[np.ndarray], list[np.ndarray]]:
    """Native episodes of the first skills: states and actions, first observations, observations after each action."""
    env = make(skills.world, horizon=10 * STEPS)
    data: Any = env.unwrapped.data  # type: ignore[attr-defined]
    episodes, first, after = [], [], []
    for skill in skills[:count]:
        obs, _ = env.reset(seed=skill.index)
        first.append(obs)
        states, actions, observations = [], [], []
        for _ in range(STEPS):
            states.append({"qpos": data.qpos.tolist(), "qvel": data.qvel.tolist()})
            actions.append(skill.act(obs).astype(np.float64).tolist())
            obs, *_ = env.step(np.array(actions[-1]))
            observations.append(obs)
        episodes.append({"states": states, "actions": actions})
        after.append(np.array(observations))
    env.close()
    return episodes, first, after


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """MuJoCo for browsers, as Node takes it."""
    module = tmp_path_factory.mktemp("engine") / "mujoco.mjs"
    loaded = physics.load()
    module.write_text(loaded.script)
    return {"module": str(module), "wasm": base64.b64encode(loaded.wasm).decode()}


def errors(name: str, engine: dict[str, str], count: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Largest errors of the page's observations, (skills, steps): from each native state, and freely from the first."""
    skills = load(PRETRAINED / name)
    episodes, first, after = episodes_of(skills, count)
    about = describe(skills.world, 0, [0]) | {"files": {}}
    found = node("observe", {**engine, "world": about, "episodes": episodes})
    for mine, own in zip(found, first, strict=True):
        np.testing.assert_array_equal(mine["first"], own)  # no physics yet: the same numbers
    each, free = (
        np.array([np.abs(np.array(mine[key]) - own).max(axis=1) for mine, own in zip(found, after, strict=True)])
        for key in ("each", "free")
    )
    return each, free


@pytest.mark.needs("node")
@pytest.mark.needs("wasm")
@pytest.mark.parametrize("name", EXACT_WORLDS)
def test_a_hundred_steps_in_the_page_are_those_of_gymnasium(name: str, engine: dict[str, str]) -> None:
    """MuJoCo 3.14 and 4.0 agree to rounding here: 5e-13 was the largest error of a step. 1e-9 leaves room for another
    processor. Freely, rounding grows: 20 steps stay below 1e-6."""
    each, free = errors(name, engine)
    assert each.shape[1] == STEPS
    assert each.max() < 1e-9
    assert free[:, :20].max() < 1e-6


@pytest.mark.needs("node")
@pytest.mark.needs("wasm")
def test_an_ant_in_the_page_steps_like_gymnasiums_until_contacts_tell_versions_apart(engine: dict[str, str]) -> None:
    """The two versions' solvers stop at other points where limits and contacts act together. A step's error is about
    4e-6 in the median, but 0.1 where a contact begins a substep earlier, because a velocity jumps there."""
    each, free = errors("ant", engine, count=6)
    assert np.median(each) < 1e-4
    assert np.quantile(each, 0.98) < 0.05
    assert free[:, 0].max() < 1e-3


def test_what_an_observation_is_built_from_is_found_by_experiment() -> None:
    found = {name: describe(load(PRETRAINED / name).world, 0, [0])["observation"] for name in (*EXACT_WORLDS, "ant")}
    assert found == {
        "halfcheetah": {"skip": 1, "clip": None},
        "hopper": {"skip": 1, "clip": 10.0},  # velocities within ±10
        "swimmer": {"skip": 2, "clip": None},
        "ant": {"skip": 2, "clip": None},
    }
    point = describe(tiny_config().environment("point").world(), 0, [0])
    assert point["observation"] == {"skip": 2, "clip": None}


def test_an_observation_that_a_page_cannot_build_is_refused() -> None:
    world = World.model_validate({"id": "Ant-v5", "position": {"qpos": [0, 1]}, "horizon": 10})  # with contact forces
    with pytest.raises(ConfigError, match=r"positions followed by velocities.*include_cfrc_ext"):
        describe(world, 0, [0])


def test_limbs_break_as_a_whole_and_single_actuators_where_there_is_one_limb() -> None:
    def names(env: str) -> list[tuple[str, list[int]]]:
        about = describe(tiny_config().environment(env).world(), 0, [0])
        return [(group["name"], group["actuators"]) for group in about["groups"]]

    # Gymnasium's Ant: actuators (0, 1) are leg 4, (2, 3) leg 1, (4, 5) leg 2, (6, 7) leg 3.
    legs = [
        ("front left leg", [2, 3]),
        ("front right leg", [4, 5]),
        ("back left leg", [6, 7]),
        ("back right leg", [0, 1]),
    ]
    assert names("ant") == legs
    assert names("halfcheetah") == [("back leg", [0, 1, 2]), ("front leg", [3, 4, 5])]
    assert [own for _, own in names("hopper")] == [[0], [1], [2]]
    assert names("point") == [("east", [0]), ("west", [1]), ("north", [2]), ("south", [3])]


def test_a_world_that_changes_starts_as_in_its_first_condition() -> None:
    world = tiny_config().environment("ant_broken").world()
    assert describe(world, 2_000_000, [0])["broken"] == [0]  # condition leg1
    assert describe(world, 3_000_000, [0])["broken"] == [1]
    blocks = describe(tiny_config().environment("ant_blocks_even").world(), 5_000_000, [0])
    assert len(blocks["blocks"]) == 40
    assert {block["z"] for block in blocks["blocks"]} == {-4.0}  # as in training: below the floor
    bodies = np.array(blocks["exact"]["body_pos"]).reshape(-1, 3)
    assert (bodies[[block["body"] for block in blocks["blocks"]], 2] == 0.0).all()  # the page removes them itself
    order = [np.arctan2(*bodies[block["body"], [1, 0]]) % (2 * np.pi) for block in blocks["blocks"]]
    assert order == sorted(order)  # counter-clockwise


def test_starts_are_those_of_the_native_evaluation(tmp_path: Path) -> None:
    world = load(PRETRAINED / "hopper").world
    (start,) = describe(world, 0, [123])["starts"]
    env = make(world)
    env.reset(seed=123)
    data: Any = env.unwrapped.data  # type: ignore[attr-defined]
    assert start == {"qpos": data.qpos.tolist(), "qvel": data.qvel.tolist()}


class AntWithMesh(AntEnv):
    """The ant with a tetrahedron on its back, from a file beside its model."""


@pytest.mark.needs("node")
@pytest.mark.needs("wasm")
def test_meshes_travel_with_the_page(tmp_path: Path, engine: dict[str, str]) -> None:
    folder = Path(str(gymnasium.__file__)).parent / "envs" / "mujoco" / "assets"
    text = (folder / "ant.xml").read_text()
    text = text.replace("<asset>", '<asset><mesh name="hat" file="hat.obj"/>', 1)
    text = text.replace(
        '<geom name="torso_geom"', '<geom type="mesh" mesh="hat" mass="0.01"/><geom name="torso_geom"', 1
    )
    (tmp_path / "ant.xml").write_text(text)
    (tmp_path / "hat.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n")
    gymnasium.register(id="tests/AntWithMesh-v0", entry_point=AntWithMesh)
    kwargs = {"include_cfrc_ext_in_observation": False, "xml_file": str(tmp_path / "ant.xml")}
    world = World.model_validate(
        {"id": "tests/AntWithMesh-v0", "kwargs": kwargs, "position": {"qpos": [0, 1]}, "horizon": 10}
    )
    about = describe(world, 0, [0])
    assert about["files"] == {"hat.obj": (tmp_path / "hat.obj").read_bytes()}
    about["files"] = {name: live._packed(content) for name, content in about["files"].items()}
    assert node("meshes", {**engine, "world": about}) == [4, 4]


@pytest.mark.needs("wasm")
def test_a_page_names_its_size_and_stays_below_eight_megabytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EPISODES", 1)
    assert main(["live", str(PRETRAINED / "hopper"), "--out", str(tmp_path / "page.html")]) == 0
    size = (tmp_path / "page.html").stat().st_size
    assert f"{size / 1e6:.1f} MB, 4 skills of hopper" in capsys.readouterr().out
    assert 3_000_000 < size < 8_000_000
    text = (tmp_path / "page.html").read_text()
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", text.split('<script type="application/json"')[0])
    (policy,) = re.findall(r"Content-Security-Policy\"\s+content=\"([^\"]+)\"", text)
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-\S+' 'unsafe-eval'", allowed["script-src"])
    assert re.fullmatch(r"'sha256-\S+'", allowed["style-src"])
    assert "connect-src" not in allowed  # default-src forbids every request


@pytest.mark.needs("wasm")
def test_further_runs_are_left_out_and_named_when_a_page_would_grow_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EPISODES", 1)
    monkeypatch.setattr(live, "MOST_BYTES", 5_000_000)
    runs = []
    for seed in (0, 1):
        runs.append(tmp_path / "hopper" / "disk" / f"seed{seed}")
        runs[-1].mkdir(parents=True)
        (runs[-1] / "skills.safetensors").write_bytes((PRETRAINED / "hopper" / "skills.safetensors").read_bytes())
    assert build(runs, tmp_path / "page.html", tiny_config()).endswith("left out for its size: DISk, seed 1")


def test_without_mujoco_for_browsers_a_line_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["live", str(PRETRAINED / "hopper"), "--out", str(tmp_path / "page.html")]) == 1
    assert "python -m disk live --fetch" in caplog.text
    assert not (tmp_path / "page.html").exists()
    build_missing(tmp_path / "page.html", "<b>no npm</b>")
    assert "&lt;b&gt;no npm" in (tmp_path / "page.html").read_text()


def test_a_gallery_without_a_live_page_gets_one_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, native = tmp_path / "live.html", evaluation(tiny_config(), "hopper")
    assert "no run with trained skills" in build_beside_gallery([], page, native)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = build_beside_gallery([PRETRAINED / "hopper"], page, native)
    assert "live --fetch" in said
    assert "live --fetch" in page.read_text()


def test_an_environment_without_mujoco_is_refused() -> None:
    world = World.model_validate({"id": "Pendulum-v1", "position": {"observation": [0]}, "horizon": 10})
    with pytest.raises(ConfigError, match="Pendulum-v1: is not a MuJoCo environment"):
        describe(world, 0, [0])


@pytest.mark.needs("wasm")
def test_the_map_shows_the_runs_own_rollouts_where_there_are_any(tmp_path: Path) -> None:
    import pandas as pd

    from disk.evaluation.tables import save_rollouts

    run = tmp_path / "hopper" / "disk" / "seed0"
    (run / "rollouts").mkdir(parents=True)
    (run / "skills.safetensors").write_bytes((PRETRAINED / "hopper" / "skills.safetensors").read_bytes())
    steps = pd.DataFrame({"step": range(11), "x": np.linspace(0.0, 7.0, 11), "y": 0.0})
    frames = [steps.assign(skill=skill, episode=0, vx=0.0, vy=0.0) for skill in range(4)]
    save_rollouts(pd.concat(frames), run / "rollouts" / "nominal.parquet")
    build([run], tmp_path / "page.html", tiny_config())
    (found,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert [skill["moved"] for skill in json.loads(found)["runs"][0]["native"]] == [[7.0, 0.0]] * 4


def test_pages_are_named_after_their_runs(tmp_path: Path) -> None:
    runs = [tmp_path / "pretrained" / "ant", tmp_path / "results" / "ant" / "disk" / "seed3", tmp_path / "README.md"]
    for run in runs[:2]:
        run.mkdir(parents=True)
        (run / "skills.safetensors").touch()
    runs[2].touch()
    assert pages(runs, tmp_path / "out") == [
        (runs[0], tmp_path / "out" / "ant.html"),
        (runs[1], tmp_path / "out" / "ant_disk_seed3.html"),
    ]
    assert pages(runs[:1], None) == [(runs[0], runs[0] / "live.html")]
    assert pages(runs[:1], tmp_path / "page.html") == [(runs[0], tmp_path / "page.html")]


def test_a_mistyped_path_among_several_is_named_and_no_page_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, out = [tmp_path / "pretrained" / "hoper", tmp_path / "swimer"], tmp_path / "out"
    assert main(["live", str(PRETRAINED / "hopper"), *map(str, wrong), "--out", str(out)]) == 1
    assert f"{wrong[0]}, {wrong[1]}: no skills.safetensors there" in caplog.text
    assert not out.exists()


def test_two_runs_with_one_page_between_them_are_refused(tmp_path: Path) -> None:
    runs = [tmp_path / place / "point" / "disk" / "seed0" for place in ("one", "other")]
    for run in runs:
        (run / "snapshots").mkdir(parents=True)
        (run / "skills.safetensors").touch()
    with pytest.raises(ConfigError, match=rf"point_disk_seed0\.html: would be the page of {runs[0]} and of {runs[1]}"):
        pages(runs, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"live\.html: would be the page of"):
        pages([runs[0] / "snapshots" / f"{step}.safetensors" for step in (1, 2)], None)
    assert [page for _, page in pages(runs, None)] == [run / "live.html" for run in runs]


def pretend_npm(folder: Path, content: dict[str, bytes]) -> None:
    """An `npm` whose `pack` leaves an archive with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    (folder / "packed.tgz").write_bytes(packed.getvalue())
    (folder / "npm").write_text(f"#!/bin/sh\ncp '{folder}/packed.tgz' mujoco.tgz\n")
    (folder / "npm").chmod(0o755)


def test_a_package_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    pretend_npm(tmp_path, {"mujoco.js": b"alert(1)", "mujoco.wasm": b"\0asm"})
    with pytest.raises(ArtefactError, match=r"mujoco\.js has checksum"):
        physics.fetch()
    assert not physics.available()


@pytest.mark.needs("wasm")
def test_a_damaged_cache_is_refused_and_fetch_repairs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = physics.load()
    content = {"mujoco.js": good.script.encode(), "mujoco.wasm": gzip.decompress(good.wasm)}
    pretend_npm(tmp_path, content)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "fetched MuJoCo" in physics.fetch()
    faults = (
        ("mujoco.js", content["mujoco.js"][:-1], r"mujoco\.js has checksum"),
        ("mujoco.wasm.gz", gzip.compress(b"\0asm"), r"mujoco\.wasm has checksum"),
        ("mujoco.wasm.gz", good.wasm[:-9], "end-of-stream"),
        ("mujoco.wasm.gz", b"no archive", "gzip"),
        ("mujoco.wasm.gz", good.wasm[:10] + b"\xff" * 64, "invalid block type"),
    )
    for name, damaged, said in faults:
        (physics.cache() / name).write_bytes(damaged)
        with pytest.raises(ArtefactError, match=f"{said}.*live --fetch"):
            physics.load()
        assert "fetched MuJoCo" in physics.fetch(), name
        assert physics.load() == good
    assert "is there" in physics.fetch()
