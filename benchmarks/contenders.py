"""The learners that benchmarks/learner.py compares, each behind one function `run(updates)`.

Run as a program, this is one of them in a process of its own, which takes turns with others (see turns.py). All
see the same batch of 256 made-up transitions and sample nothing: where a library draws from its replay, the draw
is replaced by that batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from turns import serve

BATCH, HIDDEN = 256, 256
SIZES = {"ant": (27, 8), "halfcheetah": (17, 6)}
STRETCH = 4
"""Updates between two looks at the clock: few, because a stretch with another process in it says little."""
LONGER = {"sbx_20_a_call": 20}

Run = Callable[[int], None]


def data(observations: int, actions: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "obs": random.normal(size=(BATCH, observations)).astype(np.float32),
        "action": random.uniform(-1.0, 1.0, size=(BATCH, actions)).astype(np.float32),
        "next_obs": random.normal(size=(BATCH, observations)).astype(np.float32),
        "terminated": (random.uniform(size=(BATCH, 1)) < 0.01).astype(np.float32),
        "reward": random.normal(size=(BATCH, 1)).astype(np.float32),
    }


def flops(observations: int, actions: int, actor_every: int) -> float:
    """Floating-point operations of an update's matrix products."""
    actor = observations * HIDDEN + HIDDEN * HIDDEN + HIDDEN * 2 * actions
    critics = 2 * ((observations + actions) * HIDDEN + HIDDEN * HIDDEN + HIDDEN)
    behind_the_first = 2 * (HIDDEN * HIDDEN + HIDDEN)
    of_the_critics = actor + critics + critics + critics + behind_the_first  # next action, target, values; gradients
    into_the_action = behind_the_first + 2 * actions * HIDDEN
    of_the_actor = actor + critics + into_the_action + actor + HIDDEN * HIDDEN + HIDDEN * 2 * actions
    return 2.0 * BATCH * (of_the_critics + of_the_actor / actor_every)


CROSSQ = {"critic": "crossq", "learning_rate": 1e-3, "adam_beta1": 0.5}


def ours(observations: int, actions: int, actor_every: int, target_every: int, **changes: Any) -> Run:
    import torch

    from disk.config import Sac, load
    from disk.learning.replay import Batch
    from disk.learning.sac import SAC
    from disk.storage.replay import Columns

    settings = load().sac.model_dump() | {"hidden": [HIDDEN, HIDDEN], "batch_size": BATCH}
    config = Sac.model_validate(settings | {"actor_every": actor_every, "target_every": target_every, **changes})
    learner = SAC(observations, actions, config, torch.Generator().manual_seed(0), torch.device("cpu"))
    made = data(observations, actions)
    sigma = np.zeros((BATCH, 2), np.float32)
    rows = np.concatenate((made["obs"], made["action"], made["next_obs"], sigma, made["terminated"]), axis=1)
    batch = Batch(torch.from_numpy(rows), Columns(observations, actions, 2))
    reward = torch.from_numpy(made["reward"][:, 0])

    def run(updates: int) -> None:
        for _ in range(updates):
            learner.update(batch, reward)

    return run


def pytorch_sac(observations: int, actions: int) -> Run:
    import torch
    from plain_sac import PlainSac

    torch.manual_seed(0)
    learner = PlainSac(observations, actions, HIDDEN, actor_every=2, target_every=2)
    made = {name: torch.from_numpy(value) for name, value in data(observations, actions).items()}

    def run(updates: int) -> None:
        for _ in range(updates):
            learner.update(**made)

    return run


def sb3(observations: int, actions: int) -> Run:
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.buffers import ReplayBufferSamples

    model = _baselines(SAC, observations, actions)
    made = {name: torch.from_numpy(value) for name, value in data(observations, actions).items()}
    ordered = (made["obs"], made["action"], made["next_obs"], made["terminated"], made["reward"])
    model.replay_buffer = SimpleNamespace(sample=lambda size, env: ReplayBufferSamples(*ordered))
    return lambda updates: model.train(gradient_steps=updates, batch_size=BATCH)


