"""Who may talk over the unix sockets between an agent and its shims is taken from the kernel."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.integration.shim.conftest import Shim

from holdfast_agent.shell.shims import shim_link
from holdfast_agent.shim.warm.survivors import BACKLOG, Survivors

NOBODY = 65534


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Shim]:
    """One that has its directory, which everybody may enter here: its mode is a wall of its own."""
    started = Shim(tmp_path / "place/worker")
    started.assign()
    for path in (started.directory, *started.directory.parents):
        if path.is_relative_to(tmp_path) or path.name.startswith(("pytest-", "popen-")):
            path.chmod(path.stat().st_mode | 0o011)
    (started.directory / "sock").chmod(0o777)
    yield started
    started.process.send_signal(signal.SIGKILL)
    started.process.wait()
    started.connection.close()


def as_nobody(directory: Path, order: bytes) -> bytes:
    """What the shim says to nobody, who gives it an order."""
    reading, writing = os.pipe()
    holder = os.open(directory, os.O_PATH)
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                connection.connect(f"/proc/self/fd/{holder}/sock")
                try:
                    connection.sendall(order)
                    os.write(writing, b"heard " + connection.recv(1000))
                except (BrokenPipeError, ConnectionResetError):
                    os.write(writing, b"heard ")
        except OSError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.close(holder)
    with os.fdopen(reading, "rb") as said:
        heard = said.read()
    os.waitpid(child, 0)
    return heard


@pytest.mark.require("root")
def test_another_user_gives_a_shim_no_order_and_does_not_part_it_from_its_agent(shim: Shim) -> None:
    order = b'{"op": "quit"}\n'
    assert as_nobody(shim.directory, order) == b"heard "
    assert shim.process.poll() is None
    shim.send(op="stop", generation=1, grace_s=0, reason="STOPPED")
    assert shim.expect("empty")["generation"] == 1, "the agent's connection is the one that counts"


def test_the_socket_lies_where_only_its_owner_gets(tmp_path: Path) -> None:
    started = Shim(tmp_path / "place/worker")
    try:
        started.assign()
        assert (started.directory / "sock").stat().st_mode & 0o007 == 0
    finally:
        started.process.kill()
        started.process.wait()
        started.connection.close()


@pytest.mark.require("root")
def test_an_agent_does_not_talk_to_a_listener_of_another_users(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('sock'); os.setuid(65534)\n"
        "s.listen(); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline() == b"\n"
        with pytest.raises(PermissionError, match="another user listens"):
            shim_link.connect(tmp_path)
        stranger.communicate()


class Flooded:
    """A socket to which others connect faster than anyone can accept."""

    accepted = 0

    def _accept(self) -> tuple[int, str]:
        self.accepted += 1
        assert self.accepted < 100_000, "there is no end to it"
        return os.dup(self.stranger.fileno()), ""

    def __init__(self) -> None:
        self.stranger, self._other = socket.socketpair()

    def fileno(self) -> int:
        return self.stranger.fileno()


def test_who_connects_without_end_to_the_socket_for_survivors_holds_up_no_shim(tmp_path: Path) -> None:
    """Its name is in no directory: every account of the host can read it in /proc/net/unix, and connect."""
    directory = os.open(tmp_path, os.O_PATH)
    survivors, flooded = Survivors(directory, lambda fd: None, lambda fd: None), Flooded()
    survivors._listener.close()
    survivors._listener = flooded  # type: ignore[assignment]
    idle = SimpleNamespace(live={})
    assert not survivors.hear(flooded.fileno(), idle)  # type: ignore[arg-type]
    assert flooded.accepted == BACKLOG
    os.close(directory)
