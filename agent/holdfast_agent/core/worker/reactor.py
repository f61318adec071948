"""The agent's decisions: one event in, actions out. No I/O, no clock, no wire or disk formats.

Theory of operation. Each worker goes its own way (``worker.worker``); the reactor routes events to workers, keeps
the outbox of ends that the controller has not acknowledged, and guards against controllers of the past: an epoch
lower than the highest seen is refused, a generation lower than the newest heard of is ignored. While there is no
session nothing is reported, because the next hello says the state of every worker and the outbox is sent again
after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import ends, orders, shutdown, starts
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.actions import Action
from holdfast_agent.core.worker.events import Event
from holdfast_agent.core.worker.host_state import HostState
from holdfast_agent.core.worker.states import Closing, Freeing, Launching, Lost, Running, Stopping

_GOING = (Launching, Running, Stopping, Lost, Freeing, Closing)


@dataclass
class Reactor(HostState):
    """``step`` is the only way in."""

    def step(self, event: Event, now: float) -> list[Action]:
        """The actions that answer an event, in order. ``now`` is monotonic seconds."""
        match event:
            case ev.RankExited():
                return ends.on_rank_exited(self, event, now)
            case ev.RankStarted():
                return starts.on_rank_started(self, event)
            case ev.WorkerEmptied():
                return ends.on_worker_emptied(self, event, now)
            case ev.GpusRead():
                return ends.on_gpus_read(self, event, now)
            case ev.ControllerHeard():
                return orders.on_controller_heard(self, event)
            case ev.Assigned():
                return orders.on_assigned(self, event, now)
            case ev.WorkerPrepared():
                return starts.on_worker_prepared(self, event, now)
            case ev.PreparationTakesLong():
                return starts.on_preparation_takes_long(self, event, now)
            case ev.PreparationFailed():
                return starts.on_preparation_failed(self, event, now)
            case ev.ExitAcked():
                return orders.on_exit_acked(self, event, now)
            case ev.WorkerStuck():
                return ends.on_worker_stuck(self, event, now)
            case ev.PeersSilent():
                return starts.on_peers_silent(self, event)
            case ev.WarmStartNoted():
                return starts.on_warm_start_noted(self, event)
            case ev.LaunchRefused():
                return starts.on_launch_refused(self, event, now)
            case ev.EpilogEnded():
                return ends.on_epilog_ended(self, event, now)
            case ev.ShimGreeted():
                return starts.on_shim_greeted(self, event, now)
            case ev.ShimLost():
                return ends.on_shim_lost(self, event)
            case ev.OrphansCleared():
                return ends.on_orphans_cleared(self, event, now)
            case ev.WorkerForgotten():
                return ends.on_worker_forgotten(self, event, now)
            case ev.OutputUnwanted():
                return ends.on_output_unwanted(self, event)
            case ev.OutputRemoved(job, problem):
                return [act.SendOutputDeleted(job, problem)] if self.connected else []
            case ev.Dialled():
                return orders.on_dialled(self)
            case ev.Welcomed():
                return orders.on_welcomed(self, event)
            case ev.Disconnected():
                return orders.on_disconnected(self)
            case ev.WorkerFound():
                return starts.on_worker_found(self, event, now)
            case ev.ShutdownAhead():
                return shutdown.on_shutdown_ahead(self)
            case ev.ShutdownBegan():
                return shutdown.on_shutdown_began(self)
            case _:
                assert_never(event)

    @property
    def wound_down(self) -> bool:
        """Whether nothing runs that would still end by itself."""
        return not any(isinstance(worker.state, _GOING) for worker in self.workers.values())

    @property
    def notice_s(self) -> float:
        """The longest time that ranks which were warned of the shutdown, and still run, have from their warning on."""
        running = (worker for worker in self.workers.values() if isinstance(worker.state, Running))
        return max((worker.notice_s for worker in running), default=0.0)
