"""What a training asks a cluster for: memory and walltime, from its steps, its world and its replay.

The numbers are fitted to the trainings of the table in docs/clusters.md (one core, one thread), which
`benchmarks/requests.py` prints. A request is what a job is expected to use and a margin; a retry asks for half as much
again, each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from disk.config import HierarchyJob, JointJob, Runtime, SkillJob
from disk.config.environments import World
from disk.config.settings import Measured, Sac

MEMORY_MARGIN = 1.6
"""What is asked for over what is expected. Two Snakemakes that SLURM counts too, about 100 MB each, have room in it."""
TIME_MARGIN = 1.55
"""Cores differ, and others on the same node take their share of its caches."""
LEAST_MINUTES = 2.0
"""Nobody gains from less, and a node may be slow to begin."""
PROCESS_MB = 600.0
"""A trainer before it has any data, 350, and the process beside it that mirrors it in MLflow."""
CUDA_MB = 2500.0
"""What CUDA adds to it on the host."""
START_SECONDS = 20.0
"""Snakemake on the node, twice, a trainer up to its first step, and the process beside it."""
UPDATE_SECONDS = 0.3e-3
"""An update of networks that cost nothing."""
PRODUCT_SECONDS = 0.27e-9
"""A multiplication in them, for each transition of the batch, forwards and backwards through all networks."""
STEP_SECONDS = 0.15e-3
"""A step of a world that costs nothing: acting, storing, the curve."""
SUBSTEP_SECONDS = 7.6e-6
"""A step of the simulator, for each degree of freedom."""


DECISION_SECONDS = 2.2e-3
"""A decision of PPO, its share of an iteration's updates, and the curve."""
PPO_MB = 350.0
"""Stable-Baselines3, and PPO's networks and rollout."""
Job = SkillJob | JointJob | HierarchyJob


@dataclass(frozen=True)
class Size:
    """What a world's cost depends on."""

    observation: int
    action: int
    sigma: int
    simulated: int
    """Steps of the simulator in a step of the world, times its degrees of freedom."""

    @property
    def step_seconds(self) -> float:
        return SUBSTEP_SECONDS * self.simulated


def size_of(world: World) -> Size:
    """Build the world once, and look."""
    return _size_of(world.canonical())


@cache
def _size_of(world: str) -> Size:
    from disk.envs import make

    env = make(World.model_validate_json(world))
    base = env.unwrapped
    model = getattr(base, "model", None)
    freedom = int(getattr(model, "nv", 20))  # outside MuJoCo: like Ant, to be safe
    size = Size(env.observation_size, env.action_size, env.sigma_size, freedom * int(getattr(base, "frame_skip", 5)))
    env.close()
    return size


def steps_of(job: Job) -> int:
    """Environment steps of a training, at most: with a budget, also some that earlier skills have saved."""
    if isinstance(job, SkillJob) and job.budget and job.planned is not None:
        from disk.learning.convergence import cap_of

        return cap_of(job.budget, job.steps, job.planned, [])
    return job.decisions * job.steps if isinstance(job, HierarchyJob) else job.steps or 0


def expected_mb(job: Job, earlier: list[int], size: Size, cuda: bool = False) -> float:
    """Memory that a training comes to, given the steps of the skills whose transitions it starts with."""
    if isinstance(job, HierarchyJob) and job.sac is None:
        return PROCESS_MB + PPO_MB
    row = 4 * (2 * size.observation + size.action + size.sigma + 4)  # bytes of a transition, with a label
    own = steps_of(job)
    held = min(job.replay_capacity or 0, own + sum(earlier))
    # A skill's own transitions are written as one file at the end, with three to four copies on the way.
    passing = max([3.8 * own if isinstance(job, SkillJob) else 0.0, *map(float, earlier)])
    policies = job.skills if isinstance(job, JointJob) and job.policies == "independent" else 1
    return PROCESS_MB + CUDA_MB * cuda + row * (held + passing) / 1e6 + policies * _policy_mb(job, size)


