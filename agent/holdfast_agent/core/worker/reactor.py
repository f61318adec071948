"""The agent's decisions: one event in, actions out. No I/O, no clock, no wire or disk formats.

Theory of operation. Each worker goes its own way (``worker.worker``); the reactor routes events to workers, keeps
the outbox of ends that the controller has not acknowledged, and guards against controllers of the past: an epoch
lower than the highest seen is refused, a generation lower than the newest heard of is ignored. While there is no
session nothing is reported, because the next hello says where every place stands and the outbox is sent again
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
    Place,
    Prepared,
    Preparing,
    Running,
    Stopping,
    Stuck,
    Withheld,
    advance,
    close,
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
    places: dict[WorkerId, Place] = field(default_factory=dict)
    outbox: dict[ExitId, Unacked] = field(default_factory=dict)
    unused: dict[str, int] = field(default_factory=dict)
    """Bytes that each GPU holds which nothing uses, by UUID."""
    heard_s: float = 0.0
    """When that was sent which the controller has answered last; seconds since boot."""
    going_down: bool = False
    """Nothing is started any more."""
    _connected: bool = False
    _sequence: int = 0
    _sent: dict[int, ExitId] = field(default_factory=dict)

    def step(self, event: Event, now: float) -> list[Action]:
        """What to do about an event, in this order. ``now`` is monotonic seconds."""
        match event:
            case ev.RankExited():
                return self.on_rank_exited(event, now)
            case ev.RankStarted():
                return self.on_rank_started(event)
            case ev.PlaceEmptied():
                return self.on_place_emptied(event, now)
            case ev.GpusRead():
                return self.on_gpus_read(event, now)
            case ev.ControllerHeard():
                return self.on_controller_heard(event)
            case ev.Assigned():
                return self.on_assigned(event, now)
            case ev.PlacePrepared():
                return self.on_place_prepared(event, now)
            case ev.PreparationTakesLong():
                return self.on_preparation_takes_long(event, now)
            case ev.PreparationFailed():
                return self.on_preparation_failed(event, now)
            case ev.ExitAcked():
                return self.on_exit_acked(event, now)
            case ev.PlaceStuck():
                return self.on_place_stuck(event, now)
            case ev.LaunchRefused():
                return self.on_launch_refused(event, now)
            case ev.EpilogEnded():
                return self.on_epilog_ended(event, now)
            case ev.ShimGreeted():
                return self.on_shim_greeted(event, now)
            case ev.ShimLost():
                return self.on_shim_lost(event)
            case ev.StraysCleared():
                return self.on_strays_cleared(event, now)
            case ev.PlaceForgotten():
                return self.on_place_forgotten(event, now)
            case ev.Dialled():
                return self.on_dialled()
            case ev.Welcomed():
                return self.on_welcomed(event)
            case ev.Disconnected():
                return self.on_disconnected()
            case ev.PlaceFound():
                return self.on_place_found(event, now)
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
        return not any(isinstance(place.standing, _GOING) for place in self.places.values())

    # --- the controller -----------------------------------------------------------------------------------------

    def on_dialled(self) -> list[Action]:
        """Say who is here, places that an earlier life has prepared and never launched among them.

        Of those the controller would otherwise believe that their ranks ran and were lost.
        """
        reports = (place.report() for place in self.places.values() if place.generation or place.attempts)
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
        """Workers don't mind."""
        self._connected = False
        self._sequence = 0
        self._sent.clear()
        return []

    def on_controller_heard(self, event: ev.ControllerHeard) -> list[Action]:
        """It counts this host among the living from then on: work that ends by itself without it may go on."""
        self.heard_s = max(self.heard_s, event.sent_s)
        actions: list[Action] = []
        for place in self.places.values():
            place.heard_s = self.heard_s
            actions += keep_going(place)
        return actions

    def on_assigned(self, event: ev.Assigned, now: float) -> list[Action]:
        """Take the wish, unless it is of the past, and go towards it. Always answered by where the place stands."""
        wish = event.assignment
        if wish.epoch < self.epoch:
            return [ev.Note("assignment.refused", wish.key, f"epoch {wish.epoch} is over; {self.epoch} has begun")]
        actions = self._raise_epoch(wish.epoch)
        place = self.places.get(wish.key)
        if place is None:
            place = self.places[wish.key] = Place(wish.key)
        place.heard_s = self.heard_s
        if wish.generation < place.generation:
            note = ev.Note("assignment.outdated", wish.key, f"generation {wish.generation} < {place.generation}")
            return [*actions, note, *self._report(place)]
        place.wish = wish
        if wish.launch is not None and wish.attempt != place.attempt(wish.generation):
            place.attempts.append((wish.generation, wish.attempt))
            actions.append(ev.RememberAttempt(wish.key, wish.generation, wish.attempt))
        if isinstance(place.standing, CannotPrepare) and place.standing.generation == wish.generation:
            place.move(Empty(wish.generation - 1))  # the controller asks again: look again
        return actions + self._advance(place, now, always=True) + keep_going(place)

    def on_exit_acked(self, event: ev.ExitAcked, now: float) -> list[Action]:
        """The controller has it; a place that waits to be forgotten may have waited for this."""
        exit_id = self._sent.pop(event.sequence, None)
        if exit_id is None or self.outbox.pop(exit_id, None) is None:
            return []
        key, generation, rank = exit_id
        actions: list[Action] = [ev.RememberAck(key, generation, rank)]
        if place := self.places.get(key):
            place.unacked.discard((generation, rank))
            actions += self._advance(place, now)
        return actions

    def on_shutdown_began(self) -> list[Action]:
        """Say so first, so that what ends now is known to have been made to; then end it, each with its grace."""
        self.going_down = True
        actions: list[Action] = [ev.SendGoingDown()] if self._connected else []
        for place in self.places.values():
            if isinstance(place.standing, (Launching, Running)):
                actions += [wind_down(place), *self._report(place)]
        return actions

    # --- the shell ----------------------------------------------------------------------------------------------

    def on_place_found(self, event: ev.PlaceFound, now: float) -> list[Action]:
        """Take up a place of an earlier life: nothing is reported yet, a shim that has died is followed up."""
        place = self.places[event.key] = Place(event.key, shim_pid=event.shim_pid)
        place.attempts = sorted(event.attempts)
        for journal in event.journals:
            for exit_ in map(place.with_attempt, journal.exits):
                place.ended[journal.generation, exit_.rank] = exit_
                if (journal.generation, exit_.rank) not in event.acked:
                    self._keep(place, exit_, port_taken=False)
        if not event.journals:
            return [] if event.shim_pid else self._forget_unused(place)
        last = max(event.journals, key=lambda journal: journal.generation)
        place.pids = dict(last.started)
        place.codes = {exit_.rank: _code(exit_) for exit_ in last.exits}
        # What an earlier boot has left on a GPU is gone.
        place.gpus = () if last.other_boot else last.gpus
        if last.empty and place.gpus and event.freed < last.generation:
            return gpu_release.resume(place, last.generation, now)
        if last.empty and self.facts.has_epilog and event.closed < last.generation:
            place.find(Empty(last.generation))
            return close(place)
        if last.empty:
            place.find(Empty(last.generation))
        elif event.shim_pid:
            place.find(Stopping(last.generation) if last.stopping else Running(last.generation))
        else:
            place.find(Lost(last.generation))
            return [ev.ClearStrays(place.key, last.generation)]
        return []

    def on_place_prepared(self, event: ev.PlacePrepared, now: float) -> list[Action]:
        """All is ready; if the wish has moved on meanwhile, so does the place."""
        place = self._standing(event.key, Preparing, event.generation)
        if place is None:
            return []
        place.shim_pid = event.shim_pid
        place.container = event.container
        place.code = event.code
        place.user = event.user
        place.move(Prepared(event.generation, event.port, event.master_port))
        if place.wish and place.wish.generation == event.generation:
            place.checked = place.wish.launch or place.checked
        return self._advance(place, now, always=True)

    def on_preparation_takes_long(self, event: ev.PreparationTakesLong, now: float) -> list[Action]:
        """Say so, once for each thing that is done; it may be no longer wanted."""
        place = self._standing(event.key, Preparing, event.generation)
        if place is None or place.doing == event.doing:
            return []
        place.doing = event.doing
        return self._settle(place, now)

    def on_preparation_failed(self, event: ev.PreparationFailed, now: float) -> list[Action]:
        """Say why."""
        place = self._standing(event.key, Preparing, event.generation)
        if place is None:
            return []
        place.checked = None
        place.move(CannotPrepare(event.generation, event.message, event.host_fault))
        return self._settle(place, now)

    def on_rank_started(self, event: ev.RankStarted) -> list[Action]:
        """Know its pid."""
        place = self.places.get(event.key)
        if place is None or place.standing.generation != event.generation or event.rank in place.pids:
            return []
        place.pids[event.rank] = event.pid
        return self._account(place)

    def on_rank_exited(self, event: ev.RankExited, now: float) -> list[Action]:
        """Send it on, once."""
        place = self.places.get(event.key)
        generation, rank = event.exit.generation, event.exit.rank
        if place is None or (generation, rank) in place.ended:
            return []
        exit_ = place.ended[generation, rank] = place.with_attempt(event.exit)
        if generation == place.standing.generation:
            place.codes[rank] = _code(exit_)
        actions = self._keep(place, exit_, port_taken=port_was_taken(exit_, place.launched_at, now))
        live = isinstance(place.standing, (Launching, Running)) and place.standing.generation == generation
        if live and rank not in place.pids:
            actions += self._account(place)
        return actions

    def on_place_emptied(self, event: ev.PlaceEmptied, now: float) -> list[Action]:
        """No process is left: the next generation may come, once the GPUs are free."""
        place = self.places.get(event.key)
        if place is None or event.generation < place.standing.generation:
            return []
        match place.standing:
            case Launching() | Running() | Stopping() | Stuck() | Lost():
                if place.gpus:
                    return gpu_release.begin(place, now)
                place.move(Empty(place.standing.generation))
                return [ev.FreePorts(place.key), *self._emptied(place, now)]
            case _:
                return []

    def on_gpus_read(self, event: ev.GpusRead, now: float) -> list[Action]:
        """Learn what an empty GPU holds; go on with the place that waits for its own to be empty."""
        actions: list[Action] = []
        if not isinstance(event.usage, Blind) and gpu_release.learn(self.unused, event.usage):
            actions.append(ev.RememberUnused(tuple(sorted(self.unused.items()))))
        place = self.places.get(event.key) if event.key else None
        if place is None or not isinstance(place.standing, (Freeing, Withheld)):
            return actions
        told = place.report()
        held = gpu_release.still_held(place.gpus, event, self.unused, self.facts.gpu_names)
        actions += gpu_release.after_look(place, held and f"{self.facts.name}: {held}", now)
        if isinstance(place.standing, Empty):
            return actions + self._emptied(place, now)
        return actions + (self._report(place) if place.report() != told else [])

    def on_epilog_ended(self, event: ev.EpilogEnded, now: float) -> list[Action]:
        """Now it is empty; a failure is said with it, and keeps later generations away."""
        place = self._standing(event.key, Closing, event.generation)
        if place is None:
            return []
        place.move(Empty(event.generation, event.problem))
        return [ev.RememberClosed(event.key, event.generation), *self._settle(place, now)]

    def on_place_stuck(self, event: ev.PlaceStuck, now: float) -> list[Action]:
        """Say what is left; it may still go."""
        place = self.places.get(event.key)
        if place is None or event.generation < place.standing.generation:
            return []
        match place.standing:
            case Launching() | Running() | Stopping() | Stuck() | Lost():
                news = Stuck(place.standing.generation, event.message)
                if news == place.standing:
                    return []
                place.move(news)
                return self._report(place)
            case _:
                return []

    def on_launch_refused(self, event: ev.LaunchRefused, now: float) -> list[Action]:
        """Nothing was forked."""
        place = self._standing(event.key, Launching, event.generation)
        if place is None:
            return [ev.Note("shim.refused", event.key, event.message)]
        place.move(CannotPrepare(event.generation, f"{self.facts.name}: {event.message}", event.host_fault))
        # The same wish again would only be refused again; a new one counts.
        return [ev.FreePorts(place.key), *self._report(place)]

    # --- shims --------------------------------------------------------------------------------------------------

    def on_shim_greeted(self, event: ev.ShimGreeted, now: float) -> list[Action]:
        """Say again what may have been lost with the last connection; the shim does nothing twice."""
        place = self.places.get(event.key)
        if place is None:
            return []
        place.shim_pid = event.shim_pid
        place.warned = 0
        match place.standing:
            case Running():
                return keep_going(place)
            case Empty(0) if not event.generation and place.wish is None:
                return self._forget_unused(place)
            case Empty(generation) if event.live and event.generation > generation:
                place.pids, place.codes = {}, {}
                place.move(Running(event.generation))
                return self._advance(place, now, always=True)
            case Launching(generation) if event.generation < generation and place.wish is not None:
                return [launch_of(place, self._plan(place.wish))]
            case Stopping() | Stuck():
                place.stop_asked = None
                return self._advance(place, now)
            case _:
                return []

    def on_shim_lost(self, event: ev.ShimLost) -> list[Action]:
        """Follow up what it had launched."""
        place = self.places.get(event.key)
        if place is None:
            return []
        if place.standing == Empty(0) and place.wish is None:
            return self._forget_unused(place)
        actions = lose(place)
        return actions + (self._report(place) if actions else [])

    def on_strays_cleared(self, event: ev.StraysCleared, now: float) -> list[Action]:
        """Account for every rank of the dead shim's: from the journal where it says so, else honestly unknown."""
        place = self.places.get(event.key)
        if place is None or not isinstance(place.standing, (Lost, Stuck)):
            return []
        actions: list[Action] = []
        journal = event.journal
        for exit_ in journal.exits if journal else ():
            actions += self.on_rank_exited(ev.RankExited(event.key, exit_), now)
        launched = tuple(place.launched.ranks) if place.launched else ()
        ranks = journal.launched if journal else launched
        if journal is not None and journal.empty:
            return actions + self.on_place_emptied(ev.PlaceEmptied(event.key, event.generation), now)
        exits = unseen_exits(journal, event.generation, ranks, event.found)
        actions.append(ev.RecordExits(event.key, event.generation, exits, () if journal else ranks))
        return actions

    def on_place_forgotten(self, event: ev.PlaceForgotten, now: float) -> list[Action]:
        """Gone, unless the controller has changed its mind."""
        place = self.places.get(event.key)
        if place is None or not isinstance(place.standing, Forgetting):
            return []
        place.move(Forgotten(place.standing.generation))
        del self.places[event.key]
        if place.wish is None or place.wish.generation <= place.standing.generation:
            return self._report(place)
        return self.on_assigned(ev.Assigned(place.wish), now)

    def _forget_unused(self, place: Place) -> list[Action]:
        """A place of an earlier life in which nothing was ever launched, so that nobody may ever speak of it again.

        Whoever does finds it made anew.
        """
        place.move(Forgetting(0))
        return [ev.Forget(place.key)]

    # --- parts --------------------------------------------------------------------------------------------------

    def _plan(self, wish: Assignment) -> tuple[RankLaunch, ...]:
        place = self.places[wish.key]
        return plan_ranks(wish, self.facts.running_as(place.user), place.container, place.code)

    def _advance(self, place: Place, now: float, *, always: bool = False) -> list[Action]:
        """Steps towards the wish, then a report where the standing has changed (or ``always``)."""
        before = place.standing
        starts = place.wish is not None and place.wish.launch is not None
        actions = [] if self.going_down and starts else advance(place, self._plan, now)
        changed = place.standing != before and not isinstance(place.standing, (Preparing, Launching, Forgetting))
        if changed or (always and not isinstance(place.standing, (Launching, Forgetting))):
            actions += self._report(place)
        return actions

    def _settle(self, place: Place, now: float) -> list[Action]:
        """Report where the place stands now, then go on."""
        return [*self._report(place), *self._advance(place, now)]

    def _emptied(self, place: Place, now: float) -> list[Action]:
        """Nothing is left of what was launched: the admin's epilog comes before anything else does."""
        return close(place) if self.facts.has_epilog else self._settle(place, now)

    def _report(self, place: Place) -> list[Action]:
        return [ev.SendReport(place.report())] if self._connected else []

    def _account(self, place: Place) -> list[Action]:
        """A rank was started or has failed to start: the place runs, reported once all ranks are accounted for."""
        generation = place.standing.generation
        if isinstance(place.standing, Launching):
            place.move(Running(generation))
        known = place.pids.keys() | {rank for number, rank in place.ended if number == generation}
        complete = place.launched is not None and len(known) == place.launched.processes
        return self._report(place) + keep_going(place) if complete and isinstance(place.standing, Running) else []

    def _standing(self, key: WorkerId, kind: type[object], generation: int) -> Place | None:
        """The place, if it stands as an answer about this generation expects."""
        place = self.places.get(key)
        if place is None or not isinstance(place.standing, kind) or place.standing.generation != generation:
            return None
        return place

    def _keep(self, place: Place, exit_: Exit, *, port_taken: bool) -> list[Action]:
        exit_id = (place.key, exit_.generation, exit_.rank)
        unacked = self.outbox[exit_id] = Unacked(exit_, port_taken)
        place.unacked.add((exit_.generation, exit_.rank))
        return [self._send_exit(exit_id, unacked)] if self._connected else []

    def _keep_again(self) -> None:
        """What was acknowledged goes into the outbox once more."""
        for place in self.places.values():
            for (generation, rank), exit_ in place.ended.items():
                exit_id = (place.key, generation, rank)
                if exit_id not in self.outbox:
                    self.outbox[exit_id] = Unacked(exit_, port_taken=False)
                    place.unacked.add((generation, rank))

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
    """As a shell shows it; 125 where the end is unknown."""
    return 125 if exit_.shell_code is None else exit_.shell_code
