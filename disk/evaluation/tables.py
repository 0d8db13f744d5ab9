"""Tables of results: rollouts as Parquet, and the measures made from them as CSV.

A Parquet file carries two things in its key-value metadata: a checksum of the whole file, and the checksums of the
files it was made from. Reading compares both. A CSV table is small and quickly made again, so it has no checksum:
it is written whole, and reading checks that no row is torn and that columns and types are right.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disk.errors import ArtefactError
from disk.storage.files import checksum, load_json, load_rows, sweep, whole
from disk.storage.layout import AFTER_TRAINING, HAUSDORFF, METRICS, SUMMARY, USABLE

if TYPE_CHECKING:
    import pandas as pd

AGAIN = "Delete it and run the same command again"
CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{64})"')
"""The file's own checksum, as it stands in the JSON of its metadata."""
UNSIGNED = b'"checksum": "%s"' % (b"0" * 64)
"""The same place while the checksum is computed."""

_MEASURES = {"condition": "str", "skill": "int64", "metric": "str", "value": "float64"}
COLUMNS = {
    METRICS: _MEASURES,
    AFTER_TRAINING: _MEASURES,
    USABLE: {
        **{"step": "int64", "condition": "str"},
        **{"movers": "float64", "distinct": "float64", "reach": "float64"},
    },
    HAUSDORFF: {
        **{"method": "str", "seed": "int64", "condition": "str", "skill": "int64"},
        **{"hausdorff": "float64", "isolation": "float64"},
    },
    SUMMARY: {
        **{"method": "str", "condition": "str", "metric": "str"},
        **{"mean": "float64", "ci_low": "float64", "ci_high": "float64", "seeds": "int64"},
    },
}
"""Columns and types of the tables that later steps read: the first three of a run, the others of an environment."""


def save_rollouts(frame: pd.DataFrame, out: Path, made_from: Iterable[Path] = ()) -> None:
    """Write rollouts as Parquet, with checksums of the file and of its sources. Pages carry checksums of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sources = {os.path.relpath(path, out.parent): checksum(path) for path in made_from}
    about = json.dumps({"checksum": "0" * 64, "made_from": sources}, sort_keys=True)
    table, content = pa.Table.from_pandas(frame, preserve_index=False), io.BytesIO()
    with pq.ParquetWriter(content, table.schema, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"disk": about})
    unsigned = content.getvalue()
    signed = b'"checksum": "%s"' % hashlib.sha256(unsigned).hexdigest().encode()
    _save(unsigned.replace(UNSIGNED, signed), out)


def read_rollouts(path: Path) -> pd.DataFrame:
    """Read rollouts. Refuse a damaged file, and one whose sources have changed since."""
    import pyarrow.parquet as pq

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}. {AGAIN}") from None
    signed = CHECKSUM.search(content)
    if signed is None:
        raise ArtefactError(f"{path}: is damaged, or this version did not write it: it has no checksum. {AGAIN}")
    _compare(path, "is damaged", hashlib.sha256(CHECKSUM.sub(UNSIGNED, content)).hexdigest(), signed[1].decode())
    file = pq.ParquetFile(io.BytesIO(content))
    about: dict[str, Any] = json.loads(file.metadata.metadata[b"disk"])
    for name, expected in about["made_from"].items():
        source = path.parent / name
        if source.exists():  # rollouts may outlive their skills
            _compare(path, f"was made from another {source}", checksum(source), expected)
    frame: pd.DataFrame = file.read().to_pandas()
    return frame


def _compare(path: Path, fault: str, found: str, expected: str) -> None:
    if found != expected:
        raise ArtefactError(f"{path}: {fault}: checksum {found}, expected {expected}. {AGAIN}")


def save_csv(frame: pd.DataFrame, out: Path) -> None:
    _save(frame.to_csv(index=False, float_format="%.9g").encode(), out)


def read_csv(path: Path) -> pd.DataFrame:
    """Read one of the tables in `COLUMNS`. Refuse torn rows, other columns and values of another type."""
    import pandas as pd

    columns = COLUMNS[path.name]
    text = "\n".join(load_rows(path))
    try:
        frame = pd.read_csv(io.StringIO(text), dtype=columns)
    except ValueError as error:
        raise ArtefactError(f"{path}: is damaged ({error}). {AGAIN}") from None
    if list(frame.columns) != list(columns):
        raise ArtefactError(f"{path}: has columns {list(frame.columns)}, expected {list(columns)}. {AGAIN}")
    return frame


def _save(content: bytes, out: Path) -> None:
    sweep(out.parent, out.name)
    with whole(out) as file:
        file.write(content)


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
