"""The host goes down: ranks are warned, and all workers stopped."""

from __future__ import annotations

from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.host_state import HostState
from holdfast_agent.core.worker.states import Launching, Running
from holdfast_agent.core.worker.worker import Worker, give_notice, wind_down


def on_shutdown_ahead(host: HostState) -> list[Action]:
    """Tell the controller that the host shuts down, warn the ranks that are to be warned, and stop the others."""
    host.going_down = True
    actions: list[Action] = [act.SendGoingDown()] if host.connected else []
    for worker in host.workers.values():
        actions += give_notice(worker) or _stop(host, worker)
    return actions


def on_shutdown_began(host: HostState) -> list[Action]:
    """Tell the controller that the host shuts down, then stop every worker with its grace period."""
    actions: list[Action] = [act.SendGoingDown()] if host.connected and not host.going_down else []
    host.going_down = True
    for worker in host.workers.values():
        actions += _stop(host, worker)
    return actions


def _stop(host: HostState, worker: Worker) -> list[Action]:
    if not isinstance(worker.state, (Launching, Running)):
        return []
    return [wind_down(worker), *host.report(worker)]
