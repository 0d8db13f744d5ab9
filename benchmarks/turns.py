"""Processes that take turns, so that whatever else a machine does disturbs all that are compared alike.

A worker says what it has to say once it is ready, and then, for every line on its input, which is a number of
seconds, works for that long and says what it did: each time one line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Said = dict[str, Any]


class Worker:
    """One process, seen from outside."""

    def __init__(
        self, name: str, script: Path, *arguments: str, threads: int = 1, extra: Mapping[str, str] = {}
    ) -> None:
        self.name = name
        self.turns: list[Said] = []
        count = str(threads)
        limits = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "NPROC": count, "JAX_PLATFORMS": "cpu", **extra}
        command = [sys.executable, str(script), *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env={**os.environ, **limits}, **pipes)

    def ready(self) -> Said:
        return self._said()

    def tell(self, seconds: float) -> None:
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def turn(self, seconds: float) -> Said:
        self.tell(seconds)
        return self.done()

    def done(self) -> Said:
        """What the worker did after it was told to work."""
        self.turns.append(self._said())
        return self.turns[-1]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _said(self) -> Said:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended without a word (status {self._process.wait()})")
        said: Said = json.loads(line)
        return said


def serve(prepare: Callable[[], tuple[Said, Callable[[float], Said]]]) -> None:
    """Be a worker: `prepare` returns what to say when ready, and what to do in a turn."""
    replies, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not be taken for a reply
    ready, work = prepare()
    print(json.dumps(ready), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(work(float(line))), file=replies, flush=True)


def machine() -> Said:
    """What the numbers were measured on."""
    model = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        named = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        model = named[0].split(":")[1].strip() if named else model
    versions: Said = {}
    for package in ("torch", "numpy", "gymnasium", "mujoco", "stable-baselines3", "sbx-rl", "jax"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    about = {"processor": model, "cores": os.cpu_count(), "python": platform.python_version()}
    return {**about, "load": list(os.getloadavg()), "versions": versions}


def save(path: Path, result: Said) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\n{path}")
