"""An agent process: the real core, in the place of the real driver. Dies before any of its effects, if told to."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.sim.cluster.link import Link
from tests.sim.cluster.processes import KILL
from tests.sim.cluster.shim_model import Shim
from tests.sim.engine import Life

from holdfast._session.reports import WorkerId
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.model.gpus import Blind, GpuUsage
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.core.worker.reactor import Reactor

if TYPE_CHECKING:
    from tests.sim.cluster.host import Host

USER = WorkerUser("ann", "/home/ann", "/bin/sh")
HOP_S = 0.0002
"""Over a socket on the same machine."""
PREPARE_S = 0.05
ORPHANS_AGAIN_S = 5.0
ADOPTION_S = 0.05


class Agent:
    """One life of it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.life = Life(f"agent of {host.name}")
        has_epilog = host.world.has_epilog
        self.facts = HostFacts(host.name, "/log", "/scratch", USER, 16, has_epilog=has_epilog)
        self.reactor = Reactor(self.facts, host.disk.epoch)
        self.reactor.unused.update(host.disk.unused)
        self.ports: dict[WorkerId, tuple[int, ...]] = {}
        self.held: dict[WorkerId, Shim] = {}
        self._events: deque[ev.Event] = deque()
        self._stepping = False
        self.link = Link(self)
        self.later(0.0, self._adopt)

    def later(self, delay_s: float, act: Any) -> None:
        """A deed of this process after a time."""
        self.host.world.engine.after(delay_s, act, self.life, self.host.crash_agent)

    def end(self, *, silently: bool = False) -> None:
        """It is gone."""
        self.life.alive = False
        self.link.end(silently=silently)
        for shim in self.held.values():
            shim.say = None

    def thaw(self) -> None:
        """It goes on where it stood, with what has come meanwhile."""
        if self.life.frozen:
            self.life.frozen = False
            waiting, self.life.waiting = self.life.waiting, []
            for deed in waiting:
                self.later(0.0, deed)

    # --- start --------------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        disk, living = self.host.disk, []
        self.feed(ev.GpusRead(self._usage()))
        for key in sorted(disk.workers):
            names = sorted((int(name[1:]), name) for name in disk.workers[key] if name[0] == "g")
            read = (self.journal(key, number) for number, _ in names)
            journals = tuple(journal for journal in read if journal is not None)
            shim = self.host.shims.get(key)
            self.feed(
                ev.WorkerFound(
                    key,
                    tuple(disk.read(key, "attempts")),
                    journals,
                    frozenset(disk.read(key, "acked")),
                    shim.pid if shim else 0,
                    max(disk.read(key, "freed"), default=0),
                    max(disk.read(key, "closed"), default=0),
                )
            )
            if shim is not None:
                living.append((key, shim))
        for key, shim in living:
            if shim.life.alive:
                self._hold(key, shim)
            else:
                self.later(HOP_S, lambda key=key: self.feed(ev.ShimLost(key)))
        self.later(ADOPTION_S, self.link.dial)

    def journal(self, key: WorkerId, generation: int) -> ev.Journal | None:
        """What a generation's journal says."""
        records = self.host.disk.read(key, f"g{generation}")
        intent = next((r for r in records if r[0] == "intent"), None)
        if intent is None:
            return None
        return ev.Journal(
            generation=generation,
            launched=intent[1],
            started=tuple((r[1], r[2]) for r in records if r[0] == "started"),
            exits=tuple(r[1] for r in records if r[0] == "exited"),
            stopping=any(r[0] == "stopping" for r in records),
            empty=any(r[0] == "empty" for r in records),
            other_boot=intent[3] != self.host.boot_id,
            wrote_output=(key, generation) in self.host.outputs,
            gpus=intent[2],
            forked=any(r[0] == "forking" for r in records),
        )

    # --- events -------------------------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """As the driver does: each is stepped, and its actions are performed at once."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        world = self.host.world
        while self._events:
            event = self._events.popleft()
            before = {key: worker.state.kind for key, worker in self.reactor.workers.items()}
            actions = self.reactor.step(event, self.host.clock.mono())
            world.oracles.on_agent_step(self.host, event, actions)
            world.coverage.of_workers(before, self.reactor.workers)
            for action in actions:
                world.boundary("agent", type(action).__name__, self.life)
                self._perform(action)
        self._stepping = False

    def on_shim_gone(self, shim: Shim) -> None:
        """The kernel says so."""
        if self.held.get(shim.key) is shim:
            del self.held[shim.key]
            self.feed(ev.ShimLost(shim.key))

    # --- actions ------------------------------------------------------------------------------------------------

    def _perform(self, action: act.Action) -> None:
        disk = self.host.disk
        match action:
            case act.SendReport() | act.SendExit():
                self.link.send(action)
            case act.LaunchRanks(key):
                self.ports.pop(key, None)
                self._ensure(key)
                self._order(key, action)
            case act.StopRanks(key) | act.RenewFence(key) | act.SignalRanks(key):
                self._order(key, action)
            case act.Prepare():
                self.later(PREPARE_S * (0.5 + self.host.world.dice.random()), lambda: self._prepare(action))
            case act.FreePorts(key):
                self.ports.pop(key, None)
            case act.SendHello(epoch, reports):
                self.link.hello(epoch, reports)
            case act.CloseSession():
                self.link.refuse()
            case act.PersistEpoch(epoch):
                disk.epoch = epoch
            case act.RememberAttempt(key, generation, attempt):
                disk.append(key, "attempts", (generation, attempt))
            case act.RememberAck(key, generation, rank):
                self.host.world.oracles.on_dropped(self.host, key, generation, rank)
                if key in disk.workers:
                    disk.append(key, "acked", (generation, rank))
            case act.RememberFreed(key, generation):
                disk.append(key, "freed", generation)
            case act.RememberClosed(key, generation):
                disk.append(key, "closed", generation)
            case act.RememberUnused(used):
                disk.unused = dict(used)
            case act.RunEpilog(key, generation):
                self.later(0.1, lambda: self._ran_epilog(key, generation))
            case act.ReadGpus(key, generation, after_s):
                delay_s = self.host.clock.true_s(after_s) + 0.001
                self.later(delay_s, lambda: self.feed(ev.GpusRead(self._usage(), key, generation)))
            case act.ClearOrphans(key, generation):
                self.later(0.005, lambda: self._clear_orphans(key, generation, 0))
            case act.RecordExits():
                self._record_exits(action)
            case act.Forget(key):
                self._forget(key)

    def _hold(self, key: WorkerId, shim: Shim) -> None:
        self.held[key] = shim

        def connected() -> None:
            if self.life.alive:
                shim.connect(lambda message: self.later(HOP_S, lambda: self._hear(key, shim, message)))

        self.host.world.engine.after(HOP_S, connected, shim.life, shim.die)

    def _hear(self, key: WorkerId, shim: Shim, message: Any) -> None:
        if self.held.get(key) is shim:
            if isinstance(message, ev.RankStarted):
                self.host.outputs.add((key, message.generation))
            self.feed(message)

    def _ensure(self, key: WorkerId) -> None:
        if key not in self.held:
            self.host.disk.workers.setdefault(key, {})
            self._hold(key, self.host.shims.get(key) or self.host.new_shim(key))

    def _order(self, key: WorkerId, order: Any) -> None:
        shim = self.held.get(key)
        if shim is not None:
            self.host.world.engine.after(2 * HOP_S, lambda: shim.hear(order), shim.life, shim.die)

    def _prepare(self, action: act.Prepare) -> None:
        world, key, desired = self.host.world, action.assignment.key, action.assignment
        if world.roll("host_unfit"):
            self.feed(ev.PreparationFailed(key, desired.generation, f"{self.host.name}: no room.", host_fault=True))
            return
        taken = {port for ports in self.ports.values() for port in ports}
        if world.roll("cannot_prepare") or taken & set(action.ports):
            self.feed(ev.PreparationFailed(key, desired.generation, f"{self.host.name}: port is taken."))
            return
        world.boundary("agent", "ensure shim", self.life)
        self._ensure(key)
        assert desired.launch is not None
        count = 2 if desired.launch.first_rank == 0 else 1
        if action.ports:
            self.ports[key] = action.ports
        else:
            self.ports[key] = tuple(world.new_port() for _ in range(count))
        own, *master = self.ports[key]
        prepared = ev.WorkerPrepared(key, desired.generation, own, master[0] if master else 0, self.held[key].pid)
        self.later(0.001, lambda: self.feed(prepared))

    def _ran_epilog(self, key: WorkerId, generation: int) -> None:
        problem = f"{self.host.name}: epilog failed." if self.host.world.roll("epilog_fails") else ""
        self.feed(ev.EpilogEnded(key, generation, problem))

    def _usage(self) -> tuple[GpuUsage, ...] | Blind:
        world, host = self.host.world, self.host
        if world.roll("blind"):
            return Blind("the driver does not answer")
        users: dict[str, list[int]] = {gpu.uuid: [] for gpu in host.inventory.gpus}
        for process in host.table.all_running():
            for gpu in process.gpus:
                users[gpu].append(process.pid)
        now = world.engine.now
        return tuple(
            GpuUsage(gpu, (1 << 30) if host.busy_until.get(gpu, 0.0) > now or pids else 0, tuple(sorted(pids)))
            for gpu, pids in users.items()
        )

    def _clear_orphans(self, key: WorkerId, generation: int, found: int) -> None:
        world = self.host.world
        left = [p for p in self.host.table.of(key, generation) if p.runs]
        for process in left:
            world.oracles.on_signal(process, "strays")
            world.programs.signal(process, KILL)
        if left:
            if found:
                self.feed(ev.WorkerStuck(key, generation, f"outlive KILL: {len(left)}"))
            wait_s = self.host.clock.true_s(ORPHANS_AGAIN_S) if found else 0.01
            self.later(wait_s, lambda: self._clear_orphans(key, generation, found + len(left)))
            return
        journal = self.journal(key, generation)
        self.feed(ev.OrphansCleared(key, generation, journal, found))

    def _record_exits(self, action: act.RecordExits) -> None:
        key, generation, now = action.key, action.generation, self.host.clock.wall()
        exits = [replace(exit_, end_time=exit_.end_time or now) for exit_ in action.exits]
        if self.host.world.bugs.invents_codes:
            exits = [replace(exit_, exit_code=137) for exit_ in exits]
        records: list[Any] = []
        if action.launched:
            records.append(("intent", action.launched, (), self.host.boot_id))
        records += [("exited", exit_) for exit_ in exits]
        self.host.disk.append(key, f"g{generation}", *records, ("empty",), sync=True)
        for exit_ in exits:
            self.feed(ev.RankExited(key, exit_))
        self.feed(ev.WorkerEmptied(key, generation))

    def _forget(self, key: WorkerId) -> None:
        shim = self.held.pop(key, None)
        if shim is not None:
            shim.quit()
        self.host.shims.pop(key, None)
        self.host.world.oracles.on_forgotten(self.host, key)
        self.host.disk.remove(key)
        self.later(0.001, lambda: self.feed(ev.WorkerForgotten(key)))
