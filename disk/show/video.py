"""Videos of skills: a clip of each, all of a run side by side, and the viewer.

A clip shows a skill's first evaluation episode in the world of a condition. Each frame carries the skill's number, the
distance from the start and a small map, on one scale for all skills of a run. Episodes are simulated first; then every
n-th state is drawn, so that a clip lasts a few seconds at any horizon. Files are replaced as a whole.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from disk.config import Config, EvaluationJob
from disk.errors import ArtefactError
from disk.evaluation.rollout import planar
from disk.lazy import need
from disk.show.render import SIZE, Screen, model_of
from disk.storage.files import whole

if TYPE_CHECKING:
    from disk.envs import Projected
    from disk.skills import Skills

log = logging.getLogger("disk")

MOST_FRAMES = 125
FRAMES_A_SECOND = 20
ENDING = 10
"""Frames for which the last picture stays."""
GRID = 1280
"""Largest width of the video with all skills."""
MAP = 64
"""Side of the map in a frame, in pixels; a quarter as high if the position is one number."""
INK, PAPER, PALE = (34, 34, 34), (255, 255, 255), (138, 138, 138)


@dataclass(frozen=True)
class Recording:
    """The drawn states of an episode: every n-th one."""

    skill: int
    broken: bool
    """True if the simulation broke down; later states are not drawn."""
    qpos: np.ndarray  # (T, nq)
    place: np.ndarray  # (T, 2), the centre of mass
    position: np.ndarray  # (T, D), as measured


def render_run(job: EvaluationJob, skills: Skills, out: Path, clips: Path, label: str = "") -> None:
    """Write all skills of a run as one video, and a clip of each, `skill{NN}.mp4`."""
    recordings = record(job, skills, range(len(skills)))
    length = max(len(recording.qpos) for recording in recordings) + ENDING
    columns, rows, tile = _grid(len(skills))
    clips.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as file:
        # Mapped to a file: the frames of fifty skills would fill the memory of a small machine.
        shape = (length, rows * tile[1], columns * tile[0], 3)
        mosaic = np.memmap(file, dtype=np.uint8, mode="w+", shape=shape)
        mosaic[:] = 255
        for place, recording in enumerate(recordings):
            pictures = list(_pictures(job, skills, recording, recordings, label))
            write(clips / f"skill{recording.skill:02d}.mp4", (np.asarray(picture) for picture in pictures))
            top, left = place // columns * tile[1], place % columns * tile[0]
            for frame in range(length):
                picture = pictures[min(frame, len(pictures) - 1)]
                mosaic[frame, top : top + tile[1], left : left + tile[0]] = np.asarray(picture.resize(tile))
        write(out, mosaic)


def render_skill(job: EvaluationJob, skills: Skills, skill: int, out: Path, label: str = "") -> None:
    """Write a clip of one skill, with the map on the scale of all skills."""
    recordings = record(job, skills, range(len(skills)))
    write(out, (np.asarray(picture) for picture in _pictures(job, skills, recordings[skill], recordings, label)))


def record(job: EvaluationJob, skills: Skills, which: Iterable[int]) -> list[Recording]:
    """Simulate the first evaluation episode of some skills."""
    every = ceil(job.horizon / MOST_FRAMES)
    recordings = []
    for skill in which:
        env = _world(job, skill)
        data = model_of(env)[1]
        qpos, place, position = [], [], []
        for info in _episode(env, skills, skill, job.seed):
            qpos.append(np.array(data.qpos))
            place.append(np.array(data.subtree_com[1][:2]))
            position.append(np.array(info["position"], dtype=float))
        env.close()
        finite = np.isfinite(np.column_stack([qpos, place, position])).all(axis=1)
        sound = len(finite) if finite.all() else int(np.argmin(finite))
        if not sound:
            raise ArtefactError(f"skill {skill}: its first position is not finite, so nothing can be drawn")
        kept = sorted({*range(0, sound, every), sound - 1})
        parts = [np.array(each)[kept] for each in (qpos, place, position)]
        recordings.append(Recording(skill, sound < len(finite), *parts))
    return recordings


def _world(job: EvaluationJob, skill: int) -> Projected:
    """Build the world that a skill is shown in; refuse one that cannot be drawn."""
    from disk.envs import make

    env = make(job.world, job.step_of(skill), horizon=job.horizon)
    model_of(env)
    return env


def _episode(env: Projected, skills: Skills, skill: int, seed: int) -> Iterator[dict[str, Any]]:
    """Play a skill's first evaluation episode in `env`; yield the info of the reset and of each step."""
    from disk.seeds import seed_of
    from disk.skills import shown

    policy = skills.pick([skill])
    obs, info = env.reset(seed=seed_of("evaluation", seed, 0))
    yield info
    over = False
    while not over:
        seen = np.asarray(shown(skills.meta, obs, info), dtype=np.float32)
        obs, _, terminated, truncated, info = env.step(env.to_native(policy.actions(seen[None, None])[0, 0]))
        over = terminated or truncated
        yield info


