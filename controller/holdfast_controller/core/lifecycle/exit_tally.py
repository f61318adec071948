"""Tally of a generation's exits, updated as they are recorded, so that eight thousand are not counted for each more.

A record never changes and none is taken away, so a tally only ever has to look at those that it hasn't seen. It is
made from the job's records and is no part of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from holdfast._session.reports import Exit
from holdfast_controller.core.lifecycle.exit_blame import Blame, blame
from holdfast_controller.core.model.job import Job


@dataclass
class Tally:
    """Counts over the terminal records of one generation."""

    records: dict[int, Exit]
    seen: int = 0
    bad: int = 0
    """Ranks that did not finish their work."""
    first: tuple[bool, float, int] | None = None
    """Of those that failed by themselves, the one that comes first: (it is a consequence, when, rank)."""

    def catch_up(self) -> None:
        """Look at the records that came since."""
        for exit_ in islice(reversed(self.records.values()), len(self.records) - self.seen):
            self.bad += not exit_.ok
            how = blame(exit_)
            if how is not Blame.NONE:
                candidate = (how is Blame.CONSEQUENCE, exit_.end_time, exit_.rank)
                self.first = candidate if self.first is None else min(self.first, candidate)
        self.seen = len(self.records)


def tally(job: Job, generation: int) -> Tally:
    """The tally of a generation's exits so far."""
    records = job.exits.get(generation)
    if records is None:
        return Tally({})
    known = job.tallies.get(generation)
    if not isinstance(known, Tally) or known.records is not records:
        known = job.tallies[generation] = Tally(records)
    known.catch_up()
    return known


def has_finished(job: Job, index: int) -> bool:
    """Whether every rank of a worker has finished its work in the generation that the worker is in."""
    ended = job.exits.get(job.generation_of(index), {})
    return all(rank in ended and ended[rank].ok for rank in job.gang.members[index].ranks)


def all_well(job: Job) -> bool:
    """Whether every rank that has ended in its worker's current generation has finished its work."""
    if job.launch.relaunched:
        return all(exit_.ok for exit_ in job.exits_now().values())
    return tally(job, job.generation).bad == 0
