"""A cluster with several controllers on machines of their own, and a database that has a network, pauses and replicas.

What controllers do with their database is the product's own code: see ``process``. Beside the oracles of every world
there are those of this one: only the newest leader writes, nothing is written twice, what a standby has followed is
what the log says, and a promotion that lacks what was acknowledged is noticed before anything is decided on it.
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import sqlalchemy as sa
from tests.sim.bugs import Bugs
from tests.sim.cluster.clock import Clock
from tests.sim.cluster.database import Record
from tests.sim.cluster.world import CONTROLLER_BACK_S, World
from tests.sim.ledger import Ledger
from tests.sim.oracles import check
from tests.sim.several.oracles import SiteOracles
from tests.sim.several.postgres import Server, Session
from tests.sim.several.process import Process
from tests.sim.several.virtual import Machine, PausedClock, Time

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell import driver as driver_module
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store import store as store_module
from holdfast_controller.shell.store.databases.postgresql import leadership, patience, standbys, takeover
from holdfast_controller.shell.store.records import Record as Stored
from holdfast_controller.shell.store.records import record_of
from holdfast_controller.shell.store.schema import events

if TYPE_CHECKING:
    from tests.sim.several.plan import SitePlan

AFTER_LOST_TAIL_S = 200.0
READS_EVERY_S = 4.0
LOOK_EVERY_S = 0.25
"""Of a standby, seldomer than in reality: a look takes the simulation as long as a commit does."""


class Site(World):
    """One plan, carried out."""

    plan: SitePlan
    oracles: SiteOracles

    def __init__(self, plan: SitePlan, bugs: Bugs | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-site-", dir=_memory()))
        self.database_dice = random.Random(plan.dice + 2)
        self.cuts: dict[int, tuple[bool, bool]] = {}
        """By machine: whether (what it says, what the server answers) is lost."""
        self.only: dict[str, int] = {}
        """By host: the one machine of a controller that it reaches, where it doesn't reach all."""
        self.frozen_server = False
        self.terms: list[tuple[int, float]] = []
        """Each epoch, and when it has begun."""
        self.acknowledged = 0
        """The newest event that a controller was told was committed, or may have been."""
        self.set_back = self.unnoticed = False
        """Whether a replica was promoted that lacked events; and nobody has said so since."""
        self.tail: Path | None = None
        """The state of a replica that receives nothing any more."""
        self.leader: Process | None = None
        self.servers, self.letters = 1, 0
        self.server = Server(self.directory / "server-1.db", "7/1", lossless=plan.lossless)
        self.server.make_tables()
        self.processes: dict[int, Process] = {}
        super().__init__(plan, bugs)
        self.oracles = SiteOracles(self)

    def begin_control(self) -> None:
        rates = self.plan.controller_rates
        self.clocks = [PausedClock(self.engine, rate, origin=50.0 + 7000 * i) for i, rate in enumerate(rates)]
        self.controller = None
        for machine, clock in enumerate(self.clocks):
            clock.name = f"machine-{machine}"
        for machine in range(len(self.clocks)):
            self.engine.after(0.01 + machine, lambda machine=machine: self.start_on(machine))  # type: ignore[misc]

    @property
    def controller_clock(self) -> Clock:
        """That of the machine whose controller leads."""
        return (self.leader or self.processes[0]).clock if self.processes else self.clocks[0]

    @controller_clock.setter
    def controller_clock(self, _: Clock) -> None:
        pass

    # --- machines of controllers --------------------------------------------------------------------------------

    def path_of(self, machine: int) -> Path:
        """Where a controller notes what it keeps in files."""
        return self.directory / f"machine-{machine}" / "postgresql"

    def start_on(self, machine: int) -> None:
        """Its service manager starts a controller, if none is there."""
        if machine not in self.processes:
            self.path_of(machine).parent.mkdir(exist_ok=True)
            self.processes[machine] = Process(self, machine, self.clocks[machine])

    def controller_died(self, controller: Any) -> None:
        self.seen("controller crash")
        self.processes.pop(controller.machine, None)
        if self.controller is controller:
            self.controller = None
        self.engine.after(CONTROLLER_BACK_S, lambda: self.start_on(controller.machine))

    def freeze_controller(self, for_s: float, *, replaced: bool) -> None:
        """As a process; ``replaced`` draws a pause of its whole machine, whose clock stands still too."""
        if self.leader is not None and self.leader.life.alive:
            self.pause(self.leader, for_s, machine=replaced)

    def pause(self, process: Process, for_s: float, *, machine: bool) -> None:
        """It stands still for a while."""
        if process.life.frozen or self.healed:
            return
        self.seen("controller frozen")
        process.freeze()
        began = self.engine.now

        def go_on() -> None:
            if process.life.frozen and process.life.alive:
                if machine:
                    self.clocks[process.machine].pause(self.engine.now - began)
                process.thaw()

        self.engine.after(for_s, go_on)

    def thaw(self, controller: Any) -> None:
        if controller.life.frozen:
            controller.thaw()

    def reached(self, host: str = "") -> Any:
        listening = [each for each in self.processes.values() if each.driver is not None and each.life.alive]
        if host in self.only:
            listening = [each for each in listening if each.machine == self.only[host]]
        return self.dice.choice(listening) if listening else None

    def answers(self) -> Any:
        return self.reached()

    def is_current(self, process: Process) -> bool:
        """Whether it is the one that leads, and listens."""
        current: Any = self.controller
        return current is process

    # --- the database -------------------------------------------------------------------------------------------

    def next_letter(self) -> int:
        """A number for a notification that a controller keeps."""
        self.letters += 1
        return self.letters

    def hop_s(self) -> float:
        """To the server and back."""
        return 0.0005

    def ways(self, machine: int) -> tuple[bool, bool]:
        """Whether what a machine says reaches the server, and what that answers reaches it."""
        cut = self.cuts.get(machine, (False, False))
        return not cut[0] and not self.frozen_server, not cut[1] and not self.frozen_server

    def commit_takes(self, session: Session) -> tuple[float, bool]:
        """How long a commit takes, and whether its connection breaks meanwhile."""
        weights, dice = self.weights, self.database_dice
        delay_s = dice.random() * 2.0 if dice.random() < weights.commit_slow else weights.commit_s
        breaks = dice.random() < 3 * (weights.commit_unanswered + weights.commit_fails)
        if breaks:
            self.seen("commit lands_unanswered")
        return delay_s, breaks

    def landed(self, process: Process, server: Server, changes: dict[str, Any]) -> None:
        """A transaction that has changed something is durable."""
        begun = changes.get("meta", {}).get("epoch")
        records = [self._record(row) for row in changes.get("events", ())]
        restored = any(isinstance(record.event, ev.ClusterRestored) for record in records)
        if begun is not None:
            before = max((epoch for epoch, _ in self.terms), default=0)
            if not self.set_back:
                what = f"epoch {begun} begins again, after {before}"
                check(int(begun) > before, "1 one writer", what)
            self.leader = process
            process.epoch = self.database.epoch = int(begun)
            self.terms.append((int(begun), self.engine.now))
            self.tell(f"the controller on machine {process.machine} begins epoch {begun}")
        newest = process is self.leader
        check(newest, "1 one writer", f"machine {process.machine} has written {sorted(changes)}, and leads no more")
        if self.unnoticed and restored:
            self.unnoticed = False
        noticed = not self.unnoticed or set(changes) <= {"beat", "rows"}
        check(noticed, "26 lost tail", f"{sorted(changes)} is written on a log that has lost its end, unnoticed")
        if records:
            self.acknowledged = records[-1].sequence
            if not self.set_back:
                self.oracles.on_commit(process.epoch, records)

    def _record(self, row: dict[str, Any]) -> Record:
        event = codec.load_event(row["type"], row["version"], row["payload"])
        about = getattr(event, "job_id", "") or getattr(event, "host", "cluster")
        words = f"{about} {row['type']}: {row['message']}"
        return Record(row["sequence"], row["type"], row["version"], row["payload"], event, row["state"], words)

    def began(self, process: Process, cluster: Cluster) -> None:
        """A controller has read the log to its end: it must be what the log says."""
        if process is not self.leader:
            return
        sound = Cluster()
        for record in self.log():
            fold(sound, codec.load_event(record.type, record.version, record.payload))
        check(cluster.sequence == sound.sequence, "27 followed", f"read to {cluster.sequence} of {sound.sequence}")
        for name, job in cluster.jobs.whole.items():
            same = codec.dump_entity(job) == codec.dump_entity(sound.jobs[name])
            check(same, "27 followed", f"{name} is not what the log says of it")
        for name, host in cluster.hosts.items():
            same = codec.dump_entity(host) == codec.dump_entity(sound.hosts[name])
            check(same, "27 followed", f"{name} is not what the log says of it")

    def log(self) -> list[Stored]:
        """All that is committed."""
        with self.server.engine.connect() as connection:
            return [record_of(row) for row in connection.execute(sa.select(events).order_by(events.c.sequence))]

    def ended_jobs(self, names: list[str]) -> list[Job]:
        """Jobs by the log, as a controller reads those that have ended."""
        sound = Cluster()
        for record in self.log():
            fold(sound, codec.load_event(record.type, record.version, record.payload))
        return [sound.jobs[name] for name in names if name in sound.jobs]

    def on_leads(self, process: Process) -> None:
        """It listens from now on."""
        if process is self.leader:
            self.controller = process  # type: ignore[assignment]
            self.oracles.on_listening()

    def cut_database(self, machine: int, cut: tuple[bool, bool]) -> None:
        """Or mend it."""
        if not self.healed or cut == (False, False):
            self.seen("cut")
            self.cuts[machine] = cut

    def reach_alone(self, host: str, machine: int, for_s: float) -> None:
        """For a while a host has no way to any controller but that of one machine."""

        def mended() -> None:
            self.only.pop(host, None)

        if not self.healed:
            self.seen("cut")
            self.only[host] = machine
            self.engine.after(for_s, mended)

    def restart_server(self, for_s: float) -> None:
        """It loses its power, and is there again after a while."""
        if self.server.up:
            self.server.end()
            self.engine.after(for_s, lambda: setattr(self.server, "up", True))

    def replica_falls_behind(self) -> None:
        """From now on a replica receives nothing, and nobody notices."""
        if self.tail is None and self.server.up and not self.healed:
            self.tail = self.directory / f"tail-{self.servers}.db"
            self.server.copied_to(self.tail)
            self.tail_at, self.tail_from = self.acknowledged, self.engine.now

    def promote(self, for_s: float) -> None:
        """The server that takes writes is lost, and a replica takes over: a synchronous one has all of it."""
        if not self.server.up or self.healed:
            return
        old, self.servers = self.server, self.servers + 1
        path = self.directory / f"server-{self.servers}.db"
        old.end()
        if self.tail is not None:
            shutil.copy(self.tail, path)
            lost = self.acknowledged > self.tail_at
            self.terms = [term for term in self.terms if term[1] <= self.tail_from]
            self.tail = None
            if lost:
                self.tell(f"a replica is promoted that lacks {self.acknowledged - self.tail_at} events")
                self.set_back = self.unnoticed = True
                self.acknowledged = self.tail_at
        else:
            old.copied_to(path)
            self.tell("a replica is promoted that has everything")
        self.server = Server(path, f"7/{self.servers}", lossless=self.plan.lossless)
        if self.set_back:
            self.oracles.ledger = Ledger()
            for stored in self.log():
                row = stored.__class__.__dataclass_fields__
                self.oracles.ledger.take(self._record({k: getattr(stored, k) for k in row}), lambda *_: None)
        self.server.up = False
        self.engine.after(for_s, lambda: setattr(self.server, "up", True))

    def checks_sanity(self) -> bool:
        """Whether the state of the leader is compared with itself at each step."""
        return not self.set_back

    # --- the run ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            with virtual_time():
                for fault in self.plan.faults:
                    self.engine.after(fault.at_s, lambda fault=fault: fault.make(self))  # type: ignore[misc]
                self.engine.after(READS_EVERY_S, self._read)
                super().run()
        finally:
            self.close()

    def _read(self) -> None:
        """A user looks at what there is, at some controller or other."""
        reached = self.reached()
        if reached is not None and not reached.life.frozen:
            newest = self.acknowledged
            reached.read(lambda seen: self._on_read(seen, newest))
        self.engine.after(READS_EVERY_S * (0.5 + self.database_dice.random()), self._read)

    def _on_read(self, sequence: int, newest: int) -> None:
        current = sequence >= newest or self.set_back
        check(current, "28 current", f"a user was told of {sequence} events; {newest} were acknowledged before")
        durable = sequence <= self.acknowledged or self.set_back
        check(durable, "12 durable", f"a user was told of event {sequence}; the log ends at {self.acknowledged}")

    def heal(self) -> None:
        self.tail = None
        super().heal()
        self.cuts.clear()
        self.only.clear()
        self.frozen_server = False
        for process in list(self.processes.values()):
            self.thaw(process)

    def settle(self, within_s: float = 0.0) -> None:
        if self.set_back:
            self.engine.run(self.engine.now + AFTER_LOST_TAIL_S)
            check(not self.unnoticed, "26 lost tail", "nobody has said that events were lost")
        elif within_s:
            super().settle(within_s)
        else:
            super().settle()

    def close(self) -> None:
        """End all threads, and remove the files."""
        for process in list(self.processes.values()):
            process.life.alive = False
            process.strand.end()
            process.loop.end()
        for session in list(self.server.sessions):
            session.end()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def virtual_time() -> Iterator[None]:
    """Within it the controller's modules see the clocks of the simulated machines."""
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable()  # the controllers' own, thousands of lines
        for module in (takeover, leadership, patience, store_module, driver_module):
            stack.enter_context(patch.object(module, "time", Time))
        for module in (takeover, standbys):
            stack.enter_context(patch.object(module, "socket", Machine))
        stack.enter_context(patch.object(takeover, "LOOK_EVERY_S", LOOK_EVERY_S))
        yield


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
