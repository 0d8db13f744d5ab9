"""The soak: faults of every kind into runs of every method, and what became of each.

    python tests/faults/soak.py --faults 200 --seed 0 --out results/soak

Writes faults.csv, a line a fault, and soak.md, the table of docs/reliability.md. Fails unless every fault ended in
the bytes of an undisturbed run, with nothing finished lost on the way and every refusal naming its file and remedy.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NoReturn

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(path) for path in (TESTS, *TESTS.iterdir()) if path.is_dir()]  # these files, and conftest.py
import company  # noqa: E402
import kinds  # noqa: E402
from rig import CHAINS, LONG_MINUTES, ROWS, Case, Run, attempt, command, contents  # noqa: E402

FINE = ("recovered", "refused")
LONG = ("disk", "diayn", "dads", "disk_parallel")


@dataclass
class Result:
    number: int
    kind: str
    run: str
    outcome: str
    detail: str
    attempts: str
    loss: float | None
    message: str
    seconds: float


class Campaign:
    """Runs that nothing happens to, made when they are first needed, and the faults."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self.scratch, self.seed = scratch, seed
        self._straight: dict[Run, tuple[Path, dict[str, Any]]] = {}
        self.seconds: dict[Run, float] = {}
        """How long undisturbed runs took."""

    def straight(self, run: Run) -> tuple[Path, dict[str, Any]]:
        if run not in self._straight:
            root = self.scratch / "straight" / f"{run.name.replace(' ', '-')}-{run.seed}"
            begun = time.monotonic()
            end = attempt(lambda: command(run, root, run.config(minutes=1000.0)))
            self.seconds[run] = time.monotonic() - begun
            assert end.how == "done", f"the undisturbed run {run.name} failed: {end.message}"
            self._straight[run] = root, contents(root)
        return self._straight[run]

    def inject(self, number: int, name: str, run: Run) -> Result:
        begun = time.monotonic()
        if name in company.KINDS:
            outcome, detail, message = company.KINDS[name](self, run, self.scratch / f"fault{number}")
            detail, message = (text.replace(str(self.scratch), "…") for text in (detail, message))
            return Result(number, name, run.name, outcome, detail, "", None, message, time.monotonic() - begun)
        place = self.scratch / f"fault{number}"
        root, reference = self.straight(run)
        needs_disk = name in ("full disk", "read-only results") and kinds.can_mount()
        with kinds.small_disk(place, "64m") if needs_disk else nullcontext():
            case = Case(run, place / "results", reference, self.seconds[run])
            case.root.mkdir(parents=True)
            if "artefact" in name or "chain" in name:
                (place / "reference").symlink_to(root)
                kinds.STRANGERS[case.root] = self.straight(Run(run.method, run.evolving, seed=1))[0]
            kinds.KINDS[name](case, random.Random(f"{self.seed}/{number}"))
            outcome = case.go_on()
            kinds.STRANGERS.pop(case.root, None)
        if "UNSEEN" in case.detail:
            outcome = "UNSEEN by doctor"
        if outcome in FINE:
            shutil.rmtree(place)
        ends, message = " → ".join(case.ends), case.refusals[0] if case.refusals else ""
        message = message.replace(str(case.root), "results")
        return Result(
            number, name, run.name, outcome, case.detail.strip(), ends, case.loss, message, time.monotonic() - begun
        )


def schedule(faults: int, rng: random.Random, names: list[str]) -> Iterator[tuple[str, Run]]:
    """Every kind in turn, the dear ones a few times only; every method and both kinds of worlds in turn."""
    dear = dict.fromkeys(company.KINDS, company.MOST)
    runs = {name: _shuffled(rng, CHAINS if name in kinds.CHAIN_ONLY else ROWS) for name in names}
    count = 0
    for name in cycle(names):
        if count == faults:
            return
        if name in dear:
            if not dear[name]:
                continue
            dear[name] -= 1
        count += 1
        run = next(runs[name])
        # One of a few, whose undisturbed runs take long too.
        yield name, Run(rng.choice(LONG), run.evolving, long=True) if name == kinds.IN_TRAINING else run


