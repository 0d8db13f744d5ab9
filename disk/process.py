"""Set up this process: messages, threads, torch and a GPU. No import of torch before it is needed."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disk.config import Runtime, Tracking, load
from disk.errors import ConfigError

log = logging.getLogger("disk")


def log_to(path: Path | None) -> None:
    """Send messages to stderr and, if there is a path, to that file."""
    log.setLevel(logging.INFO)
    log.handlers.clear()
    form = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    shown = logging.StreamHandler()
    shown.setFormatter(form)
    # A terminal shows the progress bar, which makes the line per minute redundant.
    shown.setLevel(logging.WARNING if sys.stderr.isatty() and path else logging.INFO)
    log.addHandler(shown)
    if path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written = logging.FileHandler(path)
        except OSError as error:
            raise ConfigError(f"--log: {path}: cannot be written: {error.strerror or error}") from None
        written.setFormatter(form)
        log.addHandler(written)


def use_threads(threads: int) -> None:
    """Set the number of threads of every library, before it loads. Too many slow a shared machine tenfold."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def configure_torch(threads: int) -> None:
    """Set torch's threads, and make its results deterministic."""
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA's products are not deterministic without it
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` imports a compiler, a CPU-second


@contextmanager
def equipped(runtime: Runtime, threads: int) -> Iterator[None]:
    """Hold a place on a GPU, if there is one, and configure torch for training."""
    from disk.storage.devices import place

    with place(runtime.device, runtime.gpu_jobs_per_device):
        configure_torch(threads)
        if runtime.device.startswith("cuda"):
            _check_cuda(runtime.device)
        yield


@contextmanager
def training(out: Path, threads: int, device: str | None = None) -> Iterator[Runtime]:
    """Set up the training of `out`, which MLflow mirrors live. Yield its settings; `device` overrides theirs."""
    from disk.tracking.mirror import watching

    runtime, tracking = runtime_and_tracking()
    if device is not None:
        runtime = runtime.model_copy(update={"device": device})
    with equipped(runtime, threads), watching(out, tracking):
        yield runtime


def _check_cuda(device: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"runtime.device: {device!r}, but torch {torch.__version__} finds no usable GPU")


def runtime_and_tracking() -> tuple[Runtime, Tracking]:
    """Return the settings that the workflow passes in DISK_RUNTIME; otherwise the configuration's.

    They are not parameters of a rule: a changed parameter would retrain.
    """
    if "DISK_RUNTIME" in os.environ:
        given = json.loads(os.environ["DISK_RUNTIME"])
        return Runtime.model_validate(given["runtime"]), Tracking.model_validate(given["tracking"])
    config = load()
    return config.runtime, config.tracking


def planned_skills(run: Path) -> int | None:
    """Return how many skills the workflow plans for a run. A job does not depend on it; None without a workflow."""
    planned: dict[str, int] = json.loads(os.environ.get("DISK_RUNTIME", "{}")).get("skills", {})
    return planned.get("/".join(run.parts[-3:-1]))
