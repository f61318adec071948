"""Settings, back-off and the place in a log."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from holdfast import settings
from holdfast._sdk.log_position import LogPosition
from holdfast._sdk.reconnect import LONGEST_WAIT_S, Outage, is_away
from holdfast.errors import ConfigError, HoldfastError, NotFound, Unavailable
from holdfast.v1 import job_pb2
from holdfast_agent.shell.output.line_search import LineSearch

TOML = 'controller = "127.0.0.1:7400"\nca = "pki/ca.pem"\ncert = "pki/user.pem"\nkey = "/abs/user.key"\n'


def test_the_named_file_comes_first(tmp_path: Path) -> None:
    for name in ("named.toml", "home/holdfast/client.toml", "etc.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TOML)
    environ = {"HOLDFAST_CONFIG": str(tmp_path / "named.toml"), "XDG_CONFIG_HOME": str(tmp_path / "home")}
    etc = tmp_path / "etc.toml"
    assert settings.find(environ, etc) == tmp_path / "named.toml"
    del environ["HOLDFAST_CONFIG"]
    assert settings.find(environ, etc) == tmp_path / "home/holdfast/client.toml"
    assert settings.find({"HOME": str(tmp_path / "nowhere")}, etc) == etc


def test_what_is_there_but_no_settings_file_is_not_called_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Cannot read {tmp_path}: Is a directory"):
        settings.load(settings.find({"HOLDFAST_CONFIG": str(tmp_path)}))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert settings.find({"HOLDFAST_CONFIG": str(pipe)}) == pipe


def test_no_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        settings.find({"HOME": str(tmp_path)}, tmp_path / "etc.toml")
    assert "holdfast dev start" in missing.value.fix
    assert str(tmp_path / ".config/holdfast/client.toml") in missing.value.message
    with pytest.raises(ConfigError, match="HOLDFAST_CONFIG names"):
        settings.find({"HOLDFAST_CONFIG": str(tmp_path / "gone.toml")})
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast/client.toml").write_text(TOML)
    with pytest.raises(ConfigError) as moved:
        settings.find({"HOLDFAST_CONFIG": str(tmp_path / "gone.toml"), "XDG_CONFIG_HOME": str(tmp_path)})
    assert moved.value.fix == f"To use {tmp_path}/holdfast/client.toml: unset HOLDFAST_CONFIG"


def test_paths_count_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML)
    found = settings.load(path)
    assert (found.controller, found.ca, found.key) == (
        "127.0.0.1:7400",
        tmp_path / "pki/ca.pem",
        Path("/abs/user.key"),
    )


@pytest.mark.parametrize("address", ["localhost", ":7400", "host:", "host:0", "host:99999", "host:x"])
def test_an_address_needs_host_and_port(tmp_path: Path, address: str) -> None:
    path = tmp_path / "client.toml"
    path.write_text(TOML.replace("127.0.0.1:7400", address))
    with pytest.raises(ConfigError, match="HOST:PORT"):
        settings.load(path)


def test_waits_grow_to_their_bound_with_jitter() -> None:
    outage = Outage(rng=random.Random(7))
    waits = [outage.failed(Unavailable("gone")) for _ in range(12)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(wait <= LONGEST_WAIT_S for wait in waits)
    assert all(wait >= LONGEST_WAIT_S / 2 for wait in waits[-3:])
    assert len(set(waits)) == len(waits)


def test_an_outage_is_announced_once_and_its_end_once() -> None:
    told: list[HoldfastError | None] = []
    outage = Outage(told.append)
    gone = Unavailable("gone")
    outage.settled()
    outage.failed(gone)
    outage.failed(gone)
    assert outage.ongoing
    outage.answered()
    outage.settled()
    assert told == [gone, None]
    assert not outage.ongoing


def test_waits_stay_long_until_the_stream_delivers() -> None:
    outage = Outage(rng=random.Random(7))
    for _ in range(8):
        outage.failed(Unavailable("gone"))
        outage.answered()
    assert outage.failed(Unavailable("gone")) > 1.0
    outage.settled()
    assert outage.failed(Unavailable("gone")) <= 0.1


def test_refusals_are_not_outages() -> None:
    assert is_away(Unavailable("gone"))
    assert not is_away(NotFound("no such job"))
    assert not is_away(HoldfastError("odd"))


def chunk(data: bytes, offset: int, *, generation: int = 1, rank: int = 0) -> job_pb2.StreamLogsResponse:
    return job_pb2.StreamLogsResponse(
        worker="w", rank=rank, generation=generation, stream=job_pb2.LOG_STREAM_STDOUT, offset=offset, data=data
    )


def test_what_was_delivered_is_not_delivered_again() -> None:
    position = LogPosition(job_pb2.StreamLogsRequest(id="j"))
    assert position.accept(chunk(b"abcd", 10)) == chunk(b"abcd", 10)
    assert position.accept(chunk(b"abcd", 10)) is None
    assert position.accept(chunk(b"0123456789ab", 0)) is None
    assert position.accept(chunk(b"cdef", 12)) == chunk(b"ef", 14)
    assert position.accept(chunk(b"gap", 100)) == chunk(b"gap", 100)
    assert position.accept(chunk(b"other", 0, rank=1)) == chunk(b"other", 0, rank=1)


def test_lines_of_a_search_are_not_delivered_again() -> None:
    def found(data: bytes, *offsets: int) -> job_pb2.StreamLogsResponse:
        made = chunk(data, offsets[0])
        made.line_offsets.extend(offsets)
        return made

    position = LogPosition(job_pb2.StreamLogsRequest(id="j", contains="x"))
    first = found(b"x1\nx\r2\n", 10, 50)
    assert position.accept(first) == first
    assert position.accept(first) is None
    assert position.accept(found(b"x\r2\nx3\n", 50, 70)) == found(b"x3\n", 70)


def test_a_progress_bar_without_any_line_end_is_shown_piece_by_piece_and_each_once() -> None:
    bar = b"".join(b"\r%6d/100000 loss=0.5" % number for number in range(20_000))
    search = LineSearch("loss=")
    pieces = [piece for at in range(0, len(bar), 30_000) for piece in search.feed(at, bar[at : at + 30_000])]
    pieces += search.finish()
    position, shown = LogPosition(job_pb2.StreamLogsRequest(id="j", contains="loss=")), b""
    for piece in [*pieces, *pieces]:  # the second time after a broken link
        made = chunk(piece.data, piece.offsets[0])
        made.line_offsets.extend(piece.offsets)
        if (fresh := position.accept(made)) is not None:
            shown += fresh.data
    assert shown.count(b"loss=") == 20_000
    assert len(shown) - len(bar) == shown.count(b"\n") > 3


def test_a_line_that_was_shown_while_it_was_open_is_not_shown_again() -> None:
    position = LogPosition(job_pb2.StreamLogsRequest(id="j", contains="x"))
    for data, is_new in ((b"x\n", True), (b"x and more\n", False)):
        made = chunk(data, 10)
        made.line_offsets.append(10)
        assert (position.accept(made) is not None) is is_new


def test_a_reader_goes_on_from_the_newest_generation_without_its_tail() -> None:
    first = job_pb2.StreamLogsRequest(id="j", ranks=[0], follow=True, tail_lines=10)
    position = LogPosition(first)
    assert position.request() == first
    position.accept(chunk(b"a", 0, generation=3))
    assert position.request() == job_pb2.StreamLogsRequest(id="j", ranks=[0], follow=True, generation=3)


def test_a_reader_goes_on_where_the_slowest_of_its_streams_was() -> None:
    position = LogPosition(job_pb2.StreamLogsRequest(id="j", follow=True, generation=1))
    for rank, generation in ((0, 1), (0, 2), (1, 1)):
        position.accept(job_pb2.StreamLogsResponse(worker="w", rank=rank, generation=generation, data=b"a"))
    assert position.request().generation == 1, "rank 1 may have more of its first"
    position.accept(job_pb2.StreamLogsResponse(worker="w", rank=1, generation=2, data=b"a"))
    assert position.request().generation == 2


def test_a_problem_is_told_once() -> None:
    position = LogPosition(job_pb2.StreamLogsRequest(id="j"))
    gone = job_pb2.StreamLogsResponse(worker="w", problem="host-1 is not connected")
    assert position.accept(gone) == gone
    assert position.accept(gone) is None
