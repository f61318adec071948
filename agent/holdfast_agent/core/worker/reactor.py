"""The agent's decisions: one event in, actions out. No I/O, no clock, no wire or disk formats.

Theory of operation. Each worker goes its own way (``worker.worker``); the reactor routes events to workers, keeps
the outbox of ends that the controller has not acknowledged, and guards against controllers of the past: an epoch
lower than the highest seen is refused, a generation lower than the newest heard of is ignored. While there is no
session nothing is reported, because the next hello says the state of every worker and the outbox is sent again
after it.

Longer than 400 lines because it has one handler for each event, and they are read together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from holdfast._session.assignment import Assignment
from holdfast._session.reports import Exit, ExitReport, WorkerId
from holdfast_agent.core.launch.environment import HostFacts, plan_ranks
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.model.model import RankLaunch
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker import gpu_release
from holdfast_agent.core.worker.events import Action, Event
from holdfast_agent.core.worker.exit_reasons import port_was_taken, unseen_exits
from holdfast_agent.core.worker.worker import (
    CannotPrepare,
    Closing,
    Empty,
    Forgetting,
    Forgotten,
    Freeing,
    Launching,
    Lost,
    Prepared,
    Preparing,
    Quarantined,
    Running,
    Stopping,
    Stuck,
    Worker,
    advance,
    close,
    give_notice,
    keep_going,
    launch_of,
    lose,
    wind_down,
)

ExitId = tuple[WorkerId, int, int]
_GOING = (Launching, Running, Stopping, Lost, Freeing, Closing)


@dataclass(frozen=True, slots=True)
class Unacked:
    """An exit that the controller may not have."""

    exit: Exit
    port_taken: bool


@dataclass
class Reactor:
    """The state of one agent. ``step`` is the only way in."""

    facts: HostFacts
    epoch: int = 0
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    outbox: dict[ExitId, Unacked] = field(default_factory=dict)
    unused: dict[str, int] = field(default_factory=dict)
    """Bytes that each GPU holds while unused, by UUID."""
    heard_s: float = 0.0
    """Send time of the newest message that the controller answered; seconds since boot."""
    going_down: bool = False
    """Nothing is started any more."""
    unwanted: set[str] = field(default_factory=set)
    """Deleted jobs whose workers are still here: their output goes with the last of them."""
    _connected: bool = False
    _sequence: int = 0
    _sent: dict[int, ExitId] = field(default_factory=dict)

    def step(self, event: Event, now: float) -> list[Action]:
        """The actions that answer an event, in order. ``now`` is monotonic seconds."""
        match event:
            case ev.RankExited():
                return self.on_rank_exited(event, now)
            case ev.RankStarted():
                return self.on_rank_started(event)
            case ev.WorkerEmptied():
                return self.on_worker_emptied(event, now)
            case ev.GpusRead():
                return self.on_gpus_read(event, now)
            case ev.ControllerHeard():
                return self.on_controller_heard(event)
            case ev.Assigned():
                return self.on_assigned(event, now)
            case ev.WorkerPrepared():
                return self.on_worker_prepared(event, now)
            case ev.PreparationTakesLong():
                return self.on_preparation_takes_long(event, now)
            case ev.PreparationFailed():
                return self.on_preparation_failed(event, now)
            case ev.ExitAcked():
                return self.on_exit_acked(event, now)
            case ev.WorkerStuck():
                return self.on_worker_stuck(event, now)
            case ev.PeersSilent():
                return self.on_peers_silent(event)
            case ev.WarmStartNoted():
                return self.on_warm_start_noted(event)
            case ev.LaunchRefused():
                return self.on_launch_refused(event, now)
            case ev.EpilogEnded():
                return self.on_epilog_ended(event, now)
            case ev.ShimGreeted():
                return self.on_shim_greeted(event, now)
            case ev.ShimLost():
                return self.on_shim_lost(event)
            case ev.OrphansCleared():
                return self.on_orphans_cleared(event, now)
            case ev.WorkerForgotten():
                return self.on_worker_forgotten(event, now)
            case ev.OutputUnwanted():
                return self.on_output_unwanted(event)
            case ev.OutputRemoved(job, problem):
                return [ev.SendOutputDeleted(job, problem)] if self._connected else []
            case ev.Dialled():
                return self.on_dialled()
            case ev.Welcomed():
                return self.on_welcomed(event)
            case ev.Disconnected():
                return self.on_disconnected()
            case ev.WorkerFound():
                return self.on_worker_found(event, now)
            case ev.ShutdownAhead():
                return self.on_shutdown_ahead()
            case ev.ShutdownBegan():
                return self.on_shutdown_began()
            case _:
                assert_never(event)

    @property
    def connected(self) -> bool:
        """Whether a controller has welcomed us and is not gone since."""
        return self._connected

    @property
    def wound_down(self) -> bool:
        """Whether nothing runs that would still end by itself."""
        return not any(isinstance(worker.state, _GOING) for worker in self.workers.values())

    # --- the controller -----------------------------------------------------------------------------------------

    def on_dialled(self) -> list[Action]:
        """Greet the controller with a report of every worker, also of those that were prepared and never launched.

        Of those the controller would otherwise believe that their ranks ran and were lost.
        """
        reports = (worker.report() for worker in self.workers.values() if worker.generation or worker.attempts)
        return [ev.SendHello(self.epoch, tuple(reports))]

    def on_welcomed(self, event: ev.Welcomed) -> list[Action]:
        """Obey this controller unless a later one has spoken; then send what it may not have."""
        if event.epoch < self.epoch:
            return [ev.CloseSession(f"epoch {event.epoch} is over; {self.epoch} has begun")]
        actions = self._raise_epoch(event.epoch)
        self._connected = True
        if self.going_down:
            actions.append(ev.SendGoingDown())
        if event.tell_all:
            self._keep_again()
        for exit_id, unacked in self.outbox.items():
            actions.append(self._send_exit(exit_id, unacked))
        return actions

    def on_disconnected(self) -> list[Action]:
        """Forget the session's sequence numbers; workers run on."""
        self._connected = False
        self._sequence = 0
        self._sent.clear()
        return []

    def on_controller_heard(self, event: ev.ControllerHeard) -> list[Action]:
        """Extend the deadlines of fenced workers: the controller counts this host as alive from ``sent_s`` on."""
        self.heard_s = max(self.heard_s, event.sent_s)
        actions: list[Action] = []
        for worker in self.workers.values():
            worker.heard_s = self.heard_s
            actions += keep_going(worker)
        return actions

    def on_assigned(self, event: ev.Assigned, now: float) -> list[Action]:
        """Take the assignment, unless it is of the past, and go towards it. Always answered by the worker's state."""
        desired = event.assignment
        if desired.epoch < self.epoch:
            return [
                ev.Note("assignment.refused", desired.key, f"epoch {desired.epoch} is over; {self.epoch} has begun")
            ]
        actions = self._raise_epoch(desired.epoch)
        worker = self.workers.get(desired.key)
        if worker is None:
            worker = self.workers[desired.key] = Worker(desired.key)
        worker.heard_s = self.heard_s
        if desired.generation < worker.generation:
            note = ev.Note(
                "assignment.outdated", desired.key, f"generation {desired.generation} < {worker.generation}"
            )
            return [*actions, note, *self._report(worker)]
        worker.desired = desired
        if desired.launch is not None and desired.attempt != worker.attempt(desired.generation):
            worker.attempts.append((desired.generation, desired.attempt))
            actions.append(ev.RememberAttempt(desired.key, desired.generation, desired.attempt))
        if isinstance(worker.state, CannotPrepare) and worker.state.generation == desired.generation:
            worker.move(Empty(desired.generation - 1))  # the controller asks again: look again
        return actions + self._advance(worker, now, always=True) + keep_going(worker)

    def on_exit_acked(self, event: ev.ExitAcked, now: float) -> list[Action]:
        """Drop the exit from the outbox; a worker that waits to be forgotten may have waited for this."""
        exit_id = self._sent.pop(event.sequence, None)
        if exit_id is None or self.outbox.pop(exit_id, None) is None:
            return []
        key, generation, rank = exit_id
        actions: list[Action] = [ev.RememberAck(key, generation, rank)]
        if worker := self.workers.get(key):
            worker.unacked.discard((generation, rank))
            actions += self._advance(worker, now)
        return actions

    def on_shutdown_ahead(self) -> list[Action]:
        """Tell the controller that the host shuts down, warn the ranks that are to be warned, and stop the others."""
        self.going_down = True
        actions: list[Action] = [ev.SendGoingDown()] if self._connected else []
        for worker in self.workers.values():
            actions += give_notice(worker) or self._wind_down(worker)
        return actions

    def _wind_down(self, worker: Worker) -> list[Action]:
        if not isinstance(worker.state, (Launching, Running)):
            return []
        return [wind_down(worker), *self._report(worker)]

    @property
    def notice_s(self) -> float:
        """The longest time that ranks which were warned of the shutdown, and still run, have from their warning on."""
        running = (worker for worker in self.workers.values() if isinstance(worker.state, Running))
        return max((worker.notice_s for worker in running), default=0.0)

    def on_shutdown_began(self) -> list[Action]:
        """Tell the controller that the host shuts down, then stop every worker with its grace period."""
        actions: list[Action] = [ev.SendGoingDown()] if self._connected and not self.going_down else []
        self.going_down = True
        for worker in self.workers.values():
            actions += self._wind_down(worker)
        return actions

    # --- the shell ----------------------------------------------------------------------------------------------

    def on_worker_found(self, event: ev.WorkerFound, now: float) -> list[Action]:
        """Take up a worker of an earlier run. Nothing is reported yet; the orphans of a dead shim are cleared."""
        worker = self.workers[event.key] = Worker(event.key, shim_pid=event.shim_pid)
        worker.attempts = sorted(event.attempts)
        for journal in event.journals:
            for exit_ in map(worker.with_attempt, journal.exits):
                worker.ended[journal.generation, exit_.rank] = exit_
                if (journal.generation, exit_.rank) not in event.acked:
                    self._keep(worker, exit_, port_taken=False)
        if not event.journals:
            return [] if event.shim_pid else self._forget_unused(worker)
        last = max(event.journals, key=lambda journal: journal.generation)
        worker.pids = dict(last.started)
        worker.codes = {exit_.rank: _code(exit_) for exit_ in last.exits}
        # What an earlier boot has left on a GPU is gone.
        worker.gpus = () if last.other_boot else last.gpus
        if last.empty and worker.gpus and event.freed < last.generation:
            return gpu_release.resume(worker, last.generation, now)
        if last.empty and self.facts.has_epilog and event.closed < last.generation:
            worker.find(Empty(last.generation))
            return close(worker)
        if last.empty:
            worker.find(Empty(last.generation))
        elif event.shim_pid:
            worker.find(Stopping(last.generation) if last.stopping else Running(last.generation))
        else:
            worker.find(Lost(last.generation))
            return [ev.ClearOrphans(worker.key, last.generation)]
        return []

    def on_worker_prepared(self, event: ev.WorkerPrepared, now: float) -> list[Action]:
        """Mark the worker as prepared; if another generation is desired by now, go on to that."""
        worker = self._in_state(event.key, Preparing, event.generation)
        if worker is None:
            return []
        worker.shim_pid = event.shim_pid
        worker.container = event.container
        worker.code = event.code
        worker.user = event.user
        worker.move(Prepared(event.generation, event.port, event.master_port))
        if worker.desired and worker.desired.generation == event.generation:
            worker.checked = worker.desired.launch or worker.checked
        return self._advance(worker, now, always=True)

    def on_preparation_takes_long(self, event: ev.PreparationTakesLong, now: float) -> list[Action]:
        """Report a long step of the preparation, once for each step; it may be no longer needed."""
        worker = self._in_state(event.key, Preparing, event.generation)
        if worker is None or worker.doing == event.doing:
            return []
        worker.doing = event.doing
        return self._settle(worker, now)

    def on_preparation_failed(self, event: ev.PreparationFailed, now: float) -> list[Action]:
        """Report why the preparation failed."""
        worker = self._in_state(event.key, Preparing, event.generation)
        if worker is None:
            return []
        worker.checked = None
        worker.move(CannotPrepare(event.generation, event.message, event.host_fault))
        return self._settle(worker, now)

    def on_rank_started(self, event: ev.RankStarted) -> list[Action]:
        """Keep the rank's pid, and report once all ranks are accounted for."""
        worker = self.workers.get(event.key)
        if worker is None or worker.state.generation != event.generation or event.rank in worker.pids:
            return []
        worker.pids[event.rank] = event.pid
        if event.warm:
            worker.started_warm.add(event.rank)
        return self._account(worker)

    def on_rank_exited(self, event: ev.RankExited, now: float) -> list[Action]:
        """Send the exit to the controller, once."""
        worker = self.workers.get(event.key)
        generation, rank = event.exit.generation, event.exit.rank
        if worker is None or (generation, rank) in worker.ended:
            return []
        exit_ = worker.ended[generation, rank] = worker.with_attempt(event.exit)
        if generation == worker.state.generation:
            worker.codes[rank] = _code(exit_)
        actions = self._keep(worker, exit_, port_taken=port_was_taken(exit_, worker.launched_at, now))
        live = isinstance(worker.state, (Launching, Running)) and worker.state.generation == generation
        if live and rank not in worker.pids:
            actions += self._account(worker)
        return actions

    def on_worker_emptied(self, event: ev.WorkerEmptied, now: float) -> list[Action]:
        """Let the next generation come, since no process is left; first the GPUs have to be free."""
        worker = self.workers.get(event.key)
        if worker is None or event.generation < worker.state.generation:
            return []
        match worker.state:
            case Launching() | Running() | Stopping() | Stuck() | Lost():
                if worker.gpus:
                    return gpu_release.begin(worker, now)
                worker.move(Empty(worker.state.generation))
                return [ev.FreePorts(worker.key), *self._emptied(worker, now)]
            case _:
                return []

    def on_gpus_read(self, event: ev.GpusRead, now: float) -> list[Action]:
        """Learn what an unused GPU holds, and go on with a worker that waits for its GPUs to be free."""
        actions: list[Action] = []
        if not isinstance(event.usage, Blind) and gpu_release.learn(self.unused, event.usage):
            actions.append(ev.RememberUnused(tuple(sorted(self.unused.items()))))
        worker = self.workers.get(event.key) if event.key else None
        if worker is None or not isinstance(worker.state, (Freeing, Quarantined)):
            return actions
        before = worker.report()
        held = gpu_release.still_held(worker.gpus, event, self.unused, self.facts.gpu_names)
        actions += gpu_release.after_look(worker, held and f"{self.facts.name}: {held}", now)
        if isinstance(worker.state, Empty):
            return actions + self._emptied(worker, now)
        return actions + (self._report(worker) if worker.report() != before else [])

    def on_epilog_ended(self, event: ev.EpilogEnded, now: float) -> list[Action]:
        """Mark the worker as empty; a failed epilog is reported and keeps later generations away."""
        worker = self._in_state(event.key, Closing, event.generation)
        if worker is None:
            return []
        worker.move(Empty(event.generation, event.problem))
        return [ev.RememberClosed(event.key, event.generation), *self._settle(worker, now)]

    def on_worker_stuck(self, event: ev.WorkerStuck, now: float) -> list[Action]:
        """Report the processes that are left; they may still end."""
        worker = self.workers.get(event.key)
        if worker is None or event.generation < worker.state.generation:
            return []
        match worker.state:
            case Launching() | Running() | Stopping() | Stuck() | Lost():
                news = Stuck(worker.state.generation, event.message)
                if news == worker.state:
                    return []
                worker.move(news)
                return self._report(worker)
            case _:
                return []

    def on_peers_silent(self, event: ev.PeersSilent) -> list[Action]:
        """Report which other workers of the job are silent, once per change."""
        worker = self.workers.get(event.key)
        if worker is None or worker.silent_peers == event.silent:
            return []
        worker.silent_peers = event.silent
        return self._report(worker)

    def on_warm_start_noted(self, event: ev.WarmStartNoted) -> list[Action]:
        """Keep what the shim says of the next start, and report it once per change."""
        worker = self.workers.get(event.key)
        if worker is None:
            return []
        worker.parked = event.parked > 0
        if worker.warm == event.message:
            return []
        worker.warm = event.message
        return self._report(worker)

    def on_launch_refused(self, event: ev.LaunchRefused, now: float) -> list[Action]:
        """Report why the shim did not launch; no process was forked."""
        worker = self._in_state(event.key, Launching, event.generation)
        if worker is None:
            return [ev.Note("shim.refused", event.key, event.message)]
        worker.move(CannotPrepare(event.generation, f"{self.facts.name}: {event.message}", event.host_fault))
        # The same assignment would only be refused again; a new one counts.
        return [ev.FreePorts(worker.key), *self._report(worker)]

    # --- shims --------------------------------------------------------------------------------------------------

    def on_shim_greeted(self, event: ev.ShimGreeted, now: float) -> list[Action]:
        """Send the shim again what the last connection may have lost; the shim does nothing twice."""
        worker = self.workers.get(event.key)
        if worker is None:
            return []
        worker.shim_pid = event.shim_pid
        worker.warned = 0
        match worker.state:
            case Running():
                return keep_going(worker)
            case Empty(0) if not event.generation and worker.desired is None:
                return self._forget_unused(worker)
            case Empty(generation) if event.live and event.generation > generation:
                worker.pids, worker.codes = {}, {}
                worker.move(Running(event.generation))
                return self._advance(worker, now, always=True)
            case Launching(generation) if event.generation < generation and worker.desired is not None:
                return [launch_of(worker, self._plan(worker.desired))]
            case Stopping() | Stuck():
                worker.stop_asked = None
                return self._advance(worker, now)
            case _:
                return []

    def on_shim_lost(self, event: ev.ShimLost) -> list[Action]:
        """Clear the processes that the shim had launched."""
        worker = self.workers.get(event.key)
        if worker is None:
            return []
        if worker.state == Empty(0) and worker.desired is None:
            return self._forget_unused(worker)
        actions = lose(worker)
        return actions + (self._report(worker) if actions else [])

    def on_orphans_cleared(self, event: ev.OrphansCleared, now: float) -> list[Action]:
        """Account for every rank of the dead shim's: from the journal where it says so, else honestly unknown."""
        worker = self.workers.get(event.key)
        if worker is None or not isinstance(worker.state, (Lost, Stuck)):
            return []
        actions: list[Action] = []
        journal = event.journal
        for exit_ in journal.exits if journal else ():
            actions += self.on_rank_exited(ev.RankExited(event.key, exit_), now)
        launched = tuple(worker.launched.ranks) if worker.launched else ()
        ranks = journal.launched if journal else launched
        if journal is not None and journal.empty:
            return actions + self.on_worker_emptied(ev.WorkerEmptied(event.key, event.generation), now)
        exits = unseen_exits(journal, event.generation, ranks, event.found)
        actions.append(ev.RecordExits(event.key, event.generation, exits, () if journal else ranks))
        return actions

    def on_worker_forgotten(self, event: ev.WorkerForgotten, now: float) -> list[Action]:
        """Drop the worker, unless the controller wants a newer generation by now."""
        worker = self.workers.get(event.key)
        if worker is None or not isinstance(worker.state, Forgetting):
            return []
        worker.move(Forgotten(worker.state.generation))
        del self.workers[event.key]
        if worker.desired is None or worker.desired.generation <= worker.state.generation:
            return [*self._report(worker), *self._without_worker(event.key.job)]
        return self.on_assigned(ev.Assigned(worker.desired), now)

    def on_output_unwanted(self, event: ev.OutputUnwanted) -> list[Action]:
        """Remove a deleted job's output, once no worker of it is left here."""
        self.unwanted.add(event.job)
        return self._without_worker(event.job)

    def _without_worker(self, job: str) -> list[Action]:
        if job not in self.unwanted or any(key.job == job for key in self.workers):
            return []
        self.unwanted.discard(job)
        return [ev.RemoveOutput(job)]

    def _forget_unused(self, worker: Worker) -> list[Action]:
        """Forget a worker of an earlier run in which nothing was ever launched; an assignment creates it again."""
        worker.move(Forgetting(0))
        return [ev.Forget(worker.key)]

    # --- parts --------------------------------------------------------------------------------------------------

    def _plan(self, desired: Assignment) -> tuple[RankLaunch, ...]:
        worker = self.workers[desired.key]
        return plan_ranks(desired, self.facts.running_as(worker.user), worker.container, worker.code)

    def _advance(self, worker: Worker, now: float, *, always: bool = False) -> list[Action]:
        """Take steps towards the desired state, then report where the state has changed (or ``always``)."""
        before = worker.state
        starts = worker.desired is not None and worker.desired.launch is not None
        actions = [] if self.going_down and starts else advance(worker, self._plan, now)
        changed = worker.state != before and not isinstance(worker.state, (Preparing, Launching, Forgetting))
        if changed or (always and not isinstance(worker.state, (Launching, Forgetting))):
            actions += self._report(worker)
        return actions

    def _settle(self, worker: Worker, now: float) -> list[Action]:
        """Report the worker's state, then go on."""
        return [*self._report(worker), *self._advance(worker, now)]

    def _emptied(self, worker: Worker, now: float) -> list[Action]:
        """Run the admin's epilog, where there is one, before anything else; no process is left."""
        return close(worker) if self.facts.has_epilog else self._settle(worker, now)

    def _report(self, worker: Worker) -> list[Action]:
        return [ev.SendReport(worker.report())] if self._connected else []

    def _account(self, worker: Worker) -> list[Action]:
        """Mark the worker as running, and report it once every rank has started or failed to."""
        generation = worker.state.generation
        if isinstance(worker.state, Launching):
            worker.move(Running(generation))
        known = worker.pids.keys() | {rank for number, rank in worker.ended if number == generation}
        complete = worker.launched is not None and len(known) == worker.launched.processes
        return self._report(worker) + keep_going(worker) if complete and isinstance(worker.state, Running) else []

    def _in_state(self, key: WorkerId, kind: type[object], generation: int) -> Worker | None:
        """The worker, if it is in the state that an answer about this generation expects."""
        worker = self.workers.get(key)
        if worker is None or not isinstance(worker.state, kind) or worker.state.generation != generation:
            return None
        return worker

    def _keep(self, worker: Worker, exit_: Exit, *, port_taken: bool) -> list[Action]:
        exit_id = (worker.key, exit_.generation, exit_.rank)
        unacked = self.outbox[exit_id] = Unacked(exit_, port_taken)
        worker.unacked.add((exit_.generation, exit_.rank))
        return [self._send_exit(exit_id, unacked)] if self._connected else []

    def _keep_again(self) -> None:
        """Put exits that were acknowledged into the outbox again."""
        for worker in self.workers.values():
            for (generation, rank), exit_ in worker.ended.items():
                exit_id = (worker.key, generation, rank)
                if exit_id not in self.outbox:
                    self.outbox[exit_id] = Unacked(exit_, port_taken=False)
                    worker.unacked.add((generation, rank))

    def _send_exit(self, exit_id: ExitId, unacked: Unacked) -> Action:
        self._sequence += 1
        self._sent[self._sequence] = exit_id
        return ev.SendExit(ExitReport(self._sequence, exit_id[0], unacked.exit, unacked.port_taken))

    def _raise_epoch(self, epoch: int) -> list[Action]:
        if epoch <= self.epoch:
            return []
        self.epoch = epoch
        return [ev.PersistEpoch(epoch)]


def _code(exit_: Exit) -> int:
    """The exit code as a shell shows it; 125 where the end is unknown."""
    return 125 if exit_.shell_code is None else exit_.shell_code
