"""Answers about how often hosts fail, and how long they are out then."""

from __future__ import annotations

import asyncio

from holdfast._base.proto_values import duration
from holdfast.v1 import host_pb2
from holdfast_controller.core.goodput.host_record import open_time
from holdfast_controller.core.goodput.reliability import HostTotals, Interval, Reliability, judge
from holdfast_controller.core.goodput.tape import DAY_MS
from holdfast_controller.core.step.host_commands import HostsJudged
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.store import host_rows

FIRST_S, JUDGED_EVERY_S = 60.0, 600.0
RECENT_DAYS = 90
"""What is older says little of how a host is now."""


async def run(driver: Driver) -> None:
    """Have the core know how often hosts fail, until cancelled."""
    while True:
        await asyncio.sleep(FIRST_S)
        driver.feed(HostsJudged(await of_hosts(driver)))
        await asyncio.sleep(JUDGED_EVERY_S - FIRST_S)


async def of_hosts(driver: Driver, days: range | None = None) -> dict[str, Reliability]:
    """Every host's failures, repairs and time in service in some UTC days, else in the newest ``RECENT_DAYS``."""
    at = round(now().wall * 1000)
    if days is None:
        days = range(at // DAY_MS + 1 - RECENT_DAYS, at // DAY_MS + 1)
    records = {host.name: host.record.since for host in driver.cluster.hosts.values() if host.record is not None}
    unbooked = [each for host in driver.cluster.hosts.values() for each in open_time(host, at)]
    await driver.settled()
    found = await asyncio.wrap_future(driver.store.call(_read, driver, days))
    for each in unbooked:
        totals = found.setdefault((each.host, each.since), HostTotals(each.since))
        start, end = max(each.start, days.start * DAY_MS), min(each.end, days.stop * DAY_MS)
        host_rows.add(totals, each.what, each.busy, 0, max(0, end - start))
    fleet = {name: found.pop((name, since), HostTotals(since)) for name, since in records.items()}
    return await asyncio.to_thread(judge, fleet, list(found.values()))


def _read(driver: Driver, days: range) -> dict[tuple[str, int], HostTotals]:
    return driver.store.transaction(lambda database: host_rows.read(database, days.start, days.stop))


def to_proto(found: Reliability) -> host_pb2.Reliability:
    """MTBF, MTTR and ratio of a host as users see them."""
    message = host_pb2.Reliability(
        since=timestamp(found.since / 1000),
        in_service=duration(found.up_ms / 1000),
        failures=found.failures,
        kinds=found.kinds,
        repairs=found.repairs,
        ratio=found.ratio,
        ratio_low=found.ratio_low,
        lemon=found.lemon,
        surprise=found.surprise,
    )
    _set(message, "mtbf", found.mtbf)
    _set(message, "mttr", found.mttr)
    return message


def _set(message: host_pb2.Reliability, name: str, found: Interval | None) -> None:
    if found is None:
        return
    for field, ms in ((name, found.mean), (f"{name}_low", found.low), (f"{name}_high", found.high)):
        if ms < _LONGEST_MS:
            getattr(message, field).CopyFrom(duration(ms / 1000))


_LONGEST_MS = 1000 * 365 * DAY_MS
"""Longer, or without a bound: not said."""
