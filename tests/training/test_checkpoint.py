"""Checkpoints that survive any kill, and the lease that keeps two processes from writing one."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import CPU, run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from disk.learning.replay import Replay
from disk.storage.checkpoint import Checkpoint, stamp
from disk.storage.files import save_json, save_tensors, save_text, whole
from disk.storage.lock import Lease, snakemake_is_gone
from disk.storage.replay import Columns

COLUMNS = Columns(obs=1, action=1, sigma=1)
STATE = {"weights": torch.arange(6.0).reshape(2, 3), "counter": torch.tensor(7)}


def rows(start: int, count: int) -> Tensor:
    return (torch.arange(start, start + count)[:, None] + torch.linspace(0, 0.5, COLUMNS.width)).float()


def replay_with(inherited: int, capacity: int = 1000) -> Replay:
    replay = Replay(capacity, COLUMNS, CPU)
    replay.extend(rows(0, inherited))
    return replay


def saved(directory: Path, own: int = 5, inherited: int = 3, mark: str = "stamp") -> None:
    replay, checkpoint = replay_with(inherited), Checkpoint(directory, mark)
    assert checkpoint.load() == ""
    replay.extend(rows(inherited, own))
    checkpoint.save(STATE, {"step": own}, [replay], [inherited])
    checkpoint.close()


# ---------------------------------------------------------------- state and replay


def test_state_and_replay_come_back(tmp_path: Path):
    saved(tmp_path / "c")
    checkpoint, replay = Checkpoint(tmp_path / "c", "stamp"), replay_with(3)
    found = checkpoint.load()
    assert not isinstance(found, str)
    assert found[1]["step"] == 5
    assert all(torch.equal(found[0][name], value) for name, value in STATE.items())
    checkpoint.load_replays([replay])
    assert replay.added == 8
    assert torch.equal(replay.newest(100), rows(0, 8))
    checkpoint.close()


@given(
    capacity=st.integers(1, 25),
    inherited=st.integers(0, 10),
    batches=st.lists(st.integers(0, 15), min_size=1, max_size=4),
    lost=st.integers(0, 5),
)
@settings(max_examples=40)
def test_a_restored_replay_equals_the_one_that_was_saved(tmp_path_factory, capacity, inherited, batches, lost):
    """Also when it has wrapped round since the last save, and when rows were added after it."""
    directory = tmp_path_factory.mktemp("checkpoint") / "c"
    replay, checkpoint = replay_with(inherited, capacity), Checkpoint(directory, "stamp")
    checkpoint.load()
    for count in batches:
        replay.extend(rows(replay.added, count))
        checkpoint.save(STATE, {}, [replay], [inherited])
    kept, added = replay.newest(1000), replay.added
    checkpoint.close()
    with (directory / "replay.bin").open("ab") as file:
        file.write(b"\1" * (lost * 7))  # what a process that was killed had begun to write

    again, restored = Checkpoint(directory, "stamp"), replay_with(inherited, capacity)
    assert not isinstance(again.load(), str)
    again.load_replays([restored])
    assert restored.added == added
    assert torch.equal(restored.newest(1000), kept)
    # … and it can be saved and restored once more from there.
    restored.extend(rows(restored.added, 2))
    again.save(STATE, {}, [restored], [inherited])
    again.close()
    last, third = Checkpoint(directory, "stamp"), replay_with(inherited, capacity)
    assert not isinstance(last.load(), str)
    last.load_replays([third])
    assert torch.equal(third.newest(1000), restored.newest(1000))
    last.close()


def test_rows_of_a_save_that_did_not_finish_are_dropped(tmp_path: Path):
    saved(tmp_path / "c")
    size = (tmp_path / "c" / "replay.bin").stat().st_size
    with (tmp_path / "c" / "replay.bin").open("ab") as file:
        file.write(b"x" * 37)
    checkpoint, replay = Checkpoint(tmp_path / "c", "stamp"), replay_with(3)
    assert not isinstance(checkpoint.load(), str)
    checkpoint.load_replays([replay])
    assert torch.equal(replay.newest(100), rows(0, 8))
    assert (tmp_path / "c" / "replay.bin").stat().st_size == size
    checkpoint.close()


@pytest.mark.parametrize(
    "how", ["other stamp", "other format", "state truncated", "state is text", "replay too short", "no replay"]
)
def test_what_cannot_be_continued_is_cleared_and_training_starts_over(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
):
    directory = tmp_path / "c"
    with monkeypatch.context() as patch:
        if how == "other format":
            patch.setattr("disk.storage.checkpoint.FORMAT", 1)
        saved(directory)
    state, replay = directory / "state.safetensors", directory / "replay.bin"
    if how == "state truncated":
        state.write_bytes(state.read_bytes()[:-9])
    elif how == "state is text":
        state.write_text("hello")
    elif how == "replay too short":
        replay.write_bytes(replay.read_bytes()[:-9])
    elif how == "no replay":
        replay.unlink()
    checkpoint = Checkpoint(directory, "another" if how == "other stamp" else "stamp")
    said = checkpoint.load()
    assert isinstance(said, str)
    if how != "no replay":  # which is what a kill in the middle of removing a finished checkpoint leaves
        assert "restarts from step 0" in said
        assert str(directory) in said
    assert [path.name for path in directory.iterdir()] == ["lease"]
    fresh = replay_with(0)
    fresh.extend(rows(0, 2))
    checkpoint.save(STATE, {"step": 2}, [fresh], [0])
    found = checkpoint.load()
    assert not isinstance(found, str)
    assert found[1]["step"] == 2
    checkpoint.close()


def test_a_first_start_says_nothing(tmp_path: Path):
    checkpoint = Checkpoint(tmp_path / "c", "stamp")
    assert checkpoint.load() == ""
    checkpoint.close()


def test_a_save_that_dies_before_the_rename_leaves_the_one_before(tmp_path: Path):
    """The process dies by SIGKILL after the rows were appended and before the state is in place."""
    directory = tmp_path / "c"
    saved(directory)
    child = os.fork()
    if child == 0:
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        checkpoint, replay = Checkpoint(directory, "stamp"), replay_with(3)
        checkpoint.load()
        checkpoint.load_replays([replay])
        replay.extend(rows(8, 4))
        checkpoint.save({"weights": torch.zeros(1)}, {"step": 9}, [replay], [3])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    checkpoint, replay = Checkpoint(directory, "stamp"), replay_with(3)
    found = checkpoint.load()
    assert not isinstance(found, str)
    assert found[1]["step"] == 5
    checkpoint.load_replays([replay])
    assert torch.equal(replay.newest(100), rows(0, 8))
    checkpoint.close()


def test_a_finished_checkpoint_is_gone(tmp_path: Path):
    saved(tmp_path / "c")
    Checkpoint(tmp_path / "c", "stamp").remove()
    assert list(tmp_path.iterdir()) == []


def test_the_stamp_is_of_job_and_inputs_and_of_nothing_else():
    assert stamp("job", {"a": "1", "b": "2"}) == stamp("job", {"b": "2", "a": "1"})
    others = [("jab", {"a": "1", "b": "2"}), ("job", {"a": "2", "b": "1"}), ("job", {"a": "1"}), ("job", {})]
    assert len({stamp("job", {"a": "1", "b": "2"}), *(stamp(*other) for other in others)}) == 5


# ---------------------------------------------------------------- whole files


@pytest.mark.parametrize("existing", [None, b"old"])
def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, existing: bytes | None):
    path = tmp_path / "deep" / "file"
    if existing:
        path.parent.mkdir()
        path.write_bytes(existing)

    def fail() -> None:
        with whole(path) as file:
            file.write(b"new, but")
            file.flush()
            assert (path.read_bytes() if path.exists() else None) == existing
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail()
    assert (path.read_bytes() if path.exists() else None) == existing
    assert [each.name for each in path.parent.iterdir()] == (["file"] if existing else [])
    with whole(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("save", ["text", "json", "tensors"])
def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path, save: str):
    path = tmp_path / "file"
    calls = {
        "text": lambda text: save_text(path, text),
        "json": lambda text: save_json(path, {"text": text}),
        "tensors": lambda text: save_tensors(path, {"a": torch.ones(3)}, {"text": text}),
    }
    calls[save]("old")
    old = path.read_bytes()
    child = os.fork()
    if child == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        calls[save]("new")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() == old
    calls[save]("new")
    assert path.read_bytes() != old


def test_files_are_readable_by_whom_the_umask_allows(tmp_path: Path):
    before = os.umask(0o027)
    try:
        save_text(tmp_path / "file", "hello")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027, "the umask is as it was"
    finally:
        os.umask(before)


# ---------------------------------------------------------------- the lease

HOLD = """
import sys
from pathlib import Path
from disk.storage.lock import Lease
lease = Lease(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


class Waiter(threading.Thread):
    """Asks for the lease in a thread; flock tells two openings of one process apart like two processes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory, self.lease = directory, None
        self.start()

    def run(self) -> None:
        self.lease = Lease(self.directory, poll_seconds=0.02)


def test_the_lease_keeps_a_second_process_out_until_the_first_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="disk")
    first = run_python(HOLD, tmp_path / "c")
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n", first.communicate()
    waiter = Waiter(tmp_path / "c")
    time.sleep(0.5)
    assert waiter.lease is None
    assert f"process {first.pid}" in caplog.text
    assert caplog.text.count("waiting") == 1, "it says so once"
    first.kill()
    first.communicate()
    waiter.join(10)
    assert waiter.lease is not None
    assert f"process {os.getpid()} " in (tmp_path / "c" / "lease").read_text()
    waiter.lease.release()


def test_the_lease_is_free_after_its_holder_let_go_or_finished(tmp_path: Path):
    for _ in range(3):
        Lease(tmp_path / "c").release()
    one = Checkpoint(tmp_path / "c", "stamp")
    waiter = Waiter(tmp_path / "c")
    time.sleep(0.1)
    assert waiter.lease is None
    one.remove()  # takes the directory and the locked file away
    waiter.join(10)
    assert waiter.lease is not None
    assert (tmp_path / "c" / "lease").exists()
    waiter.lease.release()


CONTEND = """
import logging, os, sys
from pathlib import Path
from disk.storage.checkpoint import Checkpoint
from disk.storage.lock import Lease
logging.disable()
Lease.__init__.__defaults__ = (0.001,)
directory, marker = Path(sys.argv[1]), Path(sys.argv[2])
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(200):
                checkpoint = Checkpoint(directory, "stamp")
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                marker.unlink()
                checkpoint.remove()
            code = 0
        finally:
            sys.stderr.flush()
            if code:
                import traceback
                traceback.print_exc()
            os._exit(code)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_processes_that_come_and_go_never_meet_inside(tmp_path: Path):
    """Taking the lease and removing the directory race with each other; nobody may fall over it."""
    process = run_python(CONTEND, tmp_path / "c", tmp_path / "inside")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


# ---------------------------------------------------------------- the controller


def test_a_controller_lives_as_long_as_it_holds_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DISK_CONTROLLER", raising=False)
    assert not snakemake_is_gone(), "nobody started this training but its user"
    monkeypatch.setenv("DISK_CONTROLLER", str(tmp_path / "alive"))
    with (tmp_path / "alive").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not snakemake_is_gone()
        assert not snakemake_is_gone(), "asking does not take the lock away"
    assert snakemake_is_gone()
    monkeypatch.setenv("DISK_CONTROLLER", str(tmp_path / "no" / "such" / "folder"))
    assert not snakemake_is_gone(), "what cannot be known is not assumed"
