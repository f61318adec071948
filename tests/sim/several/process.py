"""One controller of several, as a process: the product's store, database and driver, on a simulated server and in
virtual time. It stands by, leads, and ends when its driver does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tests.sim.cluster import framing
from tests.sim.cluster.clock import Clock
from tests.sim.cluster.controller import POLICIES
from tests.sim.cluster.network import End, Stream
from tests.sim.engine import Crash, Life, Violation
from tests.sim.several.postgres import Postgres
from tests.sim.several.virtual import Loop, Strand

from holdfast.errors import HoldfastError, StoreError, Unavailable
from holdfast_controller.core.events.host import HostLost
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.sanity import check_sanity
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell.driver import Driver, Observers
from holdfast_controller.shell.main.store_upkeep import keep_leading, note_position
from holdfast_controller.shell.notify.outbox_store import OutboxStore
from holdfast_controller.shell.store.store import Store

if TYPE_CHECKING:
    from tests.sim.several.world import Site

LETTERS_EVERY_S = 3.0


class Process:
    """One life of a controller on a machine. What is in memory dies with it; what it noted in files stays."""

    def __init__(self, site: Site, machine: int, clock: Clock) -> None:
        self.site = self.world = site
        self.machine, self.clock = machine, clock
        self.life = Life(f"controller {machine}")
        self.strand = Strand(site.engine, clock, self.life, self.die)
        self.loop = Loop(site.engine, clock, self.life, self.die)  # type: ignore[abstract]
        self.epoch = 0
        self.driver: Driver | None = None
        """Once it leads, as far as it knows."""
        self.database = Postgres(self, site.path_of(machine), lambda _: None)
        self.store = Store(self.database)
        self.store.thread = self.strand  # type: ignore[assignment]
        self._sessions, self._streams = itertools.count(1), dict[Stream, None]()
        self._greeted: dict[tuple[str, int], float] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._froze_at = 0.0
        self.strand.submit(self.store.open).add_done_callback(self._opened)

    def _opened(self, opening: Future[Cluster]) -> None:
        self.loop.call_soon(lambda: self._lead(opening))

    def _lead(self, opening: Future[Cluster]) -> None:
        try:
            cluster = opening.result()
        except (StoreError, Unavailable) as error:
            self._end(error)
            return
        self.epoch = self.store.epoch
        cluster.jobs.read = self._ended_jobs
        self.site.began(self, cluster)
        self.driver = Driver(self.store, cluster, POLICIES)
        reading = asyncio.wrap_future(self.store.call(self.store.kept_watches), loop=self.loop)
        reading.add_done_callback(self._start)

    def _start(self, reading: asyncio.Future[Any]) -> None:
        driver = self.driver
        assert driver is not None
        try:
            kept = reading.result()
        except StoreError as error:
            self._end(error)
            return
        driver.start(kept, Observers(take_evidence=lambda asked: self.site.take_evidence(self, asked)))  # type: ignore[arg-type]
        self.site.on_leads(self)
        for work in (driver.run(), keep_leading(driver), note_position(driver), self._letters()):
            task = self.loop.create_task(work)
            task.add_done_callback(self._over)
            self._tasks.append(task)

    async def _letters(self) -> None:
        """What the dispatcher of notifications does to the store: transactions of its own beside the log's."""
        assert self.driver is not None
        outbox = OutboxStore(self.store)
        while True:
            letter = OutboxEntry(self.site.next_letter(), "https://chat.example", "", "job.ended", "{}")
            await asyncio.wrap_future(self.store.call(outbox.keep, self.store.sequence, [letter]))
            await asyncio.sleep(LETTERS_EVERY_S)

    def _ended_jobs(self, names: Any) -> list[Job]:
        return self.site.ended_jobs(list(names))

    # --- ends ---------------------------------------------------------------------------------------------------

    def _over(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Violation | Crash):
            raise error
        if error is not None:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        if not isinstance(error, HoldfastError):
            raise error
        self.site.tell(f"the controller on machine {self.machine} ends: {error}")
        self.die()

    def die(self) -> None:
        """It is gone; the kernel closes its connections; its machine starts a new one."""
        if not self.life.alive:
            return
        self.life.alive = False
        self.strand.end()
        self.loop.end()
        for session in [each for each in self.site.server.sessions if each.process is self]:
            if self.site.ways(self.machine)[0]:
                session.close()
            else:  # until the server's own keepalive
                self.site.engine.after(10.0, session.close)
        for stream in list(self._streams):
            stream.close(stream.controller)
        self.site.controller_died(self)

    def resign(self) -> None:
        """It is told to end, and lets another one lead at once."""
        if not self.life.alive or self.life.frozen:
            return
        self.site.tell(f"the controller on machine {self.machine} is told to end")
        self.store.give_up()
        for task in self._tasks:
            task.remove_done_callback(self._over)
            task.cancel()
        self.strand.submit(self.store.close).add_done_callback(lambda _: self.loop.call_soon(self.die))

    def freeze(self) -> None:
        """It stands still."""
        self.life.frozen = True
        self._froze_at = self.clock.mono()
        pending = self.driver._pending if self.driver is not None else []
        undone = [entry.event for decision, _ in pending for entry in decision.entries]
        if self.site.is_current(self):
            self.site.oracles.on_frozen({event.host for event in undone if isinstance(event, HostLost)})

    def thaw(self) -> None:
        """It goes on where it stood, with what has come meanwhile; by its clock it knows for how long, or doesn't."""
        self.life.frozen = False
        waiting, self.life.waiting = self.life.waiting, []
        still_s = self.clock.mono() - self._froze_at
        if self.driver is not None:
            waiting.insert(0, lambda: self._inside(lambda driver: driver.stood_still(still_s)))
            if self.site.is_current(self) and still_s >= POLICIES.leases.heartbeat_s:
                self.site.oracles.on_listening()
        for deed in waiting:
            self.site.engine.after(0.0, deed, self.life, self.die)

    # --- hosts --------------------------------------------------------------------------------------------------

    def accept(self, stream: Stream) -> None:
        """A host has connected; its first message is its hello."""
        session: int | None = None
        self._streams[stream] = None

        def receive(message: Any) -> None:
            nonlocal session
            if session is None:
                session = next(self._sessions)
                self._greet(stream, session, message)
                return
            self.feed(framing.from_agent(stream.host, session, message))
            if message is framing.BEAT:
                came = self.site.engine.now
                self._inside(lambda driver: driver.when_confirmed(lambda: self._answer(stream, came)))

        def closed() -> None:
            self._streams.pop(stream, None)
            if session is not None:
                driver, number = self.driver, session
                if driver is not None:
                    driver.unregister(stream.host, number)
                self.feed(st.HostDisconnected(stream.host, number))

        stream.controller = End(self.life, receive, closed, self.die)

    def _greet(self, stream: Stream, session: int, message: framing.Hello) -> None:
        if message.epoch > self.epoch:  # as the servicer does: believed, unless the store says that this one leads
            self._inside(lambda driver: driver.when_confirmed(lambda: stream.close(stream.controller)))
            return
        self._greeted[stream.host, session] = self.site.engine.now
        self._inside(lambda driver: driver.register(stream.host, session, lambda order: self._send(stream, order)))
        self.feed(framing.hello(stream.host, session, message))

    def _answer(self, stream: Stream, came: float) -> None:
        self.site.oracles.on_confirmed(self.epoch, stream.host, came)
        stream.to_agent(framing.BEAT_ACK)

    def _send(self, stream: Stream, order: act.ToHost) -> None:
        match order:
            case act.Welcome():
                self.site.oracles.on_confirmed(self.epoch, order.host, self._greeted[order.host, order.session])
                stream.to_agent(framing.to_agent(order, self.epoch, POLICIES.leases))
            case act.Assign() | act.AckExits():
                stream.to_agent(framing.to_agent(order, self.epoch, POLICIES.leases))
            case act.CloseSession():
                stream.close(stream.controller)
            case _:
                pass  # bulk

    # --- stimuli ------------------------------------------------------------------------------------------------

    def call(self, make: Callable[[int], st.Input], answer: Callable[[str, HoldfastError | None], None]) -> None:
        """A client's call has arrived; ``answer`` is given the reply or the refusal, or is never called."""

        async def ask(driver: Driver) -> None:
            try:
                subject = await driver.ask(make)
            except Unavailable:
                return
            except HoldfastError as error:
                answer("", error)
            else:
                answer(subject, None)

        self._inside(lambda driver: self.loop.create_task(ask(driver)).add_done_callback(self._over))

    def read(self, answer: Callable[[int], None]) -> None:
        """A client asks how things are; ``answer`` is given how far the log had come that it was told from."""

        async def settle(driver: Driver) -> None:
            await driver.still_leading()  # as the guard does
            seen = driver.cluster.sequence
            await driver.settled()
            answer(seen)

        self._inside(lambda driver: self.loop.create_task(settle(driver)).add_done_callback(self._over))

    def feed(self, incoming: st.Input) -> None:
        """As the servicers do."""

        def feed(driver: Driver) -> None:
            try:
                driver.feed(incoming)
            except Unavailable:
                return
            if self.site.is_current(self) and self.site.checks_sanity():
                check_sanity(driver.cluster)

        self._inside(feed)

    def _inside(self, work: Callable[[Driver], Any]) -> None:
        if self.driver is None or not self.life.alive:
            return
        driver = self.driver
        try:
            self.loop.inside(lambda: work(driver))
        except StoreError as error:
            self._end(error)
