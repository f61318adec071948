"""Names the rank that keeps its peers waiting, by torch's flight recorder: what each rank has asked of NCCL or gloo.

Every rank numbers the collectives of a process group. A rank that has not reached the number which its peers wait in,
or that runs something else under it, is the one they wait for, unless it waits for a third in another group. A dump
shows one moment, so only what has been unfinished for some time counts, and only a rank that has asked for nothing
since is blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from holdfast._base.dataclass import dataclass

WAITED_S = 10.0
"""A collective that is unfinished for so long is waited in; longer than dumps of several hosts lie apart."""
MOST_SENTENCES = 3
MOST_RANKS = 1 << 17
"""Of a process group; one that claims more is passed over."""
# Their inputs have the same size on every rank.
_EQUAL_INPUTS = frozenset(
    {"all_reduce", "allreduce_coalesced", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop"}
    | {"_all_gather_base", "_reduce_scatter_base", "all_gather_single", "reduce_scatter_single"}
)
# A rank gives or gets nothing in these, or another size than its peers, and so maybe no type either.
_ONE_SIDED = frozenset({"scatter", "gather", "barrier", "all_reduce_barrier", "coalesced"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of a recorder. ``state`` is torch's word: scheduled, started or completed."""

    number: int
    # As torch names it: ``all_reduce``, ``send 0->1``.
    name: str
    state: str = "completed"
    # Since it was asked for.
    age_s: float = 0.0
    # Such as ``Float[3, 4]``.
    inputs: str = ""
    outputs: str = ""
    # The user's frame that asked for it.
    place: str = ""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One rank's view of a process group, oldest operation first."""

    name: str
    description: str = ""
    # First and last global rank of each span; empty where the dump lacks them.
    ranks: tuple[tuple[int, int], ...] = ()
    # The newest collective, and the oldest unfinished one.
    last: int = 0
    open: int | None = None
    # The collectives around the oldest unfinished one, and the newest.
    operations: tuple[Operation, ...] = ()
    # Unfinished sends and receives.
    sends: tuple[Operation, ...] = ()

    def at(self, number: int) -> Operation | None:
        """The collective of that number, where it is kept."""
        return next((each for each in self.operations if each.number == number), None)

    @property
    def words(self) -> str:
        return f"process group {self.name}" + (f" ({self.description})" if self.description else "")


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """The part of one rank's dump that is kept; ``problem`` says why there is nothing."""

    version: str = ""
    groups: tuple[ProcessGroup, ...] = ()
    groups_cut: int = 0
    # Since the rank last asked for anything.
    quiet_s: float = 0.0
    problem: str = ""

    @property
    def words(self) -> str:
        """The operations that it waits in, else the one that it did last."""
        if self.problem:
            return self.problem
        waits = [f"{_named(each)} of {group.words}" for group in self.groups for each in _unfinished(group)]
        if waits:
            return f"in {' and '.join(waits)}"
        groups = [group for group in self.groups if group.at(group.last) is not None]
        newest = min(groups, key=lambda group: _age(group.at(group.last)), default=None)
        return f"last {_named(newest.at(newest.last))} of {newest.words}, completed" if newest else "empty"


@dataclass(frozen=True, slots=True)
class Blame:
    """Ranks that keep others waiting, in words, and for how long at least."""

    ranks: frozenset[int]
    sentence: str
    waited_s: float


@dataclass
class _Waits:
    """The graph of ranks that wait for others, and the sentences that say so of each that is waited for."""

    edges: dict[int, set[int]] = field(default_factory=dict)
    said: dict[int, list[str]] = field(default_factory=dict)
    ages: dict[int, float] = field(default_factory=dict)

    def add(self, waiting: Mapping[int, float], awaited: Iterable[int], sentence: str) -> None:
        awaited = set(awaited)
        for rank, age_s in waiting.items():
            self.edges.setdefault(rank, set()).update(awaited - {rank})
            self.ages[rank] = min(self.ages.get(rank, age_s), age_s)
        for rank in awaited:
            self.said.setdefault(rank, []).append(sentence)


