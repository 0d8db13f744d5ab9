"""Learned skills: the result of training, and the input of everything after it.

A file of skills holds actors side by side and, for each skill, which actor it uses and its latent z
(width 0 when every skill has a network of its own). `policy.safetensors` is such a file with one skill,
`skills.safetensors` one with all skills of a run, for every method alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from disk.config import World
from disk.errors import ArtefactError
from disk.networks import Actor
from disk.storage.files import load_tensors, save_tensors
from disk.storage.layout import POLICY, SKILLS


@dataclass(frozen=True)
class Skill:
    """One skill. `act` is what a user calls."""

    skills: Skills
    index: int

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the skill's action for one observation (D,) or a batch (B, D), in the environment's bounds.

        The same observation always gives the same action, also of skills that sample theirs.
        """
        given = np.asarray(obs)
        size = self.skills.observation_size
        if given.shape[-1:] != (size,) or given.ndim > 2:
            raise ValueError(f"expected observations of shape ({size},) or (B, {size}), not {given.shape}")
        batch = np.atleast_2d(given).astype(np.float32)[None]
        action = self.skills.to_native(self.skills.pick([self.index]).actions(batch)[0])
        return action if given.ndim == 2 else action[0]


class Skills(Sequence[Skill]):
    """The skills of a run, a sequence of `Skill`."""

    def __init__(self, actor: Actor, which: Tensor, latent: Tensor, meta: dict[str, Any]) -> None:
        self.actor, self.which, self.latent, self.meta = actor, which, latent, meta
        self._picked: dict[tuple[int, ...], Skills] = {}

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, index: int) -> Skill: ...
    @overload
    def __getitem__(self, index: slice) -> list[Skill]: ...
    def __getitem__(self, index: int | slice) -> Skill | list[Skill]:
        if isinstance(index, slice):
            return [Skill(self, i) for i in range(len(self))[index]]
        if not -len(self) <= index < len(self):
            raise IndexError(f"skill {index}: there are {len(self)} skills, from 0 to {len(self) - 1}")
        return Skill(self, range(len(self))[index])

    def __repr__(self) -> str:
        return f"Skills({self.meta['env']}: {len(self)} skills)"

    @property
    def observation_size(self) -> int:
        return int(self.meta["observation_size"])

    @property
    def world(self) -> World:
        """The world these skills were trained in."""
        return World.model_validate(self.meta["world"])

    def pick(self, indices: Sequence[int]) -> Skills:
        """Return some of the skills, with one actor each."""
        key = tuple(indices)
        if key not in self._picked:
            chosen = torch.tensor(key)
            tensors = {name: value[self.which[chosen]] for name, value in self.actor.state_dict().items()}
            meta = self.meta
            actor = _actor(tensors, meta, len(key))
            self._picked[key] = Skills(actor, torch.arange(len(key)), self.latent[chosen], meta)
        return self._picked[key]

    @property
    def samples(self) -> bool:
        """True if these skills sample their actions; otherwise they act by their modes."""
        return self.meta.get("acts") == "sample"

    def actions(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions in [-1, 1] of all skills, each for its own observations: (N, B, D) → (N, B, A)."""
        return self.sample(obs) if self.samples else self.mode(obs)

    @torch.inference_mode()
    def mode(self, obs: np.ndarray) -> np.ndarray:
        """The most likely actions before the tanh, in [-1, 1]: (N, B, D) → (N, B, A)."""
        return self.actor.mode(self._inputs(obs)).numpy()

    @torch.inference_mode()
    def sample(self, obs: np.ndarray) -> np.ndarray:
        """Actions drawn from the policies, in [-1, 1]: (N, B, D) → (N, B, A).

        The observation seeds the draw. So a rollout is the same however many processes share it, and needs no state.
        """
        noise = torch.from_numpy(_noise(np.ascontiguousarray(obs, dtype=np.float32), int(self.meta["action_size"])))
        return self.actor.explore(self.actor.mlp(self._inputs(obs)), noise).action.numpy()

    def _inputs(self, obs: np.ndarray) -> Tensor:
        inputs = torch.from_numpy(np.ascontiguousarray(obs, dtype=np.float32))
        if self.latent.shape[1]:
            inputs = torch.cat((inputs, self.latent[:, None].expand(-1, inputs.shape[1], -1)), dim=-1)
        return inputs

    def to_native(self, action: np.ndarray) -> np.ndarray:
        low, high = (np.asarray(self.meta[f"action_{side}"], dtype=np.float32) for side in ("low", "high"))
        return low + (action + 1.0) * 0.5 * (high - low)

    def save(self, path: Path, half: bool = False) -> None:
        """Write the skills. `half`: in 16 bits, half the size; `load` widens them."""
        networks = self.actor.state_dict()
        if half:
            networks = {name: weights.half() for name, weights in networks.items()}
        save_tensors(path, {**networks, "which": self.which, "latent": self.latent}, self.meta)


def _actor(tensors: dict[str, Tensor], meta: dict[str, Any], copies: int) -> Actor:
    inputs = int(meta["observation_size"]) + int(meta["latent_size"])
    actor = Actor(inputs, int(meta["action_size"]), meta["hidden"], meta["log_std_bounds"], copies)
    actor.load_state_dict(tensors)
    return actor.requires_grad_(False)


def _noise(obs: np.ndarray, actions: int) -> np.ndarray:
    """Standard normal numbers (N, B, A), drawn for each observation (N, B, D) by a generator of its own."""
    noise = np.empty((*obs.shape[:2], actions), dtype=np.float32)
    for place in np.ndindex(*obs.shape[:2]):
        seed = hashlib.blake2b(obs[place].tobytes(), digest_size=8).digest()
        noise[place] = np.random.default_rng(int.from_bytes(seed)).standard_normal(actions)
    return noise


def must_act_by_modes(skills: Skills, what: str) -> None:
    """Raise if skills sample their actions, which `what` cannot do."""
    if skills.samples:
        raise ArtefactError(f"these skills sample their actions, but {what} acts by modes: give skills that do so too")


def gather(actors: Sequence[Actor], which: Tensor, latent: Tensor, meta: dict[str, Any]) -> Skills:
    """Return skills with copies of actors that may still be learning, on the CPU."""
    states = [actor.state_dict() for actor in actors]
    tensors = {name: torch.cat([state[name].detach().cpu() for state in states]) for name in states[0]}
    return Skills(_actor(tensors, meta, len(actors)), which, latent, meta)


def shown(meta: Mapping[str, Any], obs: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
    """Return what skills see of a state: the observation, and the position behind it if they ask for it."""
    return np.concatenate((obs, info["position"]), axis=-1) if meta.get("sees_position") else obs


def load(source: str | Path) -> Skills:
    """Load skills from a run's directory (`results/point/disk/seed0`) or a file of skills."""
    path = Path(source)
    if path.is_dir():
        if not (path / SKILLS).exists():
            done = sorted(folder.parent.name for folder in path.glob(f"skill*/{POLICY}"))
            hint = (
                f"it has {', '.join(done)}, each of which can be loaded" if done else "it has no finished skill either"
            )
            raise ArtefactError(f"{path}: has no {SKILLS}; {hint}")
        path = path / SKILLS
    tensors, meta = load_tensors(path)
    try:
        which, latent = tensors.pop("which"), tensors.pop("latent")
        inputs, hidden = int(meta["observation_size"]) + int(meta["latent_size"]), list(meta["hidden"])
        sizes = [tuple(tensors[f"mlp.weights.{layer}"].shape[1:]) for layer in range(len(hidden) + 1)]
        if sizes != list(pairwise([inputs, *hidden, 2 * int(meta["action_size"])])):  # before networks are made of them
            raise ValueError("its networks have other sizes than it says")
        actor = _actor(tensors, meta, len(tensors["mlp.weights.0"]))
        World.model_validate(meta["world"])
        complete = len(which) == len(latent) and bool((which < len(tensors["mlp.weights.0"])).all())
        if not complete or any(len(meta[key]) != meta["action_size"] for key in ("action_low", "action_high")):
            raise ValueError("its parts do not fit together")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path}: is not a file of skills: {error}") from None
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ArtefactError(f"{path}: {name} holds NaN or infinity; delete it and run the same command again")
    return Skills(actor, which, latent, meta)


