"""NCCL's RAS status, read for one thing: which ranks have launched fewer collectives than their peers.

RAS (NCCL 2.24 and later) words a mismatch as lines below the name of a communicator: how many ranks have launched
up to which operation, and, where they are few, which. Since a healthy job outruns the query, one mismatch says
nothing; the same one in two answers some seconds apart says that no rank moves. Only communicators of the whole job
count: the ranks of others are numbered in their own way.
"""

from __future__ import annotations

import re

from holdfast._base.dataclass import dataclass

_COMMUNICATOR = re.compile(r"^\s*#\d+-\d+\b")
_GROUP = re.compile(r"^\s*(\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_ALONE = re.compile(r"^\s*Rank (\d{1,9}) has (?:launched up to operation (\d{1,18})|not launched any operations)")
_MEMBER = re.compile(r"^\s*Rank (\d{1,9}) -- ")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How far the ranks of the whole job have come: how many at each operation, and the ranks known to lag."""

    at_operation: tuple[tuple[int, int], ...]
    """(operation, ranks), highest operation first."""
    laggards: frozenset[int]


def mismatch(text: str, world_size: int) -> Mismatch | None:
    """The mismatch of a communicator of ``world_size`` ranks that an answer tells of; None without one."""
    for lines in _sections(text):
        found = _read(lines)
        if found is not None and sum(count for _, count in found.at_operation) == world_size:
            return found
    return None


def _sections(text: str) -> list[list[str]]:
    sections: list[list[str]] = []
    for line in text.splitlines():
        if _COMMUNICATOR.match(line):
            sections.append([])
        elif sections:
            sections[-1].append(line)
    return sections


def _read(lines: list[str]) -> Mismatch | None:
    counts: dict[int, int] = {}
    members: dict[int, set[int]] = {}
    operation = None
    for line in lines:
        if group := _GROUP.match(line):
            operation = int(group[2] or 0)
            counts[operation] = counts.get(operation, 0) + int(group[1])
        elif alone := _ALONE.match(line):
            operation = int(alone[2] or 0)
            counts[operation] = counts.get(operation, 0) + 1
            members.setdefault(operation, set()).add(int(alone[1]))
        elif (member := _MEMBER.match(line)) and operation is not None:
            members.setdefault(operation, set()).add(int(member[1]))
    if len(counts) < 2:
        return None
    most = max(counts)
    behind = frozenset(rank for at, ranks in members.items() if at < most for rank in ranks)
    return Mismatch(tuple(sorted(counts.items(), reverse=True)), behind)
