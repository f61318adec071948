"""Rows of the goodput ledger: what each commit books by day, and the statements of ended jobs.

Each function runs within a transaction of its caller's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from holdfast._base.dataclass import dataclass
from holdfast._daemon import log
from holdfast_controller.core.goodput.causes import payer_of
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings, ProgressWatch, Statement, Usage
from holdfast_controller.core.step.actions import KeepProgress
from holdfast_controller.shell.store import codec, host_rows, meta_rows
from holdfast_controller.shell.store.records import checksum, with_checksum
from holdfast_controller.shell.store.schema import host_days, owner_days, progress, statements
from holdfast_controller.shell.store.statements import Twice, put, remove, total

BOOKED_AT_ONCE = 1_000
"""Settled tapes of a log that is read from its beginning that are booked together."""
SINCE = "ledger_since"
"""Key in ``meta``: the ms since the epoch from which the days are complete; 0: the whole log was folded."""


@dataclass(frozen=True)
class ClosedLedger:
    """The ledger of an ended job as it is kept: GPU-ms (``ranks``: rank-ms) by ``DAY|category|cause``."""

    ranks: bool
    since: int
    ended: int
    complete: bool
    steps: bool
    saves: bool
    progress: bool
    interruptions: int
    sums: dict[str, int]
    saved: Sequence[tuple[int, float]] = ()
    """When a save was complete, and its step, -1 where that is unknown; statements of older releases have none."""


def closed(statement: Statement) -> ClosedLedger:
    """The part of a statement that is kept."""
    ledger = statement.ledger
    return ClosedLedger(
        statement.ranks,
        ledger.since,
        statement.ended,
        ledger.complete,
        ledger.steps,
        ledger.saves,
        ledger.progress,
        ledger.interruption,
        dict(sorted(ledger.sums.items())),
        [(saved.at, saved.step) for saved in ledger.saved],
    )


def book(database: sa.Connection, bookings: Sequence[Bookings]) -> None:
    """Add settled time to its days, and keep the statements."""
    if not bookings:
        return
    hosts: Counter[tuple[Any, ...]] = Counter()
    owners: Counter[tuple[Any, ...]] = Counter()
    rows: list[dict[str, Any]] = []
    for each in bookings:
        for usage in each.usage:
            add_up(usage, hosts, owners)
        for statement in each.statements:
            payload = json.dumps(vars(closed(statement)), separators=(",", ":"))
            row = {"job": statement.job_id, "ended": statement.ended, "payload": payload}
            rows.append(with_checksum(statements, row))
    put(database, statements, rows)
    remove(database, progress, [row["job"] for row in rows])
    _add(database, host_days, ("host",), hosts)
    _add(database, owner_days, ("project", "owner"), owners)
    host_rows.book(database, [booking for each in bookings for booking in each.hosts])


def _add(
    database: sa.Connection, table: sa.Table, dimensions: Sequence[str], sums: Counter[tuple[Any, ...]]
) -> None:
    names = (*dimensions, "model", "ranks", "category", "payer", "day")
    put(database, table, [{**dict(zip(names, key, strict=True)), "ms": ms} for key, ms in sums.items()], Twice.ADD)


def book_history(database: sa.Connection, cluster: Cluster, *, begins: bool, records_begin: bool) -> None:
    """Book what the log says where the ledger, or hosts' records, begin; else that was committed with its events."""
    if begins:
        book(database, [replace(cluster.bookings, hosts=[])])
    if records_begin:
        host_rows.book(database, cluster.bookings.hosts)
    cluster.bookings = Bookings()


def add_up(usage: Usage, hosts: Counter[tuple[Any, ...]], owners: Counter[tuple[Any, ...]]) -> None:
    """Add some time to sums by (host, …) and by (project, owner, …), each with model, ranks, category, payer, day."""
    weights: Counter[tuple[str, str]] = Counter()
    models: Counter[str] = Counter()
    for seat in usage.members.values():
        weights[seat.host, seat.model] += seat.weight
        models[seat.model] += seat.weight
    for key, ms in usage.ms.items():
        day, category, cause = key.split("|")
        what = (usage.ranks, category, payer_of(cause).value, int(day))
        for (host, model), weight in weights.items():
            if weight:
                hosts[host, model, *what] += ms * weight
        for model, weight in models.items():
            if weight and usage.owner:
                owners[usage.project, usage.owner, model, *what] += ms * weight


def read_statement(database: sa.Connection, job: str) -> ClosedLedger | None:
    """The closing statement of a job; None where there is none, or not the one that was written."""
    row = database.execute(sa.select(statements).where(statements.c.job == job)).first()
    if row is None:
        return None
    if row.checksum != checksum(row.job, row.ended, row.payload):
        log.warning("store.statement_damaged", job=job)
        return None
    return ClosedLedger(**json.loads(row.payload))


def read_days(
    database: sa.Connection, *, by_host: bool, since: int, until: int, each_day: bool = False
) -> list[Any]:
    """Rows of the days from ``since`` to before ``until``, summed over them unless each is wanted."""
    table = host_days if by_host else owner_days
    key = [column for column in table.columns if column.name != "ms" and (each_day or column.name != "day")]
    query = sa.select(*key, total(table.c.ms).label("ms"))
    return list(database.execute(query.where(table.c.day >= since, table.c.day < until).group_by(*key)))


def read_sums(database: sa.Connection) -> Counter[tuple[str, str]]:
    """GPU-ms by (category, payer) over all days and hosts."""
    key = (host_days.c.category, host_days.c.payer)
    query = sa.select(*key, total(host_days.c.ms)).where(~host_days.c.ranks).group_by(*key)
    return Counter({(category, payer): ms for category, payer, ms in database.execute(query)})


def write_progress(database: sa.Connection, piece: KeepProgress) -> None:
    """Keep the progress of a running generation."""
    row = {"job": piece.job_id, "payload": codec.dump_progress(piece.watch)}
    put(database, progress, [with_checksum(progress, row)])


def read_progress(database: sa.Connection) -> dict[str, ProgressWatch]:
    """Progress of running generations, by job. A record that can't be read is left out, and noted."""
    found: dict[str, ProgressWatch] = {}
    for row in database.execute(sa.select(progress)):
        try:
            if row.checksum != checksum(row.job, row.payload):
                raise ValueError("its checksum is another")
            found[row.job] = codec.load_progress(row.payload)
        except ValueError as error:
            log.warning("store.progress_left_out", job=row.job, error=str(error))
    return found


def begin(cluster: Cluster, newest: Wall, *, whole: bool) -> str:
    """The value of ``SINCE`` for a ledger that begins: 0 for a ``whole`` log, else the time of its newest event."""
    times = [newest, *(job.updated_at for job in cluster.jobs.heads())]
    return "0" if whole else str(round(max(times) * 1000))


def ledger_since(database: sa.Connection) -> int | None:
    """From when on the days are complete, in ms; None before the first start of a controller that keeps a ledger."""
    value = meta_rows.read(database, SINCE)
    return None if value is None else int(value)