def sbx(observations: int, actions: int, per_call: int, algorithm: str = "SAC", policy_delay: int = 2) -> Run:
    """`per_call` updates are one compiled loop; training that takes an update a step has to call with one."""
    import sbx
    import torch
    from stable_baselines3.common.buffers import ReplayBufferSamples

    model = _baselines(getattr(sbx, algorithm), observations, actions, policy_delay=policy_delay)
    made = data(observations, actions)
    many = {name: torch.from_numpy(np.tile(value, (per_call, 1))) for name, value in made.items()}
    ordered = (many["obs"], many["action"], many["next_obs"], many["terminated"], many["reward"])
    model.replay_buffer = SimpleNamespace(sample=lambda size, env: ReplayBufferSamples(*ordered))

    def run(updates: int) -> None:
        for _ in range(updates // per_call):
            model.train(gradient_steps=per_call, batch_size=BATCH)

    return run


def _baselines(algorithm: Any, observations: int, actions: int, **settings: Any) -> Any:
    """A model of Stable-Baselines3's kind on an environment of these sizes that is never stepped."""
    import gymnasium
    from gymnasium.spaces import Box
    from stable_baselines3.common.logger import configure

    class Sizes(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = Box(-np.inf, np.inf, (observations,), np.float32)
        action_space = Box(-1.0, 1.0, (actions,), np.float32)

    model = algorithm(
        *("MlpPolicy", Sizes()),
        **{"buffer_size": 1, "batch_size": BATCH, "seed": 0, "device": "cpu"},
        **{"ent_coef": "auto_0.1", "policy_kwargs": {"net_arch": [HIDDEN, HIDDEN]}, **settings},
    )
    model.set_logger(configure(None, []))
    return model


PRODUCTS = {"mm_256": (256, 20), "mm_512": (512, 3), "mm_256_onednn": (256, 20)}
"""Square products: their size, and how many of them count as an update, so that stretches are about equally long."""


def products(size: int, many: int, precision: str = "highest") -> Run:
    import torch

    torch.set_float32_matmul_precision(precision)
    a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)

    def run(updates: int) -> None:
        for _ in range(many * updates):
            torch.mm(a, b, out=c)

    return run


def with_precisions(name: str, *precisions: str, **settings: Any) -> dict[str, Callable[[int, int], Run]]:
    """Our learner with these settings, by MKL's products and once more for each other precision."""
    return {
        "_".join(filter(None, (name, precision))): partial(ours, precision=precision, **settings)
        for precision in (None, *precisions)
    }


CONTENDERS: dict[str, Callable[[int, int], Run]] = {
    **with_precisions("ours", "onednn", "bf16", actor_every=2, target_every=2),
    "pytorch_sac": pytorch_sac,
    **with_precisions("ours_as_sbx", "onednn", actor_every=2, target_every=1),
    "sbx": partial(sbx, per_call=1),
    "sbx_20_a_call": partial(sbx, per_call=20),
    **with_precisions("ours_as_sb3", "onednn", actor_every=1, target_every=1),
    "sb3": sb3,
    **with_precisions("ours_crossq", "onednn", "bf16", actor_every=3, target_every=1, **CROSSQ),
    "sbx_crossq": partial(sbx, per_call=1, algorithm="CrossQ", policy_delay=3),
    "ours_layer_norm": partial(ours, actor_every=2, target_every=2, critic="layer_norm"),
    "mm_256": lambda o, a: products(*PRODUCTS["mm_256"]),
    "mm_512": lambda o, a: products(*PRODUCTS["mm_512"]),
    "mm_256_onednn": lambda o, a: products(*PRODUCTS["mm_256_onednn"], precision="medium"),
}


def able(name: str) -> bool:
    """Whether this processor can run a contender."""
    import torch

    amx = torch.cpu._is_amx_tile_supported()
    if name.endswith("_onednn"):
        return not amx  # it would round to bfloat16
    return not name.endswith("_bf16") or amx or torch.cpu._is_avx512_bf16_supported()


def work(run: Run, stretch: int, seconds: float) -> dict[str, float]:
    run(5 * stretch)  # others had the caches
    updates, best = 0, np.inf
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < seconds or not updates:
        start = time.process_time()
        run(stretch)
        best = min(best, time.process_time() - start)
        updates += stretch
    done = {"updates": updates, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return {**done, "best": best / stretch}


def main() -> None:
    name, size, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if not name.startswith("sbx"):
        import torch

        torch.set_num_threads(threads)

    def prepare() -> tuple[dict[str, Any], Callable[[float], dict[str, Any]]]:
        run = CONTENDERS[name](*SIZES[size])
        stretch = LONGER.get(name, STRETCH)
        run(10 * stretch)
        return {}, partial(work, run, stretch)

    serve(prepare)


if __name__ == "__main__":
    main()
