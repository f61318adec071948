"""Which processes belong to a cluster's workers, and in which order they end."""

from __future__ import annotations

from holdfast.dev import family
from holdfast.dev.processes import Process, Stat

INIT, SHIM, RANK, CHILD, GRANDCHILD, STRAY, SHELL, STOP = 1, 10, 11, 12, 13, 14, 20, 21


def entry(pid: int, parent: int, session: int = 1, start_ticks: int = 0) -> Stat:
    return Stat(Process(pid, start_ticks), parent, session, "S", 1, "name")


def table(*entries: Stat) -> dict[int, Stat]:
    return {INIT: entry(INIT, 0)} | {e.process.pid: e for e in entries}


def pids(found: set[Process]) -> set[int]:
    return {process.pid for process in found}


LIVING = table(
    entry(SHIM, INIT, session=SHIM),
    entry(RANK, SHIM, session=SHIM),
    entry(CHILD, RANK, session=CHILD),
    entry(GRANDCHILD, CHILD, session=CHILD),
    entry(STRAY, INIT, session=SHIM),
    entry(SHELL, INIT),
    entry(STOP, SHELL),
)


def members(shims: set[Process], known: set[Process], sparing: tuple[int, ...] = ()) -> set[int]:
    return pids(family.members(LIVING, shims=shims, known=known, sparing=sparing))


def test_family_of_a_shim_is_its_descendants_and_its_session() -> None:
    assert members({Process(SHIM, 0)}, set()) == {SHIM, RANK, CHILD, GRANDCHILD, STRAY}


def test_process_that_took_over_the_pid_of_a_shim_is_a_stranger() -> None:
    assert members({Process(SHIM, 99)}, set()) == set()


def test_known_processes_count_with_their_descendants_though_their_shim_is_dead() -> None:
    assert members({Process(99, 0)}, {Process(CHILD, 0)}) == {CHILD, GRANDCHILD}


def test_known_process_that_is_gone_counts_no_more() -> None:
    assert members(set(), {Process(CHILD, 7), Process(98, 0)}) == set()


def test_who_asks_is_spared() -> None:
    sparing = tuple(family.ancestors(LIVING, GRANDCHILD))
    assert set(sparing) == {GRANDCHILD, CHILD, RANK, SHIM, INIT}
    assert members({Process(SHIM, 0)}, set(), sparing) == {STRAY}


def test_shims_end_last() -> None:
    shim, rank = Process(SHIM, 0), Process(RANK, 0)
    assert family.next_to_end({shim, rank}, {shim}) == {rank}
    assert family.next_to_end({shim}, {shim}) == {shim}
    assert family.next_to_end(set(), {shim}) == set()


def test_descendants_survive_a_table_that_loops() -> None:
    looped = {1: entry(1, 2), 2: entry(2, 1)}
    assert family.descendants(looped, [1]) == {1, 2}
    assert family.ancestors(looped, 1) == {1, 2}