def _policy_mb(job: Job, size: Size) -> float:
    """Weights, moments, targets and what an update's gradients go through."""
    sac = _sac(job)
    widths = [size.observation + size.action, *sac.hidden, 1]
    weights = _products(widths)
    return 4 * (20 * weights + 30 * sac.batch_size * sum(widths)) / 1e6


def expected_seconds(job: Job, size: Size) -> float:
    """Time that a training takes on one core."""
    steps = steps_of(job)
    if not steps:
        return START_SECONDS
    if isinstance(job, HierarchyJob) and job.sac is None:
        return START_SECONDS + steps * (STEP_SECONDS + size.step_seconds) + job.decisions * DECISION_SECONDS
    skills = job.skill if isinstance(job, SkillJob) else 0
    looked_at = job.objective.past_states * (1 + skills) if isinstance(job, SkillJob) else 0  # for 𝒯
    normaliser = None if isinstance(job, HierarchyJob) else job.normaliser
    if isinstance(normaliser, Measured) and not skills:  # later skills of a chain take over the first one's
        looked_at += normaliser.steps
    updates, model_updates = _updates_per_step(job)
    update = updates * _update_seconds(job, size) + model_updates * _model_seconds(job, size)
    return START_SECONDS + looked_at * size.step_seconds + steps * (STEP_SECONDS + size.step_seconds + update)


def _updates_per_step(job: Job) -> tuple[float, float]:
    bout = _sac(job).iteration
    if bout is None:
        return _sac(job).updates_per_step, _sac(job).updates_per_step
    return bout.policy_updates / bout.steps, bout.model_updates / bout.steps


def _update_seconds(job: Job, size: Size) -> float:
    sac = _sac(job)
    widths = [size.observation + size.action + _latents(job), *sac.hidden, 1]
    often = (1 + 1 / sac.actor_every) / 1.5  # the actor is updated with every second update of the critics
    return UPDATE_SECONDS + PRODUCT_SECONDS * sac.batch_size * _products(widths) * often


def _sac(job: Job) -> Sac:
    """Of a training that has one: all but PPO's."""
    assert job.sac is not None
    return job.sac


def _model_seconds(job: Job, size: Size) -> float:
    """An update of what an objective learns, and its reward."""
    settings = None if isinstance(job, HierarchyJob) else job.objective
    hidden = getattr(settings, "hidden", None)
    if hidden is None:
        return 0.0  # the nearest neighbours are in UPDATE_SECONDS
    products = _products([size.observation, *hidden, _latents(job) + 1])
    return 0.67 * PRODUCT_SECONDS * _sac(job).batch_size * products * (1 + hasattr(settings, "dual"))


def _latents(job: Job) -> int:
    return job.skills if isinstance(job, JointJob) and job.policies == "shared" else 0


def _products(widths: list[int]) -> int:
    return sum(before * after for before, after in pairwise(widths))


def memory_mb(job: Job, earlier: list[int], size: Size, runtime: Runtime, attempt: int = 1) -> int:
    """What to ask for, rounded up to whole 100 MB."""
    expected = expected_mb(job, earlier, size, runtime.device.startswith("cuda"))
    return _rounded(MEMORY_MARGIN * _more(attempt) * expected, 100)


def minutes(job: Job, size: Size, runtime: Runtime, attempt: int = 1) -> int:
    """Walltime to ask for; where a cluster gives less, the rest is left to the retries, which go on from there."""
    seconds = TIME_MARGIN * expected_seconds(job, size) / runtime.speed
    wanted = math.floor(_more(attempt) * max(seconds / 60.0, LEAST_MINUTES) + 0.5)  # the margin is enough as it is
    return min(wanted, runtime.longest_minutes or wanted)


def jobs_needed(job: Job, size: Size, runtime: Runtime) -> int:
    """How many jobs of the longest walltime a training is spread over."""
    expected = expected_seconds(job, size) / runtime.speed / 60.0
    return math.ceil(expected / min(runtime.longest_minutes or math.inf, max(expected, 1.0)))


def _more(attempt: int) -> float:
    """Up to three times and a half: a training that is spread over many jobs has many attempts."""
    return 1.5 ** min(attempt - 1, 3)


def _rounded(value: float, unit: int) -> int:
    return unit * math.ceil(value / unit)
