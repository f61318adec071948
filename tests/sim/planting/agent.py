"""Bugs planted in the agent's core and in the shim."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from holdfast._session.reports import ExitReason
from holdfast_agent.core.worker import actions as agent_act
from holdfast_agent.core.worker import ends, exit_reasons, starts
from holdfast_agent.core.worker import events as agent_ev
from holdfast_agent.core.worker import orders as agent_orders
from holdfast_agent.core.worker import states as agent_states
from holdfast_agent.core.worker.host_state import HostState
from holdfast_agent.shim.peers import PeerBook


def epoch_not_noted() -> AbstractContextManager[Any]:
    def raise_epoch(host: Any, epoch: int) -> Any:
        host.epoch = max(host.epoch, epoch)
        return []

    return patch.object(agent_orders, "raise_epoch", raise_epoch)


def unseen_is_not_started() -> AbstractContextManager[Any]:
    return patch.object(exit_reasons, "_why", lambda *_: (ExitReason.NOT_STARTED, "never started"))


def any_peer_will_do() -> AbstractContextManager[Any]:
    def deadline(self: PeerBook) -> float:
        return max(self._answered.values()) + self.term_s if self.held else float("inf")

    return patch.object(PeerBook, "deadline", property(deadline))


def peers_do_not_help() -> AbstractContextManager[Any]:
    return patch.object(PeerBook, "deadline", property(lambda self: 0.0 if self.held else float("inf")))


def sent_is_delivered() -> AbstractContextManager[Any]:
    sound = HostState.keep

    def keep(self: Any, worker: Any, exit_: Any, *, port_taken: bool) -> Any:
        actions = sound(self, worker, exit_, port_taken=port_taken)
        self.outbox.pop((worker.key, exit_.generation, exit_.rank))
        return [*actions, agent_act.RememberAck(worker.key, exit_.generation, exit_.rank)]

    return patch.object(HostState, "keep", keep)


def ordered_to_stop_is_gone() -> AbstractContextManager[Any]:
    sound = agent_orders.on_assigned

    def on_assigned(self: Any, event: Any, now: float) -> Any:
        actions = sound(self, event, now)
        worker = self.workers.get(event.assignment.key)
        if worker is not None and isinstance(worker.state, agent_states.Stopping):
            gone = agent_ev.WorkerEmptied(worker.key, worker.state.generation)
            actions += ends.on_worker_emptied(self, gone, now)
        return actions

    return patch.object(agent_orders, "on_assigned", on_assigned)


def stuck_is_empty() -> AbstractContextManager[Any]:
    def on_worker_stuck(self: Any, event: Any, now: float) -> Any:
        return ends.on_worker_emptied(self, agent_ev.WorkerEmptied(event.key, event.generation), now)

    return patch.object(ends, "on_worker_stuck", on_worker_stuck)


def adopts_nothing() -> AbstractContextManager[Any]:
    sound = starts.on_worker_found
    return patch.object(
        starts,
        "on_worker_found",
        lambda self, event, now: sound(self, replace(event, shim_pid=0), now),
    )
