"""Each address of the page by each sort of signed-in caller: the rights are those of the gRPC call behind it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast

import httpx
import pytest
from tests.integration.controller.access_table import expected
from tests.integration.controller.calls.web.test_web import Site
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.web import BODY, WITHIN_S, running

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast.v1 import access_pb2
from holdfast_controller.shell.base.config import ControllerConfig, WebConfig
from holdfast_controller.shell.rest.calls import Calls
from holdfast_controller.shell.rest.page_routes import page_routes
from holdfast_controller.shell.rest.routes import routes

CUSTOM_JOBS = "/v1/projects/{project}/locations/{location}/customJobs"
CALLS = {
    "GET /v1/jobs": "JobService/ListJobs",
    "POST /v1/jobs": "JobService/CreateJob",
    "GET /v1/jobs/{id}": "JobService/GetJob",
    "GET /v1/jobs/{id}:watch": "JobService/WatchJob",
    "GET /v1/jobs/{id}:logs": "JobService/StreamLogs",
    "GET /v1/jobs/{id}/series": "JobService/GetSeries",
    "GET /v1/jobs/{id}/goodput": "JobService/GetGoodput",
    "POST /v1/jobs/{id}:cancel": "JobService/CancelJob",
    "POST /v1/jobs/{id}:restart": "JobService/RestartJob",
    "POST /v1/jobs/{id}:pause": "JobService/PauseJob",
    "POST /v1/jobs/{id}:resume": "JobService/ResumeJob",
    "POST /v1/jobs/{id}:hold": "HangService/HoldJob",
    "POST /v1/jobs/{id}:stacks": "HangService/TakeStacks",
    "POST /v1/jobs/{id}:shell": "JobService/OpenShell",
    "POST /v1/jobs/{id}:writeShell": "JobService/WriteShell",
    "GET /v1/jobs/{id}/hangs/{number:int}/evidence": "HangService/GetHangEvidence",
    "GET /v1/goodput": "ClusterService/SumGoodput",
    "GET /v1/status": "ClusterService/GetStatus",
    "GET /v1/usage": "ClusterService/GetStatus",
    "GET /v1/shares": "ClusterService/ListShares",
    "GET /v1/quotas": "ClusterService/ListQuotas",
    "GET /v1/reservations": "ClusterService/ListReservations",
    "DELETE /v1/reservations/{name}": "ClusterService/DeleteReservation",
    "GET /v1/changes": "ClusterService/WatchChanges",
    "GET /v1/hosts": "HostService/ListHosts",
    "GET /v1/hosts/{name}": "HostService/GetHost",
    "GET /v1/hosts/{name}/events": "HostService/ListHostEvents",
    "POST /v1/hosts/{name}:cordon": "HostService/Cordon",
    "POST /v1/hosts/{name}:uncordon": "HostService/Uncordon",
    "POST /v1/hosts/{name}:drain": "HostService/Drain",
    "POST /v1/hosts/{name}:check": "HostService/CheckHost",
    "GET /v1/schedules": "ScheduleService/ListSchedules",
    "POST /v1/schedules": "ScheduleService/CreateSchedule",
    "POST /v1/schedules/{project}/{name}:pause": "ScheduleService/PauseSchedule",
    "POST /v1/schedules/{project}/{name}:resume": "ScheduleService/ResumeSchedule",
    "DELETE /v1/schedules/{project}/{name}": "ScheduleService/RemoveSchedule",
    "GET /v1/templates": "ScheduleService/ListTemplates",
    "POST /v1/templates": "ScheduleService/CreateTemplate",
    "DELETE /v1/templates/{project}/{name}": "ScheduleService/RemoveTemplate",
    "GET /v1/me": "AccessService/GetCaller",
    "GET /v1/users": "AccessService/ListUsers",
    "GET /v1/audit": "AccessService/ReadAudit",
    "GET /v1/sessions": "WebService/ListSessions",
    "DELETE /v1/sessions/{id}": "WebService/EndSession",
    f"DELETE {CUSTOM_JOBS}/{{id}}": "JobService/DeleteJob",
}
"""The gRPC method of each address."""
NUMBERS = itertools.count()
"""A template is its maker's to change, so each caller makes one of another name."""
USERS = {"viewer": "vera", "elsewhere": "elsa", "other": "otto", "void": "vic", "owner": "owen", "admin": "ann"}
"""By sort of caller; those who may do the most come last."""
ROLES = {
    "vera": ("vision", 1),
    "elsa": ("speech", 1),
    "otto": ("vision", 2),
    "owen": ("vision", 2),
    "vic": ("*", 3),
}


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    folder = certificates.directory
    for name in USERS.values():
        if f"user/{name}" not in certificates.files:
            certificates.files[f"user/{name}"] = pki.issue(folder, Identity("test", Kind.USER, name), folder, name)
    config = dataclasses.replace(config, admins=("ann",), web=WebConfig(listen="127.0.0.1:0"))
    async with running(config, certificates) as (controller, port):
        yield Site(controller, port)


