"""The worker that a shim was assigned: its generations, one at a time, from a launch to the proof that it is over."""

from __future__ import annotations

import os
import select
import signal

from holdfast_agent.shim import journal
from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.fork import fork
from holdfast_agent.shim.generation import KILL_SLOWEST_S, STUCK_EVERY_S, Generation, Phase, Stop, seen
from holdfast_agent.shim.generation_setup import begin
from holdfast_agent.shim.launch import Identity, Plan
from holdfast_agent.shim.lease import LOOK_EVERY_S
from holdfast_agent.shim.processes import now_s, printable
from holdfast_agent.shim.rehearsal import injection
from holdfast_agent.shim.terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast_agent.shim.agent import Agent
    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.peers import Peers
    from holdfast_agent.shim.warm.release import Release
    from holdfast_agent.shim.warm.warm_starts import WarmStarts

LEFTOVER_GRACE_S = 2.0  # for what ranks that ended by themselves leave behind
LONGEST_S = 60.0  # between two looks at the timers, since the poll's clock stands still during a suspend
RETRY_S = 1.0  # a journal that can't be written
RESERVE_BYTES, RESERVE_PER_RANK_BYTES = 64 << 10, 8 << 10
BAD_ORDER = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


class Worker:
    """``directory`` is its own; ``guarded``: its ranks must not outlive the shim. Raises OSError."""

    def __init__(self, directory: int, agent: Agent, epoll: select.epoll, null: int, *, guarded: bool) -> None:
        self.directory, self.agent, self.epoll, self.null, self.guarded = directory, agent, epoll, null, guarded
        self.generation: Generation | None = None
        self.highest = journal.highest_generation(directory)
        self.warm: WarmStarts | None = None  # until a launch asks for warm starts: other jobs load nothing of them
        self.ending: list[int] = []  # generations whose stop is answered once what was parked is gone
        self.end_next = self.end_report = 0.0  # when what is left of that is killed again, and reported
        self.silent: list[list[int]] = []  # peers that were reported as silent
        self.retry_at: float | None = None
        self.complain_at = 0.0
        journal.reserve(RESERVE_BYTES, directory)

    @property
    def idle(self) -> bool:
        """Whether no process of a generation is left, whatever the disk holds of that."""
        return self.generation is None or self.generation.gone

    def greet(self, hello: Record) -> None:
        """Say `hello` to a new connection, and all that it has to know."""
        generation = self.generation
        number, phase = (generation.number, generation.phase) if generation else (self.highest, Phase.IDLE)
        replay = generation.reported if generation else []
        self.agent.greet(hello | {"generation": number, "phase": phase.value}, replay)
        if self.warm and self.warm.news:
            self.agent.say(self.warm.news)
        if generation and generation.peers:
            self.report_silent(generation, self.silent)

    def hear(self, fd: int) -> None:
        """Does what a ready descriptor of a terminal, of peers or of a warm start asks for."""
        if (generation := self.generation) is None:
            return
        if terminal := next(
            (each for each in generation.terminals.values() if fd in (each.master, each.input)), None
        ):
            terminal.serve()
            terminal.watch(self.epoll)
        elif (peers := generation.peers) and fd == peers.socket.fileno():
            peers.receive()
        elif self.warm and self.warm.hears(fd) and self.warm.hear(fd, generation):
            self.commit(generation)
            self.reap()

    def unwatch(self, fd: int) -> None:
        """Waits no more for a descriptor, if it did."""
        try:
            self.epoll.unregister(fd)
        except (OSError, ValueError):
            pass

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
            self.agent.refuse(number, f"{printable(error.filename or 'the journal')}: {error.strerror}")
        except BAD_ORDER as error:
            self.agent.refuse(number, f"{'lacks ' if isinstance(error, KeyError) else ''}{error}")
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
                self.agent.note(number, lack)
            self.start(generation, plans, identity, failures, message)
            os.close(failures)
            for terminal in generation.terminals.values():
                terminal.watch(self.epoll)
        for plan in plans:
            plan.close_files()
            if plan.terminal and number != self.highest:
                plan.terminal.close()
        self.reap()

    def start(
        self, generation: Generation, plans: list[Plan], identity: Identity, failures: int, order: Record
    ) -> None:
        """Fork the ranks, or release what waits to become them."""
        release = self.prepared(generation, plans, identity, order)
        fork(generation, plans, identity, self.null, failures, release)
        self.agent.tell(generation.number, generation.reported)
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
                self.agent.note(generation.number, f"no warm starts: {error}")
                return None
            self.warm = WarmStarts(
                self.directory, self.agent.say, lambda fd: self.epoll.register(fd, select.EPOLLIN), self.unwatch
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
                    self.agent.tell(number, [{"ev": "empty"}])
            return
        if childless or (self.warm and self.warm.is_all_that_is_left()):
            news |= generation.hear(now=True)
            if generation.proven_empty() and (self.warm is None or self.warm.lets_end(generation)):
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
                self.agent.stuck(generation.number, [], "the journal can't be written", str(error.strerror))
            return
        news, generation.unsynced = generation.unsynced, []
        generation.reported += news
        self.agent.tell(generation.number, news)
        if generation.phase is Phase.EMPTY and generation.asked > generation.number:
            self.agent.tell(generation.asked, [{"ev": "empty"}])

    # -- stop

    def stop(
        self, number: int, grace_s: float, reason: str, words: str = "", hung: list[int] | None = None
    ) -> None:
        """Send TERM now and KILL after the grace; a later order may only bring KILL forward.

        ``hung``: what is parked for the next generation is kept for it, and ranks may go on in it, except these.
        """
        self.reap()  # what ended before this order did so by itself
        generation = self.generation
        if generation and number >= generation.number:
            generation.asked_for_next, generation.held_until = hung is not None, None
            if hung is None and generation.stop:
                generation.give_up(list(generation.stop.spared))
            if hung is None and self.warm and self.warm.holds:
                self.warm.end(generation)
                if generation.phase is Phase.EMPTY:
                    self.ending.append(number)
                    self.end_next, self.end_report = now_s(), now_s() + STUCK_EVERY_S
            self.reap()
            if self.ending:
                return
        if generation is None or generation.phase is Phase.EMPTY or number < generation.number:
            self.agent.tell(number, [{"ev": "empty"}])
            return
        if generation.hear(now=True):
            self.commit(generation)
        generation.asked = max(generation.asked, number)
        stop, deadline = generation.stop, now_s() + grace_s
        if stop and stop.reason and deadline >= stop.deadline:
            return
        generation.end_shells()
        generation.note(
            {"ev": "stopping", "reason": reason, "grace_s": grace_s} | ({"message": words} if words else {})
        )
        self.agent.tell(generation.number, generation.reported[-1:])
        if stop is None:
            generation.stop = Stop(deadline, reason, words)
            if hung is not None and self.warm:
                generation.stop.spared = self.warm.unwind(generation, hung)
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
            self.agent.tell(number, generation.reported[-1:])

    def fence(self, generation: Generation, now: float) -> None:
        """Stops the generation by itself once its time without the controller is over."""
        fence = generation.fence
        if fence and not generation.gone and now >= fence.deadline:
            generation.fence = None
            if fence.peers:
                fence.peers.book.holds = False
            self.stop(generation.number, fence.grace_s, "STOPPED", fence.words)

    def look_at(self, peers: Peers, generation: Generation, now: float) -> None:
        """Ask the gang's other workers if it is time to, and tell the agent whose silence has changed."""
        peers.book.holds = peers.book.holds and not generation.gone
        peers.ask()
        if missing := peers.book.never_answered(now):
            which = ", ".join(peers.book.where(index) for index in missing[:8])
            words = f"no answer by UDP from {which}: should this host be lost, the job waits for it"
            self.agent.note(generation.number, words)
        if (silent := peers.book.silent(now)) != self.silent:
            self.report_silent(generation, silent)

    def report_silent(self, generation: Generation, silent: list[list[int]]) -> None:
        self.silent = silent
        self.agent.say({"ev": "peers", "generation": generation.number, "silent": silent})

    # -- timers

    def timeout_s(self) -> float:
        """Seconds to the next timer."""
        generation, now = self.generation, now_s()
        due = [now + LONGEST_S if self.retry_at is None else self.retry_at]
        if self.warm and (look_at := self.warm.due_s()) is not None:
            due.append(look_at)
        if self.ending:
            due.append(self.end_next)
        if generation:
            due += [deadline for *_, deadline in generation.unheard]
            if generation.peers:
                due.append(generation.peers.book.next_s(now))
        if generation and not generation.gone:
            if generation.fence:
                due.append(min(generation.fence.deadline, now + LOOK_EVERY_S))
            if generation.held_until:
                due.append(generation.held_until)
            elif generation.stop:
                due += [generation.stop.next_kill, *generation.stop.spared.values()]
        return max(0.0, min(due) - now)

    def tick(self, now: float) -> None:
        """Do what is due at a moment, in seconds since boot, up to which all that was said has been heard."""
        generation = self.generation
        if generation is None:
            return
        if self.retry_at is not None and now >= self.retry_at:
            self.commit(generation)
        self.fence(generation, now)
        if any(now >= deadline for *_, deadline in generation.unheard):
            self.reap()
        if generation.peers:
            self.look_at(generation.peers, generation, now)
        if self.warm:
            self.warm.look(generation, now)
        if self.ending and now >= self.end_next:
            self.end_parked(generation, now)
        if self.warm and generation.held_until and not generation.gone:
            if now >= generation.held_until:
                generation.held_until = None
                self.warm.end(generation, "no order came after its end")
            return
        stop = generation.stop
        if stop is None or generation.gone:
            return
        generation.give_up([pid for pid, until in stop.spared.items() if now >= until])
        if now < stop.next_kill:
            return
        left = generation.kill(stop)
        if now >= stop.next_report and (left or generation.childless):
            stop.next_report = now + STUCK_EVERY_S
            self.agent.stuck(generation.number, left, "outlive KILL", "what its cgroup still counts")
        self.reap()  # nothing tells of the end of what is no child of ours

    def end_parked(self, generation: Generation, now: float) -> None:
        """Kill again what was parked, and say so where it outlives that: a stop waits for its end."""
        self.end_next = now + KILL_SLOWEST_S
        left = seen()
        for process in left:
            process.send(signal.SIGKILL)
        if left and now >= self.end_report:
            self.end_report = now + STUCK_EVERY_S
            self.agent.stuck(generation.number, left, "outlive KILL, parked for the next generation")
        self.reap()

    def leave(self) -> bool:
        """Give up its files, unless ranks need them. Returns whether it did."""
        generation = self.generation
        if generation and generation.phase is not Phase.EMPTY:
            self.agent.refuse(generation.number, f"generation {generation.number} is not empty")
            return False
        hit("shim.quit.before")
        if generation and self.warm:
            self.warm.end(generation)
        journal.remove("sock", self.directory)
        journal.remove(journal.RESERVE, self.directory)
        return True
