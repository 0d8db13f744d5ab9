"""How well frozen skills notice that their world has changed: false alarms, delays, and power against size.

    python benchmarks/detection.py results/recovery docs/results/recovery/detection.json

Chains of point skills are read from RESULTS, the Ant and HalfCheetah skills from pretrained/. Nothing is trained: a
chain's skills appear at the steps at which they were finished, and probes follow the rule of `disk_aware`. Where there
is no chain of a point world, its part is left out.

- false alarms: in a world that stands still, over 200 trainings; each draws its references and probes from the same 500
  episodes of a skill, in an order of its own
- delays: steps from a change to its alarm, at several shares of probe steps
- power: friction of all geoms times a factor, HalfCheetah: share of alarms within 100 probes, and probes to the alarm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import numpy as np
import torch
from turns import Said, machine, save

from disk.config import Change, Evolution, World, load
from disk.envs import make
from disk.envs.evolution import Evolving
from disk.evaluation.rollout import rollout
from disk.learning.awareness import Allowance
from disk.learning.detection import Detector, features
from disk.seeds import EpisodeSeeds
from disk.skills import Skills
from disk.skills import load as load_skills
from disk.storage.files import load_json

RATE, SHARES = 1e-3, (0.02, 0.05, 0.1)
TRAININGS, REPEATS = 200, 20
FACTORS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)


class Pool:
    """Episodes of skills in worlds, as features. A repeat draws each once before any twice, in an order of its own."""

    def __init__(self, skills: Skills, world: World, size: int) -> None:
        self.skills, self.world, self.size = skills, world, size
        self._evolving = make(world).env
        self._all: dict[tuple[object, int], np.ndarray] = {}
        self._order: dict[tuple[object, int], list[int]] = {}
        self._random = np.random.default_rng(0)

    def again(self) -> None:
        """Begin another repeat."""
        self._order = {}

    def draw(self, skill: int, step: int, count: int) -> np.ndarray:
        """Return episodes (count, F) of a skill in the world of a step."""
        evolving = self._evolving
        key = (evolving.signature(step) if isinstance(evolving, Evolving) else None, skill)
        if key not in self._all:
            seeds = EpisodeSeeds("probe", len(self._all))[0 : self.size]
            [paths] = rollout(self.skills.pick([skill]), self.world, self.world.horizon, [seeds], step)  # type: ignore[list-item]
            self._all[key] = np.array([features(path, self.world.horizon) for path in paths])
        order = self._order.setdefault(key, self._random.permutation(self.size).tolist())
        if len(order) < count:  # all were used: begin again
            order[:] = self._random.permutation(self.size).tolist()
        drawn = [order.pop() for _ in range(count)]
        return self._all[key][drawn]


def watch(pool: Pool, ready: list[int], first: int, last: int, share: float, references: int) -> tuple[list[int], int]:
    """Return the steps of alarms between two steps, and the number of probes. Skill k is frozen from `ready[k]` on."""
    horizon, probes = pool.world.horizon, 0
    detector, alarms = Detector(RATE, first), []
    allowance = Allowance(share, horizon, [round(0.5 * share * first), round(0.25 * share * first)])  # some was needed
    for now in range(first, last + 1, horizon):
        for skill, step in enumerate(ready):
            if step <= now and skill not in detector.references:
                detector.references[skill] = pool.draw(skill, max(step, first) - (step > first), references)
        while detector.references and allowance.allows(now, detector.suspicious):
            probed = detector.next()
            new = pool.draw(probed, now, 1)[0]
            allowance.spent[detector.suspicious] += round(new[-1] * horizon)
            detector.see(now, probed, new)
            probes += 1
            change = detector.change()
            if change:
                alarms.append(now)
                known = detector.references
                detector = Detector(RATE, now)
                detector.references = {skill: pool.draw(skill, now, references) for skill in known}
    return alarms, probes


def false_alarms(skills: Skills, world: World, steps: int) -> Said:
    """Count the alarms and probes of trainings in a world that stands still."""
    ready, rows, pool = [steps * (skill + 1) for skill in range(len(skills))], [], Pool(skills, world, 500)
    for share in SHARES:
        alarms = runs = probes = 0
        for _ in range(TRAININGS):
            pool.again()
            found, taken = watch(pool, ready, steps, steps * len(skills), share, 40)
            alarms, runs, probes = alarms + len(found), runs + bool(found), probes + taken
        row = {"share": share, "trainings": TRAININGS, "probes": probes, "alarms": alarms, "runs": runs}
        rows.append({**row, "stated": round(RATE * probes, 2)})
        print("false alarms", rows[-1], flush=True)
    return {"rate": RATE, "rows": rows}


def delays(name: str, skills: Skills, world: World, ready: list[int], repeats: int, references: int) -> list[Said]:
    """Measure the delay of every change of a world, and its alarms before it happens."""
    evolving = make(world).env
    assert isinstance(evolving, Evolving)
    assert world.evolution
    last = world.evolution.total
    edges = [s for s in evolving._breaks if ready[0] < s < last and evolving.signature(s - 1) != evolving.signature(s)]
    edges = edges if name.startswith("point") else edges[:4]  # one for each leg that dies
    rows, pool = [], Pool(skills, world, 3 * references)
    for share in SHARES if name.startswith("point") else SHARES[:1]:
        for change, following in zip(
            edges, [*edges[1:], last if edges[-1] + 1_000_000 >= last else edges[-1] + 1_000_000], strict=True
        ):
            before = edges[edges.index(change) - 1] if edges.index(change) else ready[0]
            found = []
            for _ in range(repeats):
                pool.again()
                found.append(watch(pool, ready, before, following, share, references)[0])
            late = [next((now - change for now in each if now >= change), None) for each in found]
            noticed = [each for each in late if each is not None]
            row: Said = {"world": name, "share": share, "change": change, "until": following, "repeats": repeats}
            row |= {"frozen": sum(step <= change for step in ready), "noticed": len(noticed)}
            row |= {"early": sum(now < change for each in found for now in each)}
            rows.append({**row, "delay": median(noticed) if noticed else None, "worst": max(noticed, default=None)})
            print("delay", rows[-1], flush=True)
    return rows


def power(skills: Skills, world: World, probes: int = 100, references: int = 50) -> list[Said]:
    """Alarms after friction changes by a factor."""
    changes = [Change(what="friction", names="*", steps=list(range(1, len(FACTORS) + 1)), factors=list(FACTORS))]
    changed = world.model_copy(update={"evolution": Evolution(total=len(FACTORS), changes=changes)})
    pool, rows = Pool(skills, changed, 3 * references), []
    for step, factor in enumerate(FACTORS, start=1):
        needed: list[int | None] = []
        for _ in range(REPEATS):
            pool.again()
            detector = Detector(RATE, 0)
            detector.references = {skill: pool.draw(skill, 0, references) for skill in range(len(skills))}
            for number in range(1, probes + 1):
                probed = detector.next()
                detector.see(number, probed, pool.draw(probed, step, 1)[0])
                if detector.change():
                    break
            needed.append(number if detector.change() else None)
        found = [number for number in needed if number is not None]
        row: Said = {"factor": factor, "repeats": REPEATS, "noticed": len(found) / REPEATS}
        rows.append({**row, "probes": median(found) if found else None})
        print("power", rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", default=["power", "ant_broken", "point_broken", "point_blocks", "false"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    config = load()
    found: Said = load_json(asked.out) if asked.out.exists() else {}
    found |= {"machine": machine(), "rate": RATE}
    if "power" in asked.parts:
        found["friction"] = power(load_skills("pretrained/halfcheetah"), config.environment("halfcheetah").world())
    rows = [row for row in found.get("delays", []) if row["world"] not in asked.parts]
    if "ant_broken" in asked.parts:
        row, skills = config.environment("ant_broken"), load_skills("pretrained/ant_broken")
        # All five skills are frozen before the first change, as if they had come from elsewhere.
        rows += delays("ant_broken", skills, row.world(), [500_000] * len(skills), 3, 50)
    for name in ("point_broken", "point_blocks"):
        row, run = config.environment(name), asked.results / name / "disk/seed0"
        if name in asked.parts and (run / "skills.safetensors").exists():
            skills = load_skills(run)
            ready = [row.start_of(skill + 1) for skill in range(len(skills))]
            rows += delays(name, skills, row.world(), ready, REPEATS, 40)
    found["delays"] = rows
    save(asked.out, found)  # the rest takes long
    run = asked.results / "point_broken/disk/seed0"
    if "false" in asked.parts and (run / "skills.safetensors").exists():
        found["false_alarms"] = false_alarms(load_skills(run), config.environment("point").world(), 4_000)
    save(asked.out, found)


if __name__ == "__main__":
    main()
