"""What daemons tell the service manager, received by a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from holdfast._daemon.sd_notify import STATUS_S, Supervisor

pytestmark = pytest.mark.anyio


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


def environment(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def test_what_is_told_arrives_line_by_line(manager: socket.socket) -> None:
    Supervisor(environment(manager)).tell(READY=1, STATUS="2 workers\nconnected")
    assert manager.recv(4096) == b"READY=1\nSTATUS=2 workers connected"


def test_an_abstract_socket_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(b"\0holdfast-test-%d" % os.getpid())
        sock.settimeout(60)
        Supervisor({"NOTIFY_SOCKET": f"@holdfast-test-{os.getpid()}"}).tell(READY=1)
        assert sock.recv(4096) == b"READY=1"


def test_children_find_nothing_of_it_in_their_environment(manager: socket.socket) -> None:
    environ = environment(manager, WATCHDOG_USEC="60000000", WATCHDOG_PID=str(os.getpid()), HOME="/")
    Supervisor(environ)
    assert environ == {"HOME": "/"}


async def test_without_a_service_manager_nothing_is_told_and_nothing_waits() -> None:
    supervisor = Supervisor({})
    supervisor.tell(READY=1)
    with anyio.fail_after(30):
        await supervisor.keep_telling(lambda: "never asked for")
    assert not supervisor.present


def test_a_service_manager_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell(READY=1)


def test_signs_of_life_come_three_times_within_the_watchdogs_time(manager: socket.socket) -> None:
    supervised = Supervisor(environment(manager, WATCHDOG_USEC="60000000", WATCHDOG_PID=str(os.getpid())))
    assert supervised.beat_s == 20.0


def test_a_watchdog_that_means_another_process_is_not_ours(manager: socket.socket) -> None:
    assert Supervisor(environment(manager, WATCHDOG_USEC="1000", WATCHDOG_PID="1")).beat_s == STATUS_S


async def test_signs_of_life_go_on_and_the_status_is_told_when_it_changes(manager: socket.socket) -> None:
    supervisor = Supervisor(environment(manager, WATCHDOG_USEC="3000"))
    states = iter(["1 worker", "1 worker"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.keep_telling, lambda: next(states, "no worker"))
        heard = [await anyio.to_thread.run_sync(manager.recv, 4096) for _ in range(4)]
        tasks.cancel_scope.cancel()
    assert heard == [b"WATCHDOG=1\nSTATUS=1 worker", b"WATCHDOG=1", b"WATCHDOG=1\nSTATUS=no worker", b"WATCHDOG=1"]
