"""Watches the certificates of the controller and its hosts, and has the log record that one ends soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from holdfast_controller.core import events as ev
from holdfast_controller.core.step.commands import CertificateEnds
from holdfast_controller.core.views.certificate_ends import warnings_due
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.store import codec

EVERY_S = 3600.0
_BATCH = 500


async def watch(
    driver: Driver, ends: Callable[[], Awaitable[Mapping[str, float]]], host_s: Callable[[], float]
) -> None:
    """Look every hour, until cancelled. ``ends`` gives the end of each certificate by its name, wall clock.

    ``host_s`` gives the life of hosts' certificates.
    """
    sent = await _recorded(driver)
    while True:
        for event in warnings_due(await ends(), sent, now().wall, host_s()):
            driver.feed(CertificateEnds(event.certificate, event.ends_at))
            sent.append(event)
        await asyncio.sleep(EVERY_S)


async def _recorded(driver: Driver) -> list[ev.CertificateEnding]:
    """Warnings of earlier controllers: a restart repeats none."""
    found: list[ev.CertificateEnding] = []
    after = 0
    while records := await driver.history("cluster", after, _BATCH):
        after = records[-1].sequence
        events = (codec.load_event(record.type, record.version, record.payload) for record in records)
        found += [event for event in events if isinstance(event, ev.CertificateEnding)]
    return found
