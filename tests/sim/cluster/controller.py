"""A controller process: the real core; around it, what the real driver does. It commits, then it acts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.sim.cluster import database, framing
from tests.sim.cluster.database import Deposed, Fate
from tests.sim.cluster.network import End, Stream
from tests.sim.engine import Life

from holdfast.errors import StoreError
from holdfast_controller.core.events.host import HostLost
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.sanity import check_sanity
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Decision, Policies
from holdfast_controller.shell.driver import CONFIRMS_A_BEAT
from holdfast_controller.shell.store import codec

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

POLICIES = Policies(secret_key=b"simulated", loan_s=30.0, backfill=Backfill.LOAN)
CONFIRMS_WITHIN_S = POLICIES.leases.heartbeat_s / CONFIRMS_A_BEAT


class Controller:
    """One life of it. Sessions, tokens and what is pending die with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.life = Life("controller")
        self.epoch = world.database.begin(world.engine.now)
        cluster = Cluster(epoch=self.epoch)
        for record in world.database.log:
            fold(cluster, codec.load_event(record.type, record.version, record.payload))
        self.cluster = cluster
        self.reactor = Reactor(cluster, POLICIES)
        self._pending: list[Decision] = []
        self._unconfirmed: list[tuple[Stream, float]] = []
        """Streams of heartbeats that wait for their answer, and when each came."""
        self._confirming = self._committing = False
        self._greeted: dict[tuple[str, int], float] = {}
        """When each session's hello came."""
        self._sessions = itertools.count(1)
        self._tokens = itertools.count(1)
        self._callers: dict[int, Any] = {}
        self._streams: dict[tuple[str, int], Stream] = {}
        self._armed: float | None = None
        self._froze_at = 0.0
        kept = {job: codec.load_watch(payload) for job, payload in world.database.watches.items()}
        self.reactor.resume(self._now(), kept)
        world.oracles.on_listening()
        self._arm()

    # --- ends ---------------------------------------------------------------------------------------------------

    def die(self) -> None:
        """It is gone; the kernel closes its connections; somebody starts a new one."""
        if not self.life.alive:
            return
        self.life.alive = False
        self.world.tell("the controller dies")
        for stream in self._streams.values():
            stream.close(stream.controller)
        self.world.controller_died(self)

    def freeze(self) -> None:
        """It stands still."""
        self.life.frozen = True
        self._froze_at = self.world.controller_clock.mono()
        undone = [entry.event for decision in self._pending for entry in decision.entries]
        self.world.oracles.on_frozen({event.host for event in undone if isinstance(event, HostLost)})

    def thaw(self) -> None:
        """It goes on where it stood, with what has come meanwhile. The driver knows for how long it stood."""
        self.life.frozen = False
        waiting, self.life.waiting = self.life.waiting, []
        still_s = self.world.controller_clock.mono() - self._froze_at
        if still_s >= POLICIES.leases.heartbeat_s:
            waiting.insert(0, lambda: self.feed(st.StoodStill(still_s)))
            if self.world.controller is self:
                self.world.oracles.on_listening()
        for act_ in waiting:
            self.world.engine.after(0.0, act_, self.life, self.die)

    # --- hosts --------------------------------------------------------------------------------------------------

    def accept(self, stream: Stream) -> None:
        """A host has connected; its first message is its hello."""
        session: int | None = None

        def receive(message: Any) -> None:
            nonlocal session
            if session is None:
                session = next(self._sessions)
                self._streams[stream.host, session] = stream
                self._greeted[stream.host, session] = self.world.engine.now
                self.feed(framing.hello(stream.host, session, message))
                return
            self.feed(framing.from_agent(stream.host, session, message))
            if message is framing.BEAT:
                self._answer_confirmed(stream)

        def closed() -> None:
            if session is not None:
                self._streams.pop((stream.host, session), None)
                self.feed(st.HostDisconnected(stream.host, session))

        stream.controller = End(self.life, receive, closed, self.die)

    # --- stimuli ------------------------------------------------------------------------------------------------

    def call(self, make: Any, answer: Any) -> None:
        """A client's call has arrived; ``answer`` is given the reply or the refusal."""
        token = next(self._tokens)
        self._callers[token] = answer
        self.feed(make(token))

    def feed(self, incoming: st.Input) -> None:
        """As the driver does."""
        try:
            decision = self.reactor.step(incoming, self._now())
        except StoreError:
            if self.epoch == self.world.database.epoch:
                raise
            self.world.tell("a controller of the past reads of a job what it doesn't know")
            self.die()
            return
        if decision.entries or decision.actions:
            self._pending.append(decision)
        self._write()
        self._arm()

    def _answer_confirmed(self, stream: Stream) -> None:
        world = self.world
        if world.bugs.answers_unconfirmed:
            self._answer([(stream, world.engine.now)])
            return
        if not self._unconfirmed:
            due_s = world.controller_clock.true_s(CONFIRMS_WITHIN_S)
            world.engine.after(due_s, self._confirm, self.life, self.die)
        self._unconfirmed.append((stream, world.engine.now))

    def _confirm(self) -> None:
        self._confirming = True
        self._write()

    def _answer(self, confirmed: list[tuple[Stream, float]]) -> None:
        for stream, came in confirmed:
            self.world.oracles.on_confirmed(self.epoch, stream.host, came)
            stream.to_agent(framing.BEAT_ACK)

    def _write(self) -> None:
        if self._committing or not (self._pending or self._confirming):
            return
        world = self.world
        batch, self._pending = self._pending, []
        confirmed, self._unconfirmed = self._unconfirmed, []
        self._confirming = False
        records = [database.record(entry) for decision in batch for entry in decision.entries]
        watches = [
            (a.job_id, codec.dump_watch(a.kept) if a.kept is not None else None)
            for decision in batch
            for a in decision.actions
            if isinstance(a, act.KeepWatch)
        ]
        kept = watches or any(isinstance(a, act.KeepEvidence) for d in batch for a in d.actions)
        if world.bugs.answers_unconfirmed and not records and not kept:
            self._perform_all(batch)
            return
        world.boundary("controller", "commit")
        self._committing = True
        if world.bugs.acts_before_commit:
            self._perform_all(batch)
        # One without anything to write either lands or finds another controller leading.
        fate, delay_s = world.commit_fate() if records or kept else (Fate.LANDS, world.weights.commit_s)

        def land() -> None:
            if fate is not Fate.FAILS:
                try:
                    world.database.commit(self.epoch, records, watches)
                except Deposed:
                    world.tell("a controller of the past is refused by the database")
                    self.die()
                    return
                world.oracles.on_commit(self.epoch, records)
                check_sanity(self.cluster)  # after the oracles, which judge by the truth and name what they find
            if self.life.alive:
                world.engine.after(0.0, answered, self.life, self.die)

        def answered() -> None:
            self._committing = False
            if fate is not Fate.LANDS:
                world.seen(f"commit {fate.name.lower()}")
                self.die()
                return
            world.boundary("controller", "committed")
            self._answer(confirmed)
            if not world.bugs.acts_before_commit:
                self._perform_all(batch)
            if not self._pending:
                world.database.keep_ended(self.epoch, self.cluster)
            self._write()

        # What was handed to the database lands whatever becomes of who handed it in.
        world.engine.after(delay_s, land)

    def _perform_all(self, batch: list[Decision]) -> None:
        for decision in batch:
            for action in decision.actions:
                self._perform(action)

    def _perform(self, action: act.Action) -> None:
        world = self.world
        match action:
            case act.Reply(token, subject):
                world.boundary("controller", "Reply")
                if caller := self._callers.pop(token, None):
                    caller(subject, None)
            case act.Refuse(token, error):
                if caller := self._callers.pop(token, None):
                    caller("", error)
            case act.TakeEvidence():
                world.take_evidence(self, action)
            case act.Welcome() | act.Assign() | act.AckExits() | act.CloseSession():
                world.boundary("controller", type(action).__name__)
                stream = self._streams.get((action.host, action.session))
                if stream is None:
                    return
                if isinstance(action, act.Welcome):
                    world.oracles.on_confirmed(self.epoch, action.host, self._greeted[action.host, action.session])
                if isinstance(action, act.CloseSession):
                    stream.close(stream.controller)
                else:
                    stream.to_agent(framing.to_agent(action, self.epoch, POLICIES.leases))
            case act.Note("host.mass_silence", fields):
                world.tell(f"the controller gives nobody up: {dict(fields)['hosts']} are silent together")
            case _:
                pass  # notes; evidence is in the commit

    # --- time ---------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        clock = self.world.controller_clock
        return Now(Mono(clock.mono()), Wall(clock.wall()))

    def _arm(self) -> None:
        due = self.reactor.next_due()
        if due is None or (self._armed is not None and self._armed <= due):
            return
        self._armed = due
        clock = self.world.controller_clock
        self.world.engine.after(clock.true_s(due - clock.mono()) + 1e-6, self._on_timer, self.life, self.die)

    def _on_timer(self) -> None:
        self._armed = None
        self.feed(st.TimePassed())
