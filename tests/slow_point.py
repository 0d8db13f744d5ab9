"""The point robot, slowed down: a training that lasts as long as a test needs and costs the machine little.

SLOW_POINT is the seconds that a step sleeps, until there is a file SLOW_POINT_UNTIL. Neither is a part of the world:
the same job without them gives the same bytes.
"""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np

from disk.envs.point import PointEnv


class SlowPoint(PointEnv):
    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not os.path.exists(os.environ.get("SLOW_POINT_UNTIL", "")):
            time.sleep(float(os.environ.get("SLOW_POINT", "0")))
        return super().step(action)


gymnasium.register(id="slow_point/SlowPoint-v0", entry_point=SlowPoint)
