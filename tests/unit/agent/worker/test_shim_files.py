"""What the agent reads from a shim's files."""

from __future__ import annotations

import binascii
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast._session.reports import Exit, ExitReason
from holdfast_agent.shell.shims.shim_files import (
    Empty,
    Intent,
    ShimId,
    Started,
    Stopping,
    boot_id,
    is_alive,
    read_journal,
    read_shim_id,
    record_from,
    start_ticks,
)
from holdfast_agent.shim import journal

STORY: list[dict[str, Any]] = [
    {"ev": "intent", "generation": 3, "ranks": [4, 5], "gpus": ["GPU-1"], "boot_id": "b"},
    {"ev": "started", "rank": 4, "pid": 100, "start_ticks": 7},
    {"ev": "stopping", "reason": "STOPPED", "grace_s": 10.0},
    {
        "ev": "exited",
        "rank": 4,
        "status": 9,
        "end_time": 1.5,
        "reason": "STOPPED",
        "message": "stopped",
        "raised": "ValueError: bad",
        "stderr_tail": ["é"],
    },
    {
        "ev": "exited",
        "rank": 5,
        "status": None,
        "end_time": 2.5,
        "reason": "CANNOT_START",
        "message": "no",
        "stderr_tail": [],
    },
    {"ev": "empty"},
]
READ = [
    Intent(3, (4, 5), "b", ("GPU-1",)),
    Started(4, 100, 7),
    Stopping("STOPPED", 10.0),
    Exit(0, 3, 4, ExitReason.STOPPED, None, 9, False, "stopped", 1.5, ("é",), "ValueError: bad"),
    Exit(0, 3, 5, ExitReason.CANNOT_START, message="no", end_time=2.5),
    Empty(),
]


def line(record: object) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (binascii.crc32(text), text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "g3.journal"


def test_every_kind_of_record_is_read(path: Path) -> None:
    path.write_bytes(b"".join(map(line, STORY)))
    assert read_journal(path) == READ


def test_an_intent_of_a_shim_that_did_not_write_gpus_is_read(path: Path) -> None:
    path.write_bytes(line({name: value for name, value in STORY[0].items() if name != "gpus"}))
    assert read_journal(path) == [Intent(3, (4, 5), "b")]


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        ("exited with code 1; it raised ValueError: bad", "ValueError: bad"),
        (
            "stopped as asked: exited with code 1; it raised KeyError: 3; the kernel has killed one",
            "KeyError: 3",
        ),
        ("exited with code 1", ""),
    ],
)
def test_what_was_raised_is_known_of_a_shim_that_did_not_write_it_apart(
    path: Path, message: str, raised: str
) -> None:
    old = {name: value for name, value in STORY[3].items() if name != "raised"}
    path.write_bytes(line(STORY[0]) + line({**old, "status": 256, "message": message}))
    exit_ = read_journal(path)[1]
    assert isinstance(exit_, Exit)
    assert (exit_.message, exit_.raised, exit_.exit_code) == (message, raised, 1)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (0, ExitReason.COMPLETED),
        (256, ExitReason.NONZERO_EXIT),
        (9, ExitReason.SIGNALED),
        (None, ExitReason.LOST_SHIM_DIED),
    ],
)
def test_reason_that_only_a_newer_shim_knows_is_what_the_status_says(
    path: Path, status: int | None, reason: ExitReason
) -> None:
    path.write_bytes(line(STORY[0]) + line({**STORY[3], "status": status, "reason": "STRUCK_BY_LIGHTNING"}))
    exit_ = read_journal(path)[1]
    assert isinstance(exit_, Exit) and exit_.reason is reason


def test_no_file_and_an_empty_file_hold_no_records(path: Path) -> None:
    assert read_journal(path) == []
    path.touch()
    assert read_journal(path) == []


def test_every_cut_leaves_the_records_before_it(path: Path) -> None:
    whole = b"".join(map(line, STORY))
    ends = [0]
    for record in STORY:
        ends.append(ends[-1] + len(line(record)))
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert read_journal(path) == READ[: max(n for n, end in enumerate(ends) if end <= cut)]


