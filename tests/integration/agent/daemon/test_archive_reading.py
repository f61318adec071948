"""Output is read from the archive: from an offset, the last lines, since a time, across what was never copied."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.shell.output import archive_copy
from holdfast_agent.shell.output.archive import Order, copy
from holdfast_agent.shell.output.archive_reader import NoArchive, archived_stream
from holdfast_agent.shell.output.line_search import Found, LineSearch
from holdfast_agent.shell.output.log_index import punch
from holdfast_agent.shell.output.log_reader import Wanted
from holdfast_agent.shell.session import output_reader
from holdfast_agent.shell.users.accounts import Accounts

pytestmark = pytest.mark.anyio
ME = WorkerUser("me", "/", "/bin/sh")
NAME = "workerpool0-0.r0.out"
BLOCK = 4096
LINES = "".join(f"line {number}\n" for number in range(10))


class Kept:
    """A stream on its host, and its archive."""

    def __init__(self, folder: Path) -> None:
        self.logs, self.base = folder / "logs/job-1", folder / "out"
        self.stream, self.there = self.logs / "g1" / NAME, self.base / "rank-logs/job-1/g1"
        self.stream.parent.mkdir(parents=True)

    def writes(self, text: str) -> None:
        with self.stream.open("a") as file:
            file.write(text)

    def ships(self) -> None:
        assert copy(str(self.logs), Order("job-1", "workerpool0-0", str(self.base)), ME) == ""

    async def read(self, name: str = NAME, **wanted: int | None) -> list[tuple[int, str]]:
        """Pieces with their offsets."""
        found: list[tuple[int, str]] = []
        async with archived_stream(str(self.base), "job-1", 1, name, Wanted(**wanted), ME) as stream:  # type: ignore[arg-type]
            offset, data = await stream.piece()
            while data:
                found.append((offset, data.decode()))
                offset, data = await stream.piece()
            assert stream.changed_ms == (self.there / NAME).stat().st_mtime_ns // 1_000_000
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "offset"),
    [
        ({}, 0),
        ({"offset": 63}, 63),
        ({"tail_lines": 2}, 56),
        ({"tail_lines": 99, "offset": 56}, 56),
        ({"offset": 1000}, 70),
        ({"tail_lines": 0}, 70),
        ({"end": 70}, 0),
    ],
)
async def test_archive_is_read_as_asked(kept: Kept, wanted: dict[str, int], offset: int) -> None:
    kept.writes(LINES)
    kept.ships()
    assert await kept.read(NAME, **wanted) == ([(offset, LINES[offset:])] if offset < 70 else [])


async def test_what_precedes_an_offset_is_read_from_the_archive(kept: Kept) -> None:
    kept.writes(LINES)
    kept.ships()
    assert await kept.read(end=14) == [(0, LINES[:14])]
    assert await kept.read(end=28, tail_lines=2) == [(14, LINES[14:28])]
    assert await kept.read(offset=7, end=14) == [(7, LINES[7:14])]
    assert await kept.read(end=0) == []


async def test_line_that_is_not_ended_is_among_the_last(kept: Kept) -> None:
    kept.writes(LINES + "unfinished")
    kept.ships()
    assert await kept.read(tail_lines=2) == [(63, "line 9\nunfinished")]


async def test_bytes_that_were_cut_before_they_were_copied_leave_a_gap_in_the_offsets(kept: Kept) -> None:
    kept.writes("a" * BLOCK)
    kept.ships()
    kept.writes("b" * BLOCK + "c" * BLOCK)
    try:
        punch(str(kept.stream), 2 * BLOCK)
    except OSError:
        pytest.skip("this file system can't cut files")
    kept.ships()
    assert await kept.read() == [(0, "a" * BLOCK), (2 * BLOCK, "c" * BLOCK)]
    assert await kept.read(offset=BLOCK + 7) == [(2 * BLOCK, "c" * BLOCK)]
    assert await kept.read(offset=2 * BLOCK + 1) == [(2 * BLOCK + 1, "c" * (BLOCK - 1))]


async def test_lines_since_a_time_are_those_that_may_be_newer(kept: Kept) -> None:
    kept.writes("first\n")
    kept.ships()
    kept.writes("second\n")
    kept.ships()
    index = kept.there / f".{NAME}.idx"
    index.write_text("0 0 1000\n6 6 2000\n")
    os.utime(kept.there / NAME, (3, 3))
    assert "".join(text for _, text in await kept.read(since_ms=1500)) == "first\nsecond\n"
    assert await kept.read(since_ms=2500) == [(6, "second\n")]
    assert await kept.read(since_ms=3500) == []


@pytest.mark.parametrize("index", [b"", b"\xff\xfe", b"9 9 9 9\n", b"0 99999 1\n-3 1 1\n0 0 5\n"])
async def test_index_that_was_tampered_with_hides_nothing(kept: Kept, index: bytes) -> None:
    kept.writes(LINES)
    kept.ships()
    (kept.there / f".{NAME}.idx").write_bytes(index)
    assert "".join(text for _, text in await kept.read()) == LINES


async def test_what_is_not_archived_is_missing_and_no_link_is_followed(kept: Kept, tmp_path: Path) -> None:
    kept.writes(LINES)
    kept.ships()
    with pytest.raises(NoArchive) as missing:
        await kept.read(name="workerpool0-0.r9.out")
    assert str(missing.value) == ""
    secret = tmp_path / "secret"
    secret.write_text("precious")
    (kept.there / "workerpool0-0.r9.out").symlink_to(secret)
    with pytest.raises(NoArchive, match="symbolic links"):
        await kept.read(name="workerpool0-0.r9.out")
    kept.there.rename(tmp_path / "moved")
    kept.there.symlink_to(tmp_path / "moved")
    with pytest.raises(NoArchive, match="Not a directory"):
        await kept.read()


async def test_long_stream_comes_in_pieces(kept: Kept) -> None:
    kept.writes("x" * (3 * archive_copy.FRAME_BYTES))
    kept.ships()
    assert [offset for offset, _ in await kept.read()] == [n * archive_copy.FRAME_BYTES for n in range(3)]


@pytest.mark.parametrize("search_s", [60.0, 0.0])
async def test_archive_is_searched_beside_the_event_loop_and_in_bounded_time(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, search_s: float
) -> None:
    kept.writes("a\n" * 50_000)
    kept.ships()
    searched_in: set[str] = set()
    feed = LineSearch.feed

    def noted(self: LineSearch, offset: int, data: bytes) -> list[Found]:
        searched_in.add(threading.current_thread().name)
        return feed(self, offset, data)

    monkeypatch.setattr(LineSearch, "feed", noted)
    monkeypatch.setattr(output_reader, "SEARCH_S", search_s)
    sent: list[agent_pb2.TransferChunk] = []

    async def write(message: agent_pb2.TransferRequest) -> None:
        sent.append(message.chunk)

    facts = HostFacts("host-0", str(kept.logs), str(kept.base), ME, 1)
    reader = output_reader.OutputReader(facts, lambda *_: True, Accounts(ME, AccountRules(os.geteuid())))
    reading = output_reader.Reading(1, 1 << 20, "job-1", write)
    asked = agent_pb2.OpenLog(job_id="job-1", contains="a")
    try:
        async with archived_stream(str(kept.base), "job-1", 1, NAME, Wanted(), ME) as stream:
            said = await reader._send_archived(asked, stream, reading)
    finally:
        reader.close()
    if search_s:
        assert said == "" and searched_in == {"holdfast reading"}
        assert b"".join(chunk.data for chunk in sent) == b"a\n" * 50_000
    else:
        assert "searched for 0 s, up to byte 0" in said and sent == []
