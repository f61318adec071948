"""Arrays: jobs made by one submission, one for each index, of which only so many may have their turn at once.

Each element is a job like any other and names its array itself; ``Arrays`` is counted from the jobs alone. An element
has its turn from the moment at which it may wait for hosts until it ends or is paused.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.job_state import TERMINAL, JobState

if TYPE_CHECKING:
    from holdfast_controller.core.model.jobs import Known


@dataclass(frozen=True)
class Element:
    """A job's place in its array."""

    array: str
    """Id of the array, which is that of no job."""
    index: int
    count: int
    """Elements that the array was made of."""
    at_once: int = 0
    """Elements that may have their turn at once; 0: all."""

    @property
    def job_id(self) -> str:
        """The id of this element."""
        return f"{self.array}-{self.index}"

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Variables that tell its ranks so."""
        return (
            ("HOLDFAST_ARRAY_ID", self.array),
            ("HOLDFAST_ARRAY_INDEX", str(self.index)),
            ("HOLDFAST_ARRAY_COUNT", str(self.count)),
        )


@dataclass
class Array:
    """One array: the elements of which anything is left, by index."""

    count: int
    at_once: int
    jobs: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    """Those that wait for nothing but their turn."""
    active: set[int] = field(default_factory=set)
    """Those that have it."""
    states: dict[int, JobState] = field(default_factory=dict)
    tally: Counter[JobState] = field(default_factory=Counter)
    """How many are in each state."""

    @property
    def first(self) -> str:
        """The id of the element that comes first."""
        return self.jobs[min(self.jobs)]

    @property
    def outcome(self) -> JobState | None:
        """SUCCEEDED once all elements have, FAILED once they have ended otherwise; None while one has not ended."""
        ended = sum(self.tally[state] for state in TERMINAL)
        if ended < len(self.jobs):
            return None
        return JobState.SUCCEEDED if self.tally[JobState.SUCCEEDED] == ended else JobState.FAILED

    @property
    def ended(self) -> int:
        """How many have ended."""
        return sum(self.tally[state] for state in TERMINAL)

    def next_turns(self) -> list[str]:
        """The elements that may have their turn now, lowest index first."""
        room = len(self.waiting) if not self.at_once else max(0, self.at_once - len(self.active))
        return [self.jobs[index] for index in heapq.nsmallest(room, self.waiting)]

    def note(self, index: int, job: Known) -> None:
        """Count an element as it is now."""
        self.forget(index)
        self.jobs[index], self.states[index] = job.id, job.state
        self.tally[job.state] += 1
        if job.waits_for_turn:
            self.waiting.add(index)
        if job.has_turn:
            self.active.add(index)

    def forget(self, index: int) -> None:
        """Count an element no more."""
        if self.jobs.pop(index, None) is not None:
            self.tally[self.states.pop(index)] -= 1
        self.waiting.discard(index)
        self.active.discard(index)


@dataclass
class Arrays:
    """Every array of which a job is left, by its id."""

    _arrays: dict[str, Array] = field(default_factory=dict)
    waiting: int = 0
    """Elements that wait for their turn, of all arrays."""
    _changed: dict[str, None] = field(default_factory=dict, compare=False, repr=False)
    """Arrays in which an element may have got its turn since that was last looked at."""

    def note(self, job: Known) -> None:
        """Count a job as it is now, if it is an element."""
        element = job.element
        if element is None:
            return
        array = self._arrays.get(element.array)
        if array is None:
            array = self._arrays[element.array] = Array(element.count, element.at_once)
        before = len(array.waiting)
        array.note(element.index, job)
        self.waiting += len(array.waiting) - before
        if array.at_once and array.waiting:
            self._changed[element.array] = None

    def forget(self, job: Known) -> None:
        """Nothing is left of a job."""
        element = job.element
        if element is None:
            return
        array = self._arrays[element.array]
        array.forget(element.index)
        if not array.jobs:
            del self._arrays[element.array]

    def take_changed(self) -> list[Array]:
        """Arrays in which elements may have got their turn since the last call."""
        changed, self._changed = self._changed, {}
        return [self._arrays[name] for name in changed if name in self._arrays]

    def of(self, job: Known) -> Array | None:
        """The array of which a job is an element."""
        return self._arrays[job.element.array] if job.element is not None else None

    def get(self, array_id: str) -> Array | None:
        """The array of this id."""
        return self._arrays.get(array_id)

    def waiting_jobs(self) -> Iterator[str]:
        """Ids of the elements that wait for their turn."""
        return (array.jobs[index] for array in self._arrays.values() for index in array.waiting)

    def __contains__(self, array_id: object) -> bool:
        return array_id in self._arrays
