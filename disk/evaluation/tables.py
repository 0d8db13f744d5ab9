"""Tables of results: rollouts, and what is measured of them.

Beside each lies its `.sha256`, in the form of `sha256sum -c`: the table's own checksum and those of what it was made
from. Both are compared when the table is read; a table without one, from elsewhere or from before, is taken as it is.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from disk.errors import ArtefactError
from disk.storage.files import checksum, load_json, save_text, sweep, whole

if TYPE_CHECKING:
    import pandas as pd

LINE = re.compile(r"([0-9a-f]{64})  (.+)")
AGAIN = "Delete it and run the same command again"
BOTH = "Delete both it and {}, and run the same command again"


def save_rollouts(frame: pd.DataFrame, out: Path, made_from: Iterable[Path] = ()) -> None:
    content = io.BytesIO()
    frame.to_parquet(content, index=False)
    _save(content.getvalue(), out, made_from)


def read_rollouts(path: Path) -> pd.DataFrame:
    import pandas as pd

    check(path)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # Arrow's own errors are among these
        raise ArtefactError(f"{path}: is damaged ({error}). {AGAIN}") from None


def save_csv(frame: pd.DataFrame, out: Path, made_from: Iterable[Path] = ()) -> None:
    _save(frame.to_csv(index=False, float_format="%.9g").encode(), out, made_from)


def read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    check(path)
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}). {AGAIN}") from None


def sums_of(path: Path) -> Path:
    """Where a table's checksums are."""
    return path.with_name(f"{path.name}.sha256")


def _save(content: bytes, out: Path, made_from: Iterable[Path]) -> None:
    """Sums first: where there is a table, they are there too, whenever a process is killed."""
    sweep(out.parent, out.name)
    sums = {out.name: hashlib.sha256(content).hexdigest()}
    sums |= {os.path.relpath(path, out.parent): checksum(path) for path in made_from}
    lines = "".join(f"{value}  {name}\n" for name, value in sums.items())
    save_text(sums_of(out), f"# {_own(lines)}\n{lines}")  # a comment for sha256sum
    with whole(out) as file:
        file.write(content)


def _own(lines: str) -> str:
    return hashlib.sha256(lines.encode()).hexdigest()


def check(path: Path) -> None:
    """Raise unless a table is the one that was written, from what still lies where it was made from."""
    sums = sums_of(path)
    if not sums.exists():
        return
    try:
        first, _, rest = sums.read_text().partition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{sums}: cannot be read: {error}. {BOTH.format(path.name)}") from None
    if first != f"# {_own(rest)}":
        raise ArtefactError(
            f"{sums}: is damaged (checksum {_own(rest)}, expected {first[2:]!r}). {BOTH.format(path.name)}"
        )
    listed = {match[2]: match[1] for match in map(LINE.fullmatch, rest.splitlines()) if match}
    if path.name not in listed:
        raise ArtefactError(f"{sums}: is of another table than {path.name}. {BOTH.format(path.name)}")
    for name, expected in listed.items():
        there = path.parent / name
        if name != path.name and not there.exists():
            continue  # a result may outlive what it was made from
        if (found := checksum(there)) != expected:
            what = "is damaged" if name == path.name else f"was made from another {there}"
            raise ArtefactError(f"{path}: {what}: checksum {found}, expected {expected}. {AGAIN}")


def runs_table(stats: Sequence[Path]) -> pd.DataFrame:
    """Return one row for each run: steps, minutes, commit and code, from the stats.json of its trainings.

    `todays_code` compares the code that trained the run with the code that calls this function.
    """
    import pandas as pd

    from disk.storage.layout import Run
    from disk.storage.provenance import code_hash

    today = code_hash()
    runs: dict[tuple[str, int], list[dict[str, object]]] = {}
    for path in stats:
        run = Run.of(path)
        runs.setdefault((run.method, run.seed), []).append(load_json(path))
    rows = []
    for (method, seed), parts in runs.items():
        codes = sorted({str(part.get("code_hash")) for part in parts})
        commits = sorted({str(part.get("commit"))[:10] for part in parts})
        rows.append(
            {
                "method": method,
                "seed": seed,
                "trainings": len(parts),
                "steps": sum(int(str(part.get("steps") or 0)) for part in parts),
                "collected_steps": sum(int(str(part.get("collected_steps") or 0)) for part in parts),
                "minutes": round(sum(float(str(part.get("seconds") or 0)) for part in parts) / 60, 2),
                "commit": " ".join(commits),
                "code": " ".join(codes),
                "todays_code": "yes" if codes == [today] else "no",
            }
        )
    return pd.DataFrame(rows)
