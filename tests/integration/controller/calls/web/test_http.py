"""JSON over HTTP: every address, and what it answers. Real TLS, real sockets."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.web import BODY, POOL, WITHIN_S, Web, running

from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.rest.guards import MAX_STREAMS_OF_ONE, Bounds

CUSTOM_JOBS = "/v1/projects/vision/locations/here/customJobs"


@pytest.fixture
async def web(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Web]:
    config = dataclasses.replace(config, http_port=0)
    async with running(config, certificates) as (controller, port):
        yield Web(controller, port)


@pytest.fixture
async def ann(web: Web) -> AsyncIterator[httpx.AsyncClient]:
    async with web.as_("user/ann") as client:
        yield client


def refusal(response: httpx.Response) -> tuple[int, str, str]:
    """(code, status, message) of an error in the form of Google's APIs."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return error["code"], error["status"], error["message"]


def fields(response: httpx.Response) -> list[str]:
    """Paths of the fields that are complained of."""
    details = response.json()["error"]["details"]
    return [v.get("field", "") for d in details if "fieldViolations" in d for v in d["fieldViolations"]]


async def test_job_is_made_shown_listed_and_cancelled_at_the_addresses_of_the_reference(
    ann: httpx.AsyncClient,
) -> None:
    made = (await ann.post(CUSTOM_JOBS, json=BODY)).json()
    assert made["name"] == f"projects/vision/locations/here/customJobs/{made['id']}"
    assert (made["project"], made["owner"], made["state"]) == ("vision", "ann", "JOB_STATE_QUEUED")
    shown = (await ann.get(f"/v1/{made['name']}")).json()
    assert shown["jobSpec"]["workerPoolSpecs"][0]["processSpec"] == {"command": ["train"]}
    listed = (await ann.get(CUSTOM_JOBS, params={"filter": "state=QUEUED"})).json()
    assert [job["id"] for job in listed["customJobs"]] == [made["id"]] and listed["nextPageToken"] == ""
    cancelled = await ann.post(f"/v1/{made['name']}:cancel", json={})
    assert (cancelled.status_code, cancelled.json()) == (200, {})
    assert (await ann.get(f"/v1/{made['name']}")).json()["state"] == "JOB_STATE_CANCELLED"


