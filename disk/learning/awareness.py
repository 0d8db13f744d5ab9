"""A chain that is not told when its world changes (`disk_aware`): frozen skills probe it, and training reacts.

Between episodes, and at the start of a skill, earlier skills run probe episodes in the world as it is. A `Detector`
compares them with what the same skills did before. On a change 𝒯 is gathered again, transitions of the old world leave
the batches, and a skill that is more than half done ends. The rest of its steps go to the next skill, which begins in
the new world. So a chain keeps its places, each with one skill, and the last place ends where the schedule says.

All of it is a function of the job and the earlier skills' files. `stats.json` holds the probes of a skill's training;
the next skill repeats the test on them instead of loading its state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config import SkillJob
from disk.evaluation.rollout import episodes, first_states, rollout
from disk.learning.artefacts import read_visits
from disk.learning.detection import Detector, features
from disk.seeds import EpisodeSeeds, seed_of
from disk.skills import bundle
from disk.storage.layout import POLICY
from disk.storage.manifest import read_stats

log = logging.getLogger("disk")


class Allowance:
    """Probe steps: half of the share is for the routine, half is kept to confirm a suspicion at once."""

    def __init__(self, share: float, horizon: int, spent: Sequence[int] = (0, 0)) -> None:
        self.share, self.horizon = share, horizon
        self.spent = list(spent)
        """Without and under suspicion."""

    def allows(self, now: int, suspicious: bool) -> bool:
        """Return True if an episode may be spent at global step `now`."""
        return bool(self.spent[suspicious] + self.horizon <= 0.5 * self.share * now)


class Watch:
    def __init__(self, job: SkillJob, earlier: Sequence[Path], sigma_size: int) -> None:
        assert job.aware is not None
        self.job, self.settings = job, job.aware
        about = [read_stats(folder)["aware"] for folder in earlier]
        left = about[-1]["left"] if about else 0
        self.start, self.steps = (job.start_step or 0) - left, job.steps + left
        """Global step of the first step, and how many there are: the skill before may have left some."""
        self.skills = bundle([folder / POLICY for folder in earlier]) if earlier else None
        self.probes: list[list[float]] = []
        """Of this skill's training: global step, skill, p-value, statistic, features of the episode."""
        self.changes: list[dict[str, Any]] = []
        self.collected, self.closed = 0, False
        before = [sum(each["spent"][kind] for each in about) for kind in range(2)]
        self.before, self.allowance = before, Allowance(self.settings.share, job.world.horizon, before)
        place = max((number for number, each in enumerate(about) if each["changes"]), default=None)
        known = about[place]["changes"][-1] if place is not None else None
        self.since: int | None = known["since"] if known else None
        """Transitions before this global step are of an older world."""
        self.fresh = known is not None
        """True if training has yet to take notice of a change."""
        self.detector = Detector(self.settings.rate, known["step"] if known else 0)
        self.past: list[np.ndarray] = []
        """𝒯: states of each earlier skill in the world as it is believed to be."""
        if known and place:  # what was gathered at the last change; the same seeds give the same states
            self._gather(place, known["step"])
        for number in range(len(self.past), len(earlier)):
            self.past.append(read_visits(earlier[number], sigma_size))
            self.detector.references[number] = np.array(about[number]["reference"])
        for each in about[place or 0 :]:
            for step, probed, _, _, *values in each["probes"]:
                if known is None or step > known["step"]:
                    self.detector.see(int(step), int(probed), np.array(values))

    def look(self, step: int) -> bool:
        """Probe the world if it is time. Return True if the skill under way ends here."""
        while (
            self.skills is not None
            and not self.closed
            and self.allowance.allows(self.start + step, self.detector.suspicious)
        ):
            probed, number = self.detector.next(), len(self.probes)
            seed = seed_of("probe", self.job.seed, self.job.skill, number)
            horizon, now = self.job.world.horizon, self.start + step
            [[path]] = rollout(self.skills.pick([probed]), self.job.world, horizon, [[seed]], now)
            self._take(step, probed, features(path, horizon))
        return self.closed

    def _take(self, step: int, probed: int, values: np.ndarray) -> None:
        """Take a probe into account."""
        now = self.start + step
        self.allowance.spent[self.detector.suspicious] += round(values[-1] * self.job.world.horizon)
        p = self.detector.see(now, probed, values)
        self.probes.append([now, probed, p, self.detector.statistic, *values.tolist()])
        change = self.detector.change()
        if change is None:
            return
        self.closed = step > max(self.job.sac.seed_steps, self.settings.close * self.steps)
        decision = "close" if self.closed else "adapt"
        self.changes.append({**change._asdict(), "decision": decision})
        log.info("step %d: the world has changed since step %d (by %.3g); %s", *change[:3], decision)
        self.since, self.fresh = change.since, True
        self.detector = Detector(self.settings.rate, now)
        earlier = len(self.past)
        self.past = []
        self.collected += self._gather(earlier, now)

    def _gather(self, skills: int, step: int) -> int:
        """Gather the first skills' states, and references for later probes, in the world of a global step."""
        assert self.skills is not None
        seeds = [EpisodeSeeds("probe", self.job.seed, step, skill) for skill in range(skills)]
        count, world = self.job.objective.past_states, self.job.world
        found = episodes(self.skills.pick(range(skills)), world, count, seeds, step)
        for skill, paths in enumerate(found):
            self.past.append(first_states(paths, count))
            self.detector.references[skill] = np.array([features(path, world.horizon) for path in paths])
        return sum(len(path.sigma) - 1 for paths in found for path in paths)

    def about(self, reference: np.ndarray, taken: int) -> dict[str, Any]:
        """Return the entry for stats.json. `reference`: the finished skill's episodes, as features."""
        return {
            "spent": [now - then for now, then in zip(self.allowance.spent, self.before, strict=True)],
            "left": self.steps - taken,
            "changes": self.changes,
            "probes": self.probes,
            "reference": reference.tolist(),
        }

    def state(self) -> dict[str, Tensor]:
        return {"probes": torch.tensor(self.probes, dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for step, probed, _, _, *values in state["probes"].tolist():
            self._take(int(step) - self.start, int(probed), np.array(values))


def changes_table(about: Sequence[Mapping[str, Any]]) -> str:
    """Return changes.csv: every probe of a run, what the test said and what training did."""
    lines = ["step,skill,probed,p,statistic,decision,since,shift"]
    for skill, each in enumerate(about):
        alarms = {(change["step"], change["statistic"]): change for change in each["changes"]}
        for step, probed, p, statistic, *_ in each["probes"]:
            found = alarms.get((step, statistic), {"decision": "none", "since": "", "shift": ""})
            said = ",".join(str(found[name]) for name in ("decision", "since", "shift"))
            lines.append(f"{step:.0f},{skill},{probed:.0f},{p:.6g},{statistic:.6g},{said}")
    return "\n".join(lines) + "\n"
