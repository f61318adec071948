"""A model of the shim: its orders, records and timers, without processes of this machine.

The real shim is made of system calls, so it can't run in virtual time. ``test_shim_model.py`` holds this one
against it: the same orders, the same answers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.sim.cluster.processes import KILL, TERM, Process
from tests.sim.engine import Life

from holdfast._session.reports import Exit, ExitReason, WorkerId, decode_status
from holdfast_agent.core.worker import actions as act
from holdfast_agent.core.worker import events as ev
from holdfast_agent.shim.peers import PeerBook

if TYPE_CHECKING:
    from tests.sim.cluster.host import Host

LEFTOVER_GRACE_S = 2.0
STUCK_EVERY_S = 5.0
KILL_AGAIN_S = 1.0
GRACE_SHARE = 12
NEVER = float("inf")
FENCE_WORDS = "stopped by itself: no word from the controller"
REAP_S = 0.0005


@dataclass
class Stop:
    """A stop in progress; ``reason`` None: the ranks have ended by themselves and left something behind."""

    deadline: float
    reason: ExitReason | None
    words: str = ""
    reported: float = 0.0


@dataclass
class Generation:
    """The launch that this shim looks after."""

    number: int
    since: float
    """True time."""
    ranks: dict[int, Process] = field(default_factory=dict)
    """Those that live."""
    stop: Stop | None = None
    empty: bool = False
    asked: int = 0
    told: list[Any] = field(default_factory=list)
    fence_s: float = 0.0
    renewed: float = 0.0
    warned: bool = False
    book: PeerBook | None = None
    """The real one: what its peers and it have told each other."""
    port: int = 0
    silent: tuple[tuple[int, int], ...] = ()
    """What its agent was told of its peers."""

    @property
    def deadline(self) -> float:
        """By the host's clock."""
        return max(self.renewed, self.book.deadline) if self.book else self.renewed


