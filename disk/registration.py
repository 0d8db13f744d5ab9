"""Gymnasium ids of this package's environments, registered when `disk` is imported.

Gymnasium imports `disk` by itself for `gymnasium.make("disk:disk/AntBroken-v0")`. This module reads no file and no
MuJoCo model, so that `import disk` stays quick.
"""

from __future__ import annotations

import gymnasium

ROBOTS = {
    "Point": "disk.envs.point:PointEnv",
    "BlockedPoint": "disk.envs.blocks:BlockedPointEnv",
    "BlockedAnt": "disk.envs.blocks:BlockedAntEnv",
}
"""Robots without a projection; rows of envs.yaml are built on these."""
WORLDS = {
    "Ant": ("ant", 500),
    "HalfCheetah": ("halfcheetah", 500),
    "Hopper": ("hopper", 500),
    "Swimmer": ("swimmer", 500),
    "AntBroken": ("ant_broken", 200),
    "AntSurprise": ("ant_surprise", 200),
    "AntBlocks": ("ant_blocks_even", 500),
    "AntBlocksFast": ("ant_blocks_fast", 500),
    "AntBlocksSlow": ("ant_blocks_slow", 500),
    "HalfCheetahDrift": ("halfcheetah_drift", 500),
    "PointDistracted": ("point_distracted", 100),
    "PointBroken": ("point_broken", 100),
    "PointBlocks": ("point_blocks", 100),
}
"""Ids of rows of envs.yaml: the row's name, and its `test_horizon` as the length of an episode."""
ANY = "disk/World-v0"
"""The id of any row, by its `name`."""


def register() -> None:
    for name, place in ROBOTS.items():
        gymnasium.register(id=f"disk/{name}-v0", entry_point=place, max_episode_steps=1000)
    world = "disk.envs.worlds:WorldEnv"
    gymnasium.register(id=ANY, entry_point=world)
    for name, (row, steps) in WORLDS.items():
        gymnasium.register(id=f"disk/{name}-v0", entry_point=world, kwargs={"name": row}, max_episode_steps=steps)
