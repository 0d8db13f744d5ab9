"""From a run's files to its figures: what the workflow's rules call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from disk.config import Config, Environment, EvaluationJob
from disk.evaluation.run import read_runs
from disk.evaluation.tables import read_rollouts, save_csv
from disk.storage.files import load_json
from disk.storage.layout import Run, rollouts_of
from disk.storage.provenance import code_hash

if TYPE_CHECKING:
    import pandas as pd


def draw_consistency(env: str, rollouts: Sequence[Path], out: Path) -> None:
    """Normalised variance over time, from {method}/seed{seed}/rollouts/{condition}.parquet."""
    from disk.figures import curves as plots_time

    runs: dict[str, list[tuple[str, pd.DataFrame]]] = {}
    for path in rollouts:
        runs.setdefault(path.stem, []).append((Run.of(path).method, read_rollouts(path)))
    plots_time.consistency(runs, out, env=env)


def draw_curves(env: str, progress: Sequence[Path], out: Path) -> None:
    """Training curves, from {method}/seed{seed}/progress.csv."""
    import pandas as pd

    from disk.figures import curves as plots_time

    runs: dict[str, list[pd.DataFrame]] = {}
    for path in progress:
        try:
            frame = pd.read_csv(path)
        except pd.errors.EmptyDataError:  # a training without a single update
            frame = pd.DataFrame()
        runs.setdefault(Run.of(path).method, []).append(frame)
    plots_time.curves(runs, out, env=env)


def draw_ablations(env: str, condition: str, metrics: Sequence[Path], out: Path) -> None:
    """DISk and its variants, from {method}/seed{seed}/metrics.csv."""
    from disk.figures import bars as plots_bars

    plots_bars.ablations(read_runs(metrics), out, env=env, condition=condition)


def draw_order(job: EvaluationJob, drawn: int, steps: Sequence[int], rollouts: Path, out: Path) -> None:
    """The skills of one run in the order learned."""
    from disk.figures import trajectories as plots
    from disk.figures.style import method_name

    run = Run.of(rollouts)
    plots.order(
        read_rollouts(rollouts),
        out,
        title=f"{job.env}: skills of {method_name(run.method)} in the order learned, seed {run.seed}",
        one_dimensional=len(job.world.position.entries) == 1,
        drawn=drawn,
        steps=steps,
    )


def draw_legs(environment: Environment, title: str, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Methods under every condition, at the end and at the last snapshot, from rollouts/{condition}[@{step}].parquet.

    Skills that were learned one after another are frozen: at the snapshot's step there were those finished by then.
    """
    from disk.figures import worlds as plots_worlds
    from disk.figures.style import method_name

    final: dict[str, dict[str, pd.DataFrame]] = {}
    taken: dict[str, dict[str, pd.DataFrame]] = {}
    for path in rollouts:
        condition, at, _ = path.stem.partition("@")
        (taken if at else final).setdefault(Run.of(path).method, {})[condition] = read_rollouts(path)
    moments = {name: step for name, step in environment.moments.items() if step != "trained"}
    columns: dict[str, dict[str, pd.DataFrame]] = {}
    last = environment.snapshots[-1] if environment.snapshots else None
    for method, own in final.items():
        if last is not None:
            done = sum(environment.start_of(skill + 1) <= last for skill in range(environment.skills))
            then = taken.get(method, {name: frame[frame["skill"] < done] for name, frame in own.items()})
            said = "" if method in taken else f" ({done} skills)"
            columns[f"{method_name(method)}\nafter {last:,} steps{said}"] = then
        columns[f"{method_name(method)}\nat the end"] = own
    plots_worlds.legs(environment.world(), moments, columns, out, title=title, drawn=drawn)


def list_runs(stats: Sequence[Path], out: Path) -> None:
    """What made each run, from its stats.json: those of its skills, or its own. `todays_code` is judged now."""
    import pandas as pd

    today = code_hash()
    runs: dict[tuple[str, int], list[dict[str, object]]] = {}
    for path in stats:
        run = Run.of(path)
        runs.setdefault((run.method, run.seed), []).append(load_json(path))
    rows = []
    for (method, seed), parts in runs.items():
        codes = sorted({str(part.get("code_hash")) for part in parts})
        commits = sorted({str(part.get("commit"))[:10] for part in parts})
        rows.append(
            {
                "method": method,
                "seed": seed,
                "trainings": len(parts),
                "steps": sum(int(str(part.get("steps") or 0)) for part in parts),
                "collected_steps": sum(int(str(part.get("collected_steps") or 0)) for part in parts),
                "minutes": round(sum(float(str(part.get("seconds") or 0)) for part in parts) / 60, 2),
                "commit": " ".join(commits),
                "code": " ".join(codes),
                "todays_code": "yes" if codes == [today] else "no",
            }
        )
    save_csv(pd.DataFrame(rows), out)


def draw_trajectories(job: EvaluationJob, drawn: int, rollouts: Sequence[Path], out: Path) -> None:
    """Paths of the first seed of each method, side by side, `drawn` episodes a skill."""
    from disk.figures import trajectories

    first: dict[str, Path] = {}
    for path in rollouts:
        first.setdefault(Run.of(path).method, path)
    trajectories.trajectories(
        {method: read_rollouts(path) for method, path in first.items()},
        out,
        title=job.env,
        one_dimensional=len(job.world.position.entries) == 1,
        drawn=drawn,
    )


def draw_run(config: Config, run: Path) -> Path:
    """Draw the paths of one run's skills in its first condition; return the figure."""
    env, out = Run.of(run.resolve()).env, run / "trajectories.svg"
    condition = next(iter(config.environment(env).conditions))
    draw_trajectories(
        config.evaluation_job(env, condition), config.evaluation.drawn, [rollouts_of(run.resolve(), condition)], out
    )
    return out