def blamed(records: Mapping[int, FlightRecord], world: Iterable[int] = ()) -> Blame | None:
    """The ranks that keep their peers waiting, by all ranks' records; None where they don't tell.

    ``world``: ranks that are known to exist, also those without a record. A rank without one is never blamed.
    """
    known = {rank: record for rank, record in records.items() if not record.problem}
    waits = _Waits()
    for members, groups in _groups(known, frozenset(world) | known.keys()):
        _judge_collectives(waits, members, groups)
        _judge_sends(waits, members, groups)
    awaited = set().union(*waits.edges.values()) if waits.edges else set()
    guilty = {rank for rank in awaited - waits.edges.keys() if known[rank].quiet_s >= WAITED_S}
    if guilty:
        sentences = dict.fromkeys(sentence for rank in sorted(guilty) for sentence in waits.said[rank])
        waiting = [rank for rank, awaits in waits.edges.items() if awaits & guilty]
        return Blame(frozenset(guilty), _listed(list(sentences)), min(waits.ages[rank] for rank in waiting))
    circle = _circle(waits.edges)
    if not circle or awaited - waits.edges.keys():
        return None
    each = "; ".join(f"rank {rank} is {known[rank].words}" for rank in sorted(circle)[: MOST_SENTENCES + 1])
    words = f"{rank_names(circle)} wait for each other: {each}"
    return Blame(frozenset(circle), words, min(waits.ages[rank] for rank in circle))


def rank_spans(ranks: Iterable[int]) -> str:
    """A phrase such as: 0, 2-4."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    return ", ".join(str(s[0]) if len(s) == 1 else f"{s[0]}{'-' if len(s) > 2 else ', '}{s[-1]}" for s in spans)


def rank_names(ranks: Iterable[int]) -> str:
    """A phrase such as: rank 3, or: ranks 0-2."""
    ranks = set(ranks)
    return f"rank{'' if len(ranks) == 1 else 's'} {rank_spans(ranks)}"


# --- One process group --------------------------------------------------------------------------------------------

_Groups = Mapping[int, ProcessGroup | None]
"""What each member with a record has of a group; None: nothing was asked of it."""


def _groups(known: Mapping[int, FlightRecord], world: frozenset[int]) -> Iterator[tuple[frozenset[int], _Groups]]:
    """Each process group with its members. Groups of one name and other ranks are others, as in a device mesh."""
    found: dict[tuple[str, tuple[tuple[int, int], ...]], dict[int, ProcessGroup | None]] = {}
    for rank, record in known.items():
        for group in record.groups:
            found.setdefault((group.name, group.ranks), {})[rank] = group
    for (name, spans), groups in found.items():
        if sum(last - first + 1 for first, last in spans) > MOST_RANKS:
            continue
        members = frozenset(n for first, last in spans for n in range(first, last + 1)) or frozenset(groups)
        if not spans and (
            name == "0" or any(group and group.description == "default_pg" for group in groups.values())
        ):
            members = world
        for rank in members & known.keys() - groups.keys():
            if not known[rank].groups_cut:
                groups[rank] = None
        yield members, groups


def _judge_collectives(waits: _Waits, members: frozenset[int], groups: _Groups) -> None:
    held = {rank: group for rank, group in groups.items() if group is not None}
    numbers = [group.open for group in held.values() if group.open is not None]
    if not numbers:
        return
    number = min(numbers)
    at = {rank: operation for rank, group in held.items() if (operation := group.at(number)) is not None}
    waiting = {
        rank: each.age_s for rank, each in at.items() if held[rank].open == number and each.age_s >= WAITED_S
    }
    if not waiting:
        return
    name = held[min(waiting)].words
    if _judge_mismatch(waits, at, waiting, number, name):
        return
    behind = [rank for rank in sorted(groups) if (group := groups[rank]) is None or group.last < number]
    operation = at[min(waiting)]
    for rank in behind:
        group = groups[rank]
        last = group.at(group.last) if group is not None else None
        after = f"; its last was {_named(last)}" if last is not None else "; it has joined none there"
        are = "is" if len(waiting) == 1 else "are"
        joined = f"which {rank_names(waiting)} {are} in for {min(waiting.values()):.0f} s"
        waits.add(waiting, [rank], f"rank {rank} has not joined {_named(operation)} of {name}, {joined}{after}")
    started = {rank: age_s for rank, age_s in waiting.items() if at[rank].state == "started"}
    pending = waiting.keys() - started.keys()
    if not behind and pending and len(started) > len(waiting) / 2 and waiting.keys() == members:
        have = "has" if len(pending) == 1 else "have"
        words = f"{rank_names(pending)} {have} not started {_named(operation)} of {name} on the GPU"
        waits.add(started, pending, f"{words}, which {rank_names(started)} have")


def _judge_mismatch(
    waits: _Waits, at: Mapping[int, Operation], waiting: Mapping[int, float], number: int, name: str
) -> bool:
    """Whether ranks run different operations under one number: those of the minority are waited for."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for rank, operation in at.items():
        kinds.setdefault(_kind(operation), []).append(rank)
    if len(kinds) < 2:
        return False
    most, *others = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    least_s = min(waiting.values())
    for ranks in others:
        ours, theirs = at[ranks[0]], at[most[0]]
        words = f"{rank_names(ranks)} {_runs(ranks)} {_difference(ours, theirs)} #{number} of {name}"
        words += f" at {ours.place}" if ours.place else ""
        words += f", where {rank_names(most)} {_runs(most)} {_difference(theirs, ours)}"
        waits.add({rank: waiting.get(rank, least_s) for rank in most}, ranks, words)
        if len(ranks) == len(most):
            # Which of them has taken the wrong turn, only the program's author can tell.
            waits.add({rank: waiting.get(rank, least_s) for rank in ranks}, most, words)
    return True


