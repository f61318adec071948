"""The controller's page for Prometheus and its status: who gets them, and that they are true."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.controller.cluster import Certificates, Controller
from tests.integration.controller.web import BODY, WITHIN_S, caller
from tests.support.stubs import access_stub, cluster_stub

from holdfast.v1 import access_pb2, cluster_pb2
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve


@dataclasses.dataclass
class Site:
    """A controller with HTTP and a page for this machine; ann is its admin."""

    controller: Controller
    http_port: int
    metrics_port: int

    def as_(self, who: str) -> httpx.AsyncClient:
        return caller(self.http_port, self.controller.certificates.files[who])

    async def page(self, who: str = "user/ann", accept: str = "") -> httpx.Response:
        async with self.as_(who) as client:
            return await client.get("/metrics", headers={"Accept": accept})

    async def value(self, series: str) -> float:
        """Of one series, as Prometheus would read it."""
        text = (await self.page()).text
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
        assert found is not None, f"{series} is not among\n{text}"
        return float(found[1])

    async def becomes(self, series: str, wanted: float) -> None:
        for _ in range(600):
            if await self.value(series) == wanted:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{series} is {await self.value(series)}")

    async def add_bob(self, role: access_pb2.Role.ValueType, project: str) -> None:
        people = access_stub(self.controller.channel("user/ann"))
        grant = access_pb2.Grant(project=project, role=role)
        await people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)

    async def status(self, who: str) -> cluster_pb2.GetStatusResponse:
        stub = cluster_stub(self.controller.channel(who))
        return await stub.GetStatus(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    config = dataclasses.replace(config, http_port=0, metrics_listen=f"127.0.0.1:{free}", admins=("ann",))
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    http: asyncio.Future[int] = loop.create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(config, ready.set_result, http.set_result))
        async with asyncio.timeout(WITHIN_S):
            served = Site(Controller(await ready, certificates), await http, free)
        yield served
        await served.controller.close()
        serving.cancel()


async def test_page_tells_of_a_job_from_its_submission_to_its_end(site: Site) -> None:
    async with site.as_("user/ann") as ann:
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        assert await site.value("holdfast_jobs_submitted_total") == 1
        assert await site.value('holdfast_jobs{state="QUEUED"}') == 1
        assert await site.value("holdfast_queue_jobs") == 1
        async with site.controller.agent():
            await site.becomes('holdfast_jobs{state="RUNNING"}', 1)
            assert await site.value("holdfast_job_wait_seconds_count") == 1
            assert await site.value("holdfast_job_start_seconds_count") == 1
            assert await site.value("holdfast_sessions") == 1
            assert await site.value('holdfast_hosts{state="ready"}') == 1
            await ann.post(f"/v1/jobs/{job}:cancel")
            await site.becomes('holdfast_jobs_ended_total{state="CANCELLED"}', 1)
    assert await site.value("holdfast_commit_duration_seconds_count") >= 4
    assert await site.value('holdfast_rpc_total{code="OK",method="holdfast.v1.JobService/CreateJob"}') == 1
    assert await site.value("holdfast_log_events_total") >= 6


async def test_page_is_for_those_who_may_look_at_all_projects(site: Site) -> None:
    assert (await site.page("user/bob")).status_code == 403
    await site.add_bob(access_pb2.ROLE_ADMIN, "vision")
    assert (await site.page("user/bob")).status_code == 403
    await site.add_bob(access_pb2.ROLE_VIEWER, "*")
    assert (await site.page("user/bob")).status_code == 200
    assert (await site.page("host/host-0")).status_code == 403
    assert await site.value("holdfast_audit_refusals_total") == 3
    refused = 'holdfast_rpc_total{code="PERMISSION_DENIED",method="holdfast.v1.ClusterService/GetMetrics"}'
    assert await site.value(refused) == 3


async def test_page_comes_as_openmetrics_where_that_is_asked_for(site: Site) -> None:
    plain, openly = await site.page(), await site.page(accept="application/openmetrics-text; version=1.0.0")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert openly.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openly.text.endswith("# EOF\n")


async def test_this_machine_reads_the_same_page_in_plain_text(site: Site) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_S) as anybody:
        found = await anybody.get(f"http://127.0.0.1:{site.metrics_port}/metrics")
    assert found.status_code == 200
    names = {line.split()[2] for line in found.text.splitlines() if line.startswith("# TYPE")}
    assert names == {line.split()[2] for line in (await site.page()).text.splitlines() if line.startswith("# TYPE")}


async def test_page_names_no_user_project_or_job(site: Site) -> None:
    async with site.as_("user/ann") as ann:
        job = (await ann.post("/v1/jobs", json=BODY | {"displayName": "secret-plan"})).json()["id"]
    text = (await site.page()).text
    assert not [word for word in (job, "secret-plan", "ann", '"default"') if word in text]


async def test_status_shows_hosts_to_everybody_and_jobs_to_those_who_may_see_them(site: Site) -> None:
    await site.add_bob(access_pb2.ROLE_VIEWER, "vision")
    async with site.as_("user/ann") as ann, site.controller.agent(gpus=4):
        await ann.post("/v1/jobs", json=BODY)
        mine, his = await site.status("user/ann"), await site.status("user/bob")
    assert (sum(mine.jobs.values()), sum(his.jobs.values())) == (1, 0)
    assert mine.hosts == his.hosts and mine.hosts["ready"] == 1
    assert sum(his.gpus.values()) == 4
    assert mine.cluster == "test" and mine.epoch == 1


async def test_a_host_that_reports_a_hostile_version_forges_no_line(site: Site) -> None:
    hostile = '1"} 1\nholdfast_forged 1\n# \\'
    async with site.controller.agent(agent_version=hostile):
        text = (await site.page()).text
    assert not [line for line in text.splitlines() if line.startswith("holdfast_forged")]
    assert sum(line.startswith("holdfast_agents{") for line in text.splitlines()) == 1
