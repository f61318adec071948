"""Ranks that keep a gang waiting, and how long that may last: what can end a wait decides.

Theory of operation. A rank that waits for a peer of its own gang is a victim; so is one whose GPU spins in a
collective's kernel. The others that stand still are the blockers. Where nothing outside the job can end what a
blocker waits for (a lock inside its process, a child that is stopped, a collective that a peer has left, a sleep
without an end), waiting helps no one. Where something outside can (a service, a file, a mount), or nothing tells
what it waits for, the job gets the patience of its setting. Of several blockers the most patient wait decides. A
rank that sleeps for minutes at most will wake by itself, and counts as moving.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from functools import cached_property

from holdfast._base.dataclass import dataclass, replace
from holdfast.hang.evidence.stacks import Group
from holdfast.hang.judge.snapshot import Seen, View
from holdfast.hang.pipeline.features import GpuLook, Motion
from holdfast.hang.pipeline.frame_waits import kind_of
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import A_SIGNAL, FUTEX, UNSEEN, Wait, WaitKind

_UNKNOWN = Wait(WaitKind.UNKNOWN)


class Patience(enum.IntEnum):
    """How long a wait may last, by what can end it."""

    # Nothing outside the job can end it.
    SHORT = 1
    # Something outside the job may end it, or nothing tells what it waits for.
    LONG = 2
    # A request may come at any time: a server. Or a process of its own works for it, for as long as that takes.
    OPEN = 3


_PATIENCE: Mapping[WaitKind, Patience] = {
    WaitKind.PEER: Patience.SHORT,
    WaitKind.LOCK: Patience.SHORT,
    WaitKind.CHILD: Patience.SHORT,
    WaitKind.OUTSIDE: Patience.LONG,
    WaitKind.FILE: Patience.LONG,
    WaitKind.SLEEP: Patience.LONG,
    WaitKind.UNKNOWN: Patience.LONG,
    WaitKind.RUNNING: Patience.LONG,
    WaitKind.REQUEST: Patience.OPEN,
    WaitKind.MEETING: Patience.OPEN,
    # Nothing is judged while a rank waits for a person: see ``state.pause_reason``.
    WaitKind.PERSON: Patience.OPEN,
}
_NAMED = 3
"""Waits that a sentence names, at most."""
_ENDED = frozenset({Motion.STOPPED, Motion.ZOMBIE, Motion.EXITED})
# Waits in which a rank that burns the CPU, as a busy-waiting collective does, makes no progress of its own.
_RESTLESS = (Motion.BURNING, Motion.STIRRING)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A rank that keeps others waiting, or waits beside them, and for how long it may."""

    seen: Seen
    wait: Wait
    patience: Patience

    @property
    def alike(self) -> tuple[Motion | None, WaitKind, str]:
        """Equal for ranks that wait for the same kind of thing in one place of the program."""
        stopped = self.seen.features.motion is Motion.STOPPED
        return Motion.STOPPED if stopped else None, self.wait.kind, self.wait.place


def blocker_words(blockers: Sequence[Blocker], now_s: float) -> str:
    """Each kind of wait in words, with its ranks: "w-0 rank 1 waits for a remote service (10.0.0.7:443) in a.py:3 `f`".

    A few ranks are named one by one, so that it shows which waits for which.
    """
    groups: dict[object, list[Blocker]] = {}
    for blocker in blockers:
        alone = len(blockers) <= _NAMED
        groups.setdefault(blocker.seen.key if alone else blocker.alike, []).append(blocker)
    words = [_group_words(group, now_s) for group in list(groups.values())[:_NAMED]]
    more = sum(len(group) for group in list(groups.values())[_NAMED:])
    return "; ".join([*words, *([f"{more} more ranks wait for something else"] if more else [])])


def _group_words(group: Sequence[Blocker], now_s: float) -> str:
    first, others = group[0], len(group) - 1
    who = first.seen.name + (
        f" and {group[1].seen.name}" if others == 1 else f" and {others} more" if others else ""
    )
    if first.seen.features.motion is Motion.STOPPED:
        return f"{who} {'are' if others else 'is'} stopped by a signal"
    wait = first.wait if len({one.wait.what for one in group}) == 1 else replace(first.wait, what="")
    where = f" in {wait.place}" if wait.place else ""
    return f"{who} {wait_words(wait, now_s, many=others > 0)}{where}"