def _judge_sends(waits: _Waits, members: frozenset[int], groups: _Groups) -> None:
    """A rank waits for the peer of its oldest send or receive, unless that is at the other end of it."""
    order = sorted(members)
    ends = {rank: [_ends(each) for each in group.sends] for rank, group in groups.items() if group is not None}
    for rank, group in groups.items():
        first = group.sends[0] if group is not None and group.sends else None
        pair = _ends(first) if first is not None and first.age_s >= WAITED_S else None
        if group is None or first is None or pair is None or max(pair) >= len(order):
            continue
        other = next((order[end] for end in pair if order[end] != rank), rank)
        if other == rank or other not in groups or pair in ends.get(other, []):
            continue
        words = f"rank {other} is not at the other end of {_named(first)} of {group.words}"
        waits.add({rank: first.age_s}, [other], f"{words}, which rank {rank} waits in for {first.age_s:.0f} s")


# --- Small parts --------------------------------------------------------------------------------------------------


def _kind(operation: Operation) -> tuple[str, ...]:
    """Equal for operations that can meet."""
    if operation.name in _ONE_SIDED:
        return (operation.name,)
    if operation.name in _EQUAL_INPUTS:
        return operation.name, operation.inputs
    return operation.name, operation.inputs.partition("[")[0]


def _difference(operation: Operation, other: Operation) -> str:
    """The name, or name and sizes where the other has the same name."""
    same = operation.name == other.name
    return f"{operation.name} of {operation.inputs}" if same and operation.inputs else operation.name


def _runs(ranks: Sequence[int]) -> str:
    return "runs" if len(ranks) == 1 else "run"


def _ends(operation: Operation) -> tuple[int, int] | None:
    """Sender and receiver within the group, of ``send 0->1`` or ``recv 1<-0``."""
    kind, _, ends = operation.name.partition(" ")
    one, arrow, other = ends.partition("->" if kind == "send" else "<-")
    if not arrow or not all(end.isascii() and end.isdigit() and len(end) < 10 for end in (one, other)):
        return None
    return (int(one), int(other)) if kind == "send" else (int(other), int(one))


def _unfinished(group: ProcessGroup) -> list[Operation]:
    oldest = group.at(group.open) if group.open is not None else None
    return [*([oldest] if oldest is not None else []), *group.sends[:1]]


def _named(operation: Operation | None) -> str:
    return f"{operation.name} #{operation.number}" if operation is not None else "nothing"


def _age(operation: Operation | None) -> float:
    return operation.age_s if operation is not None else 0.0


def _listed(sentences: Sequence[str]) -> str:
    more = [f"and {len(sentences) - MOST_SENTENCES} more"] if len(sentences) > MOST_SENTENCES else []
    return "; ".join([*sentences[:MOST_SENTENCES], *more])


def _circle(edges: Mapping[int, set[int]]) -> set[int]:
    """Ranks that wait for each other in a circle; empty where none do."""
    left = {rank: set(awaited) for rank, awaited in edges.items()}
    while True:
        # A rank that waits for none of the rest is no part of it, nor is one that none of them waits for.
        awaited = set().union(*left.values()) if left else set()
        kept = {rank: targets & left.keys() for rank, targets in left.items() if rank in awaited}
        kept = {rank: targets for rank, targets in kept.items() if targets}
        if kept == left:
            return set(left)
        left = kept
