"""Answers that the page's readers share: never across rights, never older than what was done. Real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.controller.calls.web.test_web import PAGE, Site
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.web import BODY, WITHIN_S, context, running
from tests.support.stubs import cluster_stub, job_stub

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast.v1 import access_pb2, cluster_pb2, job_pb2
from holdfast_controller.core.access.rules import ANSWERED_ALIKE, RULES
from holdfast_controller.shell.base.config import ControllerConfig, WebConfig
from holdfast_controller.shell.rest import guards, shared_answers
from holdfast_controller.shell.services import cluster_service
from holdfast_controller.shell.web import application
from holdfast_controller.shell.web.page_files import PageFiles

USERS = {"vera": "vision", "elsa": "speech", "otto": "vision"}
SECRET = {"name": "API_TOKEN", "value": "hunter2"}
LISTS = (
    "/v1/jobs?view=ROW&newest=true&pageSize=50",
    "/v1/status",
    "/v1/shares",
    "/v1/goodput?by=project",
    "/v1/goodput?by=owner",
)


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    folder = certificates.directory
    for name in USERS:
        if f"user/{name}" not in certificates.files:
            certificates.files[f"user/{name}"] = pki.issue(folder, Identity("test", Kind.USER, name), folder, name)
    config = dataclasses.replace(config, admins=("ann",), web=WebConfig(listen="127.0.0.1:0"))
    async with running(config, certificates) as (controller, port):
        served = Site(controller, port)
        for name, project in USERS.items():
            await grant(served, name, project)
        yield served


async def grant(site: Site, name: str, project: str) -> None:
    role = access_pb2.Grant(project=project, role=access_pb2.ROLE_USER)
    await site.people.AddUser(access_pb2.AddUserRequest(name=name, grant=role), timeout=WITHIN_S)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shared answers of each controller that starts."""
    made: list[Any] = []
    begin = shared_answers.SharedAnswers.__init__

    def noted(self: Any, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        made.append(self)

    monkeypatch.setattr(shared_answers.SharedAnswers, "__init__", noted)
    monkeypatch.setattr(shared_answers, "FRESH_S", 3600.0)
    return made


async def submitted(browser: httpx.AsyncClient, project: str, **pool: Any) -> str:
    spec = {"workerPoolSpecs": [{"replicaCount": 1, "processSpec": {"command": ["train"], **pool}}]}
    made = await browser.post("/v1/jobs", json=BODY | {"project": project, "jobSpec": spec})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def test_readers_with_equal_rights_get_the_same_bytes_of_one_rendering(
    rendered: list[Any], site: Site
) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        await submitted(vera, "vision")
        shared = rendered[0]
        before = shared.rendered
        answers = await asyncio.gather(*(each.get(LISTS[0]) for each in (vera, otto) for _ in range(20)))
    assert len({answer.content for answer in answers}) == 1 and answers[0].json()["jobs"]
    assert shared.rendered - before == 1


async def test_two_users_with_different_rights_never_share(rendered: list[Any], site: Site) -> None:
    async with (
        site.signed_in("user/vera") as vera,
        site.signed_in("user/elsa") as elsa,
        site.signed_in("user/ann") as ann,
    ):
        hers, other = await submitted(vera, "vision"), await submitted(elsa, "speech")
        for path in LISTS:
            # Whoever asks first: what is remembered of the one is not for the other.
            for order in ((vera, elsa, ann), (elsa, ann, vera), (ann, vera, elsa)):
                told = {reader: (await reader.get(path)).text for reader in order}
                assert told == {reader: (await reader.get(path)).text for reader in order}, "it is remembered"
                for reader, project, unseen in ((vera, "speech", other), (elsa, "vision", hers)):
                    assert project not in told[reader]
                    assert f'"id":"{unseen}"' not in told[reader]
        answers = [await reader.get(f"/v1/jobs/{hers}") for reader in (vera, ann, elsa, vera, elsa)]
        assert [answer.status_code for answer in answers] == [200, 200, 404, 200, 404]
        assert [(await elsa.get(f"/v1/jobs/{hers}{part}")).status_code for part in ("/goodput", "/series")] == [
            404
        ] * 2


async def test_who_sees_the_same_shares_it_whatever_the_role(
    rendered: list[Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer that is shared says what its reader may do: each role's own rendering has the same bytes."""
    for name, role in (("elsa", access_pb2.ROLE_VIEWER), ("otto", access_pb2.ROLE_ADMIN)):
        grant = access_pb2.Grant(project="vision", role=role)
        await site.people.RemoveUser(access_pb2.RemoveUserRequest(name=name, project=USERS[name]), timeout=WITHIN_S)
        await site.people.AddUser(access_pb2.AddUserRequest(name=name, grant=grant), timeout=WITHIN_S)
    async with (
        site.signed_in("user/vera") as vera,
        site.signed_in("user/elsa") as elsa,
        site.signed_in("user/otto") as otto,
    ):
        job = await submitted(vera, "vision", env=[SECRET])
        readers, paths = (elsa, otto), (*LISTS, f"/v1/jobs/{job}", f"/v1/jobs/{job}/goodput", "/v1/hosts")
        before = rendered[0].rendered
        shared = {path: [(await reader.get(path)).json() for reader in readers] for path in paths}
        assert rendered[0].rendered - before == len(paths)
        monkeypatch.setattr(shared_answers, "FRESH_S", 0.0)
        apart = {path: [(await reader.get(path)).json() for reader in readers] for path in paths}
        assert rendered[0].rendered - before == 3 * len(paths)
        for path in paths:
            assert shared[path][0] == shared[path][1], path
            assert apart[path][0] == apart[path][1], path


async def test_what_only_an_owner_sees_of_a_job_is_for_the_owner_alone(rendered: list[Any], site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        job = await submitted(vera, "vision", env=[SECRET])
        for reader, sees in ((vera, True), (otto, False), (vera, True), (otto, False)):
            for _ in range(2):
                assert ("hunter2" in (await reader.get(f"/v1/jobs/{job}")).text) is sees


async def test_rights_that_change_or_end_count_from_the_next_answer_on(rendered: list[Any], site: Site) -> None:
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        await submitted(vera, "vision")
        first = [(await reader.get(LISTS[0])).json()["jobs"] for reader in (vera, otto)]
        assert first[0] == first[1] != []
        await site.people.RemoveUser(access_pb2.RemoveUserRequest(name="otto"), timeout=WITHIN_S)
        assert (await otto.get(LISTS[0])).status_code == 401
        assert (await vera.get(LISTS[0])).json()["jobs"] == first[0]


async def test_a_user_who_is_removed_while_waiting_for_an_answer_gets_none(
    rendered: list[Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "SHARE", 1e9)
    monkeypatch.setattr(shared_answers, "BURST_S", 0.0)
    monkeypatch.setattr(shared_answers, "LONGEST_S", 3.0)
    async with site.signed_in("user/vera") as vera, site.signed_in("user/otto") as otto:
        await otto.get(LISTS[0])
        await submitted(vera, "vision")
        waiting = asyncio.get_running_loop().create_task(otto.get(LISTS[0]))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await site.people.RemoveUser(access_pb2.RemoveUserRequest(name="otto"), timeout=WITHIN_S)
        with pytest.raises(httpx.HTTPError):
            (await waiting).raise_for_status()


async def test_what_was_done_before_a_question_is_in_its_answer_whoever_did_it(
    rendered: list[Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_service, "COUNT_S", WITHIN_S)  # no count takes so long that it serves the next call
    jobs = job_stub(site.controller.channel("user/ann"))
    async with site.signed_in("user/vera") as vera:
        for number in range(1, 6):
            request = job_pb2.CreateJobRequest(job=_job("vision"))
            made = (await jobs.CreateJob(request, timeout=WITHIN_S)).job.id
            listed = [row["id"] for row in (await vera.get(LISTS[0])).json()["jobs"]]
            assert len(listed) == number and made in listed
            assert (await vera.get("/v1/status")).json()["jobs"]["QUEUED"] == number


def _job(project: str) -> job_pb2.CustomJob:
    job = job_pb2.CustomJob(project=project)
    job.job_spec.worker_pool_specs.add(replica_count=1).process_spec.command.append("train")
    return job


async def test_who_waits_takes_no_place_among_the_calls(
    rendered: list[Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More wait than there are places, and a call beside them is served."""
    monkeypatch.setattr(shared_answers, "SHARE", 1e9)
    monkeypatch.setattr(shared_answers, "BURST_S", 0.0)
    monkeypatch.setattr(shared_answers, "LONGEST_S", 1.0)
    limits = httpx.Limits(max_connections=200)
    files = site.controller.certificates.files["user/ann"]
    async with site.signed_in("user/vera") as vera:
        await vera.get("/v1/status")
        await submitted(vera, "vision")
        many = httpx.AsyncClient(
            base_url=vera.base_url,
            verify=context(files, certificate=False),
            trust_env=False,
            timeout=WITHIN_S,
            headers=PAGE,
            cookies=vera.cookies,
            limits=limits,
        )
        async with many:
            waiting = [
                asyncio.get_running_loop().create_task(many.get("/v1/status"))
                for _ in range(application.MAX_CALLS + 20)
            ]
            await asyncio.sleep(0.3)
            assert (await vera.get("/v1/me")).status_code == 200
            assert {(await each).status_code for each in waiting} == {200}


async def test_a_reader_that_takes_nothing_is_cut_off(
    certificates: Certificates, config: ControllerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for much at once over one connection, and never reads."""
    assets = tmp_path / "page/assets"
    assets.mkdir(parents=True)
    (assets / "big.js").write_bytes(b"x" * (1 << 20))
    monkeypatch.setattr(application, "PageFiles", lambda: PageFiles(tmp_path / "page"))
    monkeypatch.setattr(guards, "SEND_S", 0.2)
    config = dataclasses.replace(config, admins=("ann",), web=WebConfig(listen="127.0.0.1:0"))
    async with running(config, certificates) as (_, port), asyncio.timeout(WITHIN_S):
        tls = context(certificates.files["user/ann"], certificate=False)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=tls, limit=1)
        asked = f"GET /assets/big.js HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        writer.write(asked * 40)
        await asyncio.sleep(1.0)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                taken += len(data)
        assert taken < 40 << 20, "the rest was not sent"
        writer.close()


async def test_what_is_a_users_own_in_a_list_is_not_for_another_of_the_same_projects(
    rendered: list[Any], site: Site
) -> None:
    cluster = cluster_stub(site.controller.channel("user/ann"))
    async with (
        site.controller.agent("host-0"),
        site.signed_in("user/vera") as vera,
        site.signed_in("user/otto") as otto,
    ):
        limits = cluster_pb2.QuotaLimits(gpus=7)
        await cluster.SetQuota(cluster_pb2.SetQuotaRequest(user="vera", limits=limits), timeout=WITHIN_S)
        mine = cluster_pb2.Reservation(name="mine", count=1, user="vera", reason="a paper")
        mine.end.FromSeconds(int(time.time()) + 3600)
        await cluster.CreateReservation(cluster_pb2.CreateReservationRequest(reservation=mine), timeout=WITHIN_S)
        for order in ((vera, otto), (otto, vera)):
            for path, said in (("/v1/quotas", '"user":"vera"'), ("/v1/reservations", "a paper")):
                told = {reader: (await reader.get(path)).text for reader in order}
                assert said in told[vera] and said not in told[otto], path


def test_what_readers_share_is_named_and_exists() -> None:
    assert RULES.keys() >= ANSWERED_ALIKE
    assert not any(RULES[call].changes for call in ANSWERED_ALIKE)
