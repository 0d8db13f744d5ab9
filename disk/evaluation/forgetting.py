"""Forgetting in worlds that change: the distance of each skill in each world, right after its training and at the end.

Skills of an incremental method are frozen, so the two distances must be equal. A checksum and a measurement check that.
Methods that train all skills together may forget. Their skills are compared with the snapshot at the end of the last
phase that showed the same world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from disk.config import Environment, EvaluationJob, UsableJob
from disk.envs import make
from disk.envs.evolution import Evolving
from disk.evaluation.run import read_runs, roll_out
from disk.evaluation.tables import save_csv
from disk.storage.files import load_stats
from disk.storage.layout import STATS

if TYPE_CHECKING:
    import pandas as pd


def measure_after_training(
    jobs: Mapping[str, EvaluationJob], policies: Sequence[Path], out: Path, threads: int = 1
) -> None:
    """Measure how far a chain's skills go in every condition, from the policy files that their trainings wrote."""
    import pandas as pd

    from disk.evaluation import metrics
    from disk.skills import bundle
    from disk.storage.manifest import same_checksum

    for policy in policies:
        same_checksum(policy.parent, policy.name, load_stats(policy.with_name(STATS)))
    skills = bundle(policies)
    frames = []
    for condition, job in jobs.items():
        frame = metrics.measure(roll_out(job, skills, threads))
        frames.append(frame[frame["metric"] == "distance"].assign(condition=condition))
    save_csv(pd.concat(frames)[["condition", "skill", "metric", "value"]], out)


def forgetting_table(environment: Environment, after: Sequence[Path], final: Sequence[Path]) -> pd.DataFrame:
    """Tabulate the distance of every skill in every condition, right after its training and at the end of the run.

    `final` are the metrics.csv of all runs, `after` the after_training.csv of incremental methods. Joint methods are
    compared with their snapshots. A snapshot in the middle of a phase has rows of its own, with the condition
    `{condition}@{step}`: the distance left at that step, against the distance before.
    """
    import pandas as pd

    chains = {(method, seed): frame for method, seed, frame in read_runs(after)}
    frames = []
    for path, (method, seed, metrics) in zip(final, read_runs(final), strict=True):
        measured = metrics[metrics["metric"] == "distance"].pivot(index="skill", columns="condition", values="value")
        if (method, seed) in chains:
            before = chains[method, seed].pivot(index="skill", columns="condition", values="value")
            compared = {name: (before[name], measured[name]) for name in environment.conditions}
        else:
            pairs = _pairs(environment, list(measured.columns), load_stats(path.with_name(STATS))["steps"])
            compared = {now: (measured[then], measured[now]) for now, then in pairs.items()}
        for condition, (then, now) in compared.items():
            values = {"distance_after_training": then, "distance_final": now}
            frames.append(pd.DataFrame(values).reset_index().assign(method=method, seed=seed, condition=condition))
    columns = ["method", "seed", "skill", "condition", "distance_after_training", "distance_final"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _pairs(environment: Environment, measured: Sequence[str], steps: int) -> dict[str, str]:
    """Map each measured condition of a joint method to the one it is compared with.

    That is the snapshot at the end of the last phase in the condition's own world. A condition is compared with
    itself if training is in its world at that moment, or never was. `steps` is the length of the training.
    """
    env = make(environment.world())
    assert isinstance(env.env, Evolving)
    world_at = env.env.signature
    snapshots = sorted({int(name.partition("@")[2]) for name in measured if "@" in name})
    ends = [step for step in snapshots if world_at(step - 1) != world_at(step)]
    pairs = {}
    for condition, own in environment.moments.items():
        for moment in (steps, *(step for step in snapshots if step not in ends)):
            now = condition if moment == steps else f"{condition}@{moment}"
            pairs[now] = now
            if own != "trained" and world_at(moment - 1) != world_at(own):
                seen = [end for end in ends if end <= moment and world_at(end - 1) == world_at(own)]
                pairs[now] = f"{condition}@{seen[-1]}" if seen else now
    return pairs


def measure_usable(job: UsableJob, run: Path, out: Path, threads: int = 1) -> pd.DataFrame:
    """Count the skills that can be used at each moment of a training: columns step, condition, movers, distinct, reach.

    The moments are the job's `ends`. A chain has the skills that are finished by then, a joint method its snapshot.
    They are counted in the world of the last step and, if the world changes there, also in the new one.
    """
    import pandas as pd

    from disk.evaluation import metrics
    from disk.evaluation.recovery import reach
    from disk.skills import load
    from disk.storage.layout import SKILLS, snapshot_name
    from disk.storage.manifest import as_recorded

    env = make(job.evaluation.world)
    assert isinstance(env.env, Evolving)
    world_at = env.env.signature
    names = {world_at(step): name for name, step in job.conditions.items()}
    as_recorded(run / SKILLS)
    final, rows = load(run / SKILLS), []
    for number, end in enumerate(job.ends):
        last = end == job.ends[-1]
        skills = final.pick(range(number + 1)) if job.chain else final
        if not (job.chain or last):
            as_recorded(run / snapshot_name(end))
            skills = load(run / snapshot_name(end))
        changes = not last and world_at(end - 1) != world_at(end)
        for step in (max(0, end - 1), end) if changes else (max(0, end - 1),):
            rolled = roll_out(job.evaluation.model_copy(update={"world_steps": step}), skills, threads)
            found = metrics.measure(rolled, job.measure).set_index("metric")["value"]
            counted = found["movers"], found["distinct"], reach(metrics.ends(metrics.sound(rolled)))
            rows.append((end, names.get(world_at(step), f"step{step}"), *counted))
    table = pd.DataFrame(rows, columns=["step", "condition", "movers", "distinct", "reach"])
    save_csv(table, out)
    return table


def usable_table(usable: Sequence[Path]) -> pd.DataFrame:
    """Join the usable.csv of all runs: columns method, seed, step, condition, movers, distinct, reach."""
    import pandas as pd

    frames = [frame.assign(method=method, seed=seed) for method, seed, frame in read_runs(usable)]
    columns = ["method", "seed", "step", "condition", "movers", "distinct", "reach"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)
