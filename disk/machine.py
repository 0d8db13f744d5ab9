"""`python -m disk doctor`: what this machine has."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import shutil

import torch

from disk.lazy import extras
from disk.storage.provenance import code_hash

PACKAGES = ("torch", "mujoco", "gymnasium", "numpy", "snakemake", "mlflow", "pydantic", "safetensors")


def machine() -> str:
    """Describe versions, devices, rendering and schedulers, one line each."""
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    rendering = [name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name)]
    installed = {package.name: package.version for package in importlib.metadata.distributions()}
    rows = {
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "packages": ", ".join(f"{name} {installed.get(name, 'missing')}" for name in PACKAGES),
        "extras": extras(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "devices": ", ".join(cuda) or "CPU only (no CUDA device)",
        "rendering": ", ".join(rendering) or "none: install libegl1 and libgl1-mesa-dri, or libosmesa6",
        "slurm": shutil.which("sbatch") or "no sbatch: --profile slurm needs one",
        "tracking": os.environ.get("MLFLOW_TRACKING_URI", "the configuration's (MLFLOW_TRACKING_URI is not set)"),
        "code": code_hash(),
    }
    return "\n".join(f"{name:10} {value}" for name, value in rows.items())
