"""Robots inside a ring of blocks: immovable spheres that an evolution removes one by one.

The ring is added with `mujoco.MjSpec` to the robot's own model. Blocks are bodies of their own, named
`block00`, `block01`, … counter-clockwise from the x axis. The observation is the robot's, without the
blocks, so that its skills run with and without them.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.utils import EzPickle

from disk.envs.point import PointEnv


class _Ring:
    """Put a ring of `blocks` spheres of `block_radius` at `block_distance` around a MujocoEnv's robot."""

    fullpath: str
    width: int
    height: int

    def __init__(self, blocks: int, block_radius: float, block_distance: float, **kwargs: Any) -> None:
        self._ring = (blocks, block_radius, block_distance)
        super().__init__(**kwargs)
        # What a copy is made from: the robot's own constructor has noted its arguments, not the ring's.
        EzPickle.__init__(self, *self._ring, **kwargs)  # type: ignore[arg-type]

    def model_spec(self) -> mujoco.MjSpec:
        """The robot's model with the ring, before compilation."""
        blocks, radius, distance = self._ring
        spec = mujoco.MjSpec.from_file(self.fullpath)
        for block in range(blocks):
            angle = 2.0 * np.pi * block / blocks
            place = [distance * np.cos(angle), distance * np.sin(angle), 0.0]
            body = spec.worldbody.add_body(name=f"block{block:02d}", pos=place)
            # Both flags explicitly: ant.xml's defaults switch them off, and the ant would walk through.
            body.add_geom(
                name=f"block{block:02d}",
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[radius, 0.0, 0.0],
                rgba=[0.84, 0.37, 0.0, 1.0],
                contype=1,
                conaffinity=1,
            )
        return spec

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        model = self.model_spec().compile()
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        return model, mujoco.MjData(model)


class BlockedAntEnv(_Ring, AntEnv):
    """Gymnasium's Ant in a ring of 40 blocks of radius 3 at distance 10, the paper's geometry."""

    def __init__(
        self, blocks: int = 40, block_radius: float = 3.0, block_distance: float = 10.0, **kwargs: Any
    ) -> None:
        super().__init__(blocks, block_radius, block_distance, **kwargs)


class BlockedPointEnv(_Ring, PointEnv, EzPickle):
    """The point robot in a closed ring of 16 blocks."""

    def __init__(self, blocks: int = 16, block_radius: float = 0.6, block_distance: float = 2.5, **kwargs: Any) -> None:
        super().__init__(blocks, block_radius, block_distance, **kwargs)
