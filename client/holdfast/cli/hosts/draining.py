"""The work left on a draining host, and the wait until none is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from holdfast._sdk.reconnect import Outage, is_away
from holdfast.cli.kit.durations import clock
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.kit.console import Console
    from holdfast.client import Client
    from holdfast.v1 import host_pb2

_NAMED = 3
_LOOK_EVERY_S = 1.0


def left_in_words(host: host_pb2.Host) -> str:
    """``2 jobs are still there (a, b); they are moved off by 10:30:00``."""
    if not host.workers and not host.job_ids:
        return "nothing runs there"
    count, named = len(host.job_ids), ", ".join(host.job_ids[:_NAMED])
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    verb, they = ("job is", "it is") if count == 1 else ("jobs are", "they are")
    by = f" by {clock(host.drain_deadline.seconds, time.time())}" if host.HasField("drain_deadline") else ""
    what = "moved off" if by else "waited for"
    moved = f"; {they} {what}{by}" if host.draining else ""
    return f"{count} {verb} still there ({named}{more}){moved}"


async def wait_until_empty(client: Client, host: host_pb2.Host, console: Console) -> bool:
    """Watch the host until nothing runs there, printing each change. False if another user ended the drain.

    It asks again and again, because a watch of hosts tells of them and not of the jobs that come and go there.
    """
    said = left_in_words(host)
    outage = Outage(console.on_link("Waiting for the controller to come back"))
    while True:
        await anyio.sleep(_LOOK_EVERY_S)
        try:
            host = await client.get_host(host.name)
        except HoldfastError as error:
            if not is_away(error):
                raise
            await anyio.sleep(outage.failed(error))
            continue
        outage.settled()
        if not host.workers and not host.job_ids:
            console.note(f"host {host.name}: nothing runs there any more")
            return True
        if not host.draining:
            console.note(f"host {host.name} is not drained any more: {left_in_words(host)}")
            return False
        if (now := left_in_words(host)) != said:
            said = now
            console.note(f"host {host.name}: {said}")
