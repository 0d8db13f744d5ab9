"""Videos show the skills in the worlds they are measured in; a machine or a world that cannot be drawn is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import tiny_config

from disk.cli import main
from disk.config import Config, EvaluationJob, World
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.run import roll_out
from disk.learning.run import learn_jointly
from disk.show import render, video
from disk.skills import Skills, load

SHORT = {"environments": {"point": {"test_horizon": 12}}}
METRA = {"metra": {"hidden": [16]}, "methods": {"metra": {"steps": 100}}}


def skills_of(config: Config, folder: Path, method: str = "random", env: str = "point") -> Skills:
    learn_jointly(config.joint_job(env, method, 0), folder, config.runtime)
    return load(folder)


def frames_of(path: Path) -> np.ndarray:
    import imageio.v3 as imageio

    return imageio.imread(path, plugin="FFMPEG")  # (T, H, W, 3)


def like(picture: Any, colour: tuple[float, ...], tolerance: int = 60) -> np.ndarray:
    """Where a picture has a colour, (H, W)."""
    difference = np.asarray(picture).astype(int) - (255 * np.array(colour[:3])).astype(int)
    return np.abs(difference).max(axis=-1) < tolerance


def picture_of(env: str, condition: str | None = None, at: tuple[float, ...] = (), trail: Any = ()) -> Any:
    job = tiny_config().evaluation_job(env, condition)
    step = job.world_steps if isinstance(job.world_steps, int) else job.world_steps[0]
    world = make(job.world, step)
    world.reset(seed=0)
    qpos = np.array(render.model_of(world)[1].qpos)
    qpos[: len(at)] = at
    with render.Screen(world) as screen:
        return screen.draw(qpos, [np.array(point) for point in trail], (1.0, 0.0, 1.0, 1.0))


@pytest.mark.needs("gl")
def test_a_run_has_a_video_of_all_skills_and_a_clip_of_each(tmp_path: Path) -> None:
    config = tiny_config(SHORT)
    skills = skills_of(config, tmp_path)
    video.render_run(config.evaluation_job("point"), skills, tmp_path / "skills.mp4", tmp_path / "clips", "random")
    clips = [frames_of(tmp_path / "clips" / f"skill{skill:02d}.mp4") for skill in range(3)]
    everyone = frames_of(tmp_path / "skills.mp4")
    assert {clip.shape for clip in clips} == {(13 + video.ENDING, 240, 320, 3)}  # the start and a frame a step
    assert everyone.shape == (13 + video.ENDING, 480, 640, 3)
    for place, clip in enumerate(clips):  # up to what two compressions do to it
        top, left = 240 * (place // 2), 320 * (place % 2)
        assert np.abs(everyone[8, top : top + 240, left : left + 320].astype(int) - clip[8]).mean() < 4
        assert like(clip[8], (0.0, 0.45, 0.7)).sum() > 100  # the robot
        assert clip[0, -24:].std() > 10  # the caption
    assert np.abs(clips[0][8, -24:].astype(int) - clips[1][8, -24:]).mean() > 0.5  # which differs
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("method", ["random", "metra"])  # the latter's skills see positions
def test_a_clip_is_the_first_evaluation_episode(tmp_path: Path, method: str) -> None:
    config = tiny_config(SHORT, METRA)
    skills, job = skills_of(config, tmp_path, method), config.evaluation_job("point")
    rollouts = roll_out(job, skills)
    for recording in video.record(job, skills, range(3)):
        episode = rollouts[(rollouts["skill"] == recording.skill) & (rollouts["episode"] == 0)]
        np.testing.assert_allclose(recording.position, episode[["x", "y"]].to_numpy(), atol=1e-5)
        np.testing.assert_allclose(recording.qpos, recording.position, atol=1e-12)


def test_long_episodes_give_no_longer_clips(tmp_path: Path) -> None:
    config = tiny_config({"environments": {"point": {"test_horizon": 600}}})
    (recording,) = video.record(config.evaluation_job("point"), skills_of(config, tmp_path), [0])
    assert len(recording.qpos) == 121  # every fifth step, and the start


def test_a_clip_ends_where_the_simulation_breaks_down(tmp_path: Path, hooked: Any) -> None:
    def break_down(step: int, result: tuple[Any, ...]) -> tuple[Any, ...]:
        if step == 7:  # the first one tries the world out
            result[4]["x_position"] = np.nan
        return result

    position = {"qpos": None, "info": ["x_position", "y_position"]}
    config = tiny_config(SHORT, {"environments": {"point": {"id": "tests/HookedPoint-v0", "position": position}}})
    skills = skills_of(config, tmp_path)
    hooked.steps, hooked.on_step = 0, break_down
    (recording,) = video.record(config.evaluation_job("point"), skills, [0])
    assert recording.broken
    assert len(recording.qpos) == 6


@pytest.mark.needs("gl")
def test_x_is_to_the_right_and_y_is_up() -> None:
    rows, columns = np.nonzero(like(picture_of("point", at=(5.0, 5.0), trail=[(3.5, 5.0)]), (1.0, 0.0, 1.0), 90))
    assert len(columns) > 20
    assert columns.max() < 160  # it came from the left
    assert abs(rows.mean() - 120) < 8
    rows, _ = np.nonzero(like(picture_of("point", at=(5.0, 5.0), trail=[(5.0, 3.5)]), (1.0, 0.0, 1.0), 90))
    assert rows.min() > 115  # and from below


@pytest.mark.needs("gl")
def test_dead_legs_and_blocks_are_seen_and_a_robot_on_a_line_from_the_side() -> None:
    assert not like(picture_of("ant"), render.DEAD).any()
    dead = [np.nonzero(like(picture_of("ant_broken", leg), render.DEAD)) for leg in ("leg1", "leg3")]
    assert all(len(rows) > 50 for rows, _ in dead)
    assert dead[0][1].mean() > 165  # front left: towards +x and +y
    assert dead[0][0].mean() < 115
    assert dead[1][1].mean() < 155  # back left: towards -x and -y
    orange = (0.84, 0.37, 0.0)
    assert like(picture_of("point_blocks", "trained"), orange).sum() > 2000
    assert not like(picture_of("point_blocks", "nominal"), orange).any()
    sky = np.asarray(picture_of("hopper"))[:40].mean()
    assert sky < 150  # from above there would be nothing but pale floor


def test_what_cannot_be_drawn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(render, "BACKENDS", ("nowhere",))
    with pytest.raises(render.RenderError, match=r"apt-get install libegl1 libgl1-mesa-dri .EGL. or libosmesa6"):
        render.backend.__wrapped__()
    world = World(id="Pendulum-v1", position={"observation": [0, 1]}, horizon=10)
    job = EvaluationJob(env="pendulum", world=world, horizon=10, world_steps=0, episodes=1, seed=0)
    with pytest.raises(ConfigError, match="Pendulum-v1: is not a MuJoCo environment"):
        video._world(job, 0)


@pytest.mark.needs("gl")
def test_play_writes_a_file_where_there_is_no_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "point" / "random" / "seed0"
    skills_of(tiny_config(), run)
    preset = tmp_path / "short.yaml"
    preset.write_text("environments: {point: {test_horizon: 5}}")
    arguments = ["play", str(run), "--configfile", str(preset), "--skill"]
    assert main([*arguments, "1"]) == 0
    assert capsys.readouterr().out == f"skill 2 (index 1) of 3: written to {run}/play/skill01.mp4\n"
    assert len(frames_of(run / "play" / "skill01.mp4")) == 6 + video.ENDING
    assert main([*arguments, "3"]) == 1
    assert "has no skill 3; its skills are 0 to 2" in capsys.readouterr().err
    with pytest.raises(ArtefactError, match=r"has no skills\.safetensors"):
        video.play_run(tiny_config(), tmp_path, 0, None, None)
