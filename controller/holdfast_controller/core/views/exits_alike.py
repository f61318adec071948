"""Exits of a gang, those that are alike as one: of 8,192 ranks one failed, and all others were stopped for it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from holdfast._session.reports import Exit
from holdfast_controller.core.model.exits import shown_raised
from holdfast_controller.core.model.job import Job

PIECE = 500
"""Exits that are looked at in half a millisecond."""


@dataclass(slots=True)
class Alike:
    """Ranks of one generation that ended for the same reason and in the same way."""

    first: Exit
    """That of the rank that ended first."""
    late: Exit | None
    """What turned up later about each of them."""
    ranks: list[int]
    last_end: float
    """Seconds since the epoch; 0 where unknown."""


def exits_alike(job: Job, after: int = 0) -> Generator[None, None, list[Alike]]:
    """The groups of each generation after one, the first end first, in pieces between which the job may go on."""
    late = {(exit_.generation, exit_.rank): exit_ for exit_ in job.late_exits if exit_.generation > after}
    found: list[Alike] = []
    for generation in sorted(number for number in job.exits if number > after):
        groups: dict[object, list[Exit]] = {}
        exits = list(job.exits.get(generation, {}).values())
        for begin in range(0, len(exits), PIECE):
            yield
            for exit_ in exits[begin : begin + PIECE]:
                truth = late.get((generation, exit_.rank)) if late else None
                groups.setdefault((_kind(exit_), truth and _kind(truth)), []).append(exit_)
        alike = [_alike(group, late) for group in groups.values()]
        found += sorted(alike, key=lambda group: _when(group.first))
    return found


def _alike(exits: list[Exit], late: Mapping[tuple[int, int], Exit]) -> Alike:
    ends = [exit_.end_time for exit_ in exits]
    earliest = min(ends)
    first = min((exit_ for exit_, end in zip(exits, ends, strict=True) if end == earliest), key=_when)
    truth = late.get((first.generation, first.rank))
    return Alike(first, truth, [exit_.rank for exit_ in exits], max(ends))


def _kind(exit_: Exit) -> tuple[object, ...]:
    # A member of an enum is hashed by its name, which takes longer than all else here.
    raised = shown_raised(exit_) if exit_.stderr_tail else exit_.raised
    return id(exit_.reason), exit_.exit_code, exit_.signal, exit_.core_dumped, exit_.message, raised


def _when(exit_: Exit) -> tuple[float, int]:
    return exit_.end_time, exit_.rank
