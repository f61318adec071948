"""Rows of hosts' failures, repairs and time in service, by day.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import sqlalchemy as sa

from holdfast_controller.core.goodput.host_record import begin
from holdfast_controller.core.goodput.reliability import HostTotals
from holdfast_controller.core.goodput.tape import DAY_MS, milliseconds
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import HostBooking, HostFact
from holdfast_controller.shell.store.schema import events, host_facts
from holdfast_controller.shell.store.statements import Twice, put, total

KEPT_DAYS = 365
"""Rows are kept for so much longer than events of hosts; there are at most ten a day for each host."""
SINCE = "host_facts_since"
"""Key in ``meta``: set once hosts' records have begun."""
ROWS_AT_ONCE = 2_000
_Row = tuple[int, str, int, str, bool]


def book(database: sa.Connection, bookings: Iterable[HostBooking]) -> None:
    """Add what was counted of hosts to its days."""
    counts: Counter[_Row] = Counter()
    times: Counter[_Row] = Counter()
    for each in bookings:
        days = range(each.start // DAY_MS, max(each.end - 1, each.start) // DAY_MS + 1)
        if each.what is not HostFact.UP:
            days = days[-1:]
        for day in days:
            row = day, each.host, each.since, each.what.value, each.busy
            counts[row] += each.what is not HostFact.UP
            whole = each.what is not HostFact.UP
            low, high = (each.start, each.end) if whole else _within(day, each)
            times[row] += high - low
    names = host_facts.columns.keys()
    values = [(*row, count, times[row]) for row, count in counts.items()]
    put(database, host_facts, [dict(zip(names, each, strict=True)) for each in values], Twice.ADD)


def _within(day: int, each: HostBooking) -> tuple[int, int]:
    return max(each.start, day * DAY_MS), min(each.end, (day + 1) * DAY_MS)


def read(database: sa.Connection, since: int, until: int) -> dict[tuple[str, int], HostTotals]:
    """Counts and times from one day to before another, by host and the beginning of its record."""
    key = (host_facts.c.host, host_facts.c.since, host_facts.c.what, host_facts.c.busy)
    sums = total(host_facts.c["count"]), total(host_facts.c.ms)
    query = sa.select(*key, *sums).where(host_facts.c.day >= since, host_facts.c.day < until).group_by(*key)
    found: dict[tuple[str, int], HostTotals] = {}
    for host, begun, what, busy, count, ms in database.execute(query):
        add(found.setdefault((host, begun), HostTotals(begun)), HostFact(what), busy, count, ms)
    return found


def add(totals: HostTotals, what: HostFact, busy: bool, count: int, ms: int) -> None:
    """Add some of one kind to what was counted."""
    match what:
        case HostFact.UP:
            totals.up_ms[busy] += ms
        case HostFact.REPAIR:
            totals.repairs += count
            totals.repair_ms += ms
        case _:
            totals.failures[busy] += count
            totals.kinds[what.value] = totals.kinds.get(what.value, 0) + count


def drop_old(database: sa.Connection, history_before: float) -> bool:
    """Drop some rows that are too old, where events of hosts from before a moment are; whether there were any."""
    before = milliseconds(Wall(history_before)) // DAY_MS - KEPT_DAYS
    key = tuple(host_facts.primary_key.columns)
    some = sa.select(*key).where(host_facts.c.day < before).limit(ROWS_AT_ONCE)
    return bool(database.execute(sa.delete(host_facts).where(sa.tuple_(*key).in_(some))).rowcount)


def begin_records(database: sa.Connection, cluster: Cluster) -> None:
    """Begin the record of each host that has none, with the newest event: it joined before there were any."""
    newest = database.execute(sa.select(sa.func.max(events.c.at))).scalar()
    for host in cluster.hosts.values():
        if host.record is None and host.boot_id and newest:
            host.record = begin(host, milliseconds(Wall(newest)))
