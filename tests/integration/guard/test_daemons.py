"""A guard's daemons get their settings once they have loaded, whatever happens to them before."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import anyio
import pytest

from holdfast.errors import Unavailable
from holdfast.guard.parts import ControllerPort, Daemon, Folder

PATIENCE_S = 180.0


@pytest.mark.parametrize("killed_early", [False, True])
async def test_a_daemon_that_its_settings_end_is_reported_with_its_last_words(
    tmp_path: Path, killed_early: bool
) -> None:
    with Daemon(Folder(tmp_path), "agent") as agent:
        agent.start()
        if killed_early:
            os.kill(agent.pid, signal.SIGKILL)

        with anyio.fail_after(PATIENCE_S), pytest.raises(Unavailable) as raised:
            await agent.keep('nonsense = "here"\n')

    assert "The agent ends as soon as it starts" in raised.value.message
    assert "nonsense" in raised.value.message
    assert raised.value.message.count("holdfast-agent:") == 1, "those of its last start, and of none before"


async def test_a_daemon_that_never_gets_settings_is_gone_after_the_block(tmp_path: Path) -> None:
    with Daemon(Folder(tmp_path), "agent") as agent:
        agent.start()
        pid = agent.pid

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_controllers_port_is_no_other_starts_until_it_is_given_back() -> None:
    with ControllerPort() as held:
        port = held.take()
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("", port))
        with socket.socket() as controllers:
            controllers.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            controllers.bind(("127.0.0.1", port))
            controllers.listen()

    with socket.socket() as other:
        other.bind(("", port))
