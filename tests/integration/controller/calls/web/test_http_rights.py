"""Callers have the same rights over HTTP as over gRPC: one guard lets both in, notes them and cuts them off."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.controller.cluster import Certificates, Controller
from tests.integration.controller.web import BODY, WITHIN_S, caller, running
from tests.support.stubs import access_stub

from holdfast.v1 import access_pb2
from holdfast_controller.shell.base.config import ControllerConfig

ROLES = {"viewer": access_pb2.ROLE_VIEWER, "user": access_pb2.ROLE_USER}


class Site:
    """A controller with HTTP whose only admin is ann."""

    def __init__(self, controller: Controller, port: int) -> None:
        self.controller, self.port = controller, port
        self.people = access_stub(controller.channel("user/ann"))

    def as_(self, who: str) -> httpx.AsyncClient:
        return caller(self.port, self.controller.certificates.files[who])

    async def add_bob(self, role: str) -> None:
        grant = access_pb2.Grant(project="default", role=ROLES[role])
        await self.people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)

    async def remove_bob(self) -> None:
        await self.people.RemoveUser(access_pb2.RemoveUserRequest(name="bob"), timeout=WITHIN_S)


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    config = dataclasses.replace(config, http_port=0, admins=("ann",))
    async with running(config, certificates) as (controller, port):
        yield Site(controller, port)


async def test_a_user_whom_nobody_has_added_may_do_nothing(site: Site) -> None:
    async with site.as_("user/bob") as bob:
        answers = [await bob.get("/v1/jobs"), await bob.post("/v1/jobs", json=BODY), await bob.get("/v1/hosts")]
    assert [answer.status_code for answer in answers] == [403, 403, 403]


async def test_a_viewer_looks_and_does_not_act_and_both_are_told_apart_in_the_audit_log(site: Site) -> None:
    await site.add_bob("viewer")
    async with site.as_("user/ann") as ann, site.as_("user/bob") as bob:
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        assert (await bob.get(f"/v1/jobs/{job}")).status_code == 200
        assert (await bob.post(f"/v1/jobs/{job}:cancel")).status_code == 403
        assert (await bob.post("/v1/jobs", json=BODY)).status_code == 403
    read = await site.people.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    told = [(entry.who, entry.call, entry.outcome) for entry in read.entries if entry.call.endswith("Job")]
    assert sorted(told) == [
        ("user/ann", "JobService/CreateJob", "OK"),
        ("user/bob", "JobService/CancelJob", "PERMISSION_DENIED"),
        ("user/bob", "JobService/CreateJob", "PERMISSION_DENIED"),
    ]


async def test_goodput_is_for_those_who_may_see_the_job(site: Site) -> None:
    await site.add_bob("viewer")
    async with site.as_("user/ann") as ann, site.as_("user/bob") as bob:
        his = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        other = (await ann.post("/v1/jobs", json=BODY | {"project": "vision"})).json()["id"]
        seen = await bob.get(f"/v1/jobs/{his}/goodput")
        assert (seen.status_code, seen.json()["job"], seen.json()["lines"]) == (200, his, [])
        assert (await bob.get(f"/v1/projects/vision/locations/here/customJobs/{his}/goodput")).status_code == 404
        assert (await bob.get(f"/v1/jobs/{other}/goodput")).status_code == (
            await bob.get(f"/v1/jobs/{other}")
        ).status_code
        for by in ("project", "owner", "host", "model", "week"):
            sums = await bob.get(f"/v1/goodput?by={by}&since=2026-01-01T00:00:00Z")
            wanted: dict[str, object] = {"completeSince": None, "truncated": False, "rows": []}
            if by == "host":
                wanted["hosts"] = []
            assert (sums.status_code, sums.json()) == (200, wanted)
        for wrong in (
            "by=planet",
            "since=soon",
            "color=red",
            "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
        ):
            assert (await bob.get(f"/v1/goodput?{wrong}")).status_code == 400
        assert (await ann.get("/v1/jobs/none/goodput")).status_code == 404


async def test_usage_is_of_what_one_may_see(site: Site) -> None:
    await site.add_bob("viewer")
    async with site.as_("user/ann") as ann, site.as_("user/bob") as bob:
        await ann.post("/v1/jobs", json=BODY | {"project": "vision"})
        answers = [await each.get("/v1/usage") for each in (ann, bob)]
        status = [await each.get("/v1/status") for each in (ann, bob)]
        assert [answer.status_code for answer in answers] == [answer.status_code for answer in status]
        assert all("vision" not in each["subject"] for each in answers[1].json().get("stored", []))


async def test_a_stream_that_is_open_ends_when_its_reader_is_removed(site: Site) -> None:
    await site.add_bob("user")
    async with site.as_("user/bob") as bob:
        job = (await bob.post("/v1/jobs", json=BODY)).json()["id"]
        async with bob.stream("GET", f"/v1/jobs/{job}:watch") as watching:
            lines = watching.aiter_lines()
            assert "JobSubmitted" in await anext(lines)
            await site.remove_bob()
            async with asyncio.timeout(WITHIN_S):
                with pytest.raises(httpx.RemoteProtocolError):
                    async for _ in lines:
                        pass
        assert (await bob.get(f"/v1/jobs/{job}")).status_code == 401
