"""The controller with its log in PostgreSQL: killed, replaced, and with a server that is restarted under it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import grpc
import httpx
import pytest
from tests.faults.proxy import Proxy
from tests.integration.controller.cluster import WITHIN_S, job
from tests.integration.controller.process import Process, ended, stub
from tests.integration.controller.web import BODY, caller, context
from tests.support.postgres import Server
from tests.support.stubs import cluster_stub

from holdfast.v1 import agent_pb2, cluster_pb2, job_pb2

pytestmark = [
    pytest.mark.require("postgres"),
    pytest.mark.races(reason="a controller that gets no processor for two seconds is replaced by the other one"),
]
STARTS_WITHIN_S = 180.0
"""A controller that is started beside others."""
BEAT = agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat())


@pytest.fixture
def url(postgres_server: Server) -> str:
    return f"postgresql://holdfast@/daemon?host={postgres_server.folder}"


@pytest.fixture
def on_postgres(daemon: Process, postgres_server: Server, url: str) -> Process:
    postgres_server.sql("DROP DATABASE IF EXISTS daemon WITH (FORCE)")
    postgres_server.sql("CREATE DATABASE daemon")
    settings = daemon.root / "controller.toml"
    settings.write_text(f'database_url = "{url}"\n' + settings.read_text())
    return daemon


def on_another_machine(daemon: Process, root: Path) -> Process:
    """One with a state directory of its own, and the same settings otherwise."""
    root.mkdir()
    settings = (daemon.root / "controller.toml").read_text()
    settings = re.sub(r'state_dir = ".*"', f'state_dir = "{root}/state"', settings)
    (root / "controller.toml").write_text(settings)
    return Process(root, daemon.certificates)


async def says(process: Process, event: str) -> None:
    """Wait until a controller has noted ``event``."""
    async with asyncio.timeout(STARTS_WITHIN_S):
        while event not in process.log:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def jobs(process: Process, running: object) -> list[str]:
    controller = await process.ready(running)  # type: ignore[arg-type]
    found = await stub(controller).ListJobs(job_pb2.ListJobsRequest(), timeout=WITHIN_S)
    await controller.close()
    return sorted(each.id for each in found.jobs)


async def submitted(process: Process, running: object) -> str:
    controller = await process.ready(running)  # type: ignore[arg-type]
    made = await stub(controller).CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
    await controller.close()
    return str(made.job.id)


async def leadership_of(process: Process, running: object) -> cluster_pb2.Leadership:
    controller = await process.ready(running)  # type: ignore[arg-type]
    asked = cluster_stub(controller.channel("user/ann")).GetStatus(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)
    found: cluster_pb2.GetStatusResponse = await asked
    await controller.close()
    return found.leadership


async def test_a_job_is_there_after_the_controller_was_killed_and_its_server_restarted(
    on_postgres: Process, postgres_server: Server
) -> None:
    process = on_postgres.start()
    first = await submitted(on_postgres, process)
    controller = await on_postgres.ready(process)
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        await asyncio.to_thread(postgres_server.stop, "immediate")
        await agent.call.write(BEAT)
        await asyncio.to_thread(postgres_server.start)
        await agent.until(lambda a: any(m.WhichOneof("message") == "heartbeat_ack" for m in a.said))
    await controller.close()
    second = await submitted(on_postgres, process)
    process.kill()
    await ended(process)
    assert await jobs(on_postgres, on_postgres.start()) == sorted([first, second])
    assert not (on_postgres.root / "state/holdfast.db").exists()


async def test_a_second_controller_stands_by_and_leads_once_the_first_has_ended(
    on_postgres: Process, tmp_path: Path
) -> None:
    process = on_postgres.start()
    made = await submitted(on_postgres, process)
    other = on_another_machine(on_postgres, tmp_path / "other")
    standby = other.start()
    try:
        await says(other, "store.follows")
        await asyncio.sleep(3.0)  # more than a term: the first one writes though nothing happens
        assert "controller.ready" not in other.log
        leadership = await leadership_of(on_postgres, process)
        here = socket.gethostname()
        assert (leadership.leader, list(leadership.standbys)) == (here, [here])
        assert leadership.database.startswith("PostgreSQL database daemon at ")
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
        assert await jobs(other, standby) == [made]
        assert "store.followed" in other.log
        assert not (await leadership_of(other, standby)).standbys
    finally:
        standby.kill()
        await ended(standby)


def ports(process: Process, event: str) -> tuple[int, int]:
    """Those of ``http_port`` and of the page, as a controller has last noted them."""
    said = json.loads(next(line for line in reversed(process.log.splitlines()) if event in line))
    return int(said["http_port"]), int(said["web_port"])


def asking(process: Process, event: str) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    """One that calls over HTTP, and a browser without a certificate, which uses the address."""
    http, web = ports(process, event)
    files = process.certificates.files["user/ann"]
    browser = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{web}", verify=context(files, certificate=False), trust_env=False
    )
    return caller(http, files), browser


async def test_a_controller_that_stands_by_answers_503_over_http_and_says_who_leads(
    on_postgres: Process, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics_port = free.getsockname()[1]
    settings = on_postgres.root / "controller.toml"
    served = 'http_port = 0\nweb = {listen = "127.0.0.1:0"}\n'
    settings.write_text(served + settings.read_text())
    process = on_postgres.start()
    await on_postgres.ready(process)
    for client in asking(on_postgres, "controller.ready"):
        async with client:
            found = await client.get("/health")
            assert (found.status_code, found.json()) == (200, {})
    other = on_another_machine(on_postgres, tmp_path / "other")
    own = other.root / "controller.toml"
    text = f'metrics_listen = "127.0.0.1:{metrics_port}"\n' + own.read_text()
    taken, _ = ports(on_postgres, "controller.ready")
    own.write_text(text.replace("http_port = 0", f"http_port = {taken}"))
    assert await ended(other.start()) != 0, "it does not lead later, either"
    assert f"Cannot serve HTTP on 127.0.0.1:{taken}" in other.log
    own.write_text(text)
    standby = other.start()
    other.processes = [standby]
    try:
        await says(other, "controller.refers")
        by_certificate, browser = asking(other, "controller.refers")
        async with by_certificate, browser:
            for client in (by_certificate, browser):
                for method, path in (("GET", "/health"), ("GET", "/"), ("POST", "/v1/jobs"), ("GET", "/metrics")):
                    said = await client.request(method, path, json=BODY if method == "POST" else None)
                    error = said.json()["error"]
                    assert (said.status_code, error["code"], error["status"]) == (503, 503, "UNAVAILABLE")
                    assert (
                        error["message"] == f"This controller stands by: the one on {socket.gethostname()} leads."
                    )
                    assert said.headers["Retry-After"] == "1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", metrics_port)).close()
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
        await other.ready(standby)
        for client in asking(other, "controller.ready"):
            async with client:
                assert (await client.get("/health")).status_code == 200
        socket.create_connection(("127.0.0.1", metrics_port)).close()
    finally:
        standby.kill()
        await ended(standby)


async def test_a_controller_that_was_frozen_and_replaced_ends_when_it_wakes(
    on_postgres: Process, tmp_path: Path
) -> None:
    process = on_postgres.start()
    await on_postgres.ready(process)
    other = on_another_machine(on_postgres, tmp_path / "other")
    process.send_signal(signal.SIGSTOP)
    standby = other.start()
    try:
        made = await submitted(other, standby)
        process.send_signal(signal.SIGCONT)
        assert await ended(process) == 1
        assert "Another controller has taken over PostgreSQL database daemon" in on_postgres.log
        assert await jobs(other, standby) == [made]
    finally:
        process.send_signal(signal.SIGCONT)
        standby.kill()
        await ended(standby)


async def test_a_controller_that_is_cut_from_its_database_answers_nothing_from_before_it_was_replaced(
    on_postgres: Process, postgres_server: Server, url: str, tmp_path: Path
) -> None:
    way = Proxy(f"{postgres_server.folder}/.s.PGSQL.5432")
    await way.start()
    other = on_another_machine(on_postgres, tmp_path / "other")
    settings = on_postgres.root / "controller.toml"
    through_it = f"postgresql://holdfast@127.0.0.1:{way.port}/daemon"
    settings.write_text(settings.read_text().replace(url, through_it))
    process = on_postgres.start()
    controller = await on_postgres.ready(process)
    before = await submitted(on_postgres, process)
    standby = other.start()
    try:
        await says(other, "controller.stands_by")
        await way.stall("up", "down")
        made = await submitted(other, standby)
        cut_off = stub(controller)
        for call, request in (
            ("ListJobs", job_pb2.ListJobsRequest()),
            ("GetJob", job_pb2.GetJobRequest(id=made)),
            ("GetJob", job_pb2.GetJobRequest(id=before)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await getattr(cut_off, call)(request, timeout=2.0)
            assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert process.poll() is None, "it does not know yet"
        await way.flow()
        assert await ended(process) == 1
        assert "Another controller has taken over PostgreSQL database daemon" in on_postgres.log
        assert await jobs(other, standby) == sorted([before, made])
    finally:
        await way.stop()
        await controller.close()
        standby.kill()
        await ended(standby)


LINGER = """
CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2); RETURN NEW; END';
CREATE TRIGGER linger BEFORE UPDATE ON meta FOR EACH ROW WHEN (NEW.key = 'beat') EXECUTE FUNCTION linger();
"""


async def test_a_database_that_takes_two_seconds_for_a_commit_is_waited_for_and_no_other_controller_leads(
    on_postgres: Process, postgres_server: Server, tmp_path: Path
) -> None:
    import psycopg

    process = on_postgres.start()
    controller = await on_postgres.ready(process)
    other = on_another_machine(on_postgres, tmp_path / "other")
    standby = other.start()
    try:
        await says(other, "controller.stands_by")
        with psycopg.connect(postgres_server.address("daemon"), autocommit=True) as database:
            database.execute(LINGER.encode())
        async with controller.agent() as agent:
            await agent.until(lambda a: a.said)
            await agent.call.write(BEAT)
            await agent.until(lambda a: any(m.WhichOneof("message") == "heartbeat_ack" for m in a.said))
        made = await submitted(on_postgres, process)
        assert await jobs(on_postgres, process) == [made]
        assert process.poll() is None
        assert "controller.ready" not in other.log
    finally:
        await controller.close()
        standby.kill()
        await ended(standby)


async def test_a_controller_that_is_started_while_its_server_is_away_says_so_and_may_be_started_again(
    on_postgres: Process, postgres_server: Server
) -> None:
    process = on_postgres.start()
    made = await submitted(on_postgres, process)
    process.kill()
    await ended(process)
    await asyncio.to_thread(postgres_server.stop)
    try:
        for _ in range(2):  # as systemd does for as long as that takes
            assert await ended(on_postgres.start()) == 1, "it isn't told to leave it be"
    finally:
        await asyncio.to_thread(postgres_server.start)
    assert "See whether the server runs and can be reached from here" in on_postgres.log
    on_postgres.processes.clear()
    (on_postgres.root / "controller.log").unlink()
    assert await jobs(on_postgres, on_postgres.start()) == [made]


async def test_settings_that_cannot_be_used_are_said(on_postgres: Process) -> None:
    settings = on_postgres.root / "controller.toml"
    settings.write_text(re.sub(r'database_url = ".*"', 'database_url = "postgresql://["', settings.read_text()))
    assert await ended(on_postgres.start()) == 2
    assert "database_url can't be read" in on_postgres.log
