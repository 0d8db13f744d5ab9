"""Memory and walltime that a training asks a cluster for, from its steps, its world and its networks.

The constants are fitted to the measurements in docs/clusters.md (one core, one thread; benchmarks/requests.py). A
request is the expected use times a margin. Each of the first three retries asks for half as much again, except for the
memory of a training that needs several jobs of the longest walltime: most of its retries are planned.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from disk.config import HierarchyJob, JointJob, Runtime, SkillJob
from disk.config.environments import World

MEMORY_MARGIN, TIME_MARGIN = 1.6, 1.55  # Snakemake on the node needs 200 MB too; cores and their neighbours differ
PROCESS_MB = 600.0  # a trainer before it has data, and the process that mirrors it in MLflow
CUDA_MB, PPO_MB = 2500.0, 350.0  # on top of it
NETWORK_BYTES = 300  # a weight with its moments, target, gradients and share of a batch's activations
START, LEAST = 20.0, 120.0  # seconds until the first step; shortest request
STEP, SUBSTEP = 0.15e-3, 7.6e-6  # seconds a step; a simulator step, for each degree of freedom
UPDATE, PRODUCT = 0.3e-3, 0.27e-9  # seconds an update; a weight in it, for each transition of the batch
DECISION = 2.2e-3  # seconds a decision of PPO
Job = SkillJob | JointJob | HierarchyJob


class Size(NamedTuple):
    """The sizes of a world that its cost depends on."""

    observation: int
    action: int
    sigma: int
    simulated: int
    """Simulator steps in a step of the world, times degrees of freedom."""

    @property
    def step_seconds(self) -> float:
        return SUBSTEP * self.simulated


def size_of(world: World) -> Size:
    """Build the world once and read its sizes."""
    return _size_of(world.canonical())


@cache
def _size_of(world: str) -> Size:
    from disk.envs import make

    env = make(World.model_validate_json(world))
    base = env.unwrapped
    freedom = int(getattr(getattr(base, "model", None), "nv", 20))  # outside MuJoCo: like Ant, to be safe
    size = Size(env.observation_size, env.action_size, env.sigma_size, freedom * int(getattr(base, "frame_skip", 5)))
    env.close()
    return size


def steps_of(job: Job) -> int:
    """Return the most environment steps that a training takes; a budget may spend those that earlier skills saved."""
    if isinstance(job, SkillJob) and job.budget and job.planned is not None:
        return min(round(job.budget.most * job.steps), job.planned)
    if isinstance(job, SkillJob) and job.aware:  # the skill before may have left all but nothing of its own
        return 2 * job.steps
    return job.decisions * job.steps if isinstance(job, HierarchyJob) else job.steps or 0


def expected_mb(job: Job, earlier: list[int], size: Size, cuda: bool = False) -> float:
    """Return process + replay + networks; `earlier` lists the steps of the skills whose transitions it starts with."""
    if job.sac is None:
        return PROCESS_MB + PPO_MB
    sigmas = 2 if job.sac.critic_sees else 1
    row = 4 * (2 * size.observation + size.action + sigmas * size.sigma + 4)  # bytes of a transition, with a label
    own = steps_of(job)
    held = min(job.replay_capacity or 0, own + sum(earlier))
    # At its end a skill writes its own transitions as one file, with three to four copies in memory.
    copies = max([3.8 * own if isinstance(job, SkillJob) else 0.0, *earlier])
    policies = job.skills if isinstance(job, JointJob) and job.policies == "independent" else 1
    networks = policies * NETWORK_BYTES * _policy_weights(job, size)
    return PROCESS_MB + CUDA_MB * cuda + (row * (held + copies) + networks) / 1e6


def expected_seconds(job: Job, size: Size) -> float:
    """Return start + steps × (step + updates × cost of an update), on one core."""
    steps, step = steps_of(job), STEP + size.step_seconds
    if job.sac is None:
        return START + steps * step + job.decisions * DECISION
    sac, per_weight = job.sac, PRODUCT * job.sac.batch_size
    policy_updates = model_updates = sac.updates_per_step
    if sac.iteration:
        policy_updates, model_updates = (
            updates / sac.iteration.steps for updates in (sac.iteration.policy_updates, sac.iteration.model_updates)
        )
    actor = (1 + 1 / sac.actor_every) / 1.5  # fitted with an actor update for every second one of the critics
    step += policy_updates * (UPDATE + per_weight * actor * _policy_weights(job, size))
    hidden = getattr(job.objective, "hidden", None) if isinstance(job, JointJob) else None
    if hidden is not None:  # the objective trains a network of its own; METRA's sees both observations
        model = _weights(size.observation, *hidden, _latents(job) + 1)
        step += model_updates * 0.67 * per_weight * model * (1 + hasattr(job.objective, "dual"))
    phi, learning = getattr(job, "projection", None), 0.0
    if phi is not None:  # a learned σ, before the first update
        learning = phi.updates * (4 * UPDATE + 2 * per_weight * _weights(size.sigma // 2, *phi.hidden, phi.width))
    past = job.objective.past_states * (1 + job.skill) if isinstance(job, SkillJob) else 0  # rollouts for 𝒯
    return START + learning + steps * step + past * size.step_seconds


def _policy_weights(job: Job, size: Size) -> int:
    assert job.sac is not None
    return _weights(size.observation + size.action + _latents(job), *job.sac.hidden, 1)


def _latents(job: Job) -> int:
    return job.skills if isinstance(job, JointJob) and job.policies == "shared" else 0


def _weights(*widths: int) -> int:
    return sum(before * after for before, after in pairwise(widths))


def memory_mb(job: Job, earlier: list[int], size: Size, runtime: Runtime, attempt: int = 1) -> int:
    """Return the memory to ask for, rounded up to whole 100 MB."""
    expected = expected_mb(job, earlier, size, runtime.device.startswith("cuda"))
    # A retry may follow a walltime's end or an out-of-memory kill. Where the first is planned, one raise has to do.
    raised = attempt if jobs_needed(job, size, runtime) == 1 else min(attempt, 2)
    return 100 * math.ceil(MEMORY_MARGIN * _more(raised) * expected / 100)


def minutes(job: Job, size: Size, runtime: Runtime, attempt: int = 1) -> int:
    """Return the walltime to ask for. Beyond the cluster's longest, retries resume the training."""
    seconds = max(TIME_MARGIN * expected_seconds(job, size) / runtime.speed, LEAST)
    wanted = math.floor(_more(attempt) * seconds / 60 + 0.5)
    return min(wanted, runtime.longest_minutes or wanted)


def jobs_needed(job: Job, size: Size, runtime: Runtime) -> int:
    """Return over how many jobs of the longest walltime a training may be spread, with the margin of a request."""
    wanted = TIME_MARGIN * expected_seconds(job, size) / runtime.speed / 60
    return max(1, math.ceil(wanted / (runtime.longest_minutes or math.inf)))


def _more(attempt: int) -> float:
    return 1.5 ** min(attempt - 1, 3)
