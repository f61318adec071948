"""Answers to the controller: its epoch, its assignments, its acknowledgements."""

from __future__ import annotations

from holdfast._session.reports import ReportedState
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.host_state import HostState
from holdfast_agent.core.worker.states import CannotPrepare, Empty
from holdfast_agent.core.worker.worker import Worker, forget_unused, keep_going


def on_dialled(host: HostState) -> list[Action]:
    """Greet the controller with a report of every worker, also of those that were prepared and never launched.

    Of those the controller would otherwise believe that their ranks ran and were lost.
    """
    reports = tuple(worker.report() for worker in host.workers.values() if worker.generation or worker.attempts)
    host.said_alive = [report.key for report in reports if report.state is not ReportedState.EMPTY]
    return [act.SendHello(host.epoch, reports)]


def on_welcomed(host: HostState, event: ev.Welcomed) -> list[Action]:
    """Obey this controller unless a later one has spoken; then send what it may not have."""
    if event.epoch < host.epoch:
        return [act.CloseSession(f"epoch {event.epoch} is over; {host.epoch} has begun")]
    actions = raise_epoch(host, event.epoch)
    host.connected = True
    host.answered = 0
    if host.going_down:
        actions.append(act.SendGoingDown())
    if event.tell_all:
        host.keep_again()
    actions += map(host.send_exit, host.outbox)
    # A worker that this controller has never heard of is assigned nothing, which would have it reported.
    emptied = (host.workers[key] for key in host.said_alive if key in host.workers)
    for worker in emptied:
        if worker.report().state is ReportedState.EMPTY:
            actions += host.report(worker)
    return actions


def on_disconnected(host: HostState) -> list[Action]:
    """Forget the session's sequence numbers; workers run on."""
    host.connected = False
    host.sequence = 0
    host.sent.clear()
    return []


def on_controller_heard(host: HostState, event: ev.ControllerHeard) -> list[Action]:
    """Extend the deadlines of fenced workers: the controller counts this host as alive from ``sent_s`` on.

    What it has to say to a hello it has said before it answers the message after that: a worker of an earlier run in
    which nothing was launched, and that it assigns nothing, is forgotten then.
    """
    host.heard_s = max(host.heard_s, event.sent_s)
    host.answered += 1
    actions: list[Action] = []
    for worker in host.workers.values():
        worker.heard_s = host.heard_s
        actions += keep_going(worker)
        if host.answered > 1 and worker.state == Empty(0) and worker.desired is None:
            actions += forget_unused(worker)
    return actions


def on_assigned(host: HostState, event: ev.Assigned, now: float) -> list[Action]:
    """Take the assignment, unless it is of the past, and go towards it. Always answered by the worker's state."""
    desired = event.assignment
    if desired.epoch < host.epoch:
        return [
            act.Note("assignment.refused", desired.key, f"epoch {desired.epoch} is over; {host.epoch} has begun")
        ]
    actions = raise_epoch(host, desired.epoch)
    worker = host.workers.get(desired.key)
    if worker is None:
        worker = host.workers[desired.key] = Worker(desired.key)
    worker.heard_s = host.heard_s
    if desired.generation < worker.generation:
        note = act.Note(
            "assignment.outdated", desired.key, f"generation {desired.generation} < {worker.generation}"
        )
        return [*actions, note, *host.report(worker)]
    worker.desired = desired
    if desired.launch is not None and desired.attempt != worker.attempt(desired.generation):
        worker.attempts.append((desired.generation, desired.attempt))
        actions.append(act.RememberAttempt(desired.key, desired.generation, desired.attempt))
    if isinstance(worker.state, CannotPrepare) and worker.state.generation == desired.generation:
        worker.move(Empty(desired.generation - 1))  # the controller asks again: look again
    return actions + host.advance(worker, now, always=True) + keep_going(worker)


def on_exit_acked(host: HostState, event: ev.ExitAcked, now: float) -> list[Action]:
    """Drop the exit from the outbox; a worker that waits to be forgotten may have waited for this."""
    exit_id = host.sent.pop(event.sequence, None)
    if exit_id is None or host.outbox.pop(exit_id, None) is None:
        return []
    key, generation, rank = exit_id
    actions: list[Action] = [act.RememberAck(key, generation, rank)]
    if worker := host.workers.get(key):
        worker.unacked.discard((generation, rank))
        actions += host.advance(worker, now)
    return actions


def raise_epoch(host: HostState, epoch: int) -> list[Action]:
    """Obey no controller of an older epoch from now on."""
    if epoch <= host.epoch:
        return []
    host.epoch = epoch
    return [act.PersistEpoch(epoch)]
