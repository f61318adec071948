"""Answers about the goodput ledger: of one job, of all by host or owner, and computed again from the log."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import sqlalchemy as sa

from holdfast._base.proto_values import seconds
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import cluster_pb2, job_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.fold.slowness import slowed_gpu_s
from holdfast_controller.core.fold.underuse import unused_gpu_s
from holdfast_controller.core.goodput import view
from holdfast_controller.core.goodput.causes import payer_of
from holdfast_controller.core.goodput.tape import DAY_MS
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Usage
from holdfast_controller.core.model.hosts.host import Host, Inventory
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.services import reliability
from holdfast_controller.shell.store import codec, ledger_rows
from holdfast_controller.shell.store.records import Record

MOST_ROWS = 20_000
"""Rows of one answer; the largest are sent."""
JOBS_AT_ONCE = 20
EVENTS_AT_ONCE = 2_000
_BY = cluster_pb2.GoodputBy
_EPOCH = datetime.date(1970, 1, 1)
_Key = tuple[Any, ...]
"""(name, project, model, in ranks, category, payer)."""


async def job_goodput(driver: Driver, job: Job, *, verify: bool) -> job_pb2.GetGoodputResponse:
    """The ledger of one job, until now or its end."""
    cursor, at = job.cursor, round(now().wall * 1000)
    runtime = driver.cluster.runtime.get(job.id)
    unused_ms = round(unused_gpu_s(job, Wall(at / 1000)) * 1000)
    slowed_ms = round(slowed_gpu_s(job, Wall(at / 1000)) * 1000)
    silent = view.unheard(driver.cluster, job)
    shown = view.as_of_now(job, runtime.progress if runtime is not None else None, at, silent)
    plain = view.as_of_now(job, None, 0)
    await driver.settled()
    answer = job_pb2.GetGoodputResponse(ranks=not job.gang.gpus)
    if shown is not None and plain is not None:
        lines, since, until, complete = view.lines(view.totals(shown)), shown.since, shown.clock, shown.complete
        level = view.level(steps=shown.steps, saves=shown.saves, progress=shown.progress)
        interruptions, kept = shown.interruption, view.totals(plain)
        saves: Sequence[tuple[int, float]] = [(saved.at, saved.step) for saved in shown.saved]
    else:
        closed, ledger_since = await asyncio.wrap_future(driver.store.call(_statement, driver, job.id))
        if closed is None:
            answer.level = "D"
            if verify and not (job.ended_at is not None and job.ended_at * 1000 < ledger_since):
                answer.verified = await _verify(driver, job, cursor, {})
            return answer
        lines, since, until, complete = view.lines(closed.sums), closed.since, closed.ended, closed.complete
        level = view.level(steps=closed.steps, saves=closed.saves, progress=closed.progress)
        interruptions, kept, saves, answer.ended = closed.interruptions, closed.sums, closed.saved, True
    answer.since.CopyFrom(timestamp(since / 1000))
    answer.until.CopyFrom(timestamp(until / 1000))
    answer.unused_ms, answer.slowed_ms = unused_ms, slowed_ms
    if silent:
        answer.silent_since.CopyFrom(timestamp(min(silent.values()) / 1000))
    answer.complete, answer.level, answer.interruptions = complete, level, interruptions
    for line in lines:
        answer.lines.add(category=line.category, cause=line.cause, payer=line.payer, ms=line.ms)
    for saved_at, step in saves:
        answer.saves.add(time=timestamp(saved_at / 1000), step=step if step >= 0 else None)
    if verify:
        answer.verified = await _verify(driver, job, cursor, kept) if complete else _NOT_WHOLE
    return answer


_NOT_WHOLE = "can't be computed again: the ledger began while the job ran, with an upgrade of the controller"


def _statement(driver: Driver, job_id: str) -> tuple[ledger_rows.ClosedLedger | None, int]:
    """The closing statement of a job that has one that can be read, and when the ledger began; 0: with the log."""
    return driver.store.transaction(
        lambda database: (
            ledger_rows.read_statement(database, job_id),
            ledger_rows.ledger_since(database) or 0,
        )
    )


async def open_gpu_ms(driver: Driver) -> Counter[tuple[str, str]]:
    """GPU-ms of all jobs that are not settled, by (category, payer)."""
    found: Counter[tuple[str, str]] = Counter()
    async for _, usages in _open_jobs(driver, round(now().wall * 1000)):
        for usage in usages:
            weight = 0 if usage.ranks else sum(seat.weight for seat in usage.members.values())
            for key, ms in usage.ms.items():
                _, category, cause = key.split("|")
                found[category, payer_of(cause).value] += ms * weight
    return found


async def _open_jobs(driver: Driver, at: int) -> AsyncIterator[tuple[Job, list[Usage]]]:
    """Each job with time that is not settled, and that time until ``at``, in ms."""
    for number, job_id in enumerate(list(driver.cluster.jobs.whole)):
        if number % JOBS_AT_ONCE == JOBS_AT_ONCE - 1:
            await asyncio.sleep(0)
        job = driver.cluster.jobs.whole.get(job_id)
        if job is None or job.ledger is None:
            continue
        runtime = driver.cluster.runtime.get(job_id)
        silent = view.unheard(driver.cluster, job)
        ledger = view.as_of_now(job, runtime.progress if runtime is not None else None, at, silent)
        assert ledger is not None
        yield job, view.open_usage(job, ledger)


# --- sums over jobs -----------------------------------------------------------------------------------------------


async def sum_goodput(
    driver: Driver, request: cluster_pb2.SumGoodputRequest, sees: Callable[[str], bool]
) -> cluster_pb2.SumGoodputResponse:
    """Time of all jobs by host, or by what the caller sees of projects, owners, GPU models and weeks."""
    by_host, weekly = request.by == _BY.GOODPUT_BY_HOST, request.by == _BY.GOODPUT_BY_WEEK
    at = round(now().wall * 1000)
    since = int(seconds(request.since) * 1000) if request.HasField("since") else 0
    until = int(seconds(request.until) * 1000) if request.HasField("until") else at + DAY_MS
    if since >= until:
        raise InvalidInput([Violation("since", "lies after the end of the time asked for", "give an earlier time")])
    days = range(since // DAY_MS, -(-until // DAY_MS))
    found: Counter[_Key] = Counter()
    with driver.settling() as meanwhile:
        await driver.settled()
        rows, complete_since, upto = await asyncio.wrap_future(
            driver.store.call(_days, driver, by_host, weekly, days)
        )
        for row in rows:
            rest = (row.model, row.ranks, row.category, row.payer)
            if by_host:
                found[row.host, "", *rest] += row.ms
            elif sees(row.project):
                found[*_name(request.by, row.project, row.owner, row.model, row.day if weekly else 0), *rest] += (
                    row.ms
                )
        looked_at: dict[str, int] = {}
        async for job, usages in _open_jobs(driver, at):
            looked_at[job.id] = len(meanwhile)
            if by_host or sees(job.gang.project):
                _add(found, request.by, usages, days)
    # Settled after the days were read, and before its job was looked at.
    missed = [
        usage
        for number, (sequence, usage) in enumerate(meanwhile)
        if sequence > upto and number < looked_at.get(usage.job_id, len(meanwhile))
    ]
    _add(found, request.by, [usage for usage in missed if by_host or sees(usage.project)], days)
    answer = cluster_pb2.SumGoodputResponse(truncated=len(found) > MOST_ROWS)
    if complete_since:
        answer.complete_since.CopyFrom(timestamp(complete_since / 1000))
    if by_host:
        asked = days if request.HasField("since") or request.HasField("until") else None
        for name, known in sorted((await reliability.of_hosts(driver, asked)).items()):
            answer.hosts.add(name=name, reliability=reliability.to_proto(known))
    for (name, project, model, ranks, category, payer), ms in found.most_common(MOST_ROWS):
        answer.rows.add(name=name, project=project, model=model, ranks=ranks, category=category, payer=payer, ms=ms)
    return answer


def _days(driver: Driver, by_host: bool, each_day: bool, days: range) -> tuple[list[Any], int, int]:
    """The settled rows, since when they are complete, and the newest event whose bookings they hold."""

    def work(database: sa.Connection) -> tuple[list[Any], int, int]:
        rows = ledger_rows.read_days(
            database, by_host=by_host, since=days.start, until=days.stop, each_day=each_day
        )
        return rows, ledger_rows.ledger_since(database) or 0, driver.store.sequence

    return driver.store.transaction(work)


def _name(by: cluster_pb2.GoodputBy.ValueType, project: str, owner: str, model: str, day: int) -> tuple[str, str]:
    """Name of a row, and its project where that is apart."""
    match by:
        case _BY.GOODPUT_BY_OWNER:
            return owner, project
        case _BY.GOODPUT_BY_MODEL:
            return model, ""
        case _BY.GOODPUT_BY_WEEK:
            year, week, _ = (_EPOCH + datetime.timedelta(days=day)).isocalendar()
            return f"{year}-W{week:02}", ""
        case _:
            return project, ""


def _add(found: Counter[_Key], by: cluster_pb2.GoodputBy.ValueType, usages: Sequence[Usage], days: range) -> None:
    hosts: Counter[tuple[Any, ...]] = Counter()
    owners: Counter[tuple[Any, ...]] = Counter()
    for usage in usages:
        ledger_rows.add_up(usage, hosts, owners)
    if by == _BY.GOODPUT_BY_HOST:
        for (host, *rest, day), ms in hosts.items():
            if day in days:
                found[host, "", *rest] += ms
        return
    for (project, owner, model, *rest, day), ms in owners.items():
        if day in days:
            found[*_name(by, project, owner, model, day), model, *rest] += ms


# --- computed again -----------------------------------------------------------------------------------------------


async def _verify(driver: Driver, job: Job, cursor: int, kept: dict[str, int]) -> str:
    """Compare the ledger with one that is computed from the job's events alone; empty where they agree."""
    again = _Again(job.id)
    restores, after = [], 0
    while records := await driver.history("cluster", after, EVENTS_AT_ONCE):
        after = records[-1].sequence
        restores += [record for record in records if record.type == ev.ClusterRestored.__name__]
    after = 0
    while True:
        records = await driver.history(f"job/{job.id}", after, EVENTS_AT_ONCE)
        if not records:
            break
        after = records[-1].sequence
        upto = [record for record in records if record.sequence <= cursor]
        due = [r for r in restores if r.sequence <= min(after, cursor)]
        restores = restores[len(due) :]
        await asyncio.to_thread(again.take, sorted([*upto, *due], key=lambda record: record.sequence))
    found = again.sums()
    if found == kept:
        return ""
    wrong = sorted(key for key in found.keys() | kept.keys() if found.get(key, 0) != kept.get(key, 0))
    first = wrong[0]
    return f"{len(wrong)} sums differ; {first}: {kept.get(first, 0)} ms, and {found.get(first, 0)} ms by the log"


class _Again:
    """One job's ledger, folded from its events on hosts that are nothing but names."""

    def __init__(self, job_id: str) -> None:
        self._cluster = Cluster()
        self._job_id = job_id

    def take(self, records: Sequence[Record]) -> None:
        """Fold some records, the oldest first."""
        for record in records:
            event = codec.load_event(record.type, record.version, record.payload)
            if isinstance(event, ev.JobPlaced | ev.JobFound | ev.JobSparesChanged):
                places = () if isinstance(event, ev.JobSparesChanged) else event.places
                spares = () if isinstance(event, ev.JobFound) else event.spares
                for name in {place.host for place in (*places, *spares)}:
                    self._cluster.hosts.setdefault(name, Host(name, "", "", "", Inventory(0, 0)))
            fold(self._cluster, event)

    def sums(self) -> dict[str, int]:
        """Its sums, settled and open."""
        for statement in self._cluster.bookings.statements:
            return statement.ledger.sums
        job = self._cluster.jobs.get(self._job_id)
        return view.totals(job.ledger) if job is not None and job.ledger is not None else {}
