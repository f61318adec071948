"""What happens to hosts and to the cluster reaches real HTTP and SMTP receivers, gathered and retried."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.integration.controller.cluster import Agent, Certificates, Controller
from tests.integration.controller.daemon.notifications.test_notifications import serving
from tests.integration.controller.endpoint import Endpoint, endpoint
from tests.support.mail_relay import relay
from tests.support.stubs import host_stub

from holdfast._base.identity import Identity, Kind
from holdfast.v1 import agent_pb2, host_pb2
from holdfast_controller.core import digest
from holdfast_controller.shell.base.config import ChannelConfig, ControllerConfig
from holdfast_controller.shell.enrolment.issued import IssuedCertificates
from holdfast_controller.shell.notify import certificates as certificate_watch
from holdfast_controller.shell.notify import sender as delivering
from holdfast_controller.shell.notify.channels import Target
from holdfast_controller.shell.notify.render import test_message as message_of_a_test
from holdfast_controller.shell.store.store import Store

ALL = ("ALL",)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "SETTLE_S", 0.3)
    monkeypatch.setattr(digest, "SPACING_S", 0.2)
    monkeypatch.setattr(digest, "FIRST_HOLD_S", 1.0)


def with_channels(config: ControllerConfig, *channels: ChannelConfig, **more: Any) -> ControllerConfig:
    return dataclasses.replace(config, notifications=channels, **more)


def impatient(config: ControllerConfig, *channels: ChannelConfig) -> ControllerConfig:
    """Hosts are lost after a second; of three, one may be."""
    times = {"heartbeat_interval": 0.2, "suspect_after": 0.5, "lease": 0.8, "lost_after": 1.0}
    return with_channels(config, *channels, **times)


@contextlib.asynccontextmanager
async def beating(controller: Controller, name: str, **said: Any) -> AsyncIterator[Agent]:
    """A host that is heard from."""
    async with controller.agent(name, **said) as agent:

        async def beat() -> None:
            while True:
                await agent.call.write(agent_pb2.SessionRequest(heartbeat=agent_pb2.Heartbeat()))
                await asyncio.sleep(0.1)

        beats = asyncio.create_task(beat())  # noqa: TID251
        try:
            yield agent
        finally:
            beats.cancel()


def kinds(hook: Endpoint) -> list[str]:
    return [item["event"] for body in hook.got for item in body["items"]]


def said(hook: Endpoint) -> str:
    return "\n".join(item["message"] for body in hook.got for item in body["items"])


async def test_a_lost_host_is_told_by_mail_and_webhook_and_so_is_its_return(
    config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint() as hook, endpoint() as jobs_only, relay() as mail:
        to = f"mailto://127.0.0.1:{mail.port}?from=holdfast@lab.test&to=ops@lab.test&mode=insecure"
        channels = (
            ChannelConfig("hook", hook.url, cluster_events=ALL),
            ChannelConfig("mail", to, cluster_events=("HOST_LOST", "HOST_RETURNED")),
            ChannelConfig("jobs", jobs_only.url, ("FAILED",)),
        )
        async with (
            serving(impatient(config, *channels), certificates) as controller,
            beating(controller, "host-1"),
        ):
            async with beating(controller, "host-0"):
                pass
            await hook.until(lambda h: "HOST_LOST" in kinds(h))
            await mail.until(lambda m: m.mails)
            async with beating(controller, "host-0"):
                await hook.until(lambda h: "HOST_RETURNED" in kinds(h))
                await mail.until(lambda m: len(m.mails) == 2)
    (lost,) = [body for body in hook.got if body["event"] == "HOST_LOST"]
    assert lost["schema"] == "holdfast.cluster-notification.v1" and lost["cluster"] == "test"
    assert lost["items"][0]["subject"] == "host/host-0"
    assert lost["message"].startswith("host-0 lost: silent since ")
    assert hook.headers[0]["idempotency-key"] == hook.got[0]["id"]
    first, second = mail.texts()
    assert "HOST_LOST: host-0 lost: silent since" in first and "HOST_RETURNED: host-0 is back" in second
    assert "host-0 lost" in str(mail.mails[0]["Subject"]) and set(mail.recipients) == {"ops@lab.test"}
    assert jobs_only.got == []


async def test_a_host_that_flaps_is_told_in_few_messages_with_the_count(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "FIRST_HOLD_S", 6.0)
    async with endpoint() as hook:
        channel = ChannelConfig("hook", hook.url, cluster_events=ALL)
        async with serving(impatient(config, channel), certificates) as controller, beating(controller, "host-1"):
            async with beating(controller, "host-0"):
                pass
            await hook.until(lambda h: "HOST_LOST" in kinds(h))
            hosts = host_stub(controller.channel("user/ann"))
            for _ in range(2):
                async with beating(controller, "host-0"):
                    pass
                await _until_lost(hosts)
            await hook.until(lambda h: len(h.got) == 2)
    (item,) = hook.got[1]["items"]
    assert item["event"] in ("HOST_LOST", "HOST_RETURNED") and item["changes"] >= 2
    assert item["since"] < item["time"]


async def _until_lost(hosts: Any) -> None:
    async with asyncio.timeout(30):
        while True:
            found = (await hosts.ListHosts(host_pb2.ListHostsRequest())).hosts
            if any(host.state == host_pb2.HOST_STATE_LOST for host in found):
                return
            await asyncio.sleep(0.05)


async def test_a_gpu_that_breaks_is_told_and_so_is_its_recovery(
    config: ControllerConfig, certificates: Certificates
) -> None:
    def inventory(problem: str) -> host_pb2.Inventory:
        gpus = [host_pb2.Gpu(uuid=f"g{i}", index=i, model="H100", problem=problem if i else "") for i in range(2)]
        return host_pb2.Inventory(cpu_count=16, memory_bytes=64 << 30, max_workers=8, gpus=gpus)

    async with endpoint() as hook:
        channel = ChannelConfig("hook", hook.url, cluster_events=("GPU_FAULT", "GPU_RECOVERED"))
        async with serving(with_channels(config, channel), certificates) as controller:
            async with controller.agent("host-0", inventory=inventory("")):
                pass
            async with controller.agent("host-0", inventory=inventory("fell off the bus (Xid 79)")):
                await hook.until(lambda h: kinds(h) == ["GPU_FAULT"])
            async with controller.agent("host-0", inventory=inventory("")):
                await hook.until(lambda h: kinds(h) == ["GPU_FAULT", "GPU_RECOVERED"])
    assert said(hook) == "host-0: GPU 1: fell off the bus (Xid 79)\nhost-0: its GPUs are well again"


async def test_a_receiver_that_fails_gets_all_of_it_once_it_is_back_also_after_a_restart(
    config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint(status=500) as hook, relay() as mail:
        mail.refuses = True
        to = f"mailto://127.0.0.1:{mail.port}?from=a@lab.test&to=ops@lab.test&mode=insecure"
        channels = [ChannelConfig(n, u, cluster_events=ALL) for n, u in (("hook", hook.url), ("mail", to))]
        settings = impatient(config, *channels)
        async with serving(settings, certificates) as controller, beating(controller, "host-1"):
            async with beating(controller, "host-0"):
                pass
            await hook.until(lambda h: len(h.got) >= 2)
            await mail.until(lambda m: m.tries)
        assert {body["id"] for body in hook.got} == {hook.got[0]["id"]}, "tried again as it was"
        hook.status, mail.refuses, tries = 200, False, len(hook.got)
        async with serving(settings, certificates):
            await hook.until(lambda h: len(h.got) > tries)
            await mail.until(lambda m: m.mails)
    assert "host-0 lost" in said(hook) and "host-0 lost" in mail.texts()[0]


async def test_a_certificate_that_ends_soon_is_told_once_across_restarts(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"ca": time.time() + 20 * 86_400.0, "own": time.time() + 80 * 86_400.0}
    monkeypatch.setattr("holdfast_controller.shell.services.metrics.Metrics.certificate_ends", lambda _: ends)
    monkeypatch.setattr(certificate_watch, "EVERY_S", 0.1)
    async with endpoint() as hook:
        settings = with_channels(config, ChannelConfig("hook", hook.url, cluster_events=("CERTIFICATE",)))
        async with serving(settings, certificates):
            await hook.until(lambda h: h.got)
        async with serving(settings, certificates):
            ends["own"] = time.time() + 3600.0
            await hook.until(lambda h: "own certificate ends in 60 min" in said(h))
    # A message that was delivered a moment before the end may come twice; the warning was recorded once.
    items = [item for body in hook.got for item in body["items"] if item["subject"] == "certificate/ca"]
    assert {item["message"] for item in items} == {"the controller's ca certificate ends in 20 days: rotate the CA"}
    assert len({item["time"] for item in items}) == 1


async def test_a_host_that_does_not_renew_its_certificate_is_told(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "EVERY_S", 0.1)
    store = Store(config.database)
    await asyncio.wrap_future(store.call(store.open))
    for name, age_s in (("host-0", 22 * 3600.0), ("host-1", 3600.0), ("gone", 23 * 3600.0)):
        who = Identity("test", Kind.HOST, name)
        await IssuedCertificates(store).note(who, time.time() - age_s, "ca", ["ca"])
    await asyncio.to_thread(store.close)
    async with endpoint() as hook:
        settings = with_channels(config, ChannelConfig("hook", hook.url, cluster_events=("CERTIFICATE",)))
        async with (
            serving(settings, certificates) as controller,
            controller.agent("host-0"),
            controller.agent("host-1"),
        ):
            await hook.until(lambda h: h.got)
    assert said(hook) == "the certificate of host-0 ends in 120 min: see its agent's log for why it isn't renewed"


async def test_most_hosts_silent_at_once_is_told_though_none_is_lost(
    config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint() as hook:
        channel = ChannelConfig("hook", hook.url, cluster_events=ALL)
        async with serving(impatient(config, channel), certificates) as controller:
            async with controller.agent("host-0"), controller.agent("host-1"):
                pass
            await hook.until(lambda h: h.got)
            await asyncio.sleep(2.0)
    assert kinds(hook) == ["HOSTS_SILENT"]
    assert said(hook).startswith("2 of 2 hosts are silent at once")


async def test_a_webhook_with_a_private_ca_of_the_system_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    took: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        took.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    entry = message_of_a_test("ops", "test", 1.0)
    targets = [Target(f"https://localhost:{port}/", "hook"), Target(f"jsons://localhost:{port}/", "service", True)]
    for target in targets:
        untrusting = delivering.Sender()
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
        with pytest.raises(delivering.NotDelivered):
            await untrusting.send(target, entry)
        await untrusting.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        trusting = delivering.Sender()
        await trusting.send(target, entry)
        await trusting.close()
    server.close()
    assert len(took) == 2 and all(head.startswith(b"POST /") for head in took)


async def test_an_admin_can_try_a_channel(tmp_path: Path, config: ControllerConfig) -> None:
    async def tried(channel: str) -> tuple[int, str]:
        command = (sys.executable, "-m", "holdfast_controller", "notify", channel, "--config", str(settings))
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    settings = tmp_path / "controller.toml"
    async with relay() as mail:
        fields = ("listen", "state_dir", "ca", "cert", "key", "cluster")
        lines = [f'{name} = "{getattr(config, name)}"' for name in fields]
        to = f"mailto://127.0.0.1:{mail.port}?from=a@lab.test&to=ops@lab.test&mode=insecure"
        lines += ["[[notifications]]", 'name = "ops"', f'url = "{to}"']
        settings.write_text("\n".join(lines))
        assert await tried("ops") == (0, "ops has taken the message.\n")
        assert "a test of the channel ops" in mail.texts()[0]
        mail.refuses = True
        status, told = await tried("ops")
        assert status == 1 and "did not take the message" in told
        status, told = await tried("dev")
        assert status == 1 and "no channel 'dev'. Its channels: ops." in told
