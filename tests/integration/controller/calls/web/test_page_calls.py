"""The web page's calls beside those of jobs and hosts, over HTTP with a certificate. Real TLS, real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.web import BODY, WITHIN_S, Web, running

from holdfast_controller.shell.base.config import ControllerConfig


@pytest.fixture
async def web(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Web]:
    config = dataclasses.replace(config, http_port=0, admins=("ann",))
    async with running(config, certificates) as (controller, port):
        yield Web(controller, port)


@pytest.fixture
async def ann(web: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with web.as_("user/ann") as client:
        yield client


async def submitted(ann: httpx.AsyncClient, name: str, **more: Any) -> str:
    made = await ann.post("/v1/jobs", json=BODY | {"displayName": name} | more)
    return str(made.json()["id"])


async def test_who_asks_and_who_else_there_is(ann: httpx.AsyncClient) -> None:
    me = (await ann.get("/v1/me")).json()
    assert (me["cluster"], me["user"]["name"], me["user"]["configuredAdmin"]) == ("test", "ann", True)
    users = (await ann.get("/v1/users")).json()
    assert [user["name"] for user in users["users"]] == ["ann"] and users["nextPageToken"] == ""
    await ann.get("/v1/users", params={"pageSize": "5000"})
    entries = (await ann.get("/v1/audit", params={"refused": "true", "limit": "5"})).json()["entries"]
    assert [(entry["who"], entry["call"], entry["outcome"]) for entry in entries] == [
        ("user/ann", "AccessService/ListUsers", "INVALID_ARGUMENT")
    ]
    assert (await ann.get("/v1/usage")).json() == {"stored": []}
    assert (await ann.get("/v1/sessions")).json() == {"sessions": []}
    assert (await ann.delete("/v1/sessions/abc")).status_code == 404


async def test_rows_come_newest_first_page_by_page_and_hold_no_spec(ann: httpx.AsyncClient) -> None:
    ids = [await submitted(ann, f"train {number}") for number in range(5)]
    asked = {"view": "ROW", "newest": "true", "pageSize": "2"}
    found: list[dict[str, Any]] = []
    token = ""
    for _ in range(4):
        page = (await ann.get("/v1/jobs", params=asked | {"pageToken": token})).json()
        found += page["jobs"]
        token = page["nextPageToken"]
        if not token:
            break
    assert [row["id"] for row in found] == ids[::-1]
    assert {"jobSpec", "annotations", "recoveries", "hangs", "workers"}.isdisjoint(found[0])
    assert (found[0]["gpuCount"], found[0]["hostCount"], found[0]["hangCount"]) == (0, 0, 0)
    whole = (await ann.get(f"/v1/jobs/{ids[-1]}")).json()
    assert {key: whole[key] for key in found[0] if key in whole} == {
        key: value for key, value in found[0].items() if key in whole
    }
    assert (await ann.get("/v1/jobs", params={"view": "SOME"})).status_code == 400


async def test_a_search_finds_names_ids_labels_and_owners_in_any_case(ann: httpx.AsyncClient) -> None:
    llama = await submitted(ann, "Llama 70b", labels={"team": "Speech"})
    other = await submitted(ann, "digits")
    for text, ids in (
        ("LLAMA", [llama]),
        ("speech", [llama]),
        (other[-6:], [other]),
        ("ann", [llama, other]),
        ("%", []),
        ("  ", [llama, other]),
    ):
        listed = (await ann.get("/v1/jobs", params={"search": text, "view": "ROW"})).json()["jobs"]
        assert [row["id"] for row in listed] == ids, text


async def test_changes_come_as_they_happen_and_from_where_a_reader_was(web: Web, ann: httpx.AsyncClient) -> None:
    await submitted(ann, "before")
    events = {"Accept": "text/event-stream"}
    async with asyncio.timeout(WITHIN_S), ann.stream("GET", "/v1/changes", headers=events) as stream:
        lines = stream.aiter_lines()

        async def entry() -> dict[str, Any]:
            async for line in lines:
                if line.startswith("data: "):
                    found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    return found
            raise AssertionError("it ended")

        first = await entry()
        assert (first["jobs"], first["hosts"], first["all"]) == ([], [], False)
        job = await submitted(ann, "train")
        assert (await entry())["jobs"] == [job]
        async with web.controller.agent():
            seen = await entry()
            while "host-0" not in seen["hosts"]:
                seen = await entry()
    again = {"cursor": str(first["cursor"])}
    async with asyncio.timeout(WITHIN_S), ann.stream("GET", "/v1/changes", params=again) as stream:
        missed = json.loads(await anext(stream.aiter_lines()))
        assert job in missed["jobs"] and "host-0" in missed["hosts"] and not missed["all"]
    beyond = {"cursor": str(first["cursor"] + 10_000)}
    async with asyncio.timeout(WITHIN_S), ann.stream("GET", "/v1/changes", params=beyond) as stream:
        assert json.loads(await anext(stream.aiter_lines()))["all"]


async def test_what_a_jobs_page_asks_and_does(ann: httpx.AsyncClient) -> None:
    job = await submitted(ann, "train")
    ledger = (await ann.get(f"/v1/jobs/{job}/goodput")).json()
    assert (ledger["job"], ledger["totalMs"], ledger["goodput"]) == (job, 0, None)
    for by in ("project", "owner", "host", "model"):
        assert (await ann.get("/v1/goodput", params={"by": by})).json()["rows"] == []
    assert (await ann.get("/v1/goodput", params={"by": "cat"})).status_code == 400
    assert (await ann.get("/v1/goodput", params={"since": "soon"})).status_code == 400
    held = await ann.post(f"/v1/jobs/{job}:hold", json={"duration": "2h"})
    assert held.status_code == 200 and held.json()["heldUntil"] is not None
    bodies: tuple[Any, ...] = ({"duration": "x"}, {"span": "2h"}, [], {"duration": {"a": 1}}, {"id": 7})
    for wrong in bodies:
        answer = await ann.post(f"/v1/jobs/{job}:hold", json=wrong)
        assert (answer.status_code == 200) is (wrong == {"id": 7}), wrong
    assert (await ann.post(f"/v1/jobs/{job}:stacks", json={})).status_code == 400
    assert (await ann.get(f"/v1/jobs/{job}/hangs/1/evidence")).status_code == 404
    assert (await ann.get("/v1/jobs/none/goodput")).status_code == 404


async def test_an_admin_cordons_and_drains_a_host(web: Web, ann: httpx.AsyncClient) -> None:
    async with web.controller.agent():
        done = await ann.post("/v1/hosts/host-0:cordon", json={"reason": "fan"})
        assert (done.json()["cordoned"], done.json()["cordonReason"]) == (True, "fan")
        assert (await ann.post("/v1/hosts/host-0:uncordon", json={})).json()["cordoned"] is False
        assert (await ann.post("/v1/hosts/host-0:drain", json={"deadline": "1h"})).json()["draining"] is True
        again = await ann.post("/v1/hosts/host-0:drain", json={"deadline": None, "reason": "disk"})
        assert (again.status_code, again.json()["cordonReason"]) == (200, "disk")
        large = await ann.post("/v1/hosts/host-0:drain", json={"deadline": 10**400})
        assert (large.status_code, "too large for a duration" in large.text) == (400, True)
    assert (await ann.post("/v1/hosts/none:cordon", json={})).status_code == 404
    async with web.as_("user/bob") as bob:
        assert (await bob.post("/v1/hosts/host-0:uncordon", json={})).status_code == 403
