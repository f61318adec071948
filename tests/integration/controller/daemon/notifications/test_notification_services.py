"""Services that apprise knows, such as mail and chat: told by a process of its own, whatever becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.controller.endpoint import endpoint
from tests.support.mail_relay import relay

from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.notify import sender as delivering
from holdfast_controller.shell.notify.allowed_hosts import AllowedHosts
from holdfast_controller.shell.notify.channels import Target


async def test_services_are_told_through_apprise_in_words() -> None:
    body = {
        "event": "FAILED",
        "message": "rank 3 failed",
        "cluster": "test",
        "job": {"id": "train-1", "displayName": "train", "owner": "ann", "project": "default"},
    }
    entry = OutboxEntry(1, "channel:x", "train-1", "FAILED", json.dumps(body))
    sender = delivering.Sender()
    async with service() as (port, told):
        await sender.send(Target(f"json://127.0.0.1:{port}/x", "x", True), entry)
    (message,) = told
    assert message["title"] == "train: FAILED" and message["type"] == "failure"
    assert message["message"] == "rank 3 failed\ntrain-1 of ann, project default, cluster test"
    with pytest.raises(delivering.NotDelivered, match="could not be reached"):
        await sender.send(Target(f"json://127.0.0.1:{port}/x", "x", True), entry)
    with pytest.raises(delivering.NotDelivered, match="does not know this kind"):
        await sender.send(Target("nonsense://x", "x", True), entry)
    await sender.close()


async def test_mail_has_its_lines_and_signs_as_they_are_in_words() -> None:
    body = {
        "event": "FAILED",
        "message": "no room for A &lt;b&gt; & *C*",
        "cluster": "test",
        "job": {"id": "train-1", "displayName": "train", "owner": "ann", "project": "default"},
    }
    entry = OutboxEntry(1, "channel:x", "train-1", "FAILED", json.dumps(body))
    sender = delivering.Sender()
    async with relay() as mail:
        url = f"mailto://127.0.0.1:{mail.port}?from=a@corp.example&to=b@corp.example&mode=insecure"
        await sender.send(Target(url, "x", True), entry)
    await sender.close()
    about = "train-1 of ann, project default, cluster test"
    assert [text.splitlines() for text in mail.texts()] == [["no room for A &lt;b&gt; & *C*", about]]


async def test_service_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "SERVICE_S", 0.5)
    told = {"event": "FAILED", "message": "", "cluster": ""}
    body = told | {"job": dict.fromkeys(("id", "displayName", "owner", "project"), "")}
    entry = OutboxEntry(1, "x", "j", "FAILED", json.dumps(body))
    async with endpoint(silent=True) as hook:
        target = Target(f"json://127.0.0.1:{hook.port}/hook", "x", True)
        with pytest.raises(delivering.NotDelivered, match="did not answer"):
            await delivering.Sender().send(target, entry)


def test_service_whose_process_dies_before_it_is_told_is_a_failure_and_not_the_controller_s_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that was killed amid its start. By the loop of the daemon: asyncio's own says nothing of a closed pipe."""
    uvloop = pytest.importorskip("uvloop")
    start = asyncio.create_subprocess_exec

    async def dead(*words: str, **how: Any) -> asyncio.subprocess.Process:
        process = await start("false", **how)
        await process.wait()
        assert process.stdin is not None
        await asyncio.sleep(0.2)  # until the loop has seen that nobody reads any more
        assert process.stdin.is_closing()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", dead)
    told = {"event": "FAILED", "message": "", "cluster": ""}
    body = told | {"job": dict.fromkeys(("id", "displayName", "owner", "project"), "")}
    entry = OutboxEntry(1, "x", "j", "FAILED", json.dumps(body))

    async def send() -> None:
        await delivering.Sender().send(Target("mailto://x", "x", True), entry)

    died = pytest.raises(delivering.NotDelivered, match="ended before it knew")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, died:
        runner.run(send())


async def test_a_machine_without_a_process_or_descriptor_to_spare_is_a_failure_and_not_the_controllers_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none_left(*_: object, **__: object) -> asyncio.subprocess.Process:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", none_left)
    told = {"event": "FAILED", "message": "", "cluster": ""}
    body = told | {"job": dict.fromkeys(("id", "displayName", "owner", "project"), "")}
    entry = OutboxEntry(1, "x", "j", "FAILED", json.dumps(body))

    with pytest.raises(delivering.NotDelivered, match="machine can't send it: Resource temporarily unavailable"):
        await delivering.Sender().send(Target("mailto://x", "x", True), entry)


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """What apprise's json:// speaks to."""
    told: list[dict[str, Any]] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.decode().lower().splitlines() if line.startswith("content-length:")
        )
        told.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], told
    finally:
        server.close()


async def test_behind_an_address_that_swallows_packets_the_other_one_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    monkeypatch.setattr(delivering, "CONNECT_S", 0.5)
    monkeypatch.setattr(delivering, "resolve", lambda host: ["127.0.0.2", "127.0.0.1"])
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with contextlib.ExitStack() as held:
        deaf = held.enter_context(socket.socket())
        deaf.bind(("127.0.0.2", port))
        deaf.listen(0)
        for _ in range(4):  # its backlog is full then, and it answers no more
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        allowed = AllowedHosts([f"hooks.example:{port}", "127.0.0.0/8"])
        url = f"http://hooks.example:{port}/train"
        sending = delivering.Sender()
        try:
            await sending.send(
                Target(url, "hooks", allowed=allowed), OutboxEntry(1, "job:a:0", "a", "FAILED", "{}")
            )
        finally:
            await sending.close()
            server.close()
    (head,) = taken
    assert f"Host: hooks.example:{port}".encode() in head
