"""Worlds in batches: the same bits as Gymnasium's environments, one after another."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import HOOKED, tiny_config

from disk.config import Coordinates, World, load
from disk.envs import make
from disk.envs.batch import Batch, Loop, Seen, batchable, lanes

CONFIG = load()


def both(world: World, steps: list[int], horizon: int, seed: int = 3) -> list[tuple[Seen, Seen]]:
    """States of the same episodes, in a batch and in a loop. Episodes that end early stop there."""
    batch, loop = lanes(world, horizon), Loop(world, horizon)
    assert isinstance(batch, Batch)
    seeds, random = [seed + lane for lane in range(len(steps))], np.random.default_rng(seed)
    pairs, running = [(batch.begin(steps, seeds), loop.begin(steps, seeds))], np.arange(len(steps))
    for t in range(1, horizon + 1):
        actions = random.uniform(-1.0, 1.0, (len(running), batch.env.action_size)).astype(np.float32)
        pairs.append((batch.step(running, actions), loop.step(running, actions)))
        over = pairs[-1][1].over
        if t == horizon:  # Gymnasium's time limit, which the caller of a batch keeps itself
            assert over.all()
            pairs.pop()
        running = running[~over]
        if not len(running):
            break
    batch.close()
    loop.close()
    return pairs


@pytest.mark.parametrize("name", sorted(CONFIG.environments))
def test_every_world_has_the_bits_of_gymnasium_in_a_batch(name: str) -> None:
    row = CONFIG.environments[name]
    if "distractors" in row.kwargs:  # random walks are a state that a batch does not have
        assert isinstance(lanes(row.world(), 60), Loop)
        return
    last = row.evolution.total if row.evolution else 0
    steps = [0, last // 5, last // 2, last, last // 5]
    pairs = both(row.world(), steps, 60)
    assert len(pairs) > 20
    for t, (ours, theirs) in enumerate(pairs):
        for field, mine, own in zip(Seen._fields, ours, theirs, strict=True):
            assert np.array_equal(mine, own), f"{field} after {t} steps"


def test_episodes_end_in_a_batch_when_a_robot_falls() -> None:
    world = CONFIG.environments["hopper"].world_in("falling")
    lengths = [len(ours.obs) for ours, _ in both(world, [0] * 6, 100)]
    assert lengths[0] == 6
    assert lengths[-1] < 6


def test_velocities_over_several_steps_have_the_same_bits() -> None:
    world = CONFIG.environments["ant"].world().model_copy(update={"sigma_steps": 7})
    for ours, theirs in both(world, [0, 0], 20):
        assert np.array_equal(ours.sigma, theirs.sigma)


def test_what_a_batch_does_not_know_is_a_loop() -> None:
    point, ant = CONFIG.environments["point"].world(), CONFIG.environments["ant"].world()
    others = {
        "another class": tiny_config(HOOKED).environments["point"].world(),
        "contact forces": ant.model_copy(update={"kwargs": {}}),
        "info": point.model_copy(update={"position": Coordinates(info=["x_position", "y_position"])}),
    }
    for world in others.values():
        assert not batchable(make(world))
        assert isinstance(lanes(world, 5), Loop)
    assert batchable(make(point))
