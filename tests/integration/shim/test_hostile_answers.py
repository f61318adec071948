"""What sits in a shim's place may answer anything: its connection ends, and the agent's loop goes on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from holdfast_agent.shell.shims.shim_link import ShimLink

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
