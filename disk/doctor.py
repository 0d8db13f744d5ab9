"""What this machine has, and what state results are in."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path

from disk.config import Config
from disk.files import ArtefactError, load_json, load_tensors
from disk.provenance import code_hash
from disk.runs import finished, skill_directory

PACKAGES = ("torch", "mujoco", "gymnasium", "numpy", "snakemake", "mlflow", "pydantic", "safetensors")


def machine() -> str:
    """Versions, devices, rendering and schedulers, one line each."""
    import torch

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} missing")
    rows = {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": ", ".join(versions),
        "cores": str(usable),
        "devices": ", ".join(cuda) or "CPU only (no CUDA device)",
        "rendering": _rendering(),
        "slurm": shutil.which("sbatch") or "no sbatch: --profile slurm needs one",
        "tracking": os.environ.get("MLFLOW_TRACKING_URI", "the configuration's (MLFLOW_TRACKING_URI is not set)"),
        "code": code_hash(),
    }
    return "\n".join(f"{name:10} {value}" for name, value in rows.items())


def _rendering() -> str:
    import ctypes.util

    found = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
    return ", ".join(found) or "neither EGL nor OSMesa: install libegl1 and libgl1-mesa-dri, or libosmesa6"


def results(config: Config, root: Path) -> str:
    """Every run below `root`: what is finished, half-way, damaged or made by other code."""
    if not root.is_dir():
        raise ArtefactError(f"{root}: is not a directory")
    begun = {path.parent for name in ("skill[0-9][0-9]*", "checkpoint") for path in root.rglob(name) if path.is_dir()}
    runs = sorted(begun | _bundled(root))
    if not runs:
        return f"{root}: no runs"
    lines, stale = [], set()
    for run in runs:
        lines.append(f"{run}: {_state(run)}")
        stale |= {str(folder) for folder in (run, *run.glob("skill[0-9][0-9]")) if _stale(folder)}
    if stale:
        lines.append(f"made by other code than today's ({code_hash()}): {', '.join(sorted(stale))}")
        lines.append("  they are used as they are; `retrain_on_code_change: true` in the configuration retrains them")
    preset = next((f" --configfile config/{name}.yaml" for name in ("quick", "laptop") if name in root.parts), "")
    lines.append(f"to go on: snakemake --cores 2{preset}")
    return "\n".join(lines)


def _bundled(root: Path) -> set[Path]:
    return {path.parent for path in root.rglob("skills.safetensors")}


def _state(run: Path) -> str:
    parts, done = [], 0
    while finished(skill_directory(run, done)):
        done += 1
    if done:
        parts.append(f"{done} skills finished")
    for folder in sorted(run.glob("*checkpoint")):
        try:
            _, meta = load_tensors(folder / "state.safetensors")
            whose = folder.name.removesuffix("checkpoint").removesuffix(".") or "training"
            parts.append(f"{whose} can go on from step {meta['step']}")
        except ArtefactError as error:
            parts.append(f"{folder.name} has nothing to go on from ({error})")
    parts.append("bundled" if (run / "skills.safetensors").exists() else "not bundled yet")
    parts.append("measured" if (run / "metrics.csv").exists() else "not measured yet")
    parts += _damaged(run)
    return ", ".join(parts)


def _damaged(run: Path) -> list[str]:
    found = []
    for path in [*sorted(run.glob("skill[0-9][0-9]/policy.safetensors")), run / "skills.safetensors"]:
        if path.exists():
            try:
                load_tensors(path)
            except ArtefactError as error:
                found.append(f"DAMAGED: {error}")
    return found


def _stale(skill: Path) -> bool:
    try:
        return bool(load_json(skill / "stats.json").get("code_hash") != code_hash())
    except ArtefactError:
        return False
