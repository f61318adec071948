"""A job's ledger as of now: what is settled, and what is open as it would be if the job's generation ended now.

Whether ranks on a silent host run on is not known, so their time since is ``unseen`` until the host is heard again.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.goodput.causes import SILENT_HOST, payer_of
from holdfast_controller.core.goodput.fold import RUNNING
from holdfast_controller.core.goodput.progress import recorded
from holdfast_controller.core.goodput.tape import add_up, milliseconds, recut
from holdfast_controller.core.goodput.work import record
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Category, JobLedger, ProgressWatch, Seat, Tape, Usage
from holdfast_controller.core.model.hosts.host import Liveness
from holdfast_controller.core.model.job import Job


@dataclass(frozen=True)
class Line:
    """Time of one category and cause, in weight x ms."""

    category: str
    cause: str
    payer: str
    ms: int


def unheard(cluster: Cluster, job: Job) -> dict[str, int]:
    """The job's hosts that are silent, and since when, in ms; one of which that isn't known is left out."""
    found = {}
    for name in dict.fromkeys(job.places[index].host for index in job.awaited):
        presence, host = cluster.presence_of(name), cluster.hosts.get(name)
        if host is None or presence.liveness is Liveness.READY:
            continue
        if since := presence.last_seen_wall or host.silent_since:
            found[name] = milliseconds(since)
    return found


def as_of_now(
    job: Job, watch: ProgressWatch | None, now_ms: int, silent: Mapping[str, int] | None = None
) -> JobLedger | None:
    """A copy of the job's ledger that goes until now, with the progress of its running generation.

    ``silent`` has the hosts that aren't heard, and since when.
    """
    if job.ledger is None:
        return None
    ledger = replace(job.ledger, live=[_copy(t) for t in job.ledger.live], gone=[_copy(t) for t in job.ledger.gone])
    ledger.clock = max(ledger.clock, now_ms)
    if watch is not None and ledger.ran_since is not None:
        progress = recorded(watch, max(ledger.ran_since, watch.since), ledger.clock)
        if progress is not None:
            record(ledger, progress)
    if silent:
        # Steps that others report are steps of all.
        moved = 0 if watch is None or watch.moved is None else watch.moved
        ledger.live = [part for tape in ledger.live for part in _unseen(tape, silent, moved, ledger.clock)]
    return ledger


def _unseen(tape: Tape, silent: Mapping[str, int], moved: int, clock: int) -> list[Tape]:
    """The tape in parts: workers that are heard, and those of silent hosts, whose time since is unseen."""
    by_since: dict[int, dict[int, Seat]] = {}
    for index, seat in tape.members.items():
        by_since.setdefault(silent.get(seat.host, clock), {})[index] = seat
    parts = []
    for since, members in by_since.items():
        weight = sum(seat.weight for seat in members.values())
        part = Tape(members, [replace(span) for span in tape.spans], weight)
        recut(part, max(since, moved), clock, Category.UNSEEN, SILENT_HOST, only=RUNNING)
        parts.append(part)
    return parts


def _copy(tape: Tape) -> Tape:
    """With spans of its own, since those of a live tape change; its members are the tape's."""
    return replace(tape, spans=[replace(span) for span in tape.spans])


def open_usage(job: Job, ledger: JobLedger) -> list[Usage]:
    """The time of a ledger that is not settled, as it would be booked."""
    found = []
    for tape in (*ledger.live, *ledger.spares.values(), *ledger.gone):
        ms: dict[str, int] = {}
        for span in tape.spans:
            add_up(ms, span, ledger.clock if span.end is None else span.end)
        if ms:
            found.append(Usage(job.gang.project, job.owner, not job.gang.gpus, tape.members, ms))
    return found


def totals(ledger: JobLedger) -> dict[str, int]:
    """Settled and open time together, weight x ms by ``DAY|category|cause``."""
    sums = dict(ledger.sums)
    for tape in (*ledger.live, *ledger.spares.values(), *ledger.gone):
        ms: dict[str, int] = {}
        for span in tape.spans:
            add_up(ms, span, ledger.clock if span.end is None else span.end)
        for key, value in ms.items():
            sums[key] = sums.get(key, 0) + value * tape.weight
    return sums


def lines(sums: dict[str, int]) -> list[Line]:
    """The sums over all days, the largest first."""
    found: dict[tuple[str, str], int] = {}
    for key, ms in sums.items():
        _, category, cause = key.split("|")
        found[category, cause] = found.get((category, cause), 0) + ms
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [Line(category, cause, payer_of(cause).value, ms) for (category, cause), ms in ordered if ms]


def level(*, steps: bool, saves: bool, progress: bool) -> str:
    """Knowledge behind the figures: A steps and saves, B steps alone, C progress of some kind, D none."""
    if steps:
        return "A" if saves else "B"
    return "C" if progress else "D"
