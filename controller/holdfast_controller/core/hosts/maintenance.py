"""Planned maintenance: a host takes no work between two set times, or until it is uncordoned.

The times are people's, so the wall clock decides and is looked at again at least each minute: a clock that is set,
or a controller that was down, moves nothing by more than that. A window that passed meanwhile is over.
A host that isn't well when its maintenance ends, or that was cordoned meanwhile, stays cordoned, and says why.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast.errors import InvalidInput, Violation, WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle import drain
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import Host, Liveness, Maintenance
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.assignment import on_host
from holdfast_controller.core.step.commands import MaintenanceAsked, MaintenanceCancelled
from holdfast_controller.core.step.lookup import find_host
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import HostTimer

LOOK_S = 60.0
"""The longest time until the wall clock is looked at again."""
LATE_S = 60.0
"""A start that is so little past was meant to be now."""


def on_maintenance(step: Step, asked: MaintenanceAsked) -> None:
    """Plan a host's maintenance, or refuse it with the reason; it begins at once where its start has come."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    plan = replace(asked.maintenance, start=asked.maintenance.start or step.now.wall)
    refusal = _wrong_times(step.now.wall, plan) or _overlap(host)
    if refusal is not None:
        step.do(Refuse(asked.token, refusal))
        return
    step.emit(ev.MaintenancePlanned(host=host.name, at=step.now.wall, maintenance=plan))
    if plan.drain:
        for job_id in dict.fromkeys(job.id for job, _ in on_host(step.cluster, host.name) if not job.terminal):
            step.emit(
                ev.MaintenanceAhead(
                    job_id=job_id, at=step.now.wall, host=host.name, start=plan.start, reason=plan.reason
                )
            )
    on_time(step, host)
    step.do(Reply(asked.token, host.name))


def _wrong_times(now: Wall, plan: Maintenance) -> InvalidInput | None:
    wrong = []
    if plan.start < now - LATE_S:
        wrong.append(Violation("start", f"lies {now - plan.start:.0f} s in the past", "leave it out to begin now"))
    if plan.end is not None and plan.end <= max(plan.start, now):
        wrong.append(Violation("end", "is not after the start and after now", "name a later time"))
    return InvalidInput(wrong) if wrong else None


def _overlap(host: Host) -> WrongState | None:
    if host.maintenance is None:
        return None
    state = "is in" if host.maintenance.begun else "has"
    why = f" ({host.maintenance.reason})" if host.maintenance.reason else ""
    return WrongState(
        f"The host {host.name} {state} maintenance{why} already, by {host.maintenance.by}.",
        fix=f"End that first: holdfast host maintenance cancel {host.name}",
    )


def on_cancel(step: Step, asked: MaintenanceCancelled) -> None:
    """Call it off, or end it now: then the host takes work again, unless it was cordoned before."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    if host.maintenance is None:
        problem = f"No maintenance of {host.name} is planned."
        step.do(Refuse(asked.token, WrongState(problem, fix="See: holdfast host maintenance list")))
        return
    _end(step, host, host.maintenance, asked.by, host.cordoned_besides)
    step.do(Reply(asked.token, host.name))


def on_time(step: Step, host: Host) -> None:
    """Look at the clock: it may begin, or be over."""
    plan, wall = host.maintenance, step.now.wall
    if plan is None:
        return
    if plan.end is not None and wall >= plan.end:
        _end(step, host, plan, "holdfast", _unwell(step, host) if plan.begun else "")
        return
    if not plan.begun and wall >= plan.start:
        _begin(step, host, plan)
        plan = host.maintenance
    following = plan.end if plan is not None and plan.begun else plan.start if plan is not None else None
    if following is not None:
        step.timers.set((HostTimer.MAINTENANCE, host.name), step.now.mono_due(following, at_most_s=LOOK_S))


def _begin(step: Step, host: Host, plan: Maintenance) -> None:
    step.emit(ev.MaintenanceBegan(host=host.name, at=step.now.wall))
    if plan.drain:
        drain.begin(step, host, plan)
    elif not host.cordoned:
        step.emit(ev.HostCordoned(host=host.name, at=step.now.wall, reason=plan.reason, by=plan.by))


def _end(step: Step, host: Host, plan: Maintenance, by: str, why: str) -> None:
    step.timers.clear((HostTimer.MAINTENANCE, host.name))
    besides = host.cordoned_besides
    step.emit(ev.MaintenanceEnded(host=host.name, at=step.now.wall, by=by, why=why))
    if not plan.begun:
        step.capacity_freed |= plan.drain
        return
    if why and not besides:
        step.emit(
            ev.HostCordoned(
                host=host.name, at=step.now.wall, reason=f"not in service after its maintenance: {why}", by=by
            )
        )
    elif not why:
        step.emit(ev.HostUncordoned(host=host.name, at=step.now.wall, by=by))
        drain.set_timers(step, host)
        step.capacity_freed = True


def _unwell(step: Step, host: Host) -> str:
    """Why a host is not put to work by itself; empty where nothing speaks against it."""
    if besides := host.cordoned_besides:
        return besides
    presence = step.cluster.presence_of(host.name)
    if host.lost or presence.session is None or presence.liveness is not Liveness.READY:
        return "nothing is heard of it"
    if host.going_down:
        return "it shuts down"
    return host.inventory.gpu_problem or next(iter(host.gpu_troubles()), "")
