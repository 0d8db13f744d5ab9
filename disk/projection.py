"""φ, a learned projection: what DISk measures distances in where σ is not given.

φ maps a state, observation ⊕ position, to a few numbers. `disk.learning.projection` trains it, and
`projection.safetensors` beside a skill holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from disk.errors import ArtefactError
from disk.networks import MLP
from disk.storage.files import load_tensors, save_tensors


class Projection(nn.Module):
    mean: Tensor
    scale: Tensor

    def __init__(
        self, states: int, hidden: Sequence[int], width: int, distance: str, generator: torch.Generator | None = None
    ) -> None:
        """`states`: numbers of a state. `distance`: `change` or `place`, as in the settings."""
        super().__init__()
        self.shape = {"states": states, "hidden": list(hidden), "width": width, "distance": distance}
        self.mlp = MLP([states, *hidden, width], generator=generator)
        self.register_buffer("mean", torch.zeros(states))
        self.register_buffer("scale", torch.ones(states))

    def place(self, states: Tensor) -> Tensor:
        """Return φ of states (N, F): (N, width)."""
        placed: Tensor = self.mlp(((states - self.mean) / self.scale)[None])[0]
        return placed

    @torch.no_grad()
    def forward(self, moves: Tensor) -> Tensor:
        """Return σ of moves (N, 2F), states before and after a step: φ(s') - φ(s), or φ(s')."""
        before, after = moves.chunk(2, dim=1)
        if self.shape["distance"] == "place":
            return self.place(after)
        after, before = self.place(torch.cat((after, before))).chunk(2)
        return after - before

    def save(self, path: Path, meta: dict[str, Any]) -> None:
        save_tensors(path, self.state_dict(), {**meta, "projection": self.shape})


def load(path: Path) -> tuple[Projection, dict[str, Any]]:
    """Read a projection and the metadata it was saved with."""
    tensors, meta = load_tensors(path)
    try:
        projection = Projection(**meta["projection"])
        projection.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path}: is not a projection: {error}") from None
    return projection.requires_grad_(False), meta
