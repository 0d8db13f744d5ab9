"""What this machine has. What state results are in is in `disk.examine`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil

from disk.storage.provenance import code_hash

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
