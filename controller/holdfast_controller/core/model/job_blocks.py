"""Jobs in blocks, in the order of creation: a list looks at no job of a block that has none of those it is for.

Heads of a hundred thousand jobs lie all over the memory, and a look at each waits for it. A block says how many of its
jobs are in which state, and one look at one text tells whether any of them may have some words. None may have them all
the same: the words of before of a job that moved stay in the text, and so do those of one that is gone, until the text
is made again.

The text has each word of a block once, so what it takes hardly grows with the hosts of the jobs. It is made at the
first search, and jobs that come or move are added at the next one: a change of a job costs no more than a note of its
id.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from holdfast_controller.core.model.job_state import JobState

IN_BLOCK = 256
"""Jobs: of a hundred thousand, a search looks at four hundred texts of some kilobytes each."""

BETWEEN_WORDS = "\0"
"""Stands in no text that is looked for."""

_first = attrgetter("first")


class JobBlock:
    """Some jobs that follow each other."""

    __slots__ = ("_added", "_text", "_unread", "by_state", "first", "names")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of its first job, which may be gone."""
        self.names: list[str] = []
        """Ids, in the order of creation."""
        self.by_state: Counter[JobState] = Counter()
        """Jobs that are not deleted."""
        self._text: str | None = None
        self._unread: dict[str, None] = {}
        """Ids of jobs with words that the text lacks, and of ones that are gone."""
        self._added = 0

    @property
    def unread(self) -> Sequence[str]:
        """Ids of jobs whose words ``read`` has to be given, before ``text`` is asked for."""
        return self.names if self._text is None else list(self._unread)

    def read(self, words: Iterable[str]) -> None:
        """Take in the words of the jobs that are unread: of each, what ``words_of`` has."""
        every = dict.fromkeys(BETWEEN_WORDS.join(words).split(BETWEEN_WORDS))
        self._text = f"{self._text or BETWEEN_WORDS}{BETWEEN_WORDS.join(every)}{BETWEEN_WORDS}"
        self._unread.clear()

    @property
    def text(self) -> str:
        """Every word of its jobs, with ``BETWEEN_WORDS`` on both sides."""
        return self._text or ""

    def add(self, name: str) -> None:
        """A job comes that is newer than all others of it."""
        self.names.append(name)
        self.changed(name)

    def take_over(self, other: JobBlock) -> None:
        """The jobs of a block that comes next and ends here."""
        self.names += other.names
        self.by_state += other.by_state
        self._forget()

    def changed(self, name: str) -> None:
        """A job of it has other words than before."""
        if self._text is not None and name not in self._unread:
            self._unread[name] = None
            self._added += 1
            if self._added > IN_BLOCK:  # so it holds the words of two blocks at most
                self._forget()

    def _forget(self) -> None:
        self._text, self._added = None, 0
        self._unread.clear()


class JobBlocks:
    """The blocks of all jobs. Numbers of jobs rise in the order of creation."""

    def __init__(self) -> None:
        self._all: list[JobBlock] = []

    def of(self, number: int) -> JobBlock:
        """The block of the job that has the number."""
        return self._all[self._at(number)]

    def _at(self, number: int) -> int:
        return max(bisect.bisect_right(self._all, number, key=_first) - 1, 0)

    def add(self, name: str, number: int) -> None:
        """The newest job."""
        if not self._all or len(self._all[-1].names) >= IN_BLOCK:
            self._all.append(JobBlock(number))
        self._all[-1].add(name)

    def remove(self, name: str, number: int) -> None:
        """A job that is gone. What is left of its block goes to the one before where both are small."""
        at = self._at(number)
        block = self._all[at]
        block.names.remove(name)
        if at and len(self._all[at - 1].names) + len(block.names) <= IN_BLOCK // 2:
            self._all[at - 1].take_over(block)
            del self._all[at]
        elif not block.names:
            del self._all[at]

    def oldest_first(self, after: int = 0) -> list[JobBlock]:
        """Blocks with jobs whose numbers are above this one. The first has others, too."""
        return self._all[self._at(after) :]

    def newest_first(self, before: int = 0) -> list[JobBlock]:
        """Blocks with jobs whose numbers are below this one; all for 0. The first has others, too."""
        end = bisect.bisect_left(self._all, before, key=_first) if before else len(self._all)
        return self._all[:end][::-1]
