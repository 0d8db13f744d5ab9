"""One training that takes turns (see turns.py), with a clock around everything that its loop calls."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from turns import Said

PHASES = {
    "env step": ("env", ("step", "reset", "at", "to_native")),
    "act": ("agent", ("act", "act_on_record")),
    "add": ("replay", ("add",)),
    "sample": ("parts", ("sample", "sample_all", "as_seen")),
    "reward": ("objective", ("observe", "reward", "update")),
    "update": ("agent", ("update",)),
    "progress": ("progress", ("observe", "update", "episode")),
    "checkpoint": ("training", ("_save",)),
}
CHAIN = 20
"""Skills of the chain whose links are measured."""


class Clocks:
    """CPU seconds inside methods, by phase. What a phase calls of another one counts for the inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[list[float]] = []

    def watch(self, phase: str, thing: Any, methods: tuple[str, ...]) -> None:
        for name in methods:
            if hasattr(thing, name):
                setattr(thing, name, self._clocked(phase, getattr(thing, name)))

    def _clocked(self, phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*arguments: Any, **named: Any) -> Any:
            inner = [0.0]
            self._open.append(inner)
            start = time.process_time()
            try:
                return method(*arguments, **named)
            finally:
                taken = time.process_time() - start
                self._open.pop()
                self.seconds[phase] += taken - inner[0]
                if self._open:
                    self._open[-1][0] += taken

        return clocked


def train(env: str, method: str, skill: int | None, shard: int, earlier: Path, scratch: Path) -> tuple[Said, Any]:
    """Get a training ready, a link of a chain or all skills at once: what that took, and what a turn does."""
    started = time.perf_counter()
    from pretend import long_chain

    from disk.errors import Interrupted
    from disk.learning.build import choose_device, joint_parts, skill_parts
    from disk.learning.loop import train as run_loop
    from disk.learning.training import Training
    from disk.storage.checkpoint import Checkpoint, stamp
    from disk.storage.manifest import identity

    imported = time.perf_counter()
    settings = long_chain(env, CHAIN, shard)
    device = choose_device("cpu")
    few_seeds = {"seed_steps": 200, "updates_per_step": 1.0}
    if skill is None:
        joint = settings.joint_job(env, method, 0)
        joint = joint.model_copy(update={"sac": joint.sac.model_copy(update=few_seeds), "snapshots": None})
        directory, policies = scratch / method, joint.skills if joint.policies == "independent" else 1
        checkpoint = Checkpoint(directory, stamp(joint.canonical(), {}), replays=policies)
        parts = joint_parts(joint.model_copy(update={"steps": 50_000_000}), device)
    else:
        job = settings.skill_job(env, method, 0, skill)
        job = job.model_copy(update={"sac": job.sac.model_copy(update=few_seeds)})
        folders = [earlier / f"skill{i:02d}" for i in range(skill)]
        checkpoint = Checkpoint(scratch / f"{method}{skill:02d}", stamp(job.canonical(), identity(job, folders)))
        parts = skill_parts(job, folders, device)
        parts.steps = 50_000_000  # the turns end it
    runtime = settings.runtime.model_copy(update={"checkpoint_minutes": 1e9})  # once, at the end of each turn
    training = Training(parts, runtime, checkpoint)
    begun = time.perf_counter()
    clocks = Clocks()
    things: dict[str, list[Any]] = {
        "env": parts.envs,
        "agent": parts.agents,
        "replay": parts.replays,
        "parts": [parts],
        "objective": [parts.objective],
        "progress": [training.progress],
        "training": [training],
    }
    for phase, (kind, methods) in PHASES.items():
        for thing in things[kind]:
            clocks.watch(phase, thing, methods)

    def turn(seconds: float) -> Said:
        asked: list[int] = []
        agents = parts.agents
        steps, updates = training.step, sum(agent.updates for agent in agents)
        clocks.seconds.clear()
        _after(seconds, asked)
        cpu, wall = time.process_time(), time.perf_counter()
        with suppress(Interrupted):
            run_loop(training, lambda: asked[0] if asked else 0)
        phases = dict(clocks.seconds)
        done = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "phases": phases}
        counts = {"steps": training.step - steps, "updates": sum(agent.updates for agent in agents) - updates}
        return {**done, **counts, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}

    while sum(agent.updates for agent in parts.agents) < 50:  # past the seed steps, all policies
        turn(0.5)
    return {"import_seconds": imported - started, "start_seconds": begun - imported}, turn


def _after(seconds: float, asked: list[int]) -> None:
    """Ask a training to stop after some time, which it does at the end of its episode."""
    import threading

    timer = threading.Timer(seconds, asked.append, (15,))
    timer.daemon = True
    timer.start()
