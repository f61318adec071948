"""Reservations of hosts (see ``model.hosts.reservations``): admins make and delete them, and each ends with its time.

The times are people's, so the wall clock decides and is looked at again at least each minute, as for maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._base import identity, projects
from holdfast._base.dataclass import dataclass, replace
from holdfast._base.job_file.label_match import Condition, contradiction
from holdfast.errors import InvalidInput, NotFound, Violation
from holdfast_controller.core.events.reservations import ReservationBegan, ReservationEnded, ReservationMade
from holdfast_controller.core.messages.reservations import what_is_reserved
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.reservations import Choice, Reservation, Whose, choose
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import ran_so_far
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer

LOOK_S = 60.0
"""The longest time until the wall clock is looked at again."""
CHOSEN_S = 30.0
"""Hosts that were chosen are kept for so long, if all of them take work."""
LATE_S = 60.0
"""A start that is so little past was meant to be now."""
MOST = 100
"""Reservations that aren't over: each look at the queue chooses the hosts of all of them."""
MOST_HOSTS, MOST_GPUS, MOST_REASON = 100_000, 1_000_000, 200
LONGEST_S, AHEAD_S = 366 * 86_400.0, 366 * 86_400.0


def on_reservation(step: Step, asked: ReservationAsked | ReservationDeletionAsked) -> None:
    """Make a reservation, or delete one."""
    if isinstance(asked, ReservationAsked):
        _make(step, asked)
        return
    if asked.name not in step.cluster.reservations.by_name:
        problem = f"There is no reservation {asked.name!r}."
        step.do(Refuse(asked.token, NotFound(problem, fix="See: holdfast reservation list")))
        return
    _end(step, asked.name, asked.by)
    step.do(Reply(asked.token, asked.name))


def _make(step: Step, asked: ReservationAsked) -> None:
    wall = step.now.wall
    made = replace(asked.reservation, start=asked.reservation.start or wall, made_at=wall)
    if wrong := _wrong(made, step.now) or _wrong_hosts(step.cluster, made):
        step.do(Refuse(asked.token, InvalidInput(wrong)))
        return
    step.emit(ReservationMade(at=wall, reservation=made))
    step.capacity_freed = True
    _arm(step)
    step.do(Reply(asked.token, made.name))


def _wrong(made: Reservation, now: Now) -> list[Violation]:
    """Why a reservation is not accepted, whatever hosts there are."""
    found = []
    if not projects.is_project(made.name):
        found.append(Violation("name", f"must {projects.MUST}", "such as conference"))
    if not made.project and not made.user:
        found.append(
            Violation("project", "is missing", "name the project or the user whose jobs the hosts are for")
        )
    if made.project and not projects.is_project(made.project):
        found.append(Violation("project", f"must {projects.MUST}", "such as vision"))
    if made.user and not identity.is_name(made.user):
        found.append(Violation("user", "is no user's name", f"write {identity.NAME_RULE}"))
    if made.start < now.wall - LATE_S:
        late_s = now.wall - made.start
        found.append(Violation("start", f"lies {late_s:.0f} s in the past", "leave it out to begin now"))
    elif made.start > now.wall_in(AHEAD_S):
        found.append(Violation("start", "is more than a year from now", "reserve hosts when the time is nearer"))
    if made.end <= max(made.start, now.wall):
        found.append(Violation("end", "is not after the start and after now", "name a later time"))
    elif made.end - made.start > LONGEST_S:
        fix = "name an earlier end; for good, guarantee the project GPUs: holdfast share set PROJECT --guarantee N"
        found.append(Violation("end", "is more than a year after the start", fix))
    if made.count and made.gpus:
        found.append(
            Violation("gpus", "cannot be set together with count", "ask for so many hosts, or so many GPUs")
        )
    if made.selector.hosts and made.chooses:
        field = "count" if made.count else "gpus"
        fix = "name the hosts, or ask for some of those that a selector admits"
        found.append(Violation(field, "cannot be set where hosts are named", fix))
    for field, value, most in (("count", made.count, MOST_HOSTS), ("gpus", made.gpus, MOST_GPUS)):
        if not 0 <= value <= most:
            found.append(Violation(field, f"is {value}", f"use 1 to {most:,}, or leave it out"))
    wanted = [*(Condition(key, (value,)) for key, value in made.selector.labels), *made.selector.match]
    if key := contradiction(wanted):
        problem = f"holds for no host: what is asked of the label {key} excludes each other"
        found.append(Violation("match", problem, "remove one of the conditions on it"))
    if not (made.chooses or made.selector.hosts or wanted):
        fix = "name hosts or labels, or ask for a number of hosts or GPUs"
        found.append(Violation("selector", "would be every host there is", fix))
    if len(made.reason) > MOST_REASON:
        found.append(Violation("reason", f"has {len(made.reason):,} characters", f"use {MOST_REASON} at most"))
    return found