def wait_words(wait: Wait, now_s: float, *, many: bool = False) -> str:
    """A wait in words that follow the name of a rank, or of ``many``."""
    verb = "wait" if many else "waits"
    if wait.kind is WaitKind.SLEEP:
        return _sleep_words(wait, now_s, many=many)
    if wait.kind is WaitKind.UNKNOWN:
        return f"{verb} for something that can't be seen"
    if wait.what.endswith(UNSEEN):
        return f"{verb} for {wait.what}"
    what = "locks of their own" if many and wait.kind is WaitKind.LOCK else wait.kind.value
    return f"{verb} for {what}" + (f" ({wait.what})" if wait.what else "")


def _sleep_words(wait: Wait, now_s: float, *, many: bool) -> str:
    others = f"{'wait' if many else 'waits'} for {wait.what}" if wait.what else ""
    if others and (wait.until_s is None or wait.what == A_SIGNAL):
        return others
    verb = f"{others}, which sleeps" if others else "sleep" if many else "sleeps"
    if wait.until_s is None:
        return verb
    left_s = wait.until_s - now_s
    if left_s <= 0:
        return f"{verb} again and again"
    return f"{verb} for {left_s / 60:.0f} min more" if left_s < 86400 else f"{verb} without an end in sight"


class Gang:
    """The waits of all ranks at one look. Computed once for all rules, and only as far as they ask.

    It asks of the view what the ranks do, not what earlier looks have taught.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self._waits: dict[tuple[str, int], Wait] = {}

    @cached_property
    def _groups(self) -> Mapping[tuple[str, int], Group]:
        """Each rank's group of equal stacks, where they were taken."""
        diagnosis = self.view.diagnosis
        groups = diagnosis.groups if diagnosis else ()
        return {(stack.worker, stack.rank): group for group in groups for stack in group.stacks}

    def wait(self, seen: Seen) -> Wait:
        """The wait of the rank: as its agent saw it, else by its stack, else by where the kernel holds it."""
        if (known := self._waits.get(seen.key)) is None:
            known = self._waits[seen.key] = self._wait(seen)
        return known

    def _wait(self, seen: Seen) -> Wait:
        rank = seen.features
        if rank.wait is not None and rank.wait.kind is WaitKind.MEETING:
            # A server once the job has got further, or where it has one rank.
            meets = self.view.unstarted and len(self.view.ranks) > 1
            what = f"{rank.wait.what}, the meeting point of the ranks" if meets else rank.wait.what
            return replace(rank.wait, kind=WaitKind.PEER if meets else WaitKind.REQUEST, what=what)
        if rank.wait is not None and rank.wait.kind not in (WaitKind.UNKNOWN, WaitKind.RUNNING):
            return rank.wait
        if rank.gpu is not None and rank.gpu.look is GpuLook.SPIN:
            return Wait(WaitKind.PEER, "a collective on the GPU")
        group = self._groups.get(seen.key)
        place = group.place if group is not None else ""
        if group is not None and group.meets:
            return Wait(WaitKind.PEER, place)
        kind = kind_of(group.stacks[0].frames) if group is not None else None
        # Behind a lock the agent, which has the frames as well, looks at other threads and at children next.
        inner = kind in (WaitKind.LOCK, WaitKind.CHILD) and rank.wait is not None and rank.wait.what == FUTEX
        if kind is not None and not inner:
            return Wait(kind, place=place)
        if rank.state is State.DISK:
            return Wait(WaitKind.FILE, rank.mount, place=place)
        if "nanosleep" in rank.wchan:
            return Wait(WaitKind.SLEEP, place=place)
        return Wait(WaitKind.UNKNOWN, place=place)

    def wakes(self, seen: Seen) -> bool:
        """Whether the rank sleeps, and the clock will wake it before long: it moves, if slowly."""
        wait = seen.features.wait
        if wait is None or wait.kind is not WaitKind.SLEEP or wait.until_s is None:
            return False
        began_s = wait.since_s if wait.since_s is not None else self.view.now_s
        return wait.until_s - began_s <= self.view.tuning.external_s

    def is_busy_victim(self, seen: Seen) -> bool:
        """Whether the rank burns the CPU, or stirs, inside a collective that it never leaves."""
        diagnosis, group = self.view.diagnosis, self._groups.get(seen.key)
        if seen.features.motion not in _RESTLESS or diagnosis is None or group is None or not group.meets:
            return False
        return seen.key not in diagnosis.changed and (group.is_collective or diagnosis.same is True)

    def stands(self, seen: Seen) -> bool:
        """Whether nothing about this rank moves that would count."""
        return (seen.features.still and not self.wakes(seen)) or self.is_busy_victim(seen)

    @cached_property
    def still(self) -> bool:
        """Every rank can be seen, and none moves."""
        view = self.view
        return bool(view.live) and not view.unseen and all(self.stands(seen) for seen in view.ranks)

    @cached_property
    def moved_s(self) -> float:
        """When something was last seen to move; a rank still counts as working for a while after its last work."""
        view = self.view
        moving = [seen.features for seen in view.ranks if not self.stands(seen)]
        worked = [rank.last_work_s for rank in moving if rank.motion is Motion.WORKING]
        if view.unseen or len(worked) < len(moving):
            return view.now_s
        return max((view.now_s if at_s is None else at_s for at_s in worked), default=view.now_s)

    @cached_property
    def blockers(self) -> tuple[Blocker, ...]:
        """The ranks that don't wait for a peer. Where all do: those that left with success, else all of them."""
        live = [Blocker(seen, self.wait(seen), self.patience(seen)) for seen in self.view.live]
        apart = tuple(b for b in live if b.wait.kind is not WaitKind.PEER or b.seen.features.motion in _ENDED)
        if apart:
            return apart
        left = [seen for seen in self.view.ranks if seen.features.motion is Motion.EXITED]
        gone = [seen for seen in left if seen.features.exit_code == 0]
        return tuple(Blocker(seen, _UNKNOWN, Patience.SHORT) for seen in gone) or tuple(live)

    @cached_property
    def by_patience(self) -> tuple[Blocker, ...]:
        """The blockers, those whose wait may last longest first."""
        return tuple(sorted(self.blockers, key=lambda blocker: -blocker.patience))

    @property
    def first(self) -> Blocker:
        """The blocker whose wait decides for the gang. Raises IndexError where no rank is live."""
        return self.by_patience[0]

    def signature(self, seen: Seen) -> str:
        """The rank's state where it can't go on, else its wait and place: equal where one hang comes back."""
        rank, wait = seen.features, self.wait(seen)
        if rank.motion in _ENDED or rank.hardware:
            return rank.hardware or rank.motion.value
        return f"{wait.kind.value} {wait.place}"

    def patience(self, seen: Seen) -> Patience:
        """How long this rank may stand still."""
        rank, wait = seen.features, self.wait(seen)
        if rank.motion in _ENDED or rank.hardware:
            return Patience.SHORT
        hidden = rank.gpu is not None and rank.gpu.look in (GpuLook.BLIND, GpuLook.UNCLEAR)
        if rank.state is State.DISK and hidden:
            # It hangs in the driver itself.
            return Patience.SHORT
        endless = wait.until_s is not None and wait.what != A_SIGNAL and not self.wakes(seen)
        if wait.kind is WaitKind.SLEEP and endless:
            return Patience.SHORT
        found = Patience.OPEN if wait.at_work else _PATIENCE[wait.kind]
        # A GPU whose load is unclear may compute what a thread of the rank waits for.
        return Patience.LONG if found is Patience.SHORT and hidden and wait.kind is not WaitKind.PEER else found

    @cached_property
    def allowed(self) -> Patience:
        """How long the whole gang may stand still: the most patient wait of a blocker decides."""
        return max((blocker.patience for blocker in self.blockers), default=Patience.LONG)

    @cached_property
    def seen_waits(self) -> bool:
        """Whether it is known of every blocker what it waits for."""
        return all(
            blocker.wait.kind is not WaitKind.UNKNOWN or blocker.seen.features.motion in _ENDED
            for blocker in self.blockers
        )

    @cached_property
    def asleep(self) -> bool:
        """Whether no main thread has woken lately but for the timeout of a poll: lines are other threads' then."""
        limit = self.view.tuning.poll_switches_s
        return all((seen.features.switches_s or 0.0) < limit for seen in self.view.live)

    @cached_property
    def since_s(self) -> float:
        """When the last rank went still, as far as the ranks tell."""
        times = [
            max(seen.features.still_since_s, wait.since_s if (wait := seen.features.wait) and wait.since_s else 0.0)
            for seen in self.view.ranks
            if not self.is_busy_victim(seen)
        ]
        busy = len(times) < len(self.view.ranks)
        return max([*times, self.view.watch.output.last_s] if busy else times)
