"""A cluster from nothing, with certificates that last seconds: nobody who is connected notices that they change."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import anyio
from tests.e2e.cli_cluster import until
from tests.e2e.site import WITHIN_S, made

from holdfast._security import certificate
from holdfast.client import Client
from holdfast.v1 import host_pb2

LIFE_S = 9
CONTROLLERS_LIFE_S = 24
RENEWALS = 3
TICKS = "i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.2; done"


class Reader:
    """Follows one job's events and output, each over one stream."""

    def __init__(self) -> None:
        self.outages: list[str] = []
        self.events: list[str] = []
        self.output = b""
        self.heard = anyio.Event()

    async def watch(self, client: Client, job_id: str) -> None:
        history = client.watch_job(job_id, on_link=lambda error: self.outages.append(f"watch: {error}"))
        async with contextlib.aclosing(history):
            async for event in history:
                self.events.append(event.type)

    async def follow(self, client: Client, job_id: str) -> None:
        chunks = client.stream_logs(
            job_id, follow=True, on_link=lambda error: self.outages.append(f"logs: {error}")
        )
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                self.output += chunk.data
                self.heard.set()


async def renewed(path: Path, times: int) -> None:
    """Wait until the certificate in a file was replaced so often."""
    seen = {certificate.read(path).ends_at}
    with anyio.fail_after(WITHIN_S):
        while len(seen) <= times:
            await anyio.sleep(0.1)
            seen.add(certificate.read(path).ends_at)


def test_certificates_change_under_open_streams_and_nobody_notices(tmp_path: Path) -> None:
    with made(tmp_path) as site:
        site.make(LIFE_S, CONTROLLERS_LIFE_S)
        site.join("h1")
        site.admit("bob")
        first = certificate.read(site.root / "h1/agent.pem")
        hosts = anyio.run(_ready, site.client("etc/admin"))
        assert [host.name for host in hosts] == ["h1"]
        job_id = site.holdfast("bob", "run", "--detach", "--", "sh", "-c", TICKS).stdout.strip()
        reader = Reader()

        async def live() -> None:
            async with site.client("bob") as bob, anyio.create_task_group() as tasks:
                tasks.start_soon(reader.watch, bob, job_id)
                tasks.start_soon(reader.follow, bob, job_id)
                with anyio.fail_after(WITHIN_S):
                    await reader.heard.wait()
                await renewed(site.root / "h1/agent.pem", RENEWALS)
                assert time.time() > first.ends_at, "the first one has ended, and the session goes on"
                await renewed(site.root / "state/controller.pem", 1)
                reader.heard = anyio.Event()
                with anyio.fail_after(WITHIN_S):
                    await reader.heard.wait()
                assert reader.outages == []
                await bob.cancel_job(job_id)
                # Both streams end with the job.

        anyio.run(live)
        assert reader.outages == []
        assert reader.events[-1] == "JobEnded"
        lines = reader.output.decode().splitlines()
        assert lines == [f"tick {i}" for i in range(len(lines))], "no byte is lost or doubled"
        log = site.log("controller")
        assert log.count('"session.opened"') == 1
        assert "certificate.renewed" in log
        # A user's renews itself when it is used, here after its end.
        assert "bob of the cluster main" in site.holdfast("bob", "whoami").stdout
        until(lambda: site.holdfast("etc/admin", "host", "remove", "h1", check=False).returncode == 0, WITHIN_S)
        audit = site.holdfast("etc/admin", "audit").stdout
        assert "user/ann" in audit and "AccessService/RemoveHost" in audit and f"job/{job_id}" in audit


async def _ready(client: Client) -> list[host_pb2.Host]:
    """The hosts, once one is ready."""
    async with client:
        with anyio.fail_after(WITHIN_S):
            while True:
                hosts = await client.list_hosts()
                if [host.state for host in hosts] == [host_pb2.HOST_STATE_READY]:
                    return hosts
                await anyio.sleep(0.2)
