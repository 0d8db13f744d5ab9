"""The training curve: a row of progress.csv every `log_every` steps, and a progress bar.

Metrics arrive as tensors once an update and stay on their device: they are looked at a few hundred at a
time, which is also when a NaN or an infinity is found and blamed on its exact step.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.errors import NotFiniteError
from disk.storage.files import writing

log = logging.getLogger("disk")
PENDING = 256
"""Updates whose metrics are kept on the device before they are looked at."""


def cpu_time() -> float:
    """CPU seconds of this process and of children that have ended."""
    return sum(os.times()[:4])


class Progress:
    def __init__(self, path: Path, log_every: int, total: int, label: str, device: torch.device) -> None:
        self.path, self.log_every, self.total = path, log_every, total
        self.lines: list[str] = []
        self._names: list[str] = []
        self._pending = torch.zeros(0, 0, device=device)
        self._steps: list[int] = []
        self._sums = np.zeros(0)
        self._count = 0
        self._episodes, self._episode_steps = 0, 0
        self._sigma = np.zeros(0)
        self._last_row = 0
        self._earlier_seconds = self._earlier_cpu = 0.0
        self._started, self._cpu_before = time.monotonic(), cpu_time()
        self._resumed_at = 0
        self._bar = Bar(label, total)

    @property
    def seconds(self) -> float:
        """Wall time of this training, over all its processes."""
        return self._earlier_seconds + time.monotonic() - self._started

    @property
    def cpu_seconds(self) -> float:
        """CPU time of this training, over all its processes and those that they started and waited for."""
        return self._earlier_cpu + cpu_time() - self._cpu_before

    def update(self, step: int, metrics: Mapping[str, Tensor]) -> None:
        if not self._names:
            self._names = list(metrics)
            self._pending = torch.zeros(PENDING, len(metrics), device=self._pending.device)
            self._sums = np.zeros(len(metrics))
        torch.stack([metrics[name] for name in self._names], out=self._pending[len(self._steps)])
        self._steps.append(step)
        if len(self._steps) == PENDING:
            self._fold()

    def observe(self, sigma: np.ndarray) -> None:
        self._sigma = self._sigma + sigma if len(self._sigma) else np.array(sigma, dtype=np.float64)

    def episode(self, step: int, length: int) -> None:
        """End an episode, and write a row if one is due."""
        self._episodes += 1
        self._episode_steps += length
        due = step - self._last_row >= self.log_every or step == self.total
        if due and self._names:
            self._row(step)
        self._bar.show(step)

    def check(self) -> None:
        """Raise if any metric so far is not finite. Call it before a checkpoint is written."""
        values = self._pending[: len(self._steps)]
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            row, column = (int(i) for i in bad[0])
            raise NotFiniteError(
                f"{self._names[column]} is {float(values[row, column])} at step {self._steps[row]}; "
                "the last good checkpoint is kept. Look at progress.csv beside it for what led there."
            )

    def _fold(self) -> None:
        self.check()
        self._sums += self._pending[: len(self._steps)].double().sum(0).cpu().numpy()
        self._count += len(self._steps)
        self._steps.clear()

    def _row(self, step: int) -> None:
        self._fold()
        taken = step - self._last_row
        values: dict[str, float | None] = {
            "time/total_timesteps": step,
            "time/time_elapsed": round(self.seconds, 3),
            "time/fps": round((step - self._resumed_at) / max(time.monotonic() - self._started, 1e-9), 1),
            "rollout/ep_len_mean": self._episode_steps / self._episodes,
        }
        values |= {f"rollout/sigma_{axis}": total / taken for axis, total in zip("xy", self._sigma, strict=False)}
        means = self._sums / self._count if self._count else [None] * len(self._names)  # far below an update a step
        values |= dict(zip(self._names, means, strict=True))
        if not self.lines:
            self.lines.append(",".join(values))
        self.lines.append(",".join("" if value is None else f"{value:.9g}" for value in values.values()))
        self._sums, self._sigma = np.zeros_like(self._sums), np.zeros_like(self._sigma)
        self._count = self._episodes = self._episode_steps = 0
        self._last_row = step
        with writing(self.path), self.path.open("a" if len(self.lines) > 2 else "w") as file:
            file.write("\n".join(self.lines[-1:] if len(self.lines) > 2 else self.lines) + "\n")
        self._bar.note(
            {name: value for name, value in values.items() if name.startswith("reward/") and value is not None}
        )

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what a resumed curve needs, as tensors and plain values."""
        numbers = [self._count, self._episodes, self._episode_steps, self._last_row]
        tensors = {
            "pending": self._pending[: len(self._steps)],
            "sums": torch.from_numpy(self._sums),
            "sigma": torch.from_numpy(self._sigma),
        }
        values = {"numbers": numbers, "names": self._names, "steps": self._steps, "lines": self.lines}
        return tensors, {**values, "seconds": self.seconds, "cpu_seconds": self.cpu_seconds}

    def load_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], step: int) -> None:
        self._count, self._episodes, self._episode_steps, self._last_row = values["numbers"]
        self._names, self._steps, self.lines = values["names"], list(values["steps"]), list(values["lines"])
        self._sums, self._sigma = tensors["sums"].numpy().copy(), tensors["sigma"].numpy().copy()
        self._pending = torch.zeros(PENDING, len(self._names), device=self._pending.device)
        self._pending[: len(self._steps)].copy_(tensors["pending"])
        self._earlier_seconds, self._earlier_cpu = values["seconds"], values["cpu_seconds"]
        self._resumed_at = step
        with writing(self.path):
            self.path.write_text(self.text() if self.lines else "")  # drops rows written after the checkpoint
        self._bar.start(step)

    def close(self) -> None:
        self._bar.close()


class Bar:
    """A progress bar on a terminal, and a line a minute in the log."""

    def __init__(self, label: str, total: int, every: float = 60.0) -> None:
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread: where memory is short it does not start, and tqdm would wait for ever
        self.label, self.total, self.every = label, total, every
        hidden = not sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=label, unit="step", disable=hidden, leave=False, dynamic_ncols=True)
        self._since = self._spoke = time.monotonic()
        self._first = self._step = 0
        self._terms = ""

    def start(self, step: int) -> None:
        """Start at a step that an earlier process reached."""
        self._first = self._step = step
        self._bar.initial = self._bar.n = step

    def note(self, terms: Mapping[str, float]) -> None:
        self._terms = " ".join(f"{name.split('/')[1]} {value:.3g}" for name, value in terms.items())
        self._bar.set_postfix_str(self._terms, refresh=False)

    def show(self, step: int) -> None:
        self._bar.update(step - self._step)
        self._step = step
        now = time.monotonic()
        if now - self._spoke >= self.every:
            self._spoke = now
            rate = (step - self._first) / (now - self._since)
            left = (self.total - step) / max(rate, 1e-9) / 60.0
            log.info(
                "%s: %d/%d steps, %.0f steps/s, %.1f min left, %s",
                *(self.label, step, self.total, rate, left, self._terms),
            )

    def close(self) -> None:
        self._bar.close()