def _shuffled(rng: random.Random, methods: Sequence[str]) -> Iterator[Run]:
    return cycle(
        rng.sample([Run(method, evolving) for method in methods for evolving in (False, True)], 2 * len(methods))
    )


def soak(faults: int, seed: int, scratch: Path, names: list[str], workers: int = 1, show: bool = False) -> list[Result]:
    """The whole campaign. Faults of one run are one worker's, so that its undisturbed run is made once."""
    planned = list(islice(schedule(faults, random.Random(seed), names), faults))
    mine: list[list[int]] = [[] for _ in range(workers)]
    for number, (name, run) in enumerate(planned):
        key = name if name in company.KINDS else run.name
        key = "tracking" if name.startswith(company.TRACKING) else key
        mine[zlib.crc32(key.encode()) % workers].append(number)
    children = []
    for worker, numbers in enumerate(mine):
        pid = os.fork()
        if pid == 0:
            _work(Campaign(scratch / f"worker{worker}", seed), [(n, *planned[n]) for n in numbers], show)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    lines = [line for path in scratch.glob("worker*/found.jsonl") for line in path.read_text().splitlines()]
    found = sorted((Result(**json.loads(line)) for line in lines), key=lambda result: result.number)
    assert len(found) == len(planned), f"{len(planned) - len(found)} faults were not judged: a worker has failed"
    return found


def _work(campaign: Campaign, faults: list[tuple[int, str, Run]], show: bool) -> NoReturn:
    try:
        campaign.scratch.mkdir(parents=True)
        for number, name, run in faults:
            result = campaign.inject(number, name, run)
            with (campaign.scratch / "found.jsonl").open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            if show:
                print(f"{number:4d} {name:45} {run.name:28} {result.outcome:10} {result.detail[:90]}", flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def table(found: list[Result]) -> str:
    """Markdown: a row a kind."""
    rows: dict[str, list[Result]] = defaultdict(list)
    for result in found:
        rows[result.kind].append(result)
    lines = [
        "| fault | injected | same bytes after running again | refused, same bytes after the remedy | lost | diverged |"
    ]
    lines.append("|---|---|---|---|---|---|")

    def line(name: str, results: list[Result]) -> str:
        counts = [sum(result.outcome == outcome for result in results) for outcome in (*FINE, "LOST")]
        return f"| {name} | {len(results)} | {' | '.join(map(str, counts))} | {len(results) - sum(counts)} |"

    lines += [line(name, results) for name, results in rows.items()]
    lines.append(line("**all**", found))
    losses = [result.loss for result in found if result.loss is not None]
    if losses:
        lines.append(
            f"\nThe most training that a kill cost: {max(losses):.2f} s of the {60 * LONG_MINUTES:.1f} s of "
            f"`checkpoint_minutes` ({len(losses)} cases)."
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/soak"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="runs that are broken at a time")
    parser.add_argument("--kinds", nargs="*", help="only those whose names contain one of these")
    options = parser.parse_args()
    every = [*kinds.KINDS, *company.KINDS]
    names = [name for name in every if not options.kinds or any(part in name for part in options.kinds)]
    begun = time.monotonic()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of flushes to the disk
    with tempfile.TemporaryDirectory(prefix="soak-", dir=memory, ignore_cleanup_errors=True) as scratch:
        found = soak(options.faults, options.seed, Path(scratch), names, options.workers, show=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "faults.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Result.__dataclass_fields__)
        writer.writerows([getattr(result, name) for name in Result.__dataclass_fields__] for result in found)
    (options.out / "soak.md").write_text(table(found))
    print(f"\n{table(found)}\n{len(found)} faults in {(time.monotonic() - begun) / 60:.1f} minutes: {options.out}")
    return int(any(result.outcome not in FINE for result in found))


if __name__ == "__main__":
    sys.exit(main())
