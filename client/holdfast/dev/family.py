"""Decides which processes belong to a dev cluster's workers, and which to end next. Pure.

Theory of operation: a shim is a subreaper, so whatever its ranks leave behind becomes its child. It must die
last, or its descendants would be scattered; until then each look at the process table finds all of them, those
included that were forked since the last look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from holdfast.dev.processes import Process, Stat


def members(
    table: Mapping[int, Stat], *, shims: Set[Process], known: Set[Process], sparing: Collection[int]
) -> set[Process]:
    """Every live process of the workers: ``shims`` and ``known`` ones, their sessions, all descendants.

    ``known`` are those found by other marks or in earlier looks, whose parents may be dead by now. Pids in
    ``sparing`` (who asks, and its ancestors) are never among the result.
    """
    alive = {s.process: s for s in table.values()}
    found = {p.pid for p in (shims | known) if p in alive}
    # A session's number is only that of our shim while the shim itself lives.
    sessions = {p.pid for p in shims if p in alive}
    found |= {s.process.pid for s in table.values() if s.session in sessions}
    found |= descendants(table, found)
    return {table[pid].process for pid in found.difference(sparing)}


def next_to_end(family: Set[Process], shims: Set[Process]) -> set[Process]:
    """Processes to kill at this step: everything but the shims, and the shims once nothing else is left."""
    return set(family - shims) or set(family)


def descendants(table: Mapping[int, Stat], roots: Collection[int]) -> set[int]:
    """Pids of all children of ``roots``, their children, and so on; a root is not its own."""
    children: dict[int, list[int]] = {}
    for each in table.values():
        children.setdefault(each.parent, []).append(each.process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def ancestors(table: Mapping[int, Stat], pid: int) -> set[int]:
    """``pid``, its parent, and so on up to init."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid].parent
    return found
