"""Tables: whole whenever their writer is killed, refused when they are damaged or made from other files."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from conftest import deadly_child

from disk.errors import ArtefactError
from disk.evaluation.tables import read_csv, read_rollouts, save_csv, save_rollouts
from disk.storage.files import checksum

FRAME = pd.DataFrame({"condition": ["nominal", "broken"], "skill": [0, 1], "metric": "spread", "value": [0.25, 0.5]})


@pytest.mark.parametrize(
    ("name", "save", "read"), [("metrics.csv", save_csv, read_csv), ("nominal.parquet", save_rollouts, read_rollouts)]
)
def test_a_table_that_is_there_is_whole_and_nothing_else_is_left(tmp_path: Path, name, save, read) -> None:
    for calls in range(1, 20):
        out = tmp_path / f"killed{calls}" / name
        pid = deadly_child(calls, lambda out=out: save(FRAME, out))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if out.exists():
            pd.testing.assert_frame_equal(read(out), FRAME)
        else:
            save(FRAME, out)
        assert [path.name for path in out.parent.iterdir()] == [name]
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert 2 <= calls < 19, "every write, and then none"


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Rollouts of the skills beside their folder."""
    (tmp_path / "skills.safetensors").write_bytes(b"skills")
    out = tmp_path / "rollouts" / "nominal.parquet"
    save_rollouts(FRAME, out, [tmp_path / "skills.safetensors"])
    return out


def test_every_byte_of_rollouts_is_covered_by_their_checksum(rollouts: Path):
    whole = rollouts.read_bytes()
    for place in range(len(whole)):
        rollouts.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ArtefactError, match=r"nominal\.parquet: .*Delete it and run the same command again"):
            read_rollouts(rollouts)


def test_rollouts_name_their_sources_in_their_own_metadata(rollouts: Path):
    skills = rollouts.parents[1] / "skills.safetensors"
    about = json.loads(pq.read_metadata(rollouts).metadata[b"disk"])
    assert about["made_from"] == {"../skills.safetensors": checksum(skills)}
    pd.testing.assert_frame_equal(pd.read_parquet(rollouts), FRAME)  # any reader of Parquet can open them
    skills.unlink()
    pd.testing.assert_frame_equal(read_rollouts(rollouts), FRAME)  # they may outlive their skills
    skills.write_bytes(b"others")
    with pytest.raises(ArtefactError, match=r"was made from another .*skills\.safetensors"):
        read_rollouts(rollouts)


def test_equal_rollouts_have_equal_bytes(rollouts: Path):
    first = rollouts.read_bytes()
    save_rollouts(FRAME, rollouts, [rollouts.parents[1] / "skills.safetensors"])
    assert rollouts.read_bytes() == first


def test_rollouts_that_another_program_wrote_are_refused(tmp_path: Path):
    FRAME.to_parquet(tmp_path / "nominal.parquet")
    with pytest.raises(ArtefactError, match="it has no checksum"):
        read_rollouts(tmp_path / "nominal.parquet")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "a row is cut off"),
        (lambda text: text[:-3], "a row is cut off"),
        (lambda text: text.replace(",0.25", ""), "a row is cut off"),
        (lambda text: text.replace("0.25", "0&25"), "is damaged .*0&25"),
        (lambda text: text.replace(",0,", ",,"), "is damaged"),
        (lambda text: text.replace("value", "valve"), "has columns .*valve"),
    ],
    ids=["empty", "no end", "short row", "no number", "no skill", "other column"],
)
def test_a_torn_csv_table_is_refused(tmp_path: Path, damage, said: str):
    out = tmp_path / "metrics.csv"
    save_csv(FRAME, out)
    out.write_text(damage(out.read_text()))
    with pytest.raises(ArtefactError, match=rf"metrics\.csv: .*{said}.*[Dd]elete it and run the same command again"):
        read_csv(out)
