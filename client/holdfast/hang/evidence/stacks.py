"""Groups stack dumps by what their ranks are doing, and says so in one sentence.

Two stacks are equal when their frames are, once the loops that merely wait are taken off their inner end: a
rank that polls a queue wakes every few seconds and is found in another line of the same wait each time. Line
numbers inside the standard library don't count either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence.frames import FOR_ALL, MEETINGS, Frame, meeting, place, without_waiting

_MAY_COMPUTE = frozenset({"backward", "run_backward", "_engine_run_backward", "reduce", "gather", "scatter"})


@dataclass(frozen=True, slots=True)
class RankStack:
    """The main thread of one rank, innermost frame first; empty where the dump failed, with the reason."""

    worker: str
    rank: int
    frames: tuple[Frame, ...]
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.worker} rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks with equal stacks."""

    stacks: tuple[RankStack, ...]
    place: str

    @property
    def meets(self) -> bool:
        """Whether they wait for their peers, as far as the place tells."""
        return self.place in MEETINGS

    @property
    def is_collective(self) -> bool:
        """Whether the place is a collective by its name alone: `backward` may as well be computing."""
        return self.place in FOR_ALL - _MAY_COMPUTE

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stack.name for stack in self.stacks)


def essence(frames: Sequence[Frame]) -> tuple[tuple[str, str, int], ...]:
    """The frames that count when stacks are compared: without the interpreter's own and the waiting at the inner end.

    Lines count in user code only.
    """
    outer = without_waiting([frame for frame in frames if not frame.interpreter])
    return tuple((frame.file, frame.function, 0 if frame.library else frame.line) for frame in outer)


def _likeness(frames: Sequence[Frame]) -> tuple[tuple[str, str, int], ...]:
    """Frames shared by the ranks of a group: how they came to where they wait, not what is inside of it."""
    met = meeting(frames)
    if met is None:
        return essence(frames)
    inside = frames[met]
    return (inside.file, inside.function, 0), *essence(frames[met + 1 :])


def grouped(stacks: Iterable[RankStack]) -> tuple[Group, ...]:
    """Equal stacks together, the largest group first; ranks whose dump failed are left out."""
    found: dict[tuple[tuple[str, str, int], ...], list[RankStack]] = {}
    for stack in stacks:
        if stack.frames:
            found.setdefault(_likeness(stack.frames), []).append(stack)
    groups = [Group(tuple(alike), place(alike[0].frames)) for alike in found.values()]
    return tuple(sorted(groups, key=lambda group: (-len(group.stacks), group.names)))


def group_key(stack: RankStack) -> str:
    """A short text that is equal for ranks that ``grouped`` puts together; empty without a stack."""
    return hashlib.sha256(repr(_likeness(stack.frames)).encode()).hexdigest()[:16] if stack.frames else ""


def odd_ones(groups: Sequence[Group]) -> tuple[RankStack, ...]:
    """The minority: all ranks outside a group that holds more than half; none where no group does."""
    total = sum(len(group.stacks) for group in groups)
    if len(groups) < 2 or 2 * len(groups[0].stacks) <= total:
        return ()
    return tuple(stack for group in groups[1:] for stack in group.stacks)


def outside_collectives(groups: Sequence[Group]) -> tuple[RankStack, ...]:
    """If no group holds more than half: the ranks in no collective, if all the others wait in one."""
    if not groups or 2 * len(groups[0].stacks) > sum(len(group.stacks) for group in groups):
        return ()
    away = [group for group in groups if not group.meets]
    return tuple(stack for group in away for stack in group.stacks) if len(away) < len(groups) else ()


def mismatched(groups: Sequence[Group]) -> bool:
    """Whether all ranks wait in collectives, and not all in the same: they will never meet.

    A `send` may well wait for a `recv`, and what a `synchronize` waits for can't be seen: neither proves anything.
    """
    return len({group.place for group in groups}) > 1 and all(group.place in FOR_ALL for group in groups)


def sentence(groups: Sequence[Group]) -> str:
    """Diagnosis from one round of dumps, the odd ones first; empty without dumps.

    "workerpool0-1 rank 5 is in data_loader.py:212 `queue.get`; 7 ranks wait in all_reduce".
    """
    said = "; ".join(_phrase(group) for group in reversed(groups))
    return f"mismatched collectives: {said}" if mismatched(groups) else said


def _phrase(group: Group) -> str:
    meets = group.meets
    if len(group.stacks) > 2:
        who, verb = f"{len(group.stacks)} ranks", "wait in" if meets else "are in"
    else:
        who, verb = " and ".join(group.names), "waits in" if meets else "is in"
        if len(group.stacks) == 2:
            verb = "wait in" if meets else "are in"
    return f"{who} {verb} {group.place}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Two rounds of dumps, some seconds apart, of one suspicion; times on the controller's clock.

    ``same`` is None when nothing could be compared. It must be True of a rank that burns CPU only where native
    frames were compared too: Python frames stand still in a long call of C++.
    """

    at_s: float
    groups: tuple[Group, ...] = ()
    same: bool | None = None
    # Ranks whose frames changed between the rounds: they work.
    changed: frozenset[tuple[str, int]] = frozenset()
    # The blame by torch's flight recorder, in words; empty where it blames none.
    recorded: str = ""

    @property
    def words(self) -> str:
        return "; ".join(filter(None, (sentence(self.groups), self.recorded)))


def compared(first: Iterable[RankStack], second: Iterable[RankStack], at_s: float) -> Diagnosis:
    """Diagnosis from two rounds of dumps. Ranks dumped only once are grouped and not compared."""
    before: Mapping[tuple[str, int], RankStack] = {(s.worker, s.rank): s for s in first if s.frames}
    rounds = tuple(second)
    pairs = [(s, before[s.worker, s.rank]) for s in rounds if s.frames and (s.worker, s.rank) in before]
    changed = frozenset((new.worker, new.rank) for new, old in pairs if essence(new.frames) != essence(old.frames))
    again = {(s.worker, s.rank) for s in rounds if s.frames}
    last = [s for s in rounds if s.frames] + [s for key, s in before.items() if key not in again]
    return Diagnosis(at_s, grouped(last), None if not pairs else not changed, changed)
