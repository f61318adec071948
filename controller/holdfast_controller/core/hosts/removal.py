"""Removal of a host: its certificates are void, its workers count as gone, its name is free."""

from __future__ import annotations

from holdfast.errors import NotFound, WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.hosts.checks import release
from holdfast_controller.core.hosts.sessions import give_up_work
from holdfast_controller.core.lifecycle import deletion
from holdfast_controller.core.model.hosts.host import job_of
from holdfast_controller.core.restore.reconcile import end_if_all_told
from holdfast_controller.core.scheduling.own_spares import give_up
from holdfast_controller.core.step.access_commands import HostRemovalAsked
from holdfast_controller.core.step.actions import AccessChanged, CloseSession, Refuse, Reply
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import HostTimer


def on_host_removal(step: Step, asked: HostRemovalAsked) -> None:
    """Remove a host without shares; with ``force`` its workers are taken as gone first."""
    cluster = step.cluster
    host = cluster.hosts.get(asked.host)
    if host is None and asked.host not in cluster.people.joined:
        unknown = NotFound(f"There is no host {asked.host!r}.", fix="See: holdfast host list")
        step.do(Refuse(asked.token, unknown))
        return
    if host is not None and host.allocations and not asked.force:
        jobs = sorted({job_of(key) for key in host.allocations})
        problem = f"The host {host.name} still holds work of {', '.join(jobs[:4])}{' …' * (len(jobs) > 4)}."
        fix = f"First: holdfast host drain {host.name} --wait. If it is off for good: --force"
        step.do(Refuse(asked.token, WrongState(problem, fix=fix)))
        return
    if host is not None:
        give_up(step, host.name)
        give_up_work(step, host, f"was removed by {asked.by}")
    if host is not None and host.allocations:
        # Kept for the next attempt of a job that is still being stopped elsewhere.
        problem = f"A job that is moving still has its place on {host.name}."
        step.do(Refuse(asked.token, WrongState(problem, fix="Try again in a moment.")))
        return
    presence = cluster.presence.pop(asked.host, None)
    if presence is not None and presence.session is not None:
        step.do(CloseSession(asked.host, presence.session, "the host was removed"))
    deletion.on_host_removed(step, asked.host)
    step.emit(ev.HostRemoved(host=asked.host, at=step.now.wall, by=asked.by))
    release(step)
    cluster.awaited_hosts.discard(asked.host)
    end_if_all_told(step)
    for kind in HostTimer:
        step.timers.clear((kind, asked.host))
    step.capacity_freed = True
    step.do(AccessChanged(f"host/{asked.host}"))
    step.do(Reply(asked.token, asked.host))
