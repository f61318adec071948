"""What frameworks record of themselves: a flight recorder asked by its pipe, NCCL's status asked over TCP."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from holdfast_agent.shell.evidence import records
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shim.processes import Process

pytestmark = pytest.mark.anyio

# As torch does: one pipe a rank, looked at now and then; a dump goes to a file of its own.
RECORDER = """
import os, sys, time
pipe, dump = sys.argv[1:]
os.mkfifo(pipe)
source = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
while not os.read(source, 128):
    time.sleep(0.05)
if dump:
    open(dump, "w").write("collectives")
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORDER_S", 1.0)
    monkeypatch.setattr(records, "RAS_S", 0.5)


class Rank:
    """A process with a flight recorder."""

    def __init__(self, folder: Path, *, writes: bool = True) -> None:
        self.stem = f"{folder}/trace_"
        dump = f"{self.stem}3" if writes else ""
        command = [sys.executable, "-c", RECORDER, f"{self.stem}3.pipe", dump]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    @property
    def env(self) -> dict[str, str]:
        return {"RANK": "3", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": self.stem, "TORCH_FR_DUMP_TEMP_FILE": self.stem}

    async def ask(self, **env: str) -> tuple[str, str]:
        return await records.recorder(Process(self.process.pid), self.env | env, Blocking())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path)
    yield made
    made.end()


async def test_the_flight_recorder_writes_when_asked_and_its_file_is_named(rank: Rank) -> None:
    assert await rank.ask() == (f"{rank.stem}3", "")


async def test_a_dump_of_before_is_not_taken_for_todays(tmp_path: Path) -> None:
    rank = Rank(tmp_path, writes=False)
    try:
        await anyio.Path(f"{rank.stem}3").write_text("old")
        assert await rank.ask() == ("", "flight recorder: nothing was written within 1 s")
    finally:
        rank.end()


async def test_without_a_known_file_the_dump_is_asked_for_all_the_same(rank: Rank) -> None:
    said = "flight recorder: asked for, written to where torch puts it"
    assert await rank.ask(TORCH_FR_DUMP_TEMP_FILE="") == ("", said)


async def test_ranks_without_a_recorder_say_nothing(rank: Rank) -> None:
    for env in ({"RANK": ""}, {"RANK": "4"}, {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": ""}):
        assert await rank.ask(**env) == ("", "")


async def test_only_a_pipe_of_the_ranks_own_is_written_to(rank: Rank, tmp_path: Path) -> None:
    victim = tmp_path / "other_3.pipe"
    victim.write_text("precious")
    stem = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "other_")}
    assert await rank.ask(**stem) == ("", "flight recorder: its pipe is no FIFO of the rank's own")
    assert victim.read_text() == "precious"
    victim.unlink()
    victim.symlink_to(f"{rank.stem}3.pipe")
    assert (await rank.ask(**stem))[1].startswith("flight recorder: its pipe: ")


async def test_a_pipe_that_nobody_reads_does_not_block(rank: Rank, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mute_3.pipe")
    found = await rank.ask(TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "mute_"))
    assert found == ("", "flight recorder: no process reads its pipe")


# -- NCCL's RAS --------------------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[dict[str, str]]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.77.3.4", 0)
    try:
        yield {"NCCL_RAS_ADDR": f"127.77.3.4:{server.sockets[0].getsockname()[1]}"}
    finally:
        server.close()


async def test_nccl_tells_its_status() -> None:
    async def status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"verbose status\n"
        writer.write(b"NCCL version 2.27.3\n\x1b[1mAll ranks OK\n")
        await writer.drain()

    async with listening(status) as env:
        assert await records.ras(env) == ("NCCL version 2.27.3\n?[1mAll ranks OK\n", "")


async def test_a_status_that_never_comes_is_late() -> None:
    async def mute(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await anyio.sleep(600)

    async with listening(mute) as env:
        assert await records.ras(env) == ("", "NCCL RAS did not answer within 0.5 s")


async def test_an_endless_status_is_cut() -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"x" * 4096)
            await writer.drain()

    async with listening(flood) as env:
        text, note = await records.ras(env)
    assert (len(text), note) == (records.RAS_MAX_BYTES, "")


async def test_where_nobody_listens_there_is_nothing_to_say() -> None:
    async def nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        pass

    async with listening(nothing) as env:
        pass
    assert await records.ras(env) == ("", "")


@pytest.mark.parametrize("address", ["", "nonsense", "10.1.2.3:28028", "example.com:80", "127.0.0.1:", "localhost"])
async def test_only_addresses_of_this_host_are_asked(address: str) -> None:
    assert await records.ras({"NCCL_RAS_ADDR": address}) == ("", "")