def misfit(skills: Skills, observations: int, actions: int) -> str:
    """Return why skills cannot act in an environment of these sizes; empty if they can."""
    seen = skills.observation_size - len(skills.world.position.entries) * bool(skills.meta.get("sees_position"))
    where, acts = f"these skills were learned in {skills.meta['env']}, with", skills.meta["action_size"]
    if seen != observations:
        return f"{where} observations of size {seen}; this environment has observations of size {observations}"
    return "" if acts == actions else f"{where} {acts} actions; this environment has {actions}"


def bundle(policies: Sequence[Path]) -> Skills:
    """Return the skills of several files of one run, in order, as one set."""
    return join([load(path) for path in policies], policies, same=None)


NETWORK = ("observation_size", "action_size", "latent_size", "hidden", "log_std_bounds", "sees_position", "acts")
"""Metadata that skills must share to lie side by side."""


def join(parts: Sequence[Skills], sources: Sequence[Path], same: Sequence[str] | None = NETWORK) -> Skills:
    """Return several sets of skills as one. They must share these metadata; None: all but skill, hash and seed."""
    if not parts:
        raise ArtefactError("there are no skills to join")
    first = parts[0].meta
    for path, part in zip(sources, parts, strict=True):
        for key in first.keys() - {"skill", "config_hash", "seed"} if same is None else same:
            if part.meta.get(key) != first.get(key):
                raise ArtefactError(f"{path}: {key} is {part.meta.get(key)!r}, but {sources[0]} has {first.get(key)!r}")
    picked = [part.pick(range(len(part))) for part in parts]
    states = [part.actor.state_dict() for part in picked]
    tensors = {name: torch.cat([state[name] for state in states]) for name in states[0]}
    meta = {key: value for key, value in first.items() if key not in ("skill", "config_hash")}
    meta["config_hash"] = [part.meta["config_hash"] for part in parts]
    count = sum(map(len, parts))
    actor = _actor(tensors, meta, count)
    return Skills(actor, torch.arange(count), torch.cat([part.latent for part in picked]), meta)
