"""Connections that are cancelled with the program that serves them end without a word."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from holdfast._base.cancellation import connection_handler

SERVES = """\
import asyncio
from holdfast._base.cancellation import connection_handler

@connection_handler
async def handle(reader, writer):
    await asyncio.sleep(1000)

async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.sleep(0.2)

asyncio.run(main())
"""


def test_a_server_that_ends_while_it_answers_writes_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, timeout=180)

    assert (ended.returncode, ended.stderr) == (0, "")


async def test_arguments_are_passed_on_and_errors_raised() -> None:
    class Server:
        @connection_handler
        async def handle(self, text: str, *, fails: bool) -> None:
            if fails:
                raise ValueError(text)

    await Server().handle("well", fails=False)
    with pytest.raises(ValueError, match="a word"):
        await Server().handle("a word", fails=True)
    assert asyncio.iscoroutinefunction(Server.handle)