@pytest.mark.parametrize("number", range(len(STORY)))
def test_damaged_line_ends_the_journal(path: Path, number: int) -> None:
    lines = [line(record) for record in STORY]
    lines[number] = lines[number].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))
    assert read_journal(path) == READ[:number]


@pytest.mark.parametrize("junk", [b"\0" * 4096, b"\n", b"x\n", b"deadbeef {}\n", b"\xff\n"])
def test_junk_at_the_end_never_happened(path: Path, junk: bytes) -> None:
    path.write_bytes(line(STORY[0]) + junk)
    assert read_journal(path) == READ[:1]


def test_kind_of_a_newer_shim_is_passed_over(path: Path) -> None:
    path.write_bytes(line(STORY[0]) + line({"ev": "renewed", "until": 5}) + line(STORY[1]))
    assert read_journal(path) == READ[:2]


@pytest.mark.parametrize("record", [{"ev": "started", "rank": 1}, {}, [], {"ev": "intent", "ranks": 5}])
def test_sound_line_that_is_no_record_is_an_error_with_its_place(path: Path, record: object) -> None:
    path.write_bytes(line(STORY[0]) + line(record))
    with pytest.raises(ValueError, match=r"g3\.journal, line 2"):
        read_journal(path)


def test_message_of_a_shim_reads_like_its_record() -> None:
    assert record_from({**STORY[1], "generation": 3}) == READ[1]
    assert record_from({"ev": "hello"}) is None


def test_shim_id_is_read_and_absent_without_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shim.json"
    assert read_shim_id(file) is None
    file.write_text('{"pid": 5, "start_ticks": 6, "boot_id": "b", "version": 1}')
    assert read_shim_id(file) == ShimId(5, 6, "b")


@pytest.mark.parametrize("left", ["", "\0" * 256])
def test_a_power_cut_may_leave_nothing_of_a_shim_id(tmp_path: Path, left: str) -> None:
    (tmp_path / "shim.json").write_text(left)
    assert read_shim_id(tmp_path / "shim.json") is None


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"pid": "x", "start_ticks": 1, "boot_id": "b"}'])
def test_anything_else_is_no_shim_id(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shim.json"
    file.write_text(text)
    with pytest.raises(ValueError):
        read_shim_id(file)


def test_this_process_is_alive_only_under_its_own_name() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive(ShimId(os.getpid(), ticks, boot_id()))
    assert not is_alive(ShimId(os.getpid(), ticks - 1, boot_id()))
    assert not is_alive(ShimId(os.getpid(), ticks, "another"))
    assert start_ticks(1 << 30) is None


@pytest.mark.parametrize("failing", ["pwrite", "fdatasync"])
def test_journal_writes_again_what_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    file = journal.create(3, [4, 5], ["GPU-1"], "b", directory)

    def refuse(fd: int, data: bytes = b"", offset: int = 0) -> int:
        if data:
            real(fd, data[:10], offset)  # half a line is there, as on a disk that has just become full
        raise OSError(errno.EIO, "refused")

    real = os.pwrite
    file.add(STORY[1])
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, refuse)
        with pytest.raises(OSError, match="refused"):
            file.sync()
        file.add(STORY[2])
        with pytest.raises(OSError, match="refused"):
            file.sync()
    written: list[bytes] = []

    def write(fd: int, data: bytes, offset: int) -> int:
        written.append(data)
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    file.sync()
    assert b"started" in written[0] and b"stopping" in written[0], "dirtied anew"
    assert read_journal(tmp_path / "g3.journal") == READ[:3]
    file.close()
    os.close(directory)


@pytest.mark.parametrize("failing", ["pwrite", "fdatasync", "fsync"])
def test_intent_that_is_not_durable_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "refused")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, refuse)
        with pytest.raises(OSError, match="refused"):
            journal.create(3, [0], [], "b", directory)
    assert list(tmp_path.iterdir()) == []
    assert journal.highest_generation(directory) == 0
    os.close(directory)
