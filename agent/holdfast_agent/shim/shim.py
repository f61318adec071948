"""The parent of one worker's ranks and the keeper of their exits: `python -I -S shim.py FD`.

Theory of operation. docs/internals/shim-protocol.md is the contract; this is how it is kept.

- *Nothing forks before the intent is durable*, file and name both, so a reader of the journal knows whether a
  generation may have run. It is launched at most once: its journal is created with O_EXCL.
- *An exit is reported only once it is durable.* All that can be reaped is reaped, written and synced as one batch,
  then reported. What the disk refuses stays in memory and is written again every second.
- *Emptiness is proven by waitpid.* The shim is a subreaper: a process that loses its parent becomes its child, so "no
  child" means that no descendant is left. Only one generation has processes at any time.
- *Signals hit only what is ours.* A rank that was not reaped still owns its pid and process group; every other
  descendant is found in /proc and signalled by a pidfd that was checked.
- *Nothing blocks.* The agent may be slow, stuck or gone: what is not taken is dropped with the connection, and the
  next connection begins with a replay.

`holdfast_agent.shim.template` forks itself into shims, which is how an agent gets them; a lone one works the same.

One thread, one epoll loop; timers are the stop's deadline, then its next KILL, and the journal's next try. Imports
are what start-up costs, so they are few, and `_socket` stands in for `socket`. Every descriptor is close-on-exec: a
rank gets 0, 1, 2 and no other. The parts lie in `holdfast_agent.shim`; as -I -S leaves site-packages out,
this file makes its own package known, last on the path.

Longer than 400 lines because the loop and all the orders that it may get share one state.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM
from _socket import socket as Socket

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from holdfast_agent.shim import error_file, journal, keepers
from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.generation import KILL_SLOWEST_S, STUCK_EVERY_S, Generation, Phase, Rank, Stop, seen
from holdfast_agent.shim.generation_setup import begin
from holdfast_agent.shim.launch import Identity, Plan, encode, spawn
from holdfast_agent.shim.lease import LOOK_EVERY_S
from holdfast_agent.shim.link import Link, may_order
from holdfast_agent.shim.process_setup import settle
from holdfast_agent.shim.processes import Process, boot_id, now_s, printable
from holdfast_agent.shim.rehearsal import injection
from holdfast_agent.shim.shells import rank_shell
from holdfast_agent.shim.terminal import Terminal

TYPE_CHECKING = False  # type checkers take it for true; the real one would cost an import
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.peers import Peers
    from holdfast_agent.shim.warm.release import Release
    from holdfast_agent.shim.warm.warm_starts import WarmStarts

VERSION = 1
GUARD_GRACE_S = 5.0  # from TERM to KILL for ranks whose guard is gone
LEFTOVER_GRACE_S = 2.0  # for what ranks that ended by themselves leave behind
HELD_S = 30.0  # for the order that follows a generation, before what is parked for the next one is ended
RETRY_S = 1.0  # a journal that can't be written
RESERVE_BYTES, RESERVE_PER_RANK_BYTES = 64 << 10, 8 << 10
BAD_ORDER = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class Shim:
    """The loop: hears the agent, the children and the clock."""

    def __init__(self, fd: int) -> None:
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.epoll = select.epoll()
        self.epoll.register(self.wake, select.EPOLLIN)
        self.directory = -1  # until assigned
        self.listener: Socket | None = None
        self.link: Link | None = None
        self.generation: Generation | None = None
        self.highest = 0  # generation that has a journal here
        self.warm: WarmStarts | None = None  # until a launch asks for warm starts: other jobs load nothing of them
        self.ending: list[int] = []  # generations whose stop is answered once what was parked is gone
        self.end_next = self.end_report = 0.0  # when what is left of that is killed again, and reported
        self.silent: list[list[int]] = []  # peers that were reported as silent
        self.guard = -1  # a pidfd of the process that nothing here may outlive
        self.guarded = False
        self.retry_at: float | None = None
        self.complain_at = 0.0
        self.done = False
        self.connect(fd)

    def run(self) -> None:
        """Run until ordered to quit, or until the agent dies before the assignment."""
        while not self.done:
            self.handle(self.epoll.poll(self.timeout_s()))
            # After a time in which this process stood still, what was said meanwhile comes before any deadline.
            if not self.done and self.timeout_s() == 0:
                self.handle(self.epoll.poll(0))
            self.tick()

    def handle(self, events: list[tuple[int, int]]) -> None:
        """Does what each ready descriptor asks for."""
        ready = dict(events)
        if ready.pop(self.guard, 0):
            self.end_with_guard()
        if ready.pop(self.wake, 0):
            os.read(self.wake, 4096)
            self.reap()  # before the agent is heard: these ended by themselves
        if self.listener and ready.pop(self.listener.fileno(), 0):
            self.accept(self.listener)
        for fd, each in ready.items():
            if self.link and fd == self.link.fd:
                self.serve(self.link, each)
            elif self.generation and (terminal := self.terminal_of(self.generation, fd)):
                terminal.serve()
                self.watch(terminal)
            elif self.generation and (peers := self.generation.peers) and fd == peers.socket.fileno():
                peers.receive()
            elif self.generation and self.warm and self.warm.hears(fd):
                self.warm.hear(self.generation)

    def terminal_of(self, generation: Generation, fd: int) -> Terminal | None:
        """The terminal that the descriptor is of."""
        return next((each for each in generation.terminals.values() if fd in (each.master, each.input)), None)

    def unwatch(self, fd: int) -> None:
        """Waits no more for a descriptor, if it did."""
        try:
            self.epoll.unregister(fd)
        except (OSError, ValueError):
            pass

    def watch(self, terminal: Terminal) -> None:
        """Waits for what the terminal can do something with; for nothing of one that is closed."""
        for fd, events in terminal.interest().items():
            try:
                self.epoll.modify(fd, events)
            except FileNotFoundError:
                self.epoll.register(fd, events)

    # -- the agent

    def connect(self, fd: int) -> None:
        """Takes the newest connection; the one before it is over."""
        self.drop()
        self.link = Link(fd)
        self.epoll.register(fd, select.EPOLLIN)

    def accept(self, listener: Socket) -> None:
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]
        except OSError:
            self.drop()  # it has gone again, or the old connection's descriptor is needed for it
            return
        if not may_order(fd):
            os.close(fd)
            return
        self.connect(fd)
        self.greet()

    def drop(self) -> None:
        if self.link:
            self.link.close()
            self.link = None
            self.done = self.done or self.directory < 0

    def greet(self) -> None:
        """Send `hello`, then every record of the current generation that was reported."""
        generation = self.generation
        number, phase = (generation.number, generation.phase) if generation else (self.highest, Phase.IDLE)
        hello = {"ev": "hello", "version": VERSION, "pid": os.getpid(), "generation": number, "phase": phase.value}
        hello |= {"shells": True, "faults": injection.FAULTS}
        replay = generation.reported if generation else []
        if self.link:
            self.link.out_limit_bytes += sum(len(json.dumps(record)) + 32 for record in replay)
        self.say(hello)
        self.tell(number, replay)
        if self.warm and self.warm.news:
            self.say(self.warm.news)
        if generation and generation.peers:
            self.report_silent(generation, generation.peers.book.silent(now_s()))

    def say(self, message: Record | None = None) -> None:
        """Send without waiting, continuing what was not sent; an agent that does not read loses the connection."""
        link = self.link
        if link is None:
            return
        line = json.dumps(message).encode() + b"\n" if message else b""
        if link.send(line) and not link.overdue:
            self.epoll.modify(link.fd, select.EPOLLIN | (select.EPOLLOUT if link.out else 0))
        else:
            self.drop()

    def tell(self, generation: int, records: list[Record]) -> None:
        for record in records:
            self.say({**record, "generation": generation})

    def refuse(self, generation: int, message: str) -> None:
        self.say({"ev": "refused", "generation": generation, "message": message})

    def serve(self, link: Link, events: int) -> None:
        """Sends, reads, obeys. What is not our protocol ends the connection, never the shim."""
        if events & select.EPOLLOUT:
            self.say()
        if not events & ~select.EPOLLOUT:
            return
        try:
            lines = link.receive() if self.link is link else []
        except (OSError, ValueError):
            lines = None
        for line in lines or []:
            try:
                act = self.order(json.loads(line))
            except BAD_ORDER:
                lines = None
                break
            act()
            if self.link is not link or self.done:
                return
        if lines is None:
            self.drop()

    def order(self, message: Record) -> Callable[[], None]:
        """Parse a message into a call ready to be made. Raises one of BAD_ORDER."""
        operation = message["op"]
        if operation == "assign" and self.directory < 0:
            path, guard = encode(message["dir"]), message.get("guard")
            named = (int(guard["pid"]), int(guard["start_ticks"])) if guard else None
            return lambda: self.assign(path, named)
        if self.directory >= 0:
            if operation == "quit":
                return self.quit
            number = int(message["generation"])
            if operation == "launch":
                return lambda: self.launch(number, message)
            if operation == "stop":
                grace_s, reason = float(message["grace_s"]), str(message["reason"])
                another = bool(message.get("another_follows"))
                if 0 <= grace_s < 1e9 and reason:
                    return lambda: self.stop(number, grace_s, reason, another=another)
            if operation == "renew":
                deadline = float(message["deadline"])
                return lambda: self.renew(number, deadline)
            if operation == "shell":
                shell = rank_shell.Order(message)
                return lambda: keepers.begin(self.generation, number, shell, self.directory)
            if operation == "inject":
                fault = injection.Order(message)
                return lambda: keepers.begin(self.generation, number, fault, self.directory)
            if operation == "signal":
                which = signal.Signals(message["signal"])
                return lambda: self.warn(number, which)
        raise ValueError(operation)

    # -- assignment

    def assign(self, path: bytes, guard: tuple[int, int] | None) -> None:
        """Takes the worker's directory, alone, and says so on disk once it can be reached there.

        Nothing here outlives the process `guard`, a pid and its start time, where one is named.
        """
        try:
            if guard:
                self.watch_guard(*guard)
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                os.lockf(lock, os.F_TLOCK, 0)  # held until we end; children don't inherit it
            except OSError as error:
                raise OSError(error.errno, "another shim has it") from None
            self.highest = journal.highest_generation(directory)
            self.listener = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
            journal.remove("sock", directory)
            self.listener.bind(f"/proc/self/fd/{directory}/sock")
            self.listener.listen(8)
            journal.reserve(RESERVE_BYTES, directory)
            me = {"pid": os.getpid(), "start_ticks": Process(os.getpid()).start_ticks}
            hit("shim.assign.before")
            journal.write_durably(
                "shim.json", json.dumps(me | {"boot_id": boot_id(), "version": VERSION}), directory
            )
        except OSError as error:
            self.refuse(0, f"cannot take {printable(path)}: {error.strerror}")
            self.done = True
            return
        hit("shim.assign.after")
        self.directory = directory
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.greet()

    def watch_guard(self, pid: int, start_ticks: int) -> None:
        """Wake the loop when the process is gone. Raises OSError where it is already."""
        self.guard = os.pidfd_open(pid)
        if Process(pid).start_ticks != start_ticks:  # opened first and compared after: it can't be another's since
            raise OSError(errno.ESRCH, "the process that it may not outlive is gone")
        self.epoll.register(self.guard, select.EPOLLIN)
        self.guarded = True

    def end_with_guard(self) -> None:
        """Stops what runs, and ends once nothing is left."""
        self.epoll.unregister(self.guard)
        os.close(self.guard)
        self.guard = -1
        if self.generation and not self.generation.gone:
            self.stop(self.generation.number, GUARD_GRACE_S, "STOPPED", "stopped by itself: holdfast guard is gone")

    def quit(self) -> None:
        """Ends the shim, unless it is needed."""
        generation = self.generation
        if generation and generation.phase is not Phase.EMPTY:
            self.refuse(generation.number, f"generation {generation.number} is not empty")
            return
        hit("shim.quit.before")
        if generation and self.warm:
            self.warm.end(generation)
        journal.remove("sock", self.directory)
        journal.remove(journal.RESERVE, self.directory)
        self.done = True

    # -- launch

    def launch(self, number: int, message: Record) -> None:
        """Starts the ranks of a new generation, or refuses and has started nothing."""
        before = self.generation
        plans: list[Plan] = []
        try:
            if number <= self.highest:
                raise ValueError(f"generation {number} is not above {self.highest}, which was launched here")
            if before and before.phase is not Phase.EMPTY:
                raise ValueError(f"generation {before.number} is not empty")
            identity = Identity(message)
            for order in message["ranks"]:
                plans.append(Plan(order))
                plans[-1].guarded_by = os.getpid() if self.guarded else 0
            if not plans or len({plan.rank for plan in plans}) < len(plans):
                raise ValueError("no rank, or one of them twice")
            plans[0].clears_locks = True
            for plan in plans:
                plan.open_files(identity.uid, identity.gid)
                if plan.wants_terminal:
                    plan.terminal = Terminal(plan, number, self.directory, identity.uid, identity.gid)
            identity.prepare()
            journal.reserve(max(RESERVE_BYTES, RESERVE_PER_RANK_BYTES * len(plans)), self.directory)
            if before:
                before.leave_peers()  # their port may be needed again
            generation, failures, lacks = begin(number, plans, message, self.directory)
        except OSError as error:
            self.refuse(number, f"{printable(error.filename or 'the journal')}: {error.strerror}")
        except BAD_ORDER as error:
            self.refuse(number, f"{'lacks ' if isinstance(error, KeyError) else ''}{error}")
        else:
            if before:
                before.close()
            self.highest = number
            self.generation = generation
            if self.silent:
                self.report_silent(generation, [])
            if generation.peers:
                self.epoll.register(generation.peers.socket.fileno(), select.EPOLLIN)
            generation.plans = {plan.rank: (plan, identity) for plan in plans}
            generation.terminals = {plan.rank: plan.terminal for plan in plans if plan.terminal}
            for lack in lacks:
                self.say({"ev": "note", "generation": number, "message": lack})
            self.fork(generation, plans, identity, failures, message)
            os.close(failures)
            for terminal in generation.terminals.values():
                self.watch(terminal)
        for plan in plans:
            plan.close_files()
            if plan.terminal and number != self.highest:
                plan.terminal.close()
        self.reap()

    def fork(
        self, generation: Generation, plans: list[Plan], identity: Identity, failures: int, message: Record
    ) -> None:
        release = self.prepared(generation, plans, identity, message)
        signal.pthread_sigmask(signal.SIG_SETMASK, (signal.SIGTERM,))
        pids: list[tuple[Plan, int]] = []
        generation.forking()

        def start(plan: Plan, failures: int = failures) -> int | None:
            try:
                hit("shim.fork.before")
                return spawn(plan, identity, generation, self.null, failures)
            except OSError as error:
                generation.not_started(plan.rank, f"cannot fork: {error.strerror}")
                return None

        for plan in plans:
            # What stops a child that hands over is no answer yet: its rank is then started cold, and says it itself.
            pid = start(plan, self.null) if release else start(plan)
            if pid is not None:
                pids.append((plan, pid))
        if release:
            pids = release.ready(pids, start)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        hit("shim.fork.after")
        for plan, pid in pids:
            words = plan.stdout if plan.terminal else plan.stderr  # on a terminal both are one
            rank = Rank(plan.rank, pid, plan.stdout, words, plan.env.get(error_file.VARIABLE, b""))
            generation.started(rank, warm=release is not None and plan.rank in release.parked)
        hit("shim.started.before")
        if release:
            release.go()
        self.tell(generation.number, generation.reported)
        hit("shim.started.after")
        if generation.cgroup:
            generation.cgroup.gather()  # before a disk that is slow
        self.commit(generation)  # lest a disk that fails from now on leave the intent alone, as if nothing had run
        if release and self.warm:
            release.close()
            self.warm.started(generation, release)

    def prepared(
        self, generation: Generation, plans: list[Plan], identity: Identity, message: Record
    ) -> Release | None:
        """The parked processes that become the ranks; None for a cold start. Loads what a warm one takes, if asked."""
        if self.warm is None and message.get("warm") is not None:
            try:
                from holdfast_agent.shim.warm.warm_starts import WarmStarts
            except Exception as error:  # noqa: BLE001 - of another release, or gone: the ranks start all the same
                self.say({"ev": "note", "generation": generation.number, "message": f"no warm starts: {error}"})
                return None
            self.warm = WarmStarts(
                self.directory, self.say, lambda fd: self.epoll.register(fd, select.EPOLLIN), self.unwatch
            )
        return self.warm.launch(generation, plans, identity, message) if self.warm else None

    # -- exits

    def reap(self) -> None:
        """Reap all exits, make them durable together, then report them."""
        generation = self.generation
        if generation is None:
            return
        news = childless = False
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if rank := generation.live.pop(reaped[0], None):
                    generation.reaped(rank, reaped[1])
                    news = True
                generation.keepers.discard(reaped[0])
                injection.on_keeper_end(generation, *reaped)
                if self.warm:
                    self.warm.reaped(reaped[0], generation)
        except ChildProcessError:
            childless = True
        if generation.gone:
            if childless:
                ended, self.ending = self.ending, []
                for number in ended:
                    self.tell(number, [{"ev": "empty"}])
            return
        if childless or (self.warm and self.warm.is_all_that_is_left()):
            news |= generation.hear(now=True)
            if generation.proven_empty() and self.may_be_over(generation):
                generation.gone = news = True
                generation.leave_room()
                generation.leave_terminals()
                generation.record({"ev": "empty"})
        news |= generation.hear()
        if news:
            hit("shim.exit.before")
            self.commit(generation)
            hit("shim.exit.after")
        if not (generation.live or generation.unheard or generation.gone or generation.held_until):
            generation.end_shells()
            generation.stop = generation.stop or Stop(now_s() + LEFTOVER_GRACE_S, None)
            generation.sweep()

    def may_be_over(self, generation: Generation) -> bool:
        """Whether `empty` can be said: not while ranks are parked of which no order says that they will be needed."""
        if self.warm is None or self.warm.standby is None:
            return True
        if generation.asked_for_next:
            self.warm.keep()
            return True
        generation.held_until = generation.held_until or now_s() + HELD_S
        return False

    def commit(self, generation: Generation) -> None:
        """Sync the journal and report the records that waited for it; a full disk costs the reserve, then a retry."""
        self.retry_at = None
        try:
            try:
                generation.journal.sync()
            except OSError:
                if not journal.remove(journal.RESERVE, self.directory):
                    raise
                generation.journal.sync()
        except OSError as error:
            self.retry_at = now_s() + RETRY_S
            if now_s() >= self.complain_at:
                self.complain_at = now_s() + STUCK_EVERY_S
                self.stuck(generation, [], f"the journal can't be written: {error.strerror}")
            return
        news, generation.unsynced = generation.unsynced, []
        generation.reported += news
        self.tell(generation.number, news)
        if generation.phase is Phase.EMPTY and generation.asked > generation.number:
            self.tell(generation.asked, [{"ev": "empty"}])

    # -- stop

    def stop(self, number: int, grace_s: float, reason: str, words: str = "", *, another: bool = False) -> None:
        """Send TERM now and KILL after the grace; a later order may only bring KILL forward.

        ``another``: what is parked for the next generation is kept for it.
        """
        self.reap()  # what ended before this order did so by itself
        generation = self.generation
        if generation and number >= generation.number:
            generation.asked_for_next, generation.held_until = another, None
            if not another and self.warm and self.warm.standby:
                self.warm.end(generation)
                if generation.phase is Phase.EMPTY:
                    self.ending.append(number)
                    self.end_next, self.end_report = now_s(), now_s() + STUCK_EVERY_S
            self.reap()
            if self.ending:
                return
        if generation is None or generation.phase is Phase.EMPTY or number < generation.number:
            self.tell(number, [{"ev": "empty"}])
            return
        if generation.hear(now=True):
            self.commit(generation)
        generation.asked = max(generation.asked, number)
        stop, deadline = generation.stop, now_s() + grace_s
        if stop and stop.reason and deadline >= stop.deadline:
            return
        why = {"message": words} if words else {}
        generation.end_shells()
        generation.note({"ev": "stopping", "reason": reason, "grace_s": grace_s, **why})
        self.tell(generation.number, generation.reported[-1:])
        if stop is None:
            generation.stop = Stop(deadline, reason, words)
            hit("shim.term.before")
            generation.terminate()
            hit("shim.term.after")
            return
        stop.reason = stop.reason or reason
        if deadline < stop.deadline:
            stop.shorten(deadline)

    def renew(self, number: int, deadline: float) -> None:
        """Extend the generation's deadline, because the controller was heard."""
        generation = self.generation
        if generation and generation.number == number and generation.fence:
            generation.fence.renew(deadline)

    def warn(self, number: int, which: signal.Signals) -> None:
        """Send a signal to the ranks, once in a generation's life."""
        generation = self.generation
        if generation and generation.number == number and generation.warn(which):
            self.tell(number, generation.reported[-1:])

    def fence(self, generation: Generation) -> None:
        """Stops the generation by itself once its time without the controller is over."""
        fence = generation.fence
        if fence and not generation.gone and now_s() >= fence.deadline:
            generation.fence = None
            if fence.peers:
                fence.peers.book.holds = False
            self.stop(generation.number, fence.grace_s, "STOPPED", fence.words)

    def look_at(self, peers: Peers, generation: Generation) -> None:
        """Ask the gang's other workers if it is time to, and tell the agent whose silence has changed."""
        peers.book.holds = peers.book.holds and not generation.gone
        peers.ask()
        if missing := peers.book.never_answered(now_s()):
            which = ", ".join(peers.book.where(index) for index in missing[:8])
            words = f"no answer by UDP from {which}: should this host be lost, the job waits for it"
            self.say({"ev": "note", "generation": generation.number, "message": words})
        if (silent := peers.book.silent(now_s())) != self.silent:
            self.report_silent(generation, silent)

    def report_silent(self, generation: Generation, silent: list[list[int]]) -> None:
        self.silent = silent
        self.say({"ev": "peers", "generation": generation.number, "silent": silent})

    def timeout_s(self) -> float:
        """Seconds to the next timer; a minute at most, since the poll's clock stands still during a suspend."""
        due = [now_s() + 60] if self.retry_at is None else [self.retry_at]
        if self.generation and self.generation.fence and not self.generation.gone:
            due.append(min(self.generation.fence.deadline, now_s() + LOOK_EVERY_S))
        if (generation := self.generation) and not generation.gone:
            if generation.held_until:
                due.append(generation.held_until)
            elif generation.stop:
                due.append(generation.stop.next_kill)
        if self.warm and (look_at := self.warm.due_s()) is not None:
            due.append(look_at)
        if self.ending:
            due.append(self.end_next)
        if self.generation:
            due += [deadline for *_, deadline in self.generation.unheard]
        if self.generation and self.generation.peers:
            due.append(self.generation.peers.book.next_s(now_s()))
        return max(0.0, min(due) - now_s())

    def tick(self) -> None:
        """Does what is due."""
        generation, now = self.generation, now_s()
        if self.guarded and self.guard < 0 and (generation is None or generation.gone):
            self.done = True  # even where the journal can't be written: its folder goes with the guard
        if generation is None:
            return
        if self.retry_at is not None and now >= self.retry_at:
            self.commit(generation)
        self.fence(generation)
        if any(now >= deadline for *_, deadline in generation.unheard):
            self.reap()
        if generation.peers:
            self.look_at(generation.peers, generation)
        if self.warm:
            self.warm.look(generation)
        if self.ending and now >= self.end_next:
            self.end_parked(generation, now)
        if self.warm and generation.held_until and not generation.gone:
            if now >= generation.held_until:
                generation.held_until = None
                self.warm.end(generation, "no order came after its end")
            return
        stop = generation.stop
        if stop is None or generation.gone or now < stop.next_kill:
            return
        left = generation.kill(stop)
        if now >= stop.next_report and (left or generation.childless):
            stop.next_report = now + STUCK_EVERY_S
            where = ", ".join(process.where() for process in left[:50])
            self.stuck(generation, left, f"outlive KILL: {where or 'what its cgroup still counts'}")
        self.reap()  # nothing tells of the end of what is no child of ours

    def end_parked(self, generation: Generation, now: float) -> None:
        """Kill again what was parked, and say so where it outlives that: a stop waits for its end."""
        self.end_next = now + KILL_SLOWEST_S
        left = seen()
        for process in left:
            process.send(signal.SIGKILL)
        if left and now >= self.end_report:
            self.end_report = now + STUCK_EVERY_S
            where = ", ".join(process.where() for process in left[:50])
            self.stuck(generation, left, f"outlive KILL, parked for the next generation: {where}")
        self.reap()

    def stuck(self, generation: Generation, left: list[Process], message: str) -> None:
        pids = [process.pid for process in left]
        self.say({"ev": "stuck", "generation": generation.number, "pids": pids, "message": message})


def run(fd: int) -> None:
    """Makes this process a shim that the agent talks to over a descriptor; returns at its end."""
    settle(fd)
    shim = Shim(fd)
    try:
        shim.run()
    except BaseException:
        if shim.directory >= 0:
            import traceback  # only now: it costs more than all the rest

            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open("shim.err", flags, 0o600, dir_fd=shim.directory)
            os.write(file, traceback.format_exc().encode("utf-8", "replace"))
        raise


if __name__ == "__main__":
    run(int(sys.argv[1]))
