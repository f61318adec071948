"""The web page's listener: who gets in, what an outsider gets, and when it ends. Real TLS, real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.controller.cluster import Certificates, Controller, refusal
from tests.integration.controller.web import BODY, WITHIN_S, context, running
from tests.support.stubs import access_stub, web_stub

from holdfast.errors import ConfigError
from holdfast.v1 import access_pb2, web_pb2
from holdfast_controller.core.model.accounts import web_sessions
from holdfast_controller.shell.base.config import ControllerConfig, WebConfig
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.web.browsers import COOKIE

PAGE = {"X-Holdfast": "page", "Sec-Fetch-Site": "same-origin"}


class Site:
    """A controller with the page, whose only admin is ann; and browsers, none of which has a certificate."""

    def __init__(self, controller: Controller, port: int) -> None:
        self.controller, self.port = controller, port
        self.people = access_stub(controller.channel("user/ann"))

    def browser(self, **headers: str) -> httpx.AsyncClient:
        files = self.controller.certificates.files["user/ann"]
        return httpx.AsyncClient(
            base_url=f"https://localhost:{self.port}",
            verify=context(files, certificate=False),
            trust_env=False,
            timeout=WITHIN_S,
            headers=PAGE | headers,
        )

    async def code(self, who: str) -> str:
        made = await web_stub(self.controller.channel(who)).CreateLogin(
            web_pb2.CreateLoginRequest(), timeout=WITHIN_S
        )
        assert made.port == self.port and made.host == ""
        return str(made.code)

    @asynccontextmanager
    async def signed_in(self, who: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        async with self.browser(**headers) as browser:
            answer = await browser.post("/web/login", json={"code": await self.code(who)})
            assert (answer.status_code, answer.json()["user"]) == (200, who.partition("/")[2])
            yield browser

    async def add_bob(self, role: access_pb2.Role.ValueType = access_pb2.ROLE_USER) -> None:
        grant = access_pb2.Grant(project="default", role=role)
        await self.people.AddUser(access_pb2.AddUserRequest(name="bob", grant=grant), timeout=WITHIN_S)

    async def remove_bob(self) -> None:
        await self.people.RemoveUser(access_pb2.RemoveUserRequest(name="bob"), timeout=WITHIN_S)


@pytest.fixture
def config(config: ControllerConfig) -> ControllerConfig:
    return dataclasses.replace(config, admins=("ann",), web=WebConfig(listen="127.0.0.1:0"))


async def _served(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    async with running(config, certificates) as (controller, port):
        yield Site(controller, port)


@pytest.fixture
async def site(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Site]:
    async for served in _served(config, certificates):
        yield served


async def test_a_code_signs_one_browser_in_once(site: Site) -> None:
    code = await site.code("user/ann")
    async with site.browser() as browser, site.browser() as thief:
        assert (await browser.get("/v1/status")).status_code == 401
        answer = await browser.post("/web/login", json={"code": code})
        assert answer.status_code == 200 and answer.json()["user"] == "ann"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert cookie.endswith("; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=604800")
        assert code not in cookie
        assert (await browser.get("/v1/status")).status_code == 200
        again = await thief.post("/web/login", json={"code": code})
        assert again.status_code == 401 and "holdfast web" in again.text and "set-cookie" not in again.headers
        assert (await thief.get("/v1/status")).status_code == 401


async def test_old_and_forged_codes_sign_no_browser_in(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    code = await site.code("user/ann")
    async with site.browser() as browser:
        bodies: tuple[Any, ...] = ({}, {"code": 7}, {"code": None}, [], "x")
        for body in bodies:
            assert (await browser.post("/web/login", json=body)).status_code == 400
        assert (await browser.post("/web/login", data={"code": code})).status_code == 415
        assert (await browser.post("/web/login", json={"code": code * 200})).status_code == 413
        monkeypatch.setattr(web_sessions, "CODE_S", 0.0)
        assert (await browser.post("/web/login", json={"code": code})).status_code == 401
        for _ in range(12):
            last = await browser.post("/web/login", json={"code": "x" * 43})
        assert last.status_code == 429


async def test_what_the_page_asks_is_held_to_the_rights_of_its_user(site: Site) -> None:
    await site.add_bob(access_pb2.ROLE_VIEWER)
    async with site.signed_in("user/ann") as ann, site.signed_in("user/bob") as bob:
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        assert (await bob.get(f"/v1/jobs/{job}")).status_code == 200
        assert (await bob.post(f"/v1/jobs/{job}:cancel", json={})).status_code == 403
        assert (await ann.post(f"/v1/jobs/{job}:cancel", json={})).status_code == 200
    read = await site.people.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    told = {(entry.who, entry.call, entry.outcome, entry.peer.partition(" ")[2]) for entry in read.entries}
    assert ("user/bob", "JobService/CancelJob", "PERMISSION_DENIED", "(web)") in told
    assert ("user/ann", "JobService/CancelJob", "OK", "(web)") in told


async def test_streams_that_act_are_on_record_as_other_calls_are(site: Site) -> None:
    await site.add_bob(access_pb2.ROLE_VIEWER)
    async with site.signed_in("user/ann") as ann, site.signed_in("user/bob") as bob:
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        for browser, status in ((ann, 400), (bob, 403)):
            assert (await browser.post(f"/v1/jobs/{job}:stacks", json={})).status_code == status
    read = await site.people.ReadAudit(access_pb2.ReadAuditRequest(), timeout=WITHIN_S)
    told = [entry for entry in read.entries if entry.call == "HangService/TakeStacks"]
    assert [(entry.who, entry.outcome) for entry in told] == [
        ("user/ann", "FAILED_PRECONDITION"),
        ("user/bob", "PERMISSION_DENIED"),
    ]
    assert told[0].message and told[0].target == f"job/{job}"


async def test_outsiders_get_the_document_and_its_files_alone(site: Site) -> None:
    async with site.browser() as browser:
        for path in ("/", "/jobs/x", "/login"):
            answer = await browser.get(path)
            assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
            assert answer.headers["cache-control"] == "no-cache"
        for path in ("/v1/jobs", "/v1/hosts", "/v1/me", "/v1/nothing"):
            answer = await browser.get(path)
            assert answer.status_code == 401 and answer.headers["cache-control"] == "no-store"
        for path in ("/assets/nothing.js", "/assets/..%2f..%2fcontroller.toml", "/web/nothing"):
            assert (await browser.get(path)).status_code == 404
        assert (await browser.get("/metrics")).headers["content-type"].startswith("text/html")


async def test_every_answer_forbids_frames_scripts_of_others_and_sniffing(site: Site) -> None:
    async with site.browser() as browser:
        answers = [
            await browser.get("/"),
            await browser.get("/v1/jobs"),
            await browser.get("/assets/x.js"),
            await browser.get("/", headers={"Host": "evil.example"}),
            await browser.post("/web/login", json={"code": "x"}),
        ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
    ],
)
async def test_pages_of_other_origins_neither_read_nor_act(site: Site, headers: dict[str, str]) -> None:
    async with site.signed_in("user/ann") as ann:
        assert (await ann.get("/v1/jobs", headers=headers)).status_code == 403
        assert (await ann.post("/v1/jobs", json=BODY, headers=headers)).status_code == 403
        assert (await ann.post("/web/login", json={"code": "x"}, headers=headers)).status_code == 403
        assert (await ann.post("/web/logout", json={}, headers=headers)).status_code == 403
        assert (await ann.get("/v1/jobs")).json()["jobs"] == []


async def test_a_call_without_the_pages_header_is_refused(site: Site) -> None:
    async with site.signed_in("user/ann") as ann:
        del ann.headers["X-Holdfast"]
        assert (await ann.get("/v1/jobs")).status_code == 403
        assert (await ann.post("/v1/jobs", json=BODY)).status_code == 403
        preflight = await ann.options("/v1/jobs", headers={"Origin": "https://evil.example"})
        assert preflight.status_code == 403


async def test_links_from_chat_open_the_document_and_frames_and_pictures_of_it_are_refused(site: Site) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    async with site.browser() as browser:
        link = cross | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert (await browser.get("/jobs/train-x", headers=link)).status_code == 200
        framed = cross | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert (await browser.get("/jobs/train-x", headers=framed)).status_code == 403
        loaded = cross | {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
        assert (await browser.get("/assets/app.js", headers=loaded)).status_code == 403


async def test_a_name_that_points_here_without_being_ours_is_refused(site: Site) -> None:
    async with site.signed_in("user/ann") as ann:
        for host in ("evil.example", f"evil.example:{site.port}", "localhost.evil.example", "", "[::1]"):
            assert (await ann.get("/v1/jobs", headers={"Host": host})).status_code == 421
            assert (await ann.get("/", headers={"Host": host})).status_code == 421


async def test_two_cookies_of_our_name_or_credentials_in_a_header_are_no_session(site: Site) -> None:
    async with site.signed_in("user/ann") as ann:
        value = ann.cookies[COOKIE]
    async with site.browser() as other:
        one = {"Cookie": f"theme=dark; {COOKIE}={value}"}
        assert (await other.get("/v1/jobs", headers=one)).status_code == 200
        for headers in (
            {"Cookie": f"{COOKIE}={value}; {COOKIE}=planted"},
            {"Cookie": f"{COOKIE}=planted; {COOKIE}={value}"},
            {"Cookie": f"{COOKIE.lower()}={value}"},
            {"Cookie": f"holdfast={value}"},
            {"Authorization": f"Bearer {value}"},
            {"Cookie": f"{COOKIE}="},
        ):
            assert (await other.get("/v1/jobs", headers=headers)).status_code == 401


async def test_a_removed_users_open_page_ends_at_once(site: Site) -> None:
    await site.add_bob()
    waiting = await site.code("user/bob")
    async with site.signed_in("user/bob") as bob:
        job = (await bob.post("/v1/jobs", json=BODY)).json()["id"]
        async with bob.stream("GET", f"/v1/jobs/{job}:watch") as watching:
            lines = watching.aiter_lines()
            assert "JobSubmitted" in await anext(lines)
            await site.remove_bob()
            async with asyncio.timeout(WITHIN_S):
                with pytest.raises(httpx.HTTPError):
                    async for _ in lines:
                        pass
        assert (await bob.get("/v1/jobs")).status_code == 401
        await site.add_bob()
        assert (await bob.get("/v1/jobs")).status_code == 401
        assert (await bob.post("/web/login", json={"code": waiting})).status_code == 401
    sessions = web_stub(site.controller.channel("user/ann"))
    listed = await sessions.ListSessions(web_pb2.ListSessionsRequest(all=True), timeout=WITHIN_S)
    assert list(listed.sessions) == []


async def test_sessions_are_listed_and_ended_by_their_user_and_by_admins(site: Site) -> None:
    await site.add_bob()
    firefox = {"User-Agent": "Firefox"}
    mine, theirs = (web_stub(site.controller.channel(who)) for who in ("user/bob", "user/ann"))
    async with site.signed_in("user/ann") as ann, site.signed_in("user/bob", **firefox) as bob:
        (listed,) = (await mine.ListSessions(web_pb2.ListSessionsRequest(), timeout=WITHIN_S)).sessions
        assert (listed.user, listed.agent, listed.address) == ("bob", "Firefox", "127.0.0.1")
        everyone = (await theirs.ListSessions(web_pb2.ListSessionsRequest(all=True), timeout=WITHIN_S)).sessions
        assert [each.user for each in everyone] == ["ann", "bob"]
        error = await refusal(mine.ListSessions(web_pb2.ListSessionsRequest(all=True), timeout=WITHIN_S))
        assert "admins" in str(error[1])
        anns = web_pb2.EndSessionRequest(id=everyone[0].id, user="ann")
        assert "admins" in str((await refusal(mine.EndSession(anns, timeout=WITHIN_S)))[1])
        own = web_pb2.EndSessionRequest(id=everyone[0].id)
        assert "no browser session" in str((await refusal(mine.EndSession(own, timeout=WITHIN_S)))[1])
        job = (await bob.post("/v1/jobs", json=BODY)).json()["id"]
        async with bob.stream("GET", f"/v1/jobs/{job}:watch") as watching:
            lines = watching.aiter_lines()
            await anext(lines)
            await theirs.EndSession(web_pb2.EndSessionRequest(id=listed.id, user="bob"), timeout=WITHIN_S)
            async with asyncio.timeout(WITHIN_S):
                with pytest.raises(httpx.HTTPError):
                    async for _ in lines:
                        pass
        assert (await bob.get("/v1/jobs")).status_code == 401
        assert (await ann.get("/v1/jobs")).status_code == 200
        assert (await ann.post("/web/logout", json={})).status_code == 200
        assert (await ann.get("/v1/jobs")).status_code == 401


async def test_another_users_code_is_not_taken_by_a_browser_that_is_signed_in(site: Site) -> None:
    await site.add_bob()
    async with site.signed_in("user/ann") as ann:
        answer = await ann.post("/web/login", json={"code": await site.code("user/bob")})
        assert answer.status_code == 400 and "signed in as ann" in answer.text
        before = ann.cookies[COOKIE]
        again = await ann.post("/web/login", json={"code": await site.code("user/ann")})
        assert again.status_code == 200 and ann.cookies[COOKIE] != before
        old = {"Cookie": f"{COOKIE}={before}"}
        async with site.browser() as other:
            assert (await other.get("/v1/jobs", headers=old)).status_code == 401


async def test_a_session_outlives_the_controller_and_an_idle_one_ends(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async for site in _served(config, certificates):
        async with site.signed_in("user/ann") as ann:
            cookie = ann.cookies[COOKIE]
    async for site in _served(config, certificates):
        async with site.browser() as browser:
            kept = {"Cookie": f"{COOKIE}={cookie}"}
            assert (await browser.get("/v1/jobs", headers=kept)).status_code == 200
            monkeypatch.setattr(web_sessions, "IDLE_S", -1.0)
            assert (await browser.get("/v1/jobs", headers=kept)).status_code == 401


async def test_without_a_page_no_code_is_given_and_the_setting_is_named(
    config: ControllerConfig, certificates: Certificates
) -> None:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(dataclasses.replace(config, web=WebConfig()), ready.set_result))
        controller = Controller(await ready, certificates)
        stub = web_stub(controller.channel("user/ann"))
        _, error = await refusal(stub.CreateLogin(web_pb2.CreateLoginRequest(), timeout=WITHIN_S))
        assert "[web]" in str(error)
        await controller.close()
        serving.cancel()


def test_half_a_certificate_for_browsers_or_no_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="go together"):
        WebConfig(cert=tmp_path / "web.pem")
    with pytest.raises(ConfigError, match="HOST:PORT"):
        WebConfig(listen="7445")


async def test_a_session_has_so_many_streams_and_calls_go_on_beside_them(site: Site) -> None:
    async with site.signed_in("user/ann") as ann:
        job = (await ann.post("/v1/jobs", json=BODY)).json()["id"]
        streams: list[Any] = []
        for _ in range(8):
            stream = ann.stream("GET", f"/v1/jobs/{job}:watch")
            streams.append((stream, await stream.__aenter__()))
        assert {answer.status_code for _, answer in streams} == {200}
        more = await ann.get(f"/v1/jobs/{job}:watch")
        assert more.status_code == 503 and "8 streams" in more.text
        began = time.monotonic()
        assert (await ann.get("/v1/jobs")).status_code == 200
        assert time.monotonic() - began < WITHIN_S
        for stream, _ in streams:
            await stream.__aexit__(None, None, None)