def addresses() -> list[str]:
    """Method and path of each address, those of managed services by their short form where there is one.

    What is not below /v1 is the document there, the same for everyone.
    """
    calls = cast("Calls", None)
    found = set()
    for route in (*page_routes(calls), *routes(calls)):
        if not route.path.startswith("/v1/"):
            continue
        method = next(iter(set(route.methods or ()) - {"HEAD"}))
        short = f"{method} {route.path.replace(CUSTOM_JOBS, '/v1/jobs')}"
        found.add(short if short in CALLS else f"{method} {route.path}")
    return sorted(found)


def test_every_address_has_a_row() -> None:
    assert addresses() == sorted(CALLS)
    assert set(CALLS.values()) <= set(expected())


def mark(status: int, said: str) -> str:
    match status:
        case 401:
            return "U"
        case 403:
            return "D"
        case 404 if "There is no job" in said:
            return "N"
        case 500:
            return "?"
        case _:
            return "+"


async def answer(browser: httpx.AsyncClient, address: str, job: str) -> str:
    """The beginning of what the address answers, streams included."""
    method, _, path = address.partition(" ")
    project = "-" if path.startswith(CUSTOM_JOBS) else "vision"
    for name, value in (
        ("id", job),
        ("number:int", "1"),
        ("name", "nowhere"),
        ("project", project),
        ("location", "-"),
    ):
        path = path.replace(f"{{{name}}}", value)
    submitted = BODY | {"project": "vision"}
    content: Any = {
        "POST /v1/jobs": submitted,
        "POST /v1/jobs/{id}:hold": {"duration": "2h"},
        "POST /v1/schedules": submitted,
        "POST /v1/templates": submitted,
    }
    asked = {
        "POST /v1/schedules": {"name": "nightly", "cron": "@daily"},
        "POST /v1/templates": {"name": f"base-{next(NUMBERS)}"},
    }
    no_body = address.endswith((":pause", ":resume")) and "/schedules/" in address
    sent = {"json": content.get(address, {})} if method == "POST" and not no_body else {}
    async with browser.stream(method, path, params=asked.get(address), **sent) as response:
        said = "" if response.status_code == 200 else (await response.aread()).decode()
        return mark(response.status_code, said)


async def test_each_address_is_for_those_who_may_make_its_call(site: Site) -> None:
    for name, (project, role) in ROLES.items():
        grant = access_pb2.Grant(project=project, role=role)  # type: ignore[arg-type]
        await site.people.AddUser(access_pb2.AddUserRequest(name=name, grant=grant), timeout=WITHIN_S)
    wrong, rows = [], expected()
    async with AsyncExitStack() as signed_in:
        browsers = {
            caller: await signed_in.enter_async_context(site.signed_in(f"user/{name}"))
            for caller, name in USERS.items()
        }
        browsers["none"] = await signed_in.enter_async_context(site.browser())
        await site.people.RemoveUser(access_pb2.RemoveUserRequest(name="vic"), timeout=WITHIN_S)
        for address in addresses():
            made = await browsers["owner"].post("/v1/jobs", json=BODY | {"project": "vision"})
            for caller, browser in browsers.items():
                found = await answer(browser, address, made.json()["id"])
                promised = "U" if caller == "none" else rows[CALLS[address]][caller]
                if found != promised:
                    wrong.append(f"{address} by {caller}: {found}, not {promised}")
    assert not wrong
