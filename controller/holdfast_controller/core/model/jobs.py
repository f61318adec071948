"""All jobs by id: those that go on are whole in memory, and of those that have ended there is a head.

The rest of an ended job is in the store, as its snapshot. The caller that asks for the job gets it whole: it is read,
and stays in memory until it is let go again. That is done between two steps only, and only with what the snapshots hold
as it is, so a step always has one object of each job, the one that its events change.

``whole`` holds every job that has not ended, ``heads`` gives something of every job and reads nothing. All are counted
by state as their events are folded: to look at ten thousand takes a thousand times as long as to count one again. Lists
of them go by ``blocks``, most of which they skip.
"""

from __future__ import annotations

import functools
import hashlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice

from holdfast._base.dataclass import dataclass
from holdfast.errors import StoreError
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_blocks import BETWEEN_WORDS, JobBlock, JobBlocks
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import run_time_of

KEPT_WHOLE = 200
"""Ended jobs that stay in memory, those that were asked for last: a page of a list, and what users look at."""

LET_GO_AT_ONCE = 200
"""A head is made in some microseconds."""

ReadJobs = Callable[[Sequence[str]], list[Job]]
"""Reads jobs whole, by id; one that is missing is left out."""


@dataclass(frozen=True, slots=True)
class JobHead:
    """The part of an ended job that is known without a look at the store. The names are those of ``Job``.

    It is stored as it is: a field that gets another meaning needs another name, by which heads of before are known.
    """

    id: str
    owner: str
    project: str
    request_id: str
    display_name: str
    labels: dict[str, str]
    element: Element | None
    hosts: tuple[str, ...]
    gpus: int
    number: int
    cursor: int
    created_at: Wall
    updated_at: Wall
    ended_at: Wall | None
    ran_s: float | None
    """As ``run_time_of`` has it."""
    state: JobState
    deleted: bool
    output_on: tuple[str, ...]
    words: str
    """As ``words_of`` has them."""

    @property
    def terminal(self) -> bool:
        """Whether it has ended, which is always so."""
        return True

    @property
    def waits_for_turn(self) -> bool:
        """Whether it waits for its turn in its array, which it never does."""
        return False

    @property
    def has_turn(self) -> bool:
        """Whether it has its turn in its array, which is over."""
        return False


Known = Job | JobHead


@functools.lru_cache(maxsize=50_000)
def _one(text: str) -> str:
    """The text, as one object for all jobs: names of users, projects and hosts are in many heads."""
    return text


def words_of(job: Known) -> str:
    """The texts of a job that are searched, in lower case, with ``BETWEEN_WORDS`` between them."""
    if isinstance(job, JobHead):
        return job.words
    if not job.worded or job.worded[0][0] is not job.places:  # all else of them stays
        words = (job.id, job.display_name, job.owner, job.project, *job.labels.values(), *job.hosts)
        job.worded[:] = [(job.places, BETWEEN_WORDS.join(words).casefold())]
    return job.worded[0][1]


def head_of(job: Job) -> JobHead:
    """The head of a job that has ended."""
    element = job.element
    return JobHead(
        id=job.id,
        owner=_one(job.owner),
        project=_one(job.project),
        request_id=job.request_id,
        display_name=job.display_name,
        labels=job.labels,
        element=element,
        hosts=tuple(map(_one, job.hosts)),
        gpus=job.gang.gpus,
        number=job.number,
        cursor=job.cursor,
        created_at=job.created_at,
        updated_at=job.updated_at,
        ended_at=job.updated_at if job.ended_at == job.updated_at else job.ended_at,
        ran_s=run_time_of(job),
        state=job.state,
        deleted=job.deleted,
        output_on=tuple(map(_one, sorted(job.output_on))),
        words=words_of(job),
    )


def _no_store(names: Sequence[str]) -> list[Job]:
    raise LookupError(f"there is no store to read {', '.join(names)} from")


def _other_than_known(name: str, found: Sequence[Job]) -> StoreError:
    if not found:
        return StoreError(f"The store lacks the job {name}, which has ended.", fix="Restore a backup.")
    problem = f"The store has another state of the job {name} than this controller: another one has taken over."
    return StoreError(problem, fix="Ask the controller that is at work now.")


