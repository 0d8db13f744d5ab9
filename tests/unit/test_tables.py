"""Tables and the sums beside them, whenever the process that writes them is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas as pd
import pytest
from conftest import deadly_child

from disk.errors import ArtefactError
from disk.evaluation.tables import read_csv, read_rollouts, save_csv, save_rollouts, sums_of

FRAME = pd.DataFrame({"skill": [0, 1], "value": [0.25, 0.5]})


@pytest.mark.parametrize(
    ("name", "save", "read"), [("metrics.csv", save_csv, read_csv), ("nominal.parquet", save_rollouts, read_rollouts)]
)
def test_a_table_that_is_there_has_its_sums_and_nothing_else_is_left(tmp_path: Path, name, save, read) -> None:
    source = tmp_path / "skills.safetensors"
    source.write_bytes(b"skills")
    for calls in range(1, 20):
        out = tmp_path / f"killed{calls}" / name
        pid = deadly_child(calls, lambda out=out: save(FRAME, out, [source]))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if out.exists():
            assert sums_of(out).exists()
            pd.testing.assert_frame_equal(read(out), FRAME)
        else:
            save(FRAME, out, [source])
        assert {path.name for path in out.parent.iterdir()} == {name, f"{name}.sha256"}
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert 4 <= calls < 19, "every write, and then none"


@pytest.mark.parametrize("damage", [b"", b"\xb8 no text", b"# of another\n"])
def test_damaged_sums_are_refused_with_a_remedy_that_makes_both_again(tmp_path: Path, damage: bytes) -> None:
    out = tmp_path / "metrics.csv"
    save_csv(FRAME, out)
    sums_of(out).write_bytes(damage)
    with pytest.raises(ArtefactError, match=r"metrics\.csv\.sha256: .*Delete both it and metrics\.csv, and run"):
        read_csv(out)
