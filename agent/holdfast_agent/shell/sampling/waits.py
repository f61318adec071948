"""Reads what a rank's main thread waits for, and keeps the answer while its system call stays the same.

Only of ranks that use no CPU. While the call stays the same, the answer is kept for ``RECHECK_S``; then, and for a
new call, its descriptors are looked at again. Each file costs 20 to 30 µs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast.hang.pipeline.frame_waits import StackWait
from holdfast.hang.pipeline.waits import A_THREAD, FUTEX, LONG_SLEEP_S, NAP_S, TIME_LIMIT, Wait, WaitKind
from holdfast_agent.core.proc import waits
from holdfast_agent.core.proc.proc_text import Call
from holdfast_agent.core.proc.waits import Gang
from holdfast_agent.shell.sampling.blocked_calls import ALIVE, CallJudge, Subject
from holdfast_agent.shell.sampling.guarded_reader import Turn
from holdfast_agent.shell.sampling.holders import Tables
from holdfast_agent.shell.sampling.processes import Gone
from holdfast_agent.shell.sampling.tree import RankReading, Tree

RECHECK_S = 10.0
CHILD_RECHECK_S = 4.0
"""A child goes on, and a lock is released, while a call stays the same."""
QUIET_SHARE = 0.02
"""A rank that uses less of a core is looked at: the share under which the detector calls it blocked."""
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
LONGER, TURN_S = 1.1, 2.0
"""How much longer the sleeps of one loop may be than its first one, which is seen after it has begun."""
POLL_SHARE = 0.2
"""A rank that uses less of a core is asked whether it asks for a lock again and again: each time takes some CPU."""
_OUTSIDE = (WaitKind.OUTSIDE, WaitKind.FILE, WaitKind.PERSON)
_WORDS = 120


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last look at one main thread. ``call_s``: when this call, without a wake-up, was first seen."""

    at_s: float
    ticks: int
    key: tuple[int, ...] = ()
    switches: int | None = None
    call_s: float = 0.0
    judged_s: float = 0.0
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class _Led:
    """The wait that frames have led to, of a rank that has waited since ``since_s``, and when it was looked for."""

    since_s: float | None
    judged_s: float = -math.inf
    wait: Wait | None = None