class Jobs(MutableMapping[str, Job]):
    """Jobs by id, in the order of creation. ``read`` is asked for what isn't in memory."""

    def __init__(
        self, jobs: Mapping[str, Job] | Iterable[tuple[str, Known]] = (), read: ReadJobs = _no_store
    ) -> None:
        self.read = read
        self._known: dict[str, Known] = dict(jobs)
        self.whole: dict[str, Job] = {name: job for name, job in self._known.items() if isinstance(job, Job)}
        """Every job that has not ended, and some that have."""
        self._ended: dict[str, None] = {}
        """Ended jobs in ``whole``; what was asked for last comes last."""
        self.by_state: Counter[tuple[str, JobState]] = Counter()
        """Jobs that are not deleted: how many, by project and state."""
        self._counted: dict[str, JobState] = {}
        """As which those in ``whole`` are counted."""
        self.conspicuous: dict[str, None] = {}
        """Jobs in ``whole`` that have hung, or leave GPUs unused, and others that did: few of many."""
        self.blocks = JobBlocks()
        for job in self._known.values():
            self.blocks.add(job.id, job.number)
            if isinstance(job, JobHead):
                self._count_head(job, 1)
            else:
                self.note(job)

    def __getitem__(self, name: str) -> Job:
        """The whole job; one that has ended is read from the store, unless it is in memory. Raises ``StoreError``."""
        job = self.whole.get(name)
        if job is not None:
            return job
        if name not in self._known:
            raise KeyError(name)
        found = self.read(self.missing((name,)))
        self.take(found)
        if name not in self.whole:
            raise _other_than_known(name, found)
        return self.whole[name]

    def __setitem__(self, name: str, job: Job) -> None:
        if name not in self._known:
            self.blocks.add(name, job.number)
        else:
            self.blocks.of(job.number).changed(name)
        self._put(name, job)
        self.note(job)

    def _put(self, name: str, job: Job) -> None:
        self._count_head(self._known.get(name), -1)
        self._known[name] = self.whole[name] = job

    def __delitem__(self, name: str) -> None:
        job = self._known.pop(name)
        self._count_head(job, -1)
        if (counted := self._counted.pop(name, None)) is not None:
            self._count(job, counted, -1)
        self.blocks.remove(name, job.number)
        self.whole.pop(name, None)
        self._ended.pop(name, None)
        self.conspicuous.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Jobs({self._known!r})"

    def _count_head(self, known: Known | None, change: int) -> None:
        """Count a head that comes, or goes."""
        if isinstance(known, JobHead) and not known.deleted:
            self._count(known, known.state, change)

    def _count(self, job: Known, state: JobState, change: int) -> None:
        self.by_state[job.project, state] += change
        self.blocks.of(job.number).by_state[state] += change

    def heads(self) -> Iterable[Known]:
        """Every job, whole or its head, in the order of creation."""
        return self._known.values()

    def head(self, name: str) -> Known | None:
        """The job, whole or its head; None where there is none."""
        return self._known.get(name)

    def heads_in(self, block: JobBlock, *, ended: bool = True) -> list[Known]:
        """The jobs of a block, in the order of creation; with no ``ended`` ones, or few."""
        known: Mapping[str, Known] = self._known if ended else self.whole
        return [known[name] for name in block.names if name in known]

    def words_in(self, block: JobBlock) -> str:
        """Every word of ``words_of`` any job of a block, with ``BETWEEN_WORDS`` on both sides, and perhaps others."""
        if unread := block.unread:
            block.read([words_of(self._known[name]) for name in unread if name in self._known])
        return block.text

    def note(self, job: Job) -> None:
        """Take in a whole job as it is now: after each of its events, the last one excepted."""
        # One whose words were not asked for yet is unread, or has ended and moves no more.
        if (words := job.worded) and words[0][0] is not job.places:
            self.blocks.of(job.number).changed(job.id)
        self._tally(job)

    def _tally(self, job: Job) -> None:
        before, state = self._counted.get(job.id), None if job.deleted else job.state
        if before is not state:
            if before is not None:
                self._count(job, before, -1)
                del self._counted[job.id]
            if state is not None:
                self._count(job, state, 1)
                self._counted[job.id] = state
        if job.terminal:
            self._ended[job.id] = None
        if job.hangs or job.underuse is not None:
            self.conspicuous[job.id] = None

    def missing(self, names: Iterable[str]) -> list[str]:
        """The ids among ``names`` of jobs that are not in memory. The others stay there for longer."""
        found = []
        for name in names:
            if name in self._ended:
                del self._ended[name]
                self._ended[name] = None
            elif name in self._known and name not in self.whole:
                found.append(name)
        return found

    def bring(self, names: Iterable[str]) -> None:
        """Have these jobs whole in memory, all that aren't with one look at the store."""
        if missing := self.missing(names):
            self.take(self.read(missing))

    def take(self, jobs: Iterable[Job]) -> None:
        """Have jobs in memory that were read, unless they have changed since, or are there by now."""
        for job in jobs:
            head = self._known.get(job.id)
            if isinstance(head, JobHead) and head.cursor == job.cursor:
                self._put(job.id, job)
                self._tally(job)  # its words are those of its head

    def let_go(self, upto: int, needed: Container[str] = (), keep: int | None = None) -> bool:
        """Keep but heads of ended jobs whose newest event the snapshots contain, as of ``upto`` of the log.

        Call it between two steps. Those ``needed`` stay, and ``KEPT_WHOLE`` (or ``keep``) that were asked for last.
        Returns whether there may be more: it takes a bounded number.
        """
        over = len(self._ended) - (KEPT_WHOLE if keep is None else keep)
        for name in list(islice(self._ended, max(min(over, LET_GO_AT_ONCE), 0))):
            job = self.whole[name]
            del self._ended[name]
            if job.cursor <= upto and job.unreconciled is None and name not in needed:
                self._known[name] = head_of(job)
                del self.whole[name]
                self._counted.pop(name, None)  # as which its head is counted, too
                self.conspicuous.pop(name, None)
            else:
                self._ended[name] = None
        return over > LET_GO_AT_ONCE


class PurgedJobs:
    """Ids of jobs that were deleted for good, which are not given again: a set that never shrinks, eight bytes each.

    One in 10^13 ids is taken for one of a million that are in it: no harm."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, job_id: str) -> None:
        """Take an id in; it may be in it already."""
        digest = _digest(job_id)
        at = bisect_left(self._digests, digest)
        if at == len(self._digests) or self._digests[at] != digest:
            self._digests.insert(at, digest)

    def __contains__(self, job_id: object) -> bool:
        digest = _digest(str(job_id))
        at = bisect_left(self._digests, digest)
        return at < len(self._digests) and self._digests[at] == digest

    def __len__(self) -> int:
        return len(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PurgedJobs) and self._digests == other._digests

    __hash__ = None  # type: ignore[assignment]


def _digest(job_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(job_id.encode(), digest_size=8).digest(), "big")