async def test_a_job_that_is_only_validated_is_judged_and_not_made(ann: httpx.AsyncClient) -> None:
    for address in ("/v1/jobs", CUSTOM_JOBS):
        answer = await ann.post(address, params={"validateOnly": "true", "requestId": "x"}, json=BODY)
        assert answer.status_code == 200
        judged = answer.json()
        assert (judged["starts"], judged["waitReason"]) == (False, "no host has joined yet")
        assert "id" not in judged
        bad = {"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1}]}}
        assert refusal(await ann.post(address, params={"validateOnly": "true"}, json=bad))[0] == 400
    assert (await ann.get("/v1/jobs")).json()["jobs"] == []
    made = await ann.post("/v1/jobs", params={"validateOnly": "false", "requestId": "x"}, json=BODY)
    assert [job["id"] for job in (await ann.get("/v1/jobs")).json()["jobs"]] == [made.json()["id"]]
    assert refusal(await ann.post("/v1/jobs", params={"validateOnly": "maybe"}, json=BODY))[0] == 400


async def test_job_of_another_project_is_not_found_and_not_cancelled(ann: httpx.AsyncClient) -> None:
    made = (await ann.post("/v1/jobs", json=BODY)).json()
    there = f"{CUSTOM_JOBS}/{made['id']}"
    assert refusal(await ann.get(there))[:2] == (404, "NOT_FOUND")
    assert refusal(await ann.post(f"{there}:cancel"))[:2] == (404, "NOT_FOUND")
    assert refusal(await ann.get(f"{there}:watch"))[:2] == (404, "NOT_FOUND")
    anywhere = f"/v1/projects/-/locations/here/customJobs/{made['id']}"
    assert (await ann.get(anywhere)).json()["state"] == "JOB_STATE_QUEUED"
    assert (await ann.get(CUSTOM_JOBS)).json()["customJobs"] == []


async def test_project_of_the_body_must_be_that_of_the_address(ann: httpx.AsyncClient) -> None:
    assert fields(await ann.post(CUSTOM_JOBS, json=BODY | {"project": "speech"})) == ["project"]
    assert (await ann.post(CUSTOM_JOBS, json=BODY | {"project": "vision"})).status_code == 200
    assert fields(await ann.post(CUSTOM_JOBS.replace("vision", "Vision"), json=BODY)) == ["project"]


async def test_lists_come_in_pages(ann: httpx.AsyncClient) -> None:
    ids = [(await ann.post("/v1/jobs", json=BODY)).json()["id"] for _ in range(3)]
    first = (await ann.get("/v1/jobs", params={"pageSize": 2})).json()
    rest = (await ann.get("/v1/jobs", params={"page_size": 2, "pageToken": first["nextPageToken"]})).json()
    assert [job["id"] for job in (*first["jobs"], *rest["jobs"])] == ids
    assert "workers" not in first["jobs"][0] and rest["nextPageToken"] == ""


async def test_the_same_request_id_makes_one_job(ann: httpx.AsyncClient) -> None:
    made = [(await ann.post("/v1/jobs?requestId=once", json=BODY)).json()["id"] for _ in range(2)]
    assert made[0] == made[1]


async def test_fields_that_change_nothing_are_warned_about(ann: httpx.AsyncClient) -> None:
    pool = POOL | {"machineSpec": {"machineType": "n1-standard-4"}}
    made = (await ann.post("/v1/jobs", json={"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}})).json()
    assert len(made["warnings"]) == 1 and "machineType" in made["warnings"][0]


async def test_verbs_act_and_say_what_cannot_be_done(ann: httpx.AsyncClient) -> None:
    made = (await ann.post("/v1/jobs", json=BODY)).json()
    at = f"/v1/jobs/{made['id']}"
    assert (await ann.post(f"{at}:pause")).json()["state"] == "JOB_STATE_PAUSED"
    assert (await ann.post(f"{at}:resume")).json()["state"] == "JOB_STATE_QUEUED"
    assert refusal(await ann.post(f"{at}:restart"))[:2] == (400, "FAILED_PRECONDITION")
    assert (await ann.post(f"{at}:cancel")).json()["state"] == "JOB_STATE_CANCELLED"
    assert refusal(await ann.post(f"{at}:cancel", json={"force": True}))[:2] == (400, "INVALID_ARGUMENT")
    assert refusal(await ann.get("/v1/jobs/nobody"))[:2] == (404, "NOT_FOUND")
    series = (await ann.get(f"{at}/series", params={"figure": "gpu_util,cpu", "rank": "0", "points": 10})).json()
    assert (series["series"], series["recordings"], series["keptSince"]) == ([], [], None)
    wrong = await ann.get(f"{at}/series", params={"until": "yesterday"})
    assert refusal(wrong)[:2] == (400, "INVALID_ARGUMENT")
    assert refusal(await ann.post(f"{at}:explode"))[0] == 405
    gone = await ann.delete(at)
    assert refusal(gone)[0] == 405 and "DELETE" not in gone.headers["allow"]


async def test_job_that_has_ended_is_deleted_at_the_address_of_the_reference(ann: httpx.AsyncClient) -> None:
    made = [(await ann.post(CUSTOM_JOBS, json=BODY | {"labels": {"a": "b"}})).json() for _ in range(2)]
    at = f"/v1/{made[0]['name']}"
    code, status, message = refusal(await ann.delete(at))
    assert (code, status) == (400, "FAILED_PRECONDITION")
    assert message.startswith(f"The job {made[0]['id']} is QUEUED; only a job that has ended can be deleted.")
    await ann.post(f"{at}:cancel")
    assert refusal(await ann.delete(at.replace("vision", "speech")))[:2] == (404, "NOT_FOUND")
    deleted = await ann.delete(at, params={"alt": "json"})
    assert (deleted.status_code, deleted.json()["done"]) == (200, True)
    assert deleted.json()["name"].startswith("projects/vision/locations/here/operations/")
    for gone in (
        ann.get(at),
        ann.delete(at),
        ann.post(f"{at}:cancel"),
        ann.get(f"{at}:watch"),
        ann.get(f"{at}:logs"),
    ):
        assert refusal(await gone)[:2] == (404, "NOT_FOUND")
    for address in (CUSTOM_JOBS, "/v1/jobs"):
        [left] = next(iter((await ann.get(address, params={"filter": "label.a=b"})).json().values()))
        assert left["id"] == made[1]["id"]
    assert (await ann.get("/v1/status")).json()["jobs"]["CANCELLED"] == 0


async def test_history_is_followed_from_a_cursor_as_lines_and_as_events(ann: httpx.AsyncClient) -> None:
    made = (await ann.post("/v1/jobs", json=BODY)).json()
    at = f"/v1/jobs/{made['id']}:watch"
    async with asyncio.timeout(WITHIN_S), ann.stream("GET", at) as live:
        lines = live.aiter_lines()
        types = [json.loads(await anext(lines))["type"] for _ in range(2)]
        await ann.post(f"/v1/jobs/{made['id']}:cancel")
        later = [json.loads(line) async for line in lines]
    assert types == ["JobSubmitted", "JobQueued"]
    assert [entry["type"] for entry in later][-1] == "JobEnded"
    rest = await ann.get(at, params={"cursor": later[-2]["cursor"]})
    assert [json.loads(line) for line in rest.text.splitlines()] == later[-1:]
    events = await ann.get(at, headers={"Accept": "text/event-stream", "Last-Event-ID": str(later[-2]["cursor"])})
    assert events.headers["content-type"].startswith("text/event-stream")
    head, event, data, *_ = events.text.splitlines()
    assert (head, event) == (f"id: {later[-1]['cursor']}", "event: JobEnded")
    assert json.loads(data.removeprefix("data: ")) == later[-1]
    assert refusal(await ann.get("/v1/jobs/nobody:watch"))[:2] == (404, "NOT_FOUND")


async def test_streams_of_one_caller_are_bounded() -> None:
    bounds = Bounds()
    places = [bounds.stream("ann") for _ in range(MAX_STREAMS_OF_ONE)]
    with pytest.raises(Exception, match="16 streams"):
        bounds.stream("ann")
    bounds.stream("bob").close()
    places.pop().close()
    bounds.stream("ann")


async def test_logs_of_a_job_without_any_end_at_once_and_bad_questions_are_named(ann: httpx.AsyncClient) -> None:
    made = (await ann.post("/v1/jobs", json=BODY)).json()
    at = f"/v1/jobs/{made['id']}:logs"
    assert (await ann.get(at)).text == ""
    for query, field in (
        ({"rank": "x"}, "rank"),
        ({"tailLines": "-1"}, "tailLines"),
        ({"follow": "yes"}, "follow"),
        ({"since": "noon"}, "since"),
        ({"color": "red"}, "color"),
        ({"stream": "STDIN"}, "stream"),
        ({"offset": "-1"}, "offset"),
        ({"endOffset": "5", "follow": "true"}, "end_offset"),
        ({"ignoreCase": "1"}, "ignoreCase"),
        ([("generation", "1"), ("generation", "2")], "generation"),
    ):
        assert fields(await ann.get(at, params=query)) == [field]  # type: ignore[arg-type]
    assert fields(await ann.get(at, headers={"Accept": "text/plain"})) == ["rank"]


async def test_hosts_are_listed(web: Web, ann: httpx.AsyncClient) -> None:
    async with web.controller.agent("host-0", gpus=2) as agent:
        await agent.until(lambda a: a.said)
        listed = (await ann.get("/v1/hosts")).json()["hosts"]
        assert [(host["name"], len(host["gpus"])) for host in listed] == [("host-0", 2)]
        shown = (await ann.get("/v1/hosts/host-0")).json()
        assert shown.pop("reliability")["failures"] == 0
        assert shown.pop("measurements")["results"] == []
        assert shown | {"lastSeen": 0} == listed[0] | {"lastSeen": 0}
    assert refusal(await ann.get("/v1/hosts/nowhere"))[:2] == (404, "NOT_FOUND")
    assert refusal(await ann.post("/v1/hosts/host-0"))[0] == 405


async def test_chunks_of_logs_keep_their_bytes() -> None:
    from holdfast.v1 import job_pb2
    from holdfast_controller.shell.rest.streams import _chunk

    chunk = job_pb2.StreamLogsResponse(
        worker="workerpool0-0",
        rank=1,
        generation=2,
        stream=job_pb2.LOG_STREAM_STDERR,
        offset=3,
        data=b"\xff\n",
        line_offsets=[3],
    )
    printed = _chunk(chunk)
    assert base64.b64decode(printed.pop("data")) == b"\xff\n"
    assert printed == {
        "worker": "workerpool0-0",
        "rank": 1,
        "generation": 2,
        "stream": "STDERR",
        "offset": 3,
        "problem": "",
        "lineOffsets": [3],
    }


async def test_lists_are_filtered_and_cut_down_as_the_reference_has_it(ann: httpx.AsyncClient) -> None:
    labelled = BODY | {"labels": {"team": "vision"}, "displayName": "my_job_1"}
    made = [(await ann.post(CUSTOM_JOBS, json=each)).json() for each in (labelled, BODY)]
    await ann.post("/v1/jobs", json=labelled)

    async def names(text: str) -> list[str]:
        response = await ann.get(CUSTOM_JOBS, params={"filter": text, "readMask": "name", "alt": "json"})
        assert response.status_code == 200, response.text
        return [job["name"] for job in response.json()["customJobs"]]

    first, second = (job["name"] for job in made)
    assert await names('state="JOB_STATE_QUEUED" AND display_name:"my_job_*"') == [first]
    assert await names("labels.team=vision") == await names("labels.team:*") == [first]
    assert await names('NOT display_name="my_job_1"') == [second]
    assert await names('state="JOB_STATE_FAILED" OR labels.team:*') == [first]
    assert await names('create_time>"2021-05-18T00:00:00Z"') == [first, second]
    assert fields(await ann.get(CUSTOM_JOBS, params={"filter": "(owner=ann"})) == ["filter"]
    assert fields(await ann.get(CUSTOM_JOBS, params={"filter": "x" * 5000})) == ["filter"]


async def test_an_answer_has_the_fields_of_the_read_mask(ann: httpx.AsyncClient) -> None:
    made = (await ann.post(CUSTOM_JOBS, json=BODY | {"labels": {"team": "vision", "b": "c"}})).json()
    at = f"/v1/{made['name']}"
    paths = "display_name,state,labels.team,jobSpec.workerPoolSpecs.replica_count,webAccessUris"
    for name in ("readMask", "read_mask"):
        cut = (await ann.get(at, params={name: paths})).json()
        assert cut == {
            "displayName": made["displayName"],
            "state": "JOB_STATE_QUEUED",
            "labels": {"team": "vision"},
            "jobSpec": {"workerPoolSpecs": [{"replicaCount": 1}]},
        }
    whole = (await ann.get(at, params={"readMask": "jobSpec.workerPoolSpecs.replicaCount,jobSpec"})).json()
    assert whole["jobSpec"] == made["jobSpec"]
    assert (await ann.get(at, params={"readMask": "*"})).json() == (await ann.get(at)).json()
    for wrong in ("displayNam", "state.x", "jobSpec.workerPoolSpec", "x" * 5000, "labels.a.b"):
        assert fields(await ann.get(at, params={"readMask": wrong})) == ["readMask"], wrong


async def test_the_form_of_an_answer_may_be_asked_for_where_it_is_json(ann: httpx.AsyncClient) -> None:
    for asked in ({"alt": "json"}, {"$alt": "json;enum-encoding=int"}, {"prettyPrint": "false"}):
        assert (await ann.get(CUSTOM_JOBS, params=asked)).status_code == 200
        made = await ann.post(CUSTOM_JOBS, params=asked, json=BODY)
        assert (await ann.post(f"/v1/{made.json()['name']}:cancel", params=asked)).status_code == 200
    assert fields(await ann.get(CUSTOM_JOBS, params={"alt": "media"})) == ["alt"]
    assert fields(await ann.get(CUSTOM_JOBS, params={"prettyPrint": "perhaps"})) == ["prettyPrint"]
