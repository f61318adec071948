"""Plan of active checks: which idle hosts are measured next, why, and beside whom.

A host is idle when no job holds a share of it and no waiting job might have it; a check is made on few hosts at a time.
The most urgent reason comes first: an admin asked, a low result is to be repeated, the host has returned, joined, or
was suspected, or its last check was long ago. Without the setting only what admins ask for is made.

Pairs change partners: the other host is one that this one was not measured with the last two times, and that is not
under suspicion itself, so a low result that comes again is this host's.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.host import SELF
from holdfast_controller.core.hosts import measured
from holdfast_controller.core.hosts.measurement_jobs import (
    WaitingJobs,
    begin,
    ended,
    give_way,
    hardware_of,
    result_of,
)
from holdfast_controller.core.lifecycle.deletion import delete
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.measurements import PREFIX, URGENCY, HostChecks, Kind, Outcome, Why
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.host_commands import HostCheckAsked
from holdfast_controller.core.step.lookup import find_host, reconciles
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer

LOOK_EVERY_S = 30.0
IDLE_S = 600.0
"""A host is left alone for so long after a job: the next one may come."""
FINDING_EVERY_S = 86_400.0
"""A host that was slow is measured again so often."""
ASKED_FOR = frozenset({Why.ASKED, Why.REPEAT})
"""Made without the setting too; a repetition follows from a check that was made."""
_CHANGED = 2
"""Results of pairs whose partners are not chosen again."""


def on_asked(step: Step, asked: HostCheckAsked) -> None:
    """Measure a host as soon as it is idle, or with ``at_once`` now; then a pair with it."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    problem = why_not(step.cluster, host, WaitingJobs(step.cluster), asked=True) if asked.at_once else ""
    if problem:
        fix = f"Leave out --now: it is checked once it is idle. See: holdfast host show {host.name}"
        step.do(Refuse(asked.token, WrongState(f"{host.name} can't be checked now: {problem}.", fix=fix)))
        return
    step.emit(ev.HostMeasurementDue(host=host.name, at=step.now.wall, kind=Kind.ALONE, why=Why.ASKED, by=asked.by))
    if asked.at_once:
        begin(step, [host], Kind.ALONE, Why.ASKED)
    look(step)
    step.do(Reply(asked.token, host.name))


def look(step: Step) -> None:
    """Begin what is due and may be made now, and arm the timer for the rest."""
    if not reconciles(step):
        for hosts, kind, why in plan(step.cluster, step.policies.host_checks, step.now.wall):
            begin(step, hosts, kind, why)
    arm(step)


def arm(step: Step) -> None:
    """Have the next look come while there may be anything to measure."""
    if step.policies.host_checks.on or any(
        host.measured.due(kind) in ASKED_FOR for host in step.cluster.hosts.values() for kind in Kind
    ):
        step.timers.set((ClusterTimer.MEASUREMENTS, ""), step.now.mono_in(LOOK_EVERY_S))
    else:
        step.timers.clear((ClusterTimer.MEASUREMENTS, ""))


def attend(step: Step) -> None:
    """At the end of a step: checks give way to jobs, and what has ended is recorded and judged."""
    if step.cluster.measuring and step.entries:
        give_way(step)
    for job in ended(step):
        errors = False
        for index, place in enumerate(job.places):
            host = step.cluster.hosts.get(place.host)
            if host is None or host.measured.running != job.id:
                continue
            result = result_of(step.cluster, job, index, step.now.wall)
            step.emit(ev.HostMeasured(host=host.name, at=step.now.wall, result=result))
            errors |= result.outcome is Outcome.ERROR
            if result.outcome is Outcome.MEASURED:
                measured.judge(step, host, result)
        if not errors:
            delete(step, job, SELF, "its result is kept with its hosts")
        step.timers.set((ClusterTimer.MEASUREMENTS, ""), step.now.mono_in(1.0))


