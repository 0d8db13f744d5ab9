"""Pictures of MuJoCo worlds, drawn without a screen.

`backend` chooses between EGL and OSMesa. A `Screen` draws states of one world and follows the robot: from above, with x
to the right and y up as in the figures, or from the side if the position is one number. Without a GPU, shadows,
reflections and multisampling would take most of the time. So a picture is drawn without them, at twice its size, and
scaled down.
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from disk.errors import ConfigError, RenderError

BACKENDS = ("egl", "osmesa")
HINT = "install one of them, on Debian and Ubuntu: apt-get install libegl1 libgl1-mesa-dri (EGL) or libosmesa6 (OSMesa)"
SIZE = (320, 240)
"""Width and height of a picture."""
OVERSAMPLING = 2
DEAD = (0.88, 0.0, 0.17, 1.0)
"""Colour of limbs with dead actuators, as in the figures of worlds."""
_TRY = """
import sys, importlib, mujoco
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
"""


@functools.cache
def backend() -> str:
    """Return the OpenGL backend to draw with: MUJOCO_GL if it is set, otherwise the first that works.

    Each is tried in its own process: a failure leaves PyOpenGL unusable, and some drivers crash.
    """
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    if platform.system() != "Linux":
        return asked or ("cgl" if platform.system() == "Darwin" else "glfw")
    reasons = []
    os.environ.setdefault("LP_NUM_THREADS", "1")  # Mesa would use all cores for a job of one thread
    for name in [asked] if asked in (*BACKENDS, "glfw") else BACKENDS:
        environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
        tried = subprocess.run(  # noqa: S603  our own code, with a name from BACKENDS
            [sys.executable, "-c", _TRY, name],
            env={**environment, "MUJOCO_GL": name},
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode == 0:
            return name
        reasons.append(f"{name}: {(tried.stderr.strip().splitlines() or ['crashed'])[-1]}")
    raise RenderError(f"nothing can draw without a screen here; {HINT}. Tried {'; '.join(reasons)}")


def model_of(env: Any) -> tuple[Any, Any]:
    """Return model and data of a MuJoCo environment; refuse any other."""
    import mujoco

    model, data = (getattr(env.unwrapped, name, None) for name in ("model", "data"))
    if not isinstance(model, mujoco.MjModel):
        raise ConfigError(f"{env.world.id}: is not a MuJoCo environment: only those can be rendered and played")
    return model, data


class Screen:
    """Draw states of one world. It repaints the model, so give it an environment of its own."""

    def __init__(self, env: Any, size: tuple[int, int] = SIZE) -> None:
        import mujoco

        from disk.envs.evolution import floor_of

        self.model, self.data = model_of(env)
        self._size = size
        width, height = OVERSAMPLING * size[0], OVERSAMPLING * size[1]
        _dress(self.model, env)
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = width, height
        self.model.vis.quality.offsamples = 0
        self.model.vis.quality.shadowsize = 0
        # mujoco.Renderer would use the MUJOCO_GL of the moment when mujoco was first imported.
        self._gl = importlib.import_module(f"mujoco.{backend()}").GLContext(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self.model, maxgeom=2000)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = 0
        self._camera = camera_of(env)
        self._floor = floor_of(self.model)
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)

    def close(self) -> None:
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def draw(self, qpos: np.ndarray, trail: Sequence[np.ndarray] = (), colour: Sequence[float] = DEAD) -> Any:
        """Return a Pillow image of the state `qpos`, with a trail through points of the plane (x, y)."""
        import mujoco
        from PIL import Image

        self.data.qpos[:] = qpos
        mujoco.mj_forward(self.model, self.data)
        place = self.data.subtree_com[1]
        self._camera.lookat[:] = [place[0], place[1], self._camera.lookat[2]]
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self.model, self.data, mujoco.MjvOption(), None, self._camera, everything, self._scene)
        self._add_trail([*trail, place[:2]], colour)
        view = mujoco.MjrRect(0, 0, self._pixels.shape[1], self._pixels.shape[0])
        self._gl.make_current()
        mujoco.mjr_render(view, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, view, self._context)
        return Image.fromarray(self._pixels[::-1]).resize(self._size, Image.Resampling.BOX)

    def _add_trail(self, points: Sequence[np.ndarray], colour: Sequence[float]) -> None:
        import mujoco

        width = 0.008 * self._camera.distance
        for start, end in pairwise(points):
            if self._scene.ngeom >= self._scene.maxgeom:
                return
            geom = self._scene.geoms[self._scene.ngeom]
            kind = mujoco.mjtGeom.mjGEOM_CAPSULE
            rgba = np.asarray(colour, dtype=np.float32)
            mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.zeros(9), rgba)
            mujoco.mjv_connector(geom, kind, width, [*start, self._floor + width], [*end, self._floor + width])
            geom.emission = 0.25
            self._scene.ngeom += 1


def camera_of(env: Any) -> Any:
    """Return a camera on the robot: from above, or from the side if its position is one number."""
    import mujoco

    model, data = model_of(env)
    mujoco.mj_forward(model, data)
    own = model.body_rootid[model.geom_bodyid] == model.body_rootid[1]
    reach = np.linalg.norm(data.geom_xpos - data.subtree_com[1], axis=1) + model.geom_rbound
    near = 4.5 * max(1.3, float(max(reach[own], default=0.0)))  # a small robot must be seen to move
    things = np.linalg.norm(data.xpos[1:, :2], axis=1)[(model.body_rootid != model.body_rootid[1])[1:]]
    camera = mujoco.MjvCamera()
    camera.distance = min(max(near, 1.7 * float(min(things, default=0.0))), 3.0 * near)  # blocks, if not too far off
    camera.azimuth = 90.0  # x to the right
    camera.elevation = -12.0 if len(env.world.position.entries) == 1 else -89.0
    camera.lookat[:] = data.subtree_com[1]
    return camera


def _dress(model: Any, env: Any) -> None:
    """Make the floor pale and endless, and give dead limbs their colour."""
    import mujoco

    from disk.envs.evolution import Evolving

    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        material = model.geom_matid[geom]
        model.geom_size[geom, :2] *= 10.0  # contacts treat planes as endless anyway
        if material >= 0:
            model.mat_texrepeat[material] *= 10.0
            model.mat_specular[material] = 0.0
            texture = model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB]
            if texture >= 0:
                size = model.tex_width[texture] * model.tex_height[texture] * model.tex_nchannel[texture]
                part = slice(model.tex_adr[texture], model.tex_adr[texture] + size)
                shade = model.tex_data[part].astype(float)
                model.tex_data[part] = 214 + 24 * (shade - shade.min()) / max(1.0, np.ptp(shade))
        model.geom_rgba[geom] = (1.0, 1.0, 1.0, 1.0)
    if not isinstance(env.env, Evolving):
        return
    for actuator in np.flatnonzero(env.env.control_scale == 0.0):
        joint = model.actuator_trnid[actuator, 0]
        if model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT:
            continue
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE:  # a slide joint moves the whole robot: it is no limb
            geoms = model.geom_bodyid == model.jnt_bodyid[joint]
            model.geom_rgba[geoms], model.geom_matid[geoms] = DEAD, -1
