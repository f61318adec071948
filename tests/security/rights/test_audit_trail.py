"""The audit log against callers that hide in it, wash it away or write it again; and its copy by syslog."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.integration.controller.conftest import certificates, config, controller
from tests.support.stubs import access_stub, host_stub, job_stub

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.audit_chain import Verification
from holdfast.cli.app import root
from holdfast.errors import ConfigError
from holdfast.v1 import access_pb2, host_pb2, job_pb2
from holdfast_controller.core.access.audit import COUNTED_MOST, KINDS_MOST, AuditLimits, Entry, Trail
from holdfast_controller.shell.base import audit_syslog
from holdfast_controller.shell.base.audit_syslog import SyslogCopy, SyslogServer
from holdfast_controller.shell.base.config import ControllerConfig

__all__ = ["certificates", "config", "controller"]
pytestmark = pytest.mark.anyio


async def exported(controller: Controller) -> dict[str, list[bytes]]:
    """The lines of each trail, as an admin gets them."""
    found: dict[str, list[bytes]] = {}
    call = access_stub(controller.channel("user/ann")).ExportAudit(
        access_pb2.ExportAuditRequest(), timeout=WITHIN_S
    )
    async for answer in call:
        found.setdefault(answer.trail, []).extend(answer.lines)
    return found


async def test_a_user_s_floods_stay_in_the_trail_of_users_and_all_trails_verify(
    controller: Controller, certificates: Any, config: ControllerConfig
) -> None:
    certificates.files["user/eve"] = pki.issue(
        certificates.directory, Identity("test", Kind.USER, "eve"), certificates.directory, "eve"
    )
    people = access_stub(controller.channel("user/ann"))
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_USER)
    await people.AddUser(access_pb2.AddUserRequest(name="eve", grant=grant), timeout=WITHIN_S)
    eve = job_stub(controller.channel("user/eve"))
    hosts = host_stub(controller.channel("user/eve"))
    for _ in range(150):
        await refusal(hosts.Cordon(host_pb2.CordonRequest(name="x" * 3_000), timeout=WITHIN_S))
        await refusal(eve.CancelJob(job_pb2.CancelJobRequest(id="no-such-job"), timeout=WITHIN_S))
    trails = await exported(controller)
    admins = [json.loads(line) for line in trails["admins"]]
    assert [entry.get("who") for entry in admins[1:]] == ["user/ann"]
    users = [json.loads(line) for line in trails["users"]][1:]
    assert {entry["who"] for entry in users} == {"user/eve"}
    assert len(users) < 50
    assert sum(entry["unwritten"] or 1 for entry in users) == 300
    for trail, lines in trails.items():
        verification = Verification(trail)
        for line in lines:
            verification.take(line)
        verification.finish()
        assert verification.problems == []


def test_whatever_one_caller_calls_its_summaries_are_few() -> None:
    limits = AuditLimits(Trail.USERS)
    for number in range(30_000):
        limits.admit(Entry(0.0, "user/eve", "", f"S/C{number % 40}", outcome="DENIED"), 0.0, refused=True)
    made = limits.summaries(60.0)
    assert len(made) == KINDS_MOST + 1
    assert sum(entry.unwritten for entry in made) == 30_000 - 20
    assert limits.summaries(200.0) == [], "nothing has happened since"


def test_callers_of_many_addresses_get_few_summaries_too() -> None:
    limits = AuditLimits(Trail.UNKNOWN)
    for number in range(100_000):
        limits.admit(Entry(0.0, "", f"2001:db8::{number:x}", "E/Enrol", outcome="DENIED"), 0.0, refused=True)
    made = limits.summaries(60.0)
    assert len(made) == COUNTED_MOST + 1
    assert sum(entry.unwritten for entry in made) == 100_000 - 500


# The command


def write(directory: Path, name: str, lines: list[bytes]) -> None:
    (directory / name).write_bytes(b"".join(lines))


async def test_the_command_verifies_a_copy_and_fails_where_it_was_changed(
    controller: Controller, tmp_path: Path
) -> None:
    people = access_stub(controller.channel("user/ann"))
    grant = access_pb2.Grant(project="*", role=access_pb2.ROLE_VIEWER)
    for name in ("tom", "tim", "tam"):
        await people.AddUser(access_pb2.AddUserRequest(name=name, grant=grant), timeout=WITHIN_S)
    trails = await exported(controller)
    copy = tmp_path / "copy"
    copy.mkdir()
    write(copy, "audit-admins.jsonl", trails["admins"])
    elsewhere = CliRunner().invoke(root, ["audit", "verify", "--in", str(copy.parent)])
    assert elsewhere.exit_code == 2 and "there is no file audit*.jsonl in" in elsewhere.output
    whole = CliRunner().invoke(root, ["audit", "verify", "--in", str(copy), "-o", "json"])
    assert whole.exit_code == 0, whole.output
    anchor = next(each["anchor"] for each in json.loads(whole.output) if each["trail"] == "admins")
    assert CliRunner().invoke(root, ["audit", "verify", "--in", str(copy), "--anchor", anchor]).exit_code == 0
    write(copy, "audit-admins.jsonl", trails["admins"][:-1])
    cut = CliRunner().invoke(root, ["audit", "verify", "--in", str(copy), "--anchor", anchor])
    assert cut.exit_code == 1 and "BROKEN" in cut.output and f"when {anchor} was noted" in cut.output
    changed = [line.replace(b"user/tim", b"user/kim") for line in trails["admins"]]
    write(copy, "audit-admins.jsonl", changed)
    found = CliRunner().invoke(root, ["audit", "verify", "--in", str(copy)])
    assert found.exit_code == 1 and "line 3 was changed" in found.output
    wrong = CliRunner().invoke(root, ["audit", "verify", "--in", str(copy), "--anchor", "admins:3"])
    assert wrong.exit_code == 2 and "is no anchor" in wrong.output


# Syslog


@contextlib.contextmanager
def datagrams(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(WITHIN_S)
        yield server


@contextlib.asynccontextmanager
async def copying(server: SyslogServer) -> AsyncIterator[SyslogCopy]:
    copy = SyslogCopy(server)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(copy.run())
        yield copy
        await copy.drain(WITHIN_S)
        running.cancel()


async def test_each_line_is_sent_to_a_local_socket_as_it_is_on_disk(tmp_path: Path) -> None:
    with datagrams(tmp_path / "log") as server:
        async with copying(audit_syslog.parse(f"unix:{tmp_path}/log")) as copy:
            copy.put([b'{"n":1,"hash":"aa"}\n', b'{"n":2,"hash":"bb"}\n'])
        got = [server.recv(65536) for _ in range(2)]
    assert got[0].startswith(b"<109>1 2") and b" holdfast-controller " in got[0] and b" audit - " in got[0]
    assert [message.partition(b" audit - ")[2] for message in got] == [
        b'{"n":1,"hash":"aa"}',
        b'{"n":2,"hash":"bb"}',
    ]


@pytest.mark.parametrize("kind", ["udp", "tcp", "tls"])
async def test_a_name_that_can_be_none_is_a_server_that_is_away(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = SyslogCopy(audit_syslog.parse(f"{kind}:log..lab:601"))
    copy.put([b'{"n":1}\n'])
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(copy.run())
        while "audit.syslog_unreachable" not in caplog.messages:  # noqa: ASYNC110  # nothing says when
            await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()


async def test_over_tcp_lines_are_framed_and_wait_while_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_syslog, "RETRY_S", 0.1)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    got = asyncio.Queue[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while size := (await reader.readuntil(b" ")).strip():
                got.put_nowait(await reader.readexactly(int(size)))
        writer.close()

    async with copying(audit_syslog.parse(f"tcp:127.0.0.1:{port}")) as copy:
        copy.put([b'{"n":1}\n'])
        await asyncio.sleep(0.3)
        assert got.empty()
        server = await asyncio.start_server(serve, "127.0.0.1", port)
        copy.put([b'{"n":2}\n'])
        async with asyncio.timeout(WITHIN_S):
            assert (await got.get()).endswith(b' audit - {"n":1}')
            assert (await got.get()).endswith(b' audit - {"n":2}')
        server.close()


async def test_lines_for_a_server_that_stays_away_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_syslog, "WAITING_MOST", 10)
    copy = SyslogCopy(SyslogServer("unix", path="/nonexistent"))
    copy.put([b"%d\n" % number for number in range(25)])
    assert copy.dropped == 15
    assert copy._waiting[0] == b"15\n"


@pytest.mark.parametrize(
    "wrong", ["loghost", "udp:loghost", "tcp:loghost:0", "tcp:loghost:70000", "unix:dev", "http://x:1"]
)
def test_a_server_that_is_none_is_refused_with_what_to_write(config: ControllerConfig, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"audit_syslog is '.*Write \"unix:/dev/log\""):
        replace(config, audit_syslog=wrong)


async def test_a_controller_sends_its_audit_log_there(
    tmp_path: Path, config: ControllerConfig, certificates: Any
) -> None:
    from holdfast_controller.shell.main.server import serve

    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with datagrams(tmp_path / "log") as server:
        async with asyncio.TaskGroup() as tasks:
            settings = replace(config, audit_syslog=f"unix:{tmp_path}/log")
            serving = tasks.create_task(serve(settings, ready.set_result))
            async with asyncio.timeout(WITHIN_S):
                served = Controller(await ready, certificates)
            jobs = job_stub(served.channel("user/ann"))
            made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
            got = [
                json.loads((await asyncio.to_thread(server.recv, 65536)).partition(b" audit - ")[2]) for _ in "ab"
            ]
            await served.close()
            serving.cancel()
    assert got[1]["call"] == "JobService/CreateJob" and got[1]["target"] == f"job/{made.job.id}"


def test_keys_typed_into_a_terminal_use_up_nothing_of_what_a_user_may_have_written() -> None:
    limits = AuditLimits(Trail.USERS)
    typed = Entry(0.0, "user/eve", "", "JobService/WriteTerminal", "job/a")
    written = [at for at in range(5_000) if limits.admit(typed, at / 10, refused=False)]
    assert written == [*range(0, 5_000, 600)], "the first of each minute"
    (summary,) = limits.summaries(500.0)
    assert summary.unwritten == 5_000 - len(written) and summary.call == typed.call
    assert limits.admit(replace(typed, target="job/b"), 500.0, refused=False), "another job's is another story"
    other = replace(typed, call="JobService/CreateJob")
    assert sum(limits.admit(other, 500.0, refused=False) for _ in range(1_000)) > 980