def why_not(cluster: Cluster, host: Host, waiting: WaitingJobs, *, asked: bool) -> str:
    """Why a host is not measured now; empty where it can be. An admin may have one measured that takes no work."""
    if not cluster.presence_of(host.name).is_connected or host.lost:
        return "it is not connected"
    if host.measured.running:
        return f"it is being checked: {host.measured.running}"
    if host.allocations or host.orphans or host.quarantined:
        return "it has work"
    if host.going_down or host.unreconciled or host.refused:
        return "it shuts down, or its agent was turned away"
    if not asked:
        others = any(f.holds and not f.check.startswith(PREFIX) for f in host.failed_checks.values())
        if host.cordoned or others or host.to_reboot is not None:
            return "it takes no work"
        if host.name in cluster.spares:
            return "it is kept as a spare"
    if host.takes_work and (name := waiting.for_host(host)):
        return f"{name} waits for hosts"
    return ""


def due(host: Host, settings: HostChecks, now: Wall) -> tuple[Kind, Why] | None:
    """The check of a host that is due, and why; None where none is."""
    found = [(kind, why) for kind in Kind if (why := host.measured.due(kind)) is not None]
    if settings.on and not found and host.boot_id:
        last = host.measured.last(Kind.ALONE)
        slow = any(check.startswith(PREFIX) for check in host.failed_checks)
        every_s = min(settings.every_s, FINDING_EVERY_S) if slow else settings.every_s
        if last == NEVER:
            found = [(Kind.ALONE, Why.JOINED)]
        elif now >= last + every_s:
            found = [(Kind.ALONE, Why.ROUTINE)]
    allowed = [each for each in found if settings.on or each[1] in ASKED_FOR]
    return min(allowed, key=lambda each: URGENCY[each[1]], default=None)


def plan(cluster: Cluster, settings: HostChecks, now: Wall) -> Iterator[tuple[list[Host], Kind, Why]]:
    """Yield checks to begin: the hosts, what is measured, and why."""
    running = sum(bool(host.measured.running) for host in cluster.hosts.values())
    room = max(2, len(cluster.hosts) * settings.at_once_pct // 100) - running
    wanted = [(host, *what) for host in cluster.hosts.values() if (what := due(host, settings, now)) is not None]
    wanted.sort(key=lambda each: (URGENCY[each[2]], -each[0].excess, each[0].measured.last(each[1]), each[0].name))
    taken: set[str] = set()
    waiting = WaitingJobs(cluster)
    idle: list[Host] | None = None
    for host, kind, why in wanted:
        if room < (2 if kind is Kind.PAIR else 1):
            break
        if host.name in taken or not _is_idle(cluster, host, waiting, now, asked=why is Why.ASKED):
            continue
        hosts = [host]
        if kind is Kind.PAIR:
            if idle is None:
                idle = [
                    each for each in cluster.hosts.values() if _is_idle(cluster, each, waiting, now, asked=False)
                ]
            partner = _partner(cluster, host, [each for each in idle if each.name not in taken])
            if partner is None:
                continue
            hosts.append(partner)
        taken |= {each.name for each in hosts}
        room -= len(hosts)
        yield hosts, kind, why


def _is_idle(cluster: Cluster, host: Host, waiting: WaitingJobs, now: Wall, *, asked: bool) -> bool:
    rested = asked or (now >= host.measured.idle_since + IDLE_S and now >= host.measured.not_before)
    return rested and not why_not(cluster, host, waiting, asked=asked)


def _partner(cluster: Cluster, host: Host, idle: list[Host]) -> Host | None:
    """The host to measure with another: one like it, none of the last partners, and those first that are due too."""
    pairs = [each.partner for each in host.measured.results if each.kind is Kind.PAIR and each.figures]
    known = {host.name, *pairs[-_CHANGED:]}
    like = hardware_of(host)
    found = [
        each
        for each in idle
        if each.name not in known and not measured.is_suspect(each) and hardware_of(each) == like
    ]
    return min(
        found,
        key=lambda each: (each.measured.due_pair is None, each.measured.last(Kind.PAIR), each.name),
        default=None,
    )
