"""An agent's metrics at their address: whom they are for there, and a port that comes free only later."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from holdfast._base.identity import Identity, Kind
from holdfast._daemon.metrics.series import Series
from holdfast._security import pki
from holdfast._security.tls import HOST_NAME, TlsFiles
from holdfast_agent.core.metrics.metering import Meter
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.main import metrics
from holdfast_agent.shell.main.metrics import Metrics

WITHIN_S = 180.0


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    return found


def settings(directory: Path, address: str) -> Config:
    pki.create_ca("lab", directory)
    files = pki.issue(directory, Identity("lab", Kind.HOST, "h1"), directory, "host")
    return Config("ctl:7000", "h1", directory, directory, files.ca, files.cert, files.key, metrics_listen=address)


@contextlib.asynccontextmanager
async def served(config: Config) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(
        Metrics(config, Meter(), lambda _: Series(), lambda: 3, Series()).run()
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def page(url: str, context: ssl.SSLContext | bool = True) -> httpx.Response:
    """The first answer at all; the port opens a moment after the start."""
    async with httpx.AsyncClient(verify=context, trust_env=False, timeout=WITHIN_S) as client:
        for _ in range(600):
            try:
                return await client.get(url, extensions={"sni_hostname": HOST_NAME})
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
    raise AssertionError("nothing is served")


def as_(directory: Path, identity: str) -> ssl.SSLContext:
    kind, _, name = identity.partition("/")
    files: TlsFiles = pki.issue(directory, Identity("lab", Kind(kind), name), directory, name)
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.cert, files.key)
    return context


async def test_whoever_is_on_the_host_reads_the_page_where_it_is_served_to_the_host_alone(
    tmp_path: Path, port: int
) -> None:
    async with served(settings(tmp_path, f"127.0.0.1:{port}")):
        found = await page(f"http://127.0.0.1:{port}/metrics")
    assert "holdfast_agent_shims 3.0\n" in found.text
    assert 'holdfast_certificate_end_timestamp_seconds{certificate="own"}' in found.text


async def test_named_reader_and_no_other_gets_it_where_others_can_reach_it(tmp_path: Path, port: int) -> None:
    url = f"https://127.0.0.1:{port}/metrics"
    async with served(settings(tmp_path, f"0.0.0.0:{port}")):
        assert (await page(url, as_(tmp_path, "user/prometheus"))).status_code == 200
        for other in ("user/ann", "host/prometheus"):
            refused = await page(url, as_(tmp_path, other))
            assert refused.status_code == 403 and "metrics_readers names prometheus" in refused.text


async def test_port_that_is_taken_is_tried_again_and_keeps_nobody_from_work(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "AGAIN_S", 0.02)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with served(settings(tmp_path, f"127.0.0.1:{port}")):
            await asyncio.sleep(0.1)
            taken.close()
            assert (await page(f"http://127.0.0.1:{port}/metrics")).status_code == 200
