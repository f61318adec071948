"""What the agent writes beside the shims' journals, and how it takes damage."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast.errors import StoreError
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.shell.output.log_index import INDEX_MAX_BYTES, note, written_by
from holdfast_agent.shell.shims.worker_files import EpochFile, WorkerFiles

KEY = WorkerId("job-1", "workerpool0-0")
LOST = Exit(0, 3, 0, ExitReason.LOST_SHIM_DIED, message="its shim died", end_time=5.0)


@pytest.fixture
def files(tmp_path: Path) -> WorkerFiles:
    facts = HostFacts("h", str(tmp_path / "logs"), str(tmp_path / "scratch"), WorkerUser("u", "/", "/bin/sh"), 1)
    made = WorkerFiles(tmp_path / "workers", facts)
    made.directory(KEY).mkdir(parents=True)
    return made


def test_made_up_ends_are_read_back_as_written(files: WorkerFiles) -> None:
    assert files.record_exits(KEY, 3, (LOST,), launched=(0,)) == (LOST,)
    journal = files.journal(KEY, 3)
    assert journal is not None
    assert (journal.exits, journal.empty, journal.launched) == ((LOST,), True, (0,))
    assert files.journals(KEY) == (journal,)


def test_records_go_after_the_last_sound_line_of_a_torn_journal(files: WorkerFiles) -> None:
    files.record_exits(KEY, 3, (), launched=(0, 1))
    path = files.directory(KEY) / "g3.journal"
    intent = path.read_bytes().split(b"\n")[0] + b"\n"
    path.write_bytes(intent + b'00000000 {"ev":"exited","rank":0,"sta')
    files.record_exits(KEY, 3, (LOST,), launched=())
    journal = files.journal(KEY, 3)
    assert journal is not None
    assert (journal.launched, journal.exits, journal.empty) == ((0, 1), (LOST,), True)


def test_journal_without_a_sound_intent_never_launched(files: WorkerFiles) -> None:
    (files.directory(KEY) / "g1.journal").write_bytes(b"deadbeef {}\n")
    assert files.journal(KEY, 1) is None
    assert files.journals(KEY) == ()


def test_only_old_and_acknowledged_journals_are_pruned(files: WorkerFiles) -> None:
    for generation in (1, 2, 3):
        files.record_exits(KEY, generation, (LOST,), launched=(0,))
    for generation in (1, 3):
        files.note_ack(KEY, generation, 0)
    files.prune(KEY, below=3)
    assert sorted(path.name for path in files.directory(KEY).glob("*.journal")) == ["g2.journal", "g3.journal"]


def test_attempts_and_acknowledgements_survive_damage(files: WorkerFiles) -> None:
    files.note_attempt(KEY, 1, 1)
    files.note_attempt(KEY, 4, 2)
    with (files.directory(KEY) / "attempts").open("a") as file:
        file.write("torn")
    assert files.attempts(KEY) == ((1, 1), (4, 2))
    assert files.acked(KEY) == frozenset()
    files.note_ack(KEY, 4, 1)
    (files.directory(KEY) / "acked").write_text("3 0\n")
    assert files.attempts(KEY) == ((1, 1), (4, 2)), "an acknowledgement is no attempt"
    assert files.acked(KEY) == {(4, 1), (3, 0)}, "and an earlier release has its own file of them"
    (files.directory(KEY) / "acked").unlink()
    (files.directory(KEY) / "attempts").write_text("1 1\n7 1")  # of "7 12"
    assert files.attempts(KEY) == ((1, 1),)
    files.note_attempt(KEY, 8, 3)
    assert files.attempts(KEY) == ((1, 1), (8, 3))


def test_epoch_survives_and_damage_is_an_error(tmp_path: Path) -> None:
    epoch = EpochFile(tmp_path / "epoch")
    assert epoch.read() == 0
    epoch.write(41)
    assert EpochFile(tmp_path / "epoch").read() == 41
    (tmp_path / "epoch").write_text("many")
    with pytest.raises(StoreError, match="many"):
        epoch.read()


def test_time_index_stays_bounded_and_keeps_its_reach(tmp_path: Path) -> None:
    path = str(tmp_path / "x.out")
    for size in range(1, 12_000):
        note(path, size)
    assert (tmp_path / "x.out.idx").stat().st_size <= INDEX_MAX_BYTES + 16
    assert written_by(path, 0) == 0
    assert written_by(path, 1 << 60) == 11_999


def test_what_was_written_since_the_file_was_cut_short_is_new(tmp_path: Path) -> None:
    file = tmp_path / "x.out"
    file.write_bytes(b"many words\n")
    note(str(file), 11)
    before = time.time_ns() // 1_000_000
    time.sleep(0.01)
    file.write_bytes(b"saved\n")  # as `echo saved > /dev/stdout` does
    assert written_by(str(file), before) == 0
    note(str(file), 6)
    assert written_by(str(file), before) == 0
    with file.open("ab") as out:
        out.write(b"step 5 and more\n")
    assert written_by(str(file), before) == 0
    assert written_by(str(file), time.time_ns() // 1_000_000) == 6
