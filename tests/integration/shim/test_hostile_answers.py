"""What sits in a shim's place may answer anything: its connection ends, and the agent's loop goes on."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from holdfast_agent.shell.shims.shim_link import ShimLink
from holdfast_agent.shim.warm.parked_ranks import ParkedRanks

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("line", [b"[" * 100_000, b"[]", b"7", b"null", b'"ev"', b"9" * 5000, b"\xff", b'{"ev":'])
async def test_an_answer_that_is_no_message_ends_the_connection(line: bytes) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    ours, theirs = socket.socketpair()
    heard: list[dict[str, Any]] = []
    ended = asyncio.Event()
    ShimLink(ours, heard.append, ended.set)
    with theirs:
        theirs.sendall(b'{"ev":"hello"}\n' + line + b"\n")
        async with asyncio.timeout(20):
            await ended.wait()
    assert heard == [{"ev": "hello"}]
    assert faults == []


@pytest.mark.parametrize(
    "said", [b'{"pids": [1e999], "modules": 1}', b'{"pids": [], "modules": 1e999}', b"7", b"[[]]"]
)
def test_a_program_that_reports_nonsense_of_its_imports_has_no_warm_start(said: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"{}\n" + said + b"\n")
    os.close(writing)
    parked = ParkedRanks.__new__(ParkedRanks)
    parked.fd, parked._said = reading, b""
    try:
        assert parked.hear() == "its imports did not come to an end"
    finally:
        os.close(reading)
