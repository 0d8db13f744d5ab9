"""Detect a change of the world by what frozen skills do in it: a sequential test without assumptions on distributions.

A skill that does not learn, in a world that does not change, has episodes that are independent and alike. So the rank
of a new episode among all earlier ones, by how unusual it is, is uniform: a conformal p-value p. Four bets against
that are factors e(p) with mean at most 1. Their Shiryaev-Roberts sums S ← (S + 1)·e have mean t after t probes of an
unchanged world. By Doob's inequality, P(S reaches A within t probes) ≤ t/A, and false alarms are A or more probes apart
on average (Shin, Ramdas and Rinaldo, "E-detectors", 2022). A is 1 / `rate`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from disk.evaluation.rollout import Trajectory
from disk.lazy import need

BETS = 4
FIRST_STAKE, STAKE, LOW = 0.75, 0.5, np.array([0.1, 0.3])
"""Shares that bets risk: on the most unusual episode of all, and on p-values of at most LOW."""
SENSORS = 3
"""Skills that are probed in any case; beyond them, the steadier half."""
SUSPICIOUS = 4.0
"""Gain of a bet since its last loss that calls for further probes at once."""


def features(path: Trajectory, horizon: int) -> np.ndarray:
    """Return what an episode is compared by: displacement, mean speed, and its length as a share of the horizon."""
    speed = np.linalg.norm(path.sigma[1:], axis=1).mean()
    return np.array([*(path.position[-1] - path.position[0]), speed, (len(path.position) - 1) / horizon])


def p_value(earlier: np.ndarray, new: np.ndarray) -> float:
    """Return the share of episodes, the new one (F,) and earlier ones (N, F), that are as unusual as the new one.

    An episode's measure is its mean distance to all others, each feature divided by its deviation.
    """
    cdist = need("scipy.spatial.distance").cdist  # other trainings do without scipy
    pooled = np.vstack((earlier, new))
    deviation = pooled.std(axis=0)
    scaled = pooled / np.where(deviation > 0.0, deviation, 1.0)
    unusual = cdist(scaled, scaled).sum(axis=1)
    return float((unusual >= unusual[-1] * (1.0 - 1e-9)).mean())  # ties, but for rounding, count in full


def bets(p: float, episodes: int) -> np.ndarray:
    """Return the factors (BETS,) of bets on: the most unusual of all `episodes`; p-values up to LOW; small ones."""
    first = 1.0 - FIRST_STAKE + FIRST_STAKE * episodes * (p * episodes < 1.5)
    return np.array([first, *(1.0 - STAKE + STAKE * (p <= LOW) / LOW), 0.5 / np.sqrt(p)])


class Change(NamedTuple):
    """An alarm."""

    step: int
    """Global step at which it was raised."""
    since: int
    """The last probe that still agreed: the world has changed after it."""
    shift: float
    """How far displacements have moved since then, in the world's units, on average over the probes."""
    statistic: float


class Detector:
    def __init__(self, rate: float, since: int) -> None:
        """`rate`: false alarms per probe. `since`: the global step from which the references are."""
        self.rate = rate
        self.references: dict[int, np.ndarray] = {}
        """Episodes of each skill in the world as it was known, as features (N, F)."""
        self.last: dict[int, float] = {}
        """Each probed skill's last p-value."""
        self._newest: int | None = None
        self._sums, self._gains = np.zeros(BETS), np.zeros(BETS)
        self._agreed, self._previous = np.full(BETS, since), since
        self._shifts: list[tuple[int, float]] = []

    @property
    def statistic(self) -> float:
        return float(self._sums.mean())

    @property
    def suspicious(self) -> bool:
        return bool(self._gains.max() >= SUSPICIOUS)

    def next(self) -> int:
        """Return the skill to probe: sensors take turns; under suspicion, the one with the lowest p-value so far.

        Sensors are the skills that go farthest for how much their episodes differ. The choice sees no new episode, so
        it does not change how often false alarms come.
        """
        steady = {}
        for skill, known in self.references.items():
            moved = known[:, :-2]
            steady[skill] = np.linalg.norm(moved.mean(axis=0)) / (np.linalg.norm(moved.std(axis=0)) + 1e-9)
        best = sorted(steady, key=lambda skill: -steady[skill])[: max(SENSORS, -(-len(steady) // 2))]
        order = [skill for skill in self.references if skill in best]
        if len(order) > 1 and self._newest in order:
            place = order.index(self._newest)
            order = order[place + 1 :] + order[:place]
        return min(order, key=lambda skill: self.last.get(skill, 0.0)) if self.suspicious else order[0]

    def see(self, step: int, skill: int, new: np.ndarray) -> float:
        """Compare a skill's new episode with its reference, and add it to that. Return its p-value."""
        earlier = self.references[skill]
        p = p_value(earlier, new)
        factors = bets(p, len(earlier) + 1)
        starts = self._gains <= 1.0
        self._agreed[starts] = self._previous
        self._gains = factors * np.maximum(self._gains, 1.0)
        self._sums = factors * (self._sums + 1.0)
        moved = float(np.linalg.norm((new - earlier.mean(axis=0))[:-2]))
        self._shifts = [*self._shifts, (step, moved)]
        # The new episode joins the reference, or the ranks of later ones would not be independent.
        self.references[skill] = np.vstack((earlier, new))
        self.last[skill], self._newest, self._previous = p, skill, step
        return p

    def change(self) -> Change | None:
        """Return the change that the probes so far speak for, if any."""
        if self.statistic < 1.0 / self.rate:
            return None
        since = int(self._agreed[self._sums.argmax()])
        moved = [moved for step, moved in self._shifts if step > since] or [self._shifts[-1][1]]
        return Change(self._previous, since, float(np.mean(moved)), self.statistic)