def _wrong_hosts(cluster: Cluster, made: Reservation) -> list[Violation]:
    """Why a reservation can't have the hosts that it asks for, beside those that there are already."""
    known, others = cluster.reservations.by_name, cluster.reservations.by_name.values()
    if made.name in known:
        fix = f"use another name, or delete it first: holdfast reservation delete {made.name}"
        return [Violation("name", f"there is a reservation {made.name!r}", fix)]
    if len(known) >= MOST:
        return [Violation("", f"there are {MOST} reservations already", "delete some")]
    if unknown := sorted(made.selector.hosts - cluster.hosts.keys()):
        return [Violation("hosts", f"{_some(unknown)} has not joined", "see: holdfast host list")]
    hosts = list(cluster.hosts.values())
    suitable = [host for host in hosts if made.suits(host)]
    field = "gpus" if made.gpus else "count" if made.count else "hosts" if made.selector.hosts else "selector"
    if not suitable or made.lack(suitable):
        there = f"there are {_what_is_there(made, suitable)}"
        fix = "ask for less, or have more hosts join first"
        return [Violation(field, f"asks for {what_is_reserved(made)}, and {there}", fix)]
    beside = [each for each in others if each.overlaps(made)]
    before = choose(beside, hosts, {})
    if not made.chooses:
        own = {host.name for host in suitable}
        for each in beside:
            both = sorted(own & {host.name for host in before[each.name]}) if not each.chooses else []
            if both:
                fix = f"name another time or other hosts, or delete it: holdfast reservation delete {each.name}"
                return [Violation(field, f"{_some(both)} is in the reservation {each.name} at that time", fix)]
    found = choose([*beside, made], hosts, {})
    for each in (made, *beside):
        lack = each.lack(found[each.name])
        if lack and (each is made or not each.lack(before[each.name])):
            names = ", ".join(sorted(other.name for other in beside)[:3])
            short = f"{each.name} would lack {lack}" if each is not made else f"{lack} would be missing"
            fix = "ask for less, or for another time: holdfast reservation list"
            return [Violation(field, f"at that time hosts are reserved already ({names}): {short}", fix)]
    return []


def _what_is_there(made: Reservation, suitable: list[Host]) -> str:
    if made.gpus:
        return f"{sum(map(made.gpus_of, suitable))}"
    return f"{len(suitable) or 'none'}"


def _some(names: list[str]) -> str:
    return names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def chosen_hosts(cluster: Cluster, hosts: Iterable[Host], now: Now) -> dict[str, list[Host]]:
    """By reservation that isn't over: which of ``hosts`` it has at present."""
    known = tuple(each for each in cluster.reservations.by_name.values() if each.end > now.wall)
    if not any(each.chooses for each in known):
        return choose(known, hosts, {})
    by_name, kept = {host.name: host for host in hosts}, cluster.chosen
    if kept is not None and now.mono < kept.until and kept.holds_for(known, by_name):
        return {each: [by_name[name] for name in names] for each, names in kept.chosen.items()}
    found = choose(known, by_name.values(), _busy(cluster, now))
    # To choose is to look at all that runs. Others keep off what was chosen, so it stays as good as it was.
    lacks = any(each.lack(found[each.name]) for each in known)
    until = now.mono if lacks else now.mono_in(CHOSEN_S)
    names = {each: tuple(host.name for host in chosen) for each, chosen in found.items()}
    cluster.chosen = Choice(known, len(by_name), until, names)
    return found


def _busy(cluster: Cluster, now: Now) -> dict[str, dict[Whose, Wall]]:
    """By host: whose jobs there can't be taken back, and when the last of each is expected to end."""
    found: dict[str, dict[Whose, Wall]] = {}
    for name in cluster.holdings.gpus_by_job:
        job = cluster.jobs.whole[name]
        if job.revocable:
            continue
        until = _until(cluster, job, now)
        for host in {place.host for place in job.places}:
            known = found.setdefault(host, {})
            known[job.whose] = max(known.get(job.whose, until), until)
    return found


def _until(cluster: Cluster, job: Job, now: Now) -> Wall:
    ran_s = ran_so_far(job, now.wall)
    return now.wall_in(max(cluster.run_times.estimate(job, ran_s).seconds - ran_s, 0.0))


@dataclass(frozen=True, slots=True)
class ReservedNow:
    """A reservation and the hosts that it has; what it lacks, in words; jobs of others that may be in its way."""

    reservation: Reservation
    hosts: tuple[str, ...]
    lack: str
    jobs_of_others: int


def reserved_now(cluster: Cluster, hosts: list[Host], now: Now) -> list[ReservedNow]:
    """The reservations that aren't over, with what they have of ``hosts``, those that take work; the next one first."""
    chosen, found = chosen_hosts(cluster, hosts, now), []
    running = [cluster.jobs.whole[name] for name in cluster.holdings.gpus_by_job]
    last = {job.id: _until(cluster, job, now) for job in running if chosen and not job.revocable}
    for each in sorted(cluster.reservations.by_name.values(), key=lambda each: (each.start, each.name)):
        if each.name not in chosen:
            continue
        own = {host.name for host in chosen[each.name]}
        others = sum(
            not each.is_for(job.whose)
            and last.get(job.id, each.start) > each.start
            and any(place.host in own for place in job.places)
            for job in running
        )
        found.append(ReservedNow(each, tuple(sorted(own)), each.lack(chosen[each.name]), others))
    return found


def on_time(step: Step) -> None:
    """Look at the clock: some may be over."""
    for each in list(step.cluster.reservations.by_name.values()):
        if each.end <= step.now.wall:
            _end(step, each.name, "")
        elif each.start <= step.now.wall and each.name not in step.cluster.reservations.begun:
            step.emit(ReservationBegan(at=step.now.wall, name=each.name))
            step.capacity_freed = True
    _arm(step)


def _end(step: Step, name: str, by: str) -> None:
    step.emit(ReservationEnded(at=step.now.wall, name=name, by=by))
    step.capacity_freed = True


def _arm(step: Step) -> None:
    known = step.cluster.reservations
    times = [each.end if each.name in known.begun else each.start for each in known.by_name.values()]
    if times:
        due = step.now.mono_due(min(times), at_most_s=LOOK_S)
        step.timers.set((ClusterTimer.RESERVATIONS, ""), due)