def _grid(count: int) -> tuple[int, int, tuple[int, int]]:
    """Return columns, rows and the size of a tile. The codec needs even sizes."""
    columns = max(1, isqrt(count - 1) + 1)
    width = min(SIZE[0], GRID // columns // 2 * 2)
    return columns, ceil(count / columns), (width, width * SIZE[1] // SIZE[0] // 2 * 2)


def _pictures(
    job: EvaluationJob, skills: Skills, recording: Recording, everyone: Sequence[Recording], label: str
) -> Iterator[Any]:
    colour, env = _colour(recording.skill), _world(job, recording.skill)
    scale = _Map([each.position for each in everyone])
    with Screen(env) as screen:
        picture = None
        for t, qpos in enumerate(recording.qpos):
            picture = screen.draw(qpos, list(recording.place[:t]), [*(part / 255 for part in colour), 1.0])
            away = float(np.linalg.norm(recording.position[t] - recording.position[0]))
            words = f"skill {recording.skill + 1} of {len(skills)}"
            if recording.broken and t == len(recording.qpos) - 1:
                words += ", simulation broke down"
            _caption(picture, words, f"{away:.1f} m", label, colour)
            scale.draw(picture, recording.position[: t + 1], colour)
            yield picture
        for _ in range(ENDING):
            yield picture
    env.close()


def _colour(skill: int) -> tuple[int, int, int]:
    from PIL import ImageColor

    from disk.figures.style import PALETTE

    return ImageColor.getrgb(PALETTE[skill % len(PALETTE)])[:3]


def _caption(picture: Any, left: str, right: str, label: str, colour: tuple[int, int, int]) -> None:
    from PIL import ImageDraw, ImageFont

    draw, font, small = ImageDraw.Draw(picture, "RGBA"), ImageFont.load_default(14), ImageFont.load_default(11)
    width, height = picture.size
    draw.rectangle((0, height - 24, width, height), fill=(*PAPER, 215))
    draw.rectangle((8, height - 17, 18, height - 7), fill=colour)
    draw.text((24, height - 12), left, fill=INK, font=font, anchor="lm")
    draw.text((width - 8, height - 12), right, fill=INK, font=font, anchor="rm")
    if label:
        box = draw.textbbox((8, 7), label, font=small)
        draw.rectangle((box[0] - 4, box[1] - 3, box[2] + 4, box[3] + 3), fill=(*PAPER, 200))
        draw.text((8, 7), label, fill=INK, font=small)


class _Map:
    """A map of the path so far, on the scale of all skills of a run."""

    def __init__(self, positions: Sequence[np.ndarray]) -> None:
        points = np.concatenate([planar(position) for position in positions])
        low, high = points.min(axis=0), points.max(axis=0)
        self._centre, self._half = (low + high) / 2, max(float((high - low).max()) / 2, 0.5)
        self._flat = positions[0].shape[1] == 1

    def draw(self, picture: Any, position: np.ndarray, colour: tuple[int, int, int]) -> None:
        from PIL import ImageDraw

        draw = ImageDraw.Draw(picture, "RGBA")
        high = MAP // 4 if self._flat else MAP
        left, top = picture.size[0] - MAP - 8, 8
        draw.rectangle((left, top, left + MAP, top + high), fill=(*PAPER, 200), outline=PALE)
        scaled = (planar(position) - self._centre) / self._half * (MAP / 2 - 5)
        points = [(left + MAP / 2 + x, top + high / 2 - y) for x, y in scaled]
        x, y = points[0]
        draw.line((x - 3, y, x + 3, y), fill=INK)
        draw.line((x, y - 3, x, y + 3), fill=INK)
        if len(points) > 1:
            draw.line(points, fill=colour, width=2, joint="curve")
        x, y = points[-1]
        draw.ellipse((x - 2.5, y - 2.5, x + 2.5, y + 2.5), fill=colour, outline=INK)


def write(out: Path, frames: Iterable[np.ndarray]) -> None:
    """Write an H.264 video that browsers play; `out` is replaced as a whole."""
    need("imageio_ffmpeg")
    import imageio.v2 as imageio

    with tempfile.TemporaryDirectory(prefix="disk-video-") as folder:
        path = Path(folder) / "video.mp4"
        writer: Any = imageio.get_writer(
            path,
            format="FFMPEG",
            fps=FRAMES_A_SECOND,
            codec="libx264",
            quality=None,
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=["-crf", "24", "-threads", "1", "-movflags", "+faststart"],
        )
        with writer:
            for frame in frames:
                writer.append_data(np.ascontiguousarray(frame))
        with whole(out) as file, path.open("rb") as made:
            shutil.copyfileobj(made, file)


def has_display() -> bool:
    """Return True if a window can be opened."""
    return platform.system() != "Linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def watch(job: EvaluationJob, skills: Skills, skill: int) -> None:
    """Repeat a skill's first evaluation episode in MuJoCo's viewer until its window is closed."""
    import mujoco.viewer

    from disk.show.render import camera_of

    env = _world(job, skill)
    model, data = model_of(env)
    view = camera_of(env)
    with mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False) as window:
        window.cam.distance, window.cam.azimuth, window.cam.elevation = view.distance, view.azimuth, view.elevation
        while window.is_running():
            for _ in _episode(env, skills, skill, job.seed):
                window.cam.lookat[:] = data.subtree_com[1]
                window.sync()
                time.sleep(env.dt)
                if not window.is_running():
                    break
    env.close()


def play_run(config: Config, run: Path, skill: int, condition: str | None, out: Path | None) -> str:
    """Show a skill of a run in the viewer, or write a video if there is no screen; return a line that says which."""
    from disk.evaluation.words import skill_label
    from disk.skills import load

    skills = load(run)
    if not 0 <= skill < len(skills):
        raise ArtefactError(f"{run}: has no skill {skill}; its skills are 0 to {len(skills) - 1}")
    method = run.resolve().parent.name  # `pretrained` for published skills
    job = config.evaluation_job(skills.meta["env"], condition, method if method in config.methods else None)
    name, shown = f"skill{skill:02d}", f"{skill_label(skill)} of {len(skills)}"
    if out is None and has_display():
        log.info("%s: close the viewer's window to end", shown)
        try:
            watch(job, skills, skill)
            return f"{shown}: shown in the viewer"
        except RuntimeError as error:  # a display without OpenGL, as over a bare ssh -X
            log.warning("the viewer cannot be opened (%s); writing a file", error)
    out = out or run / "play" / f"{name}{f'.{condition}' if condition else ''}.mp4"
    render_skill(job, skills, skill, out, label=f"{method}, {run.name}")
    return f"{shown}: written to {out}"
