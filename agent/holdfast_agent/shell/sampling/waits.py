"""Reads what a rank's main thread waits for, and keeps the answer while its system call stays the same.

Only of ranks that use no CPU. While the call stays the same, the answer is kept for ``RECHECK_S``; then, and for a
new call, its descriptors are looked at again. Each file costs 20 to 30 µs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast._base.printable import one_line
from holdfast.hang.pipeline.frame_waits import StackWait
from holdfast.hang.pipeline.waits import FUTEX, Wait, WaitKind
from holdfast_agent.core.proc import waits
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


class WaitReader:
    """The waits of all ranks of a host."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._calls = CallJudge(tables)
        self._seen: dict[int, _Seen] = {}
        # What frames have led to: when it was looked at, and the wait.
        self._led: dict[int, tuple[float, Wait | None]] = {}

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
            if seen.wait is not None and seen.wait.what == FUTEX and stack is not None and stack.own:
                return self._beside(turn, subject, seen.wait)
            if seen.wait is not None and seen.wait.kind is WaitKind.SLEEP and stack is not None and stack.asks:
                return self._asking(turn, subject, seen.wait)
        except Gone:
            return None
        return seen.wait

    def _beside(self, turn: Turn, subject: Subject, wait: Wait) -> Wait:
        """The wait of another thread, if something outside the job can end that; else the main thread's own."""
        pid = subject.member.pid
        judged_s, found = self._led.get(pid, (-RECHECK_S, None))
        if subject.now_s - judged_s >= RECHECK_S:
            waits_below = self._calls.below(turn, subject, main=False)
            outside = (one for one in waits_below if one.kind in (WaitKind.OUTSIDE, WaitKind.FILE, WaitKind.PERSON))
            found = next(outside, None)
            self._led[pid] = subject.now_s, found
        return (
            wait if found is None else replace(wait, kind=found.kind, what=f"{_clipped(found.what)}, in a thread")
        )

    def _asking(self, turn: Turn, subject: Subject, wait: Wait) -> Wait:
        """The wait for a peer that holds a file lock, where the frames say that the rank asks for one; else its own."""
        pid = subject.member.pid
        judged_s, found = self._led.get(pid, (-RECHECK_S, None))
        if subject.now_s - judged_s >= CHILD_RECHECK_S:
            found = self._calls.locked_by_a_peer(turn, subject)
            self._led[pid] = subject.now_s, found
        return wait if found is None else replace(found, what=_clipped(found.what), since_s=wait.since_s)

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