class WaitReader:
    """The waits of all ranks of a host."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._calls = CallJudge(tables)
        self._seen: dict[int, _Seen] = {}
        self._led: dict[int, _Led] = {}

    def keep(self, pids: Iterable[int]) -> None:
        """Forget all processes but these."""
        for pid in self._seen.keys() - set(pids):
            del self._seen[pid]
            self._led.pop(pid, None)
            self._tables.forget(pid)

    def read(
        self,
        turn: Turn,
        job: str,
        tree: Tree,
        reading: RankReading,
        gang: Gang,
        now_s: float,
        stack: StackWait | None = None,
    ) -> Wait | None:
        """The wait of a rank's main thread; None while it uses CPU, is stopped, or was looked at for the first time.

        ``stack`` is what its frames said last. If they end in a line of the user's own, that may call C code whose
        threads wait for something outside.
        """
        pid, process = reading.pid, reading.process
        member, before = tree.members.get(pid), self._seen.get(pid)
        if member is None or member.stuck or process is None or process.state not in ALIVE:
            return None
        if reading.paused_by_us:
            return before.wait if before else None
        ticks, switches = member.stat.own_ticks, process.main_switches
        if before is None or _used_share(before, ticks, now_s) >= POLL_SHARE:
            self._seen[pid] = _Seen(now_s, ticks, switches=switches)
            return None
        subject = Subject(job, tree, member, gang, now_s, now_s, set())
        try:
            quiet = _used_share(before, ticks, now_s) < QUIET_SHARE
            seen = self._look(turn, subject, before, switches, quiet=quiet)
            self._seen[pid] = seen
            if seen.wait is not None and stack is not None and _within(seen.wait, stack):
                return self._beside(turn, subject, seen, seen.wait, stack)
            if seen.wait is not None and seen.wait.kind is WaitKind.SLEEP and stack is not None and stack.asks:
                return self._asking(turn, subject, seen.wait)
        except Gone:
            return None
        return seen.wait

    def _beside(self, turn: Turn, subject: Subject, seen: _Seen, wait: Wait, stack: StackWait) -> Wait:
        """The wait of the threads or children that the main thread waits for, if their calls tell; else its own.

        What was found is kept for as long as the main thread waits: nothing shows it between two requests or sleeps.
        """
        led = self._led_by(subject, wait)
        if subject.now_s - led.judged_s >= RECHECK_S:
            call = Call(seen.key[0], seen.key[1:])
            # A semaphore of multiprocessing's is released by a child as often as not.
            of_child = stack.kind is WaitKind.CHILD or (stack.own and self._calls.is_shared(call))
            found = self._behind(turn, subject, stack, of_child=of_child) or led.wait
            limit_s = self._calls.limit_s(turn, replace(subject, call_s=seen.call_s), call)
            if found is None and NAP_S < limit_s - subject.now_s <= LONG_SLEEP_S:
                found = Wait(WaitKind.SLEEP, f"{FUTEX}{TIME_LIMIT}")
            led = self._led[subject.member.pid] = replace(led, judged_s=subject.now_s, wait=found)
        return wait if led.wait is None else replace(led.wait, since_s=wait.since_s)

    def _behind(self, turn: Turn, subject: Subject, stack: StackWait, *, of_child: bool) -> Wait | None:
        """A wait for something outside, or a sleep, of threads whose frames don't tell, or of children; else None."""
        threads = self._calls.beside(turn, subject, stack.unclear)
        waits = list(self._calls.others(turn, subject)) if stack.own else threads
        for one in waits:
            if one.kind in _OUTSIDE:
                return replace(one, what=f"{_clipped(one.what)}, in {A_THREAD}")
        for one in threads:
            if one.kind is WaitKind.SLEEP and NAP_S < _left_s(one, subject) <= LONG_SLEEP_S:
                return Wait(WaitKind.SLEEP, f"{_clipped(one.what) or A_THREAD}, asleep")
        if not of_child:
            return None
        child = self._calls.children(turn, subject)
        if child.kind is WaitKind.SLEEP and _left_s(child, subject) <= LONG_SLEEP_S:
            return Wait(WaitKind.SLEEP, f"{_clipped(child.what)}, asleep")
        return replace(child, what=_clipped(child.what)) if child.kind in _OUTSIDE else None

    def _asking(self, turn: Turn, subject: Subject, wait: Wait) -> Wait:
        """The wait for a peer that holds a file lock, where the frames say that the rank asks for one; else its own."""
        led = self._led_by(subject, wait)
        if subject.now_s - led.judged_s >= CHILD_RECHECK_S:
            led = replace(led, judged_s=subject.now_s, wait=self._calls.locked_by_a_peer(turn, subject))
            self._led[subject.member.pid] = led
        return wait if led.wait is None else replace(led.wait, what=_clipped(led.wait.what), since_s=wait.since_s)

    def _led_by(self, subject: Subject, wait: Wait) -> _Led:
        led = self._led.get(subject.member.pid)
        return led if led is not None and led.since_s == wait.since_s else _Led(wait.since_s)

    def _look(self, turn: Turn, subject: Subject, before: _Seen, switches: int | None, *, quiet: bool) -> _Seen:
        """The newest look. Of a rank that uses some CPU only a lock is seen that it polls."""
        member, now_s = subject.member, subject.now_s
        seen = replace(before, at_s=now_s, ticks=member.stat.own_ticks, switches=switches)
        call = member.read_call(turn)
        polled = before.wait is not None and before.wait.polled
        if not quiet and not (polled if isinstance(call, str) else self._calls.may_poll(call)):
            return _Seen(now_s, seen.ticks, switches=switches)
        if isinstance(call, str):
            # Just awake: between two waits of a loop the last one is what it does.
            wait = before.wait or Wait(WaitKind.RUNNING, since_s=now_s)
            if call == "unreadable":
                wait = _since(waits.by_wchan(member.wchan), before.wait, now_s)
            return replace(seen, wait=wait)
        key = (call.number, *call.arguments)
        same = key == before.key
        call_s = before.call_s if same and switches == before.switches else now_s
        # A loop of sleeps sleeps until another time after each wake-up.
        slept = before.wait is not None and before.wait.kind is WaitKind.SLEEP and call_s != before.call_s
        recheck_s = RECHECK_S
        if before.wait is not None and (polled or before.wait.kind is WaitKind.CHILD):
            recheck_s = CHILD_RECHECK_S
        if same and before.wait is not None and not slept and now_s - before.judged_s < recheck_s:
            return replace(seen, call_s=call_s)
        woke = same and switches != before.switches
        found = self._calls.judge(turn, replace(subject, call_s=call_s, woke=woke), call, before.wait)
        if not quiet and not found.polled:
            return _Seen(now_s, seen.ticks, switches=switches)
        found = replace(found, what=_clipped(found.what))
        # Of a child's sleep it isn't known when it began.
        began_s = now_s if found.what else call_s
        wait = _asleep_again(found, before.wait, began_s) or _since(found, before.wait, now_s)
        return replace(seen, key=key, call_s=call_s, judged_s=now_s, wait=wait)


def _used_share(before: _Seen, ticks: int, now_s: float) -> float:
    """The share of a core that it has used since the look before; one tick of the clock is no use."""
    grown = ticks - before.ticks
    return 0.0 if grown <= 1 else grown * _TICK_S / max(now_s - before.at_s, _TICK_S)


def _within(wait: Wait, stack: StackWait) -> bool:
    """Whether all that shows of a wait is that a thread of its own ends it, or perhaps a child: frames tell more."""
    inner = wait.kind is WaitKind.LOCK or (wait.kind, wait.what) == (WaitKind.UNKNOWN, FUTEX)
    return inner and stack.at_s >= (wait.since_s or 0.0)


def _left_s(wait: Wait, subject: Subject) -> float:
    return math.inf if wait.until_s is None else wait.until_s - subject.now_s


def _since(wait: Wait, before: Wait | None, now_s: float) -> Wait:
    same = before is not None and (before.kind, before.what) == (wait.kind, wait.what)
    if wait.kind is WaitKind.SLEEP and before is not None and before.until_s != wait.until_s:
        # A longer sleep than those before it is another wait.
        same = False
    return replace(wait, since_s=before.since_s if same and before is not None else now_s)


def _asleep_again(wait: Wait, before: Wait | None, began_s: float) -> Wait | None:
    """The wait before, where this is another sleep of a loop, and no longer than those; else None."""
    if before is None or (before.kind, before.what) != (wait.kind, wait.what) or wait.kind is not WaitKind.SLEEP:
        return None
    if wait.until_s is None or before.until_s is None or before.since_s is None or before.until_s == math.inf:
        return None
    longest_s = before.until_s - before.since_s
    return before if wait.until_s - began_s <= LONGER * longest_s + TURN_S else None


def _clipped(text: str) -> str:
    return one_line(text, _WORDS)
