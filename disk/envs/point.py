"""A point robot in the plane, small enough to learn a skill in seconds.

## Action space
`Box(0, 1, (4,))`: the throttles of four thrusters that push towards +x, -x, +y and -y.

| index | actuator | pushes towards |
|---|---|---|
| 0 | `east`  | +x |
| 1 | `west`  | -x |
| 2 | `north` | +y |
| 3 | `south` | -y |

## Observation space
`Box(-inf, inf, (2,))`: the velocity (vx, vy). Like the larger robots', its observation leaves out the
position, so that a skill does not depend on where it starts. With `distractors`, that many random walks come behind
it. They start at 0, and `distractor_step` is the standard deviation of a step. No thruster moves them.

## Dynamics
A ball of 1 kg on two frictionless slides; linear drag balances a full thruster at 1 m/s, with a time
constant of 0.5 s. One step is 0.1 s.

## Episodes
Start at the origin with a little random velocity, never terminate. The reward is 0: rewards here are
intrinsic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Box

MODEL = Path(__file__).with_name("point.xml")


class PointEnv(MujocoEnv):
    metadata = {  # noqa: RUF012 - Gymnasium's interface
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 10,
    }

    def __init__(
        self,
        xml_file: str = str(MODEL),
        reset_noise_scale: float = 0.05,
        distractors: int = 0,
        distractor_step: float = 0.1,
        **kwargs: Any,
    ) -> None:
        self.reset_noise_scale, self.distractor_step = reset_noise_scale, distractor_step
        self.walks = np.zeros(distractors)
        super().__init__(
            xml_file,
            frame_skip=2,
            observation_space=Box(-np.inf, np.inf, shape=(2 + distractors,), dtype=np.float64),
            default_camera_config={"distance": 20.0, "elevation": -90.0},
            **kwargs,
        )

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self.do_simulation(action, self.frame_skip)
        if len(self.walks):
            self.walks = self.walks + self.np_random.normal(scale=self.distractor_step, size=len(self.walks))
        return self._observation(), 0.0, False, False, self._info()

    def reset_model(self) -> np.ndarray:
        self.walks = np.zeros_like(self.walks)
        noise = self.np_random.normal(scale=self.reset_noise_scale, size=self.model.nv)
        self.set_state(self.init_qpos, self.init_qvel + noise)  # type: ignore[no-untyped-call]
        return self._observation()

    def _observation(self) -> np.ndarray:
        return np.concatenate((self.data.qvel, self.walks))

    def _info(self) -> dict[str, Any]:
        return {"x_position": float(self.data.qpos[0]), "y_position": float(self.data.qpos[1])}

    def _get_reset_info(self) -> dict[str, Any]:
        return self._info()
