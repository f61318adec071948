"""Hosts as JSON: the text is what the message would be printed as, and each picture is printed once."""

from __future__ import annotations

import pytest

from holdfast._base.proto_values import timestamp
from holdfast._sdk import json_view
from holdfast.v1 import host_pb2
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.shell.convert.kept_hosts import KeptHost, Listed
from holdfast_controller.shell.rest.host_texts import listed_hosts
from holdfast_controller.shell.rest.printed import text_of

pytestmark = pytest.mark.anyio

HOSTILE = '","lastSeen":null,"'


def kept(name: str = "h1", **labels: str) -> KeptHost:
    gpus = [host_pb2.Gpu(uuid=f"GPU-{n}", index=n, model="H100", memory_bytes=80 << 30) for n in range(8)]
    made = host_pb2.Host(name=name, labels=labels, inventory=host_pb2.Inventory(cpu_count=64, gpus=gpus))
    return KeptHost((), frozenset(), made)


@pytest.mark.parametrize("seen", [NEVER, Wall(1_790_000_000.25)])
async def test_a_text_is_that_of_the_message(seen: Wall) -> None:
    for host in (kept(rack="r7"), kept("h2", **{HOSTILE: HOSTILE, "lastSeen": "null"})):
        message = host_pb2.Host()
        message.CopyFrom(host.message)
        if seen:
            message.last_seen.CopyFrom(timestamp(seen))
        for _ in range(2):
            page = await listed_hosts(Listed([(host, seen)], "h2"))
            assert page.text(0) == text_of(json_view.host(message))
            assert page.whole().decode() == text_of({"hosts": [json_view.host(message)], "nextPageToken": "h2"})


async def test_a_host_that_was_heard_since_is_not_printed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    host = kept()
    first = (await listed_hosts(Listed([(host, Wall(1_790_000_000.0))], ""))).text(0)
    monkeypatch.setattr(json_view, "host", None)
    later = await listed_hosts(Listed([(host, NEVER)], ""))
    assert later.text(0) == first.replace('"2026-09-21T14:13:20Z"', "null")