class Shim:
    """One shim process. ``say`` is where its agent listens, None while there is none."""

    def __init__(self, host: Host, key: WorkerId, pid: int) -> None:
        self.host = host
        self.key = key
        self.pid = pid
        self.life = Life(f"shim of {key} on {host.name}")
        numbers = [
            int(name[1:]) for name in host.disk.workers.get(key, {}) if name[0] == "g" and name[1:].isdigit()
        ]
        self.highest = max(numbers, default=0)
        self.generation: Generation | None = None
        self.say: Any = None

    # --- its agent ----------------------------------------------------------------------------------------------

    def connect(self, say: Any) -> None:
        """An agent has connected: who is here, and everything of the current generation again."""
        self.say = say
        generation = self.generation
        number = generation.number if generation else self.highest
        self._tell(ev.ShimGreeted(self.key, self.pid, number, generation is not None and not generation.empty))
        for message in generation.told if generation else ():
            self._tell(message)
        if generation and generation.book:
            self._tell(ev.PeersSilent(self.key, generation.silent))

    def hear(self, order: Any) -> None:
        """An order of the agent's."""
        match order:
            case act.LaunchRanks():
                self.launch(order)
            case act.StopRanks(_, generation, grace_s, reason):
                self.stop(generation, grace_s, reason)
            case act.RenewFence(_, generation, deadline_s):
                self.renew(generation, deadline_s)
            case act.SignalRanks(_, generation, _):
                self.warn(generation)

    def quit(self) -> bool:
        """Let go, unless something runs. Returns whether it ended."""
        if self.generation and not self.generation.empty:
            return False
        self.life.alive = False
        return True

    def die(self) -> None:
        """Crash: what it looked after is nobody's any more."""
        if self.life.alive:
            self.host.world.tell(f"the shim of {self.key} on {self.host.name} dies")
            self.life.alive = False
            self.say = None
            self.host.shim_died(self)

    def _tell(self, message: Any) -> None:
        if self.say is not None:
            self.say(message)

    def _refuse(self, generation: int, why: str) -> None:
        self._tell(ev.LaunchRefused(self.key, generation, why))

    # --- launch -------------------------------------------------------------------------------------------------

    def launch(self, order: act.LaunchRanks) -> None:
        """Start the ranks of a new generation, or refuse and have started nothing."""
        host, number, before = self.host, order.generation, self.generation
        if number <= self.highest:
            self._refuse(number, f"generation {number} is not above {self.highest}, which was launched here")
            return
        if before and not before.empty:
            self._refuse(number, f"generation {before.number} is not empty")
            return
        if order.fence_s and order.fence_deadline_s <= host.clock.mono() and not order.peers:
            self._refuse(number, f"the controller has not been heard for {order.fence_s:g} s")
            return
        ranks = tuple(rank.rank for rank in order.ranks)
        intent = ("intent", ranks, order.gpus, host.boot_id)
        late = host.world.bugs.forks_before_intent
        self.highest = number
        if not late:
            host.world.boundary("shim", "intent", self.life)
            host.disk.append(self.key, f"g{number}", intent, sync=True)
            host.disk.append(self.key, f"g{number}", ("forking",))
        generation = self.generation = Generation(
            number, host.world.engine.now, asked=number, fence_s=order.fence_s
        )
        if before and before.silent:
            self._tell(ev.PeersSilent(self.key, ()))
        if order.fence_s:
            generation.renewed = min(order.fence_deadline_s, host.clock.mono() + order.fence_s)
        if order.peers:
            generation.book = PeerBook(dataclasses.asdict(order.peers), number, order.fence_s)
            generation.port = order.peers.port
            self._look_at_peers(generation)
        for rank in order.ranks:
            host.world.boundary("shim", "fork", self.life)
            process = host.table.spawn(self.key, number, rank.rank, order.gpus)
            process.fence_at = self._fence_at(generation)
            generation.ranks[rank.rank] = process
            host.world.oracles.on_spawn(process, rank.env)
            host.disk.append(self.key, f"g{number}", ("started", rank.rank, process.pid))
            generation.told.append(ev.RankStarted(self.key, number, rank.rank, process.pid))
        if late:
            host.world.boundary("shim", "intent", self.life)
            host.disk.append(self.key, f"g{number}", intent, sync=True)
        for process in generation.ranks.values():
            host.world.programs.start(process)
        for message in generation.told:
            self._tell(message)
        if order.fence_s:
            self._watch_fence(generation)

    # --- ends ---------------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Take every exit there is, make them durable together, tell them."""
        generation = self.generation
        if generation is None or generation.empty:
            return
        records: list[Any] = []
        news: list[Any] = []
        for process in self.host.table.of(self.key, generation.number):
            if process.runs:
                continue
            self.host.table.reap(process)
            if generation.ranks.get(process.rank) is process:
                del generation.ranks[process.rank]
                exit_ = self._exit_of(generation, process)
                records.append(("exited", exit_))
                news.append(ev.RankExited(self.key, exit_))
        left = [p for p in self.host.table.of(self.key, generation.number) if p.runs]
        if not left and not generation.ranks:
            generation.empty = True
            records.append(("empty",))
            news.append(ev.WorkerEmptied(self.key, generation.number))
        if records:
            self._commit(generation, records, news)
        if not generation.ranks and not generation.empty and generation.stop is None:
            generation.stop = Stop(self.host.clock.mono() + LEFTOVER_GRACE_S, None)
            self._signal(left, TERM, "leftover")
            self._kill_later(generation)

    def _commit(self, generation: Generation, records: list[Any], news: list[Any]) -> None:
        world, name = self.host.world, f"g{generation.number}"
        if world.bugs.tells_before_sync:
            self._say_all(generation, news)
            self.host.disk.append(self.key, name, *records)
            return
        world.boundary("shim", "sync", self.life)
        self.host.disk.append(self.key, name, *records, sync=True)
        world.boundary("shim", "tell", self.life)
        self._say_all(generation, news)

    def _say_all(self, generation: Generation, news: list[Any]) -> None:
        generation.told += news
        for message in news:
            if isinstance(message, ev.RankExited):
                self.host.world.oracles.on_told(self.host, self.key, generation.number, message.exit.rank)
            self._tell(message)
        if generation.empty and generation.asked > generation.number:
            self._tell(ev.WorkerEmptied(self.key, generation.asked))

    def _exit_of(self, generation: Generation, process: Process) -> Exit:
        status = process.status
        assert status is not None
        stop = generation.stop
        if stop and stop.reason:
            reason = stop.reason
        elif status & 0x7F:
            reason = ExitReason.SIGNALED
        else:
            reason = ExitReason.NONZERO_EXIT if status else ExitReason.COMPLETED
        exit_code, signal, _ = decode_status(status)
        words = stop.words if stop else ""
        return Exit(
            attempt=0,
            generation=generation.number,
            rank=process.rank,
            reason=reason,
            exit_code=exit_code,
            signal=signal,
            message=words,
            end_time=self.host.clock.wall(),
        )

    # --- stops --------------------------------------------------------------------------------------------------

    def stop(self, number: int, grace_s: float, reason: ExitReason, words: str = "") -> None:
        """TERM now, KILL after the grace; a later order may only bring KILL forward."""
        self.reap()
        generation = self.generation
        if generation is None or generation.empty or number < generation.number:
            self._tell(ev.WorkerEmptied(self.key, number))
            return
        generation.asked = max(generation.asked, number)
        stop, deadline = generation.stop, self.host.clock.mono() + grace_s
        if stop and stop.reason and deadline >= stop.deadline:
            return
        self.host.disk.append(self.key, f"g{generation.number}", ("stopping", reason.value))
        if stop is None:
            generation.stop = Stop(deadline, reason, words)
            processes = [p for p in self.host.table.of(self.key, generation.number) if p.runs]
            self._signal(processes, TERM, "fence" if words else "ordered")
        else:
            stop.reason = stop.reason or reason
            stop.deadline = min(stop.deadline, deadline)
        self._kill_later(generation)

    def _signal(self, processes: list[Process], number: int, cause: str) -> None:
        for process in processes:
            self.host.world.oracles.on_signal(process, cause)
            self.host.world.programs.signal(process, number)

    def _kill_later(self, generation: Generation) -> None:
        stop = generation.stop
        assert stop is not None
        host, wait_s = self.host, max(stop.deadline - self.host.clock.mono(), 0.0)
        host.world.engine.after(
            host.clock.true_s(wait_s) + 1e-6, lambda: self._kill(generation), self.life, self.die
        )

    def _kill(self, generation: Generation) -> None:
        stop, now = generation.stop, self.host.clock.mono()
        if self.generation is not generation or generation.empty or stop is None or now < stop.deadline:
            return
        left = [p for p in self.host.table.of(self.key, generation.number) if p.runs]
        for process in left:
            self.host.world.programs.signal(process, KILL)
        if left and now >= max(stop.deadline, stop.reported) + STUCK_EVERY_S:
            stop.reported = now
            pids = ", ".join(str(process.pid) for process in left)
            self._tell(ev.WorkerStuck(self.key, generation.number, f"outlive KILL: {pids}"))
        self.reap()
        if not generation.empty:
            wait_s = self.host.clock.true_s(KILL_AGAIN_S)
            self.host.world.engine.after(wait_s, lambda: self._kill(generation), self.life, self.die)

    # --- what else it hears -------------------------------------------------------------------------------------

    def warn(self, number: int) -> None:
        """A signal to the ranks, once."""
        generation = self.generation
        if generation and generation.number == number and not (generation.warned or generation.stop):
            generation.warned = True
            for process in generation.ranks.values():
                self.host.world.oracles.on_warned(process)
                self.host.world.programs.warned(process)

    def renew(self, number: int, deadline: float) -> None:
        """The controller was heard."""
        generation = self.generation
        if generation and generation.number == number and generation.fence_s:
            latest = min(deadline, self.host.clock.mono() + generation.fence_s)
            generation.renewed = max(generation.renewed, latest)
            self._note_deadline(generation)

    def _note_deadline(self, generation: Generation) -> None:
        for process in self.host.table.of(self.key, generation.number):
            process.fence_at = self._fence_at(generation)

    def _fence_at(self, generation: Generation) -> float | None:
        if not generation.fence_s or generation.deadline == NEVER:
            return None
        return self.host.world.engine.now + self.host.clock.true_s(generation.deadline - self.host.clock.mono())

    def _watch_fence(self, generation: Generation) -> None:
        clock = self.host.clock

        def look() -> None:
            if generation.empty or self.generation is not generation or not generation.fence_s:
                return
            if clock.mono() < generation.deadline:
                self._watch_fence(generation)
                return
            term_s, generation.fence_s = generation.fence_s, 0.0
            if generation.book:
                generation.book.holds = False
                self.host.world.oracles.on_isolated(self, generation.book)
            self.host.world.seen("fence")
            self.stop(generation.number, term_s / GRACE_SHARE, ExitReason.STOPPED, FENCE_WORDS)

        wait_s = clock.true_s(min(generation.deadline - clock.mono(), generation.fence_s)) + 1e-6
        self.host.world.engine.after(wait_s, look, self.life, self.die)

    # --- its peers ----------------------------------------------------------------------------------------------

    def _look_at_peers(self, generation: Generation) -> None:
        """Ask if it is time to, say who is silent, and look again when either may change."""
        book, clock = generation.book, self.host.clock
        if book is None or self.generation is not generation:
            return
        book.holds = book.holds and not generation.empty
        for peer, question in book.ask(clock.mono()):
            address, port = book.addresses[peer]
            self.host.world.network.datagram(self.host, address, port, question, generation.port)
        silent = tuple((index, last) for index, last in book.silent(clock.mono()))
        if silent != generation.silent:
            generation.silent = silent
            self._tell(ev.PeersSilent(self.key, silent))
        wait_s = min(book.next_s(clock.mono()) - clock.mono(), book.term_s)
        again_s = clock.true_s(max(wait_s, 0.0)) + 1e-3
        self.host.world.engine.after(again_s, lambda: self._look_at_peers(generation), self.life, self.die)

    def take(self, data: bytes, sender: Host, port: int) -> None:
        """A datagram has come for the generation that is looked after."""
        generation = self.generation
        if generation is None or generation.book is None:
            return
        answer = generation.book.take(data, self.host.clock.mono())
        if answer:
            self.host.world.network.datagram(self.host, sender.address, port, answer, generation.port)
        else:
            self._note_deadline(generation)
