"""Joining, logging in and renewing against a real controller: what works, and how the rest is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller
from tests.support.stubs import access_stub, enrolment_stub

from holdfast._base.identity import Identity, Kind
from holdfast._security import certificate, pki, tls
from holdfast._security.enrolment import requests, tokens
from holdfast._security.enrolment.enrol import Enrolled, Line, join, log_in
from holdfast._security.enrolment.renew import renew
from holdfast._security.tls import TlsFiles
from holdfast.client import Client
from holdfast.errors import ConfigError, Denied, InvalidInput, NotFound, Unauthenticated, Unavailable
from holdfast.settings import load
from holdfast.v1 import access_pb2, enrolment_pb2, enrolment_pb2_grpc
from holdfast_agent.shell import config as agent_config
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.enrolment import service

pytestmark = pytest.mark.anyio
DAY_S = 86_400.0


@pytest.fixture
def config(config: ControllerConfig, certificates: Certificates) -> ControllerConfig:
    enrolment = {"ca_directory": certificates.directory, "enrolment_listen": "127.0.0.1:0"}
    return dataclasses.replace(config, **enrolment)  # type: ignore[arg-type]


@dataclasses.dataclass
class Site:
    """A cluster, its admin ann, and folders for new hosts and users."""

    controller: Controller
    admin: Client
    root: Path

    async def line(self, *, ttl_s: float | None = None, host: str | None = "", user: str | None = None) -> Line:
        """What an admin hands out."""
        made = await self.admin.access.create_token(host=host, user=user, ttl_s=ttl_s)
        return Line(made.enrolment, made.token, made.ca_hash)

    async def joins(self, line: Line, name: str = "h1", clock: Callable[[], float] = time.time) -> Enrolled:
        home = self.root / name
        dirs = {"state_dir": home / "state", "log_dir": home / "logs"}
        return await asyncio.to_thread(join, line, name, home, clock=clock, **dirs)

    async def logs_in(self, line: Line, folder: str = "bob") -> Enrolled:
        return await asyncio.to_thread(log_in, line, self.root / folder)

    async def stranger(self) -> Any:
        """The enrolment service for a caller without a certificate."""
        line = await self.line()
        ca = self.controller.certificates.files["user/ann"].ca.read_bytes()
        options = [("grpc.ssl_target_name_override", tls.SERVER_NAME)]
        link = grpc.aio.secure_channel(line.address, grpc.ssl_channel_credentials(ca), options)
        self.controller.channels.append(link)
        return enrolment_stub(link)

    def files(self, name: str) -> TlsFiles:
        home = self.root / name
        return TlsFiles(home / "ca.pem", home / "agent.pem", home / "agent.key")


@pytest.fixture
async def site(controller: Controller, certificates: Certificates, tmp_path: Path) -> AsyncIterator[Site]:
    ann = certificates.files["user/ann"]
    path = tmp_path / "ann.toml"
    keys = {"controller": f"127.0.0.1:{controller.port}", "ca": ann.ca, "cert": ann.cert, "key": ann.key}
    path.write_text("".join(f'{name} = "{value}"\n' for name, value in keys.items()))
    async with Client(load(path)) as admin:
        yield Site(controller, admin, tmp_path / "new")


async def test_a_host_joins_by_one_line_and_its_agent_is_let_in(site: Site) -> None:
    done = await site.joins(await site.line())
    assert (done.name, done.cluster, done.controller) == ("h1", "test", f"127.0.0.1:{site.controller.port}")
    assert 0.9 * DAY_S < done.ends_at - time.time() < 1.1 * DAY_S
    key = site.root / "h1/agent.key"
    assert [stat.S_IMODE(file.stat().st_mode) for file in (key, done.settings)] == [0o600, 0o600]
    settings = agent_config.load(done.settings)
    agent_config.check_certificate(settings)
    assert settings.enrolment
    site.controller.certificates.files["host/h1"] = site.files("h1")
    async with site.controller.agent("h1") as agent:
        await agent.until(lambda a: a.said)
    assert [host.name for host in await site.admin.list_hosts()] == ["h1"]


async def test_a_user_logs_in_by_one_line(site: Site) -> None:
    await site.admin.access.add_user("ben", access_pb2.ROLE_VIEWER)
    done = await site.logs_in(await site.line(user="ben"), "ben")
    assert stat.S_IMODE((site.root / "ben").stat().st_mode) == 0o700
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in (site.root / "ben").iterdir()} == {
        "ca.pem": 0o644,
        "user.pem": 0o644,
        "user.key": 0o600,
        "client.toml": 0o600,
    }
    async with Client(load(done.settings)) as ben:
        assert (await ben.access.caller()).user.name == "ben"
        with pytest.raises(Denied, match="role of admin over all projects"):
            await ben.access.list_users()


async def test_a_removed_host_comes_back_only_with_a_new_token(site: Site) -> None:
    await site.joins(await site.line())
    await site.admin.access.remove_host("h1")
    with pytest.raises(Unauthenticated, match="certificate of host h1 is void"):
        await asyncio.to_thread(renew, (await site.line()).address, site.files("h1"))
    await site.joins(await site.line())
    site.controller.certificates.files["host/h1"] = site.files("h1")
    async with site.controller.agent("h1") as agent:
        await agent.until(lambda a: a.said)


async def test_a_token_that_was_used_is_refused_and_that_is_audited(site: Site) -> None:
    line = await site.line()
    await site.joins(line)
    with pytest.raises(Denied, match=r"was used already, by host h1\. Have another one made"):
        await site.joins(line, "h2")
    assert not (site.root / "h2").exists()
    last = (await site.admin.access.audit(refused=True))[-1]
    assert (last.call, last.target, last.outcome) == ("EnrolmentService/Enrol", "host/h2", "PERMISSION_DENIED")
    assert line.token not in str(await site.admin.access.audit())


async def test_a_token_that_has_ended_is_refused(site: Site) -> None:
    line = await site.line(ttl_s=0.001)
    with pytest.raises(Denied, match=r"has ended \d+ s ago"):
        await site.joins(line)


async def test_a_forged_and_a_mistyped_token_are_told_apart(site: Site) -> None:
    from holdfast._security.enrolment import tokens

    line = await site.line()
    with pytest.raises(Denied, match="knows no such token"):
        await site.joins(dataclasses.replace(line, token=tokens.draw()))
    slip = line.token[:10] + ("x" if line.token[10] != "x" else "y") + line.token[11:]
    with pytest.raises(InvalidInput, match="was mistyped"):
        await site.joins(dataclasses.replace(line, token=slip))


async def test_a_ca_of_another_hash_is_not_believed_and_gets_no_token(site: Site) -> None:
    line = await site.line()
    with pytest.raises(Unauthenticated, match="not the one of the line that you pasted"):
        await site.joins(dataclasses.replace(line, ca_hash="sha256:" + "0" * 64))
    with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
        await site.joins(dataclasses.replace(line, ca_hash="sha256:12"))
    assert (await site.joins(line)).name == "h1", "it was not spent"


async def test_somebody_who_shows_the_right_ca_but_has_no_certificate_of_it_gets_no_token(
    site: Site, tmp_path: Path
) -> None:
    """A machine in between may hand on the CA, which is no secret; its own certificate gives it away."""
    line = await site.line()
    directory = tmp_path / "between"
    directory.mkdir()
    pki.create_ca("test", directory)
    files = pki.issue(directory, Identity("test", Kind.CONTROLLER, "c"), directory, "c", server=True)
    asked: list[str] = []

    class Between(enrolment_pb2_grpc.EnrolmentServiceServicer):
        async def GetAuthority(self, request: Any, context: Any) -> Any:
            right = site.controller.certificates.files["user/ann"].ca.read_bytes()
            return enrolment_pb2.GetAuthorityResponse(ca=right)

        async def Enrol(self, request: Any, context: Any) -> Any:
            asked.append(request.token)
            return enrolment_pb2.EnrolResponse()

    server = grpc.aio.server()
    enrolment_pb2_grpc.add_EnrolmentServiceServicer_to_server(
        Between(),  # type: ignore[abstract]  # nothing is renewed here
        server,
    )
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(files, anyone=True))
    await server.start()
    try:
        with pytest.raises(Unauthenticated, match="may be intercepted"):
            await site.joins(dataclasses.replace(line, address=f"127.0.0.1:{port}"))
    finally:
        await server.stop(None)
    assert asked == []


async def test_the_port_for_everything_else_says_so(site: Site) -> None:
    line = dataclasses.replace(await site.line(), address=f"127.0.0.1:{site.controller.port}")
    with pytest.raises(Unavailable, match=r"issues no certificates\. Use the address of the admin's line"):
        await site.joins(line)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:0", "127.0.0.1:x", ":7444"])
async def test_an_address_that_is_none_is_refused(site: Site, address: str) -> None:
    with pytest.raises(InvalidInput, match="is not HOST:PORT"):
        await site.joins(dataclasses.replace(await site.line(), address=address))


async def test_nobody_there_is_said(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match="answers as a controller does"):
        await site.joins(dataclasses.replace(await site.line(), address=f"127.0.0.1:{port}"))


async def test_a_clock_that_is_a_day_off_is_named(site: Site) -> None:
    line = await site.line()
    with pytest.raises(ConfigError, match=r"The clock of this machine says .* begins only at .*Set the clock"):
        await site.joins(line, clock=lambda: time.time() - DAY_S)
    with pytest.raises(ConfigError, match=r"The clock of this machine is ahead of the controller's"):
        await site.joins(line, clock=lambda: time.time() + DAY_S)
    assert not (site.root / "h1").exists()


async def test_a_token_for_one_host_is_for_no_other(site: Site) -> None:
    line = await site.line(host="h7")
    with pytest.raises(Denied, match="is for host h7, not for h1"):
        await site.joins(line)
    assert (await site.joins(line, "h7")).name == "h7"


async def test_a_new_token_does_not_take_over_a_known_host(site: Site) -> None:
    await site.joins(await site.line())
    with pytest.raises(Denied, match="There is a host h1 in this cluster"):
        await site.joins(await site.line())
    again = await site.joins(await site.line(host="h1"))
    assert again.name == "h1"


async def test_a_machine_that_is_another_host_keeps_its_settings(site: Site) -> None:
    await site.joins(await site.line())
    home = site.root / "h1"
    with pytest.raises(ConfigError, match="is that of the host h1, not of h2"):
        await asyncio.to_thread(join, await site.line(), "h2", home, state_dir=home, log_dir=home)


async def test_an_agent_refuses_the_certificate_of_another_host(site: Site) -> None:
    done = await site.joins(await site.line())
    done.settings.write_text(done.settings.read_text().replace('name = "h1"', 'name = "h2"'))
    with pytest.raises(ConfigError, match=r"is the certificate of host h1, and name is 'h2'\. Correct name"):
        agent_config.check_certificate(agent_config.load(done.settings))


async def test_settings_with_an_unknown_key_are_refused(site: Site) -> None:
    done = await site.joins(await site.line())
    done.settings.write_text(done.settings.read_text() + 'enrollment = "x"\n')
    with pytest.raises(ConfigError, match="unknown key 'enrollment'"):
        agent_config.load(done.settings)


async def test_a_token_for_nobody_that_is_known_is_not_made(site: Site) -> None:
    with pytest.raises(NotFound, match="First: holdfast user add eve"):
        await site.line(user="eve")
    with pytest.raises(InvalidInput, match="at most 30m"):
        await site.line(ttl_s=1801)


async def test_the_next_certificate_is_for_the_same_key_and_name(site: Site) -> None:
    line = await site.line()
    await site.joins(line)
    files = site.files("h1")
    before, key = certificate.read(files.cert), files.key.read_bytes()
    after = await asyncio.to_thread(renew, line.address, files)
    assert after.identity == before.identity
    assert after.ends_at >= before.ends_at
    assert files.key.read_bytes() == key
    assert certificate.read(files.cert) == after


async def test_a_certificate_that_ended_last_week_is_good_for_the_next_one_and_nothing_else(
    site: Site, certificates: Certificates
) -> None:
    line = await site.line()
    await site.joins(line)
    files = site.files("h1")
    fresh, who = files.cert.read_bytes(), Identity("test", Kind.HOST, "h1")

    def ended(days: float) -> None:
        key = requests.requested_key(requests.request(_key(files)))
        life = datetime.timedelta(days=1)
        issued_at = time.time() - (days + 1) * DAY_S
        files.cert.write_bytes(pki.sign(certificates.directory, who, key, issued_at, life))

    ended(8)
    with pytest.raises(Denied, match=r"too long ago\. Join again with a token"):
        await asyncio.to_thread(renew, line.address, files)
    ended(6)
    site.controller.certificates.files["host/h1"] = files
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await access_stub(site.controller.channel("host/h1")).GetCaller(
            access_pb2.GetCallerRequest(), timeout=WITHIN_S
        )
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, "TLS lets it nowhere else"
    await asyncio.to_thread(renew, line.address, files)
    assert files.cert.read_bytes() != fresh
    async with site.controller.agent("h1") as agent:
        await agent.until(lambda a: a.said)


async def test_a_certificate_is_renewed_for_nobody_but_the_holder_of_its_key(site: Site) -> None:
    line = await site.line()
    await site.joins(line)
    await site.joins(await site.line(), "h2")
    stolen = TlsFiles(site.files("h2").ca, site.files("h1").cert, site.files("h2").key)
    with pytest.raises(Denied, match="signed with another key"):
        await asyncio.to_thread(renew, line.address, stolen)
    controllers = site.controller.certificates.files["controller"]
    with pytest.raises(Denied):
        await asyncio.to_thread(renew, line.address, controllers)


async def test_a_certificate_of_another_ca_is_not_renewed(site: Site, tmp_path: Path) -> None:
    directory = tmp_path / "foreign"
    directory.mkdir()
    pki.create_ca("test", directory)
    made = pki.issue(directory, Identity("test", Kind.USER, "ann"), directory, "ann")
    ours = site.controller.certificates.files["user/ann"].ca
    with pytest.raises(InvalidInput, match="none that this cluster's CA has issued"):
        await asyncio.to_thread(renew, (await site.line()).address, TlsFiles(ours, made.cert, made.key))


async def test_a_users_certificate_renews_itself_on_use(site: Site, certificates: Certificates) -> None:
    await site.admin.access.add_user("bob", access_pb2.ROLE_VIEWER)
    done = await site.logs_in(await site.line(user="bob"))
    settings = load(done.settings)
    key = requests.requested_key(requests.request(_key(TlsFiles(settings.ca, settings.cert, settings.key))))
    old = pki.sign(
        certificates.directory,
        Identity("test", Kind.USER, "bob"),
        key,
        time.time() - 25 * DAY_S,
        datetime.timedelta(days=30),
    )
    settings.cert.write_bytes(old)
    async with Client(settings) as bob:
        await bob.access.caller()
    assert certificate.read(settings.cert).ends_at - time.time() > 29 * DAY_S


async def test_who_fails_too_often_has_to_wait(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DELAY_S", 0.01)
    stub = await site.stranger()
    codes = []
    for _ in range(80):
        try:
            await stub.Enrol(enrolment_pb2.EnrolRequest(token="x", host="h1"), timeout=WITHIN_S)
        except grpc.aio.AioRpcError as error:
            codes.append(error.code())
    assert grpc.StatusCode.UNAVAILABLE in codes
    assert codes[0] is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Enrol(enrolment_pb2.EnrolRequest(token="x" * 100_000), timeout=WITHIN_S)


async def test_guesses_of_tokens_are_limited_and_all_of_them_are_on_record(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DELAY_S", 0.01)
    stub = await site.stranger()
    request = requests.request(requests.new_key())

    async def guess() -> grpc.StatusCode:
        try:
            await stub.Enrol(
                enrolment_pb2.EnrolRequest(token=tokens.draw(), host="h1", request=request), timeout=WITHIN_S
            )
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    codes = [code for _ in range(50) for code in await asyncio.gather(*(guess() for _ in range(6)))]
    tried = codes.count(grpc.StatusCode.PERMISSION_DENIED)
    assert set(codes) == {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}
    assert 50 <= tried < 80, "after 50 failures one more every 2 s"
    found = [e for e in await site.admin.access.audit(1000, trail="unknown") if e.call == "EnrolmentService/Enrol"]
    assert len(found) < 40
    assert sum(e.unwritten or 1 for e in found) == 300
    assert {e.peer for e in found} == {"127.0.0.1"}


def _key(files: TlsFiles) -> Any:
    return serialization.load_pem_private_key(files.key.read_bytes(), password=None)
