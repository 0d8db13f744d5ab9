"""Train a controller from a job to its files, and collect the curves of an environment's controllers in a table.

A controller's files are in the run of its skills: `hierarchy/seed{h}.csv` is the curve, `seed{h}.safetensors` the
weights, and `seed{h}.json` the job, its hashes and checksums. `ppo` trains with skills, `flat` without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.config.jobs import HierarchyJob
from disk.config.running import Runtime
from disk.downstream.curve import Curve
from disk.errors import ArtefactError
from disk.learning.artefacts import writable
from disk.learning.run import resumable
from disk.storage.checkpoint import Checkpoint, stamp
from disk.storage.files import checksum, load_json, save_json, save_tensors, save_text, sweep
from disk.storage.layout import Run, checkpoint_beside
from disk.storage.manifest import RESTORE, same_checksum
from disk.storage.provenance import DOWNSTREAM, code_hash, commit

if TYPE_CHECKING:
    import pandas as pd


def learn_hierarchy(job: HierarchyJob, skills: Path | None, out: Path, runtime: Runtime) -> None:
    """Train a controller over a file of skills, or without skills. Write the curve `out` and the files beside it."""
    if (skills is None) == (job.sac is None):
        raise ArtefactError(
            f"{out}: a controller needs skills to choose from"
            if job.sac is None
            else f"{out}: a flat controller takes no skills, got {skills}"
        )
    writable(out.parent)
    inputs = {} if skills is None else {"skills": checksum(skills)}
    expected = stamp(job.canonical(), inputs)
    weights, stats = out.with_suffix(".safetensors"), out.with_suffix(".json")

    def done(mark: str) -> bool:
        for path in (out, weights, stats):
            sweep(out.parent, path.name)
        return _finished(stats, mark)

    with resumable(checkpoint_beside(out), expected, done, replays=int(skills is None)) as checkpoint:
        if checkpoint is None:
            return
        curve, seconds = _learn(job, skills, weights, runtime, checkpoint)
        save_text(out, curve.text())
        about = {
            "decisions": job.decisions,
            "config_hash": job.digest(),
            "code_hash": code_hash(DOWNSTREAM),
            "commit": commit(),
            "job": job.model_dump(mode="json"),
            "stamp": expected,
            "checksums": {path.name: checksum(path) for path in (out, weights)},
            "seconds": round(seconds, 3),
        }
        save_json(stats, about)  # last: if it exists, so do the others


def _learn(
    job: HierarchyJob, skills: Path | None, weights: Path, runtime: Runtime, checkpoint: Checkpoint
) -> tuple[Curve, float]:
    if skills is None:
        from disk.downstream.flat import learn_flat

        policy, curve, seconds = learn_flat(job, runtime, checkpoint)
        policy.save(weights)
        return curve, seconds
    from disk.downstream.ppo import learn_controller
    from disk.skills import load

    chosen_from = load(skills)
    tensors, curve, seconds = learn_controller(job, chosen_from, runtime, checkpoint)
    meta: dict[str, Any] = {"kind": "controller", "env": job.env, "skills": len(chosen_from), "steps": job.steps}
    meta |= {"seed": job.seed, "hierarchy_seed": job.hierarchy_seed, "config_hash": job.digest()}
    save_tensors(weights, {f"policy/{name}": value for name, value in tensors.items()}, meta)
    return curve, seconds


def read_controller(stats: Path) -> dict[str, Any]:
    """Read the JSON of a controller. Refuse one without the checksums of its curve and its weights."""
    about = load_json(stats)
    sums, expected = about.get("checksums"), [stats.with_suffix(end).name for end in (".csv", ".safetensors")]
    if not isinstance(sums, dict) or sorted(sums) != expected:
        raise ArtefactError(f"{stats}: expected checksums of {' and '.join(expected)}, found {sums!r}. {RESTORE}")
    return about


def _finished(stats: Path, expected: str) -> bool:
    """Return True if a controller's files match their checksums and carry the stamp `expected`."""
    try:
        about = read_controller(stats)
        for name in about["checksums"]:
            same_checksum(stats.parent, name, about)
        return bool(about.get("stamp") == expected)
    except ArtefactError:
        return False


def read_curves(paths: Sequence[Path]) -> dict[str, dict[str, list[pd.DataFrame]]]:
    """Return environment → method → curves. A file's place says which run it belongs to."""
    import pandas as pd

    curves: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for path in paths:
        run = Run.of(path)
        curves.setdefault(run.env, {}).setdefault(run.method, []).append(pd.read_csv(path))
    return curves


def downstream_table(paths: Sequence[Path], threshold: float) -> pd.DataFrame:
    """Return a row per controller: decisions until it is first below the threshold, and its final distance.

    The final distance is the mean over the last tenth of the curve.
    """
    import pandas as pd

    rows: list[Mapping[str, Any]] = []
    for path in paths:
        curve = pd.read_csv(path)
        below = curve[curve["normalised_distance"] < threshold]
        last = curve["normalised_distance"].iloc[-max(1, len(curve) // 10) :]
        rows.append(
            {
                "method": Run.of(path).method,
                "seed": Run.of(path).seed,
                "hierarchy_seed": int(path.stem.removeprefix("seed")),
                "steps_to_threshold": None if below.empty else int(below["decision"].iloc[0]),
                "final_normalised_distance": float(last.mean()),
            }
        )
    columns = ["method", "seed", "hierarchy_seed", "steps_to_threshold", "final_normalised_distance"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"steps_to_threshold": "Int64"})
