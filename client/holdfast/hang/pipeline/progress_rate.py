"""Progress rate of a job: the gaps between its progress events, and how long a silence is normal after them.

Theory of operation. Progress events (a line that tells something new, a checkpoint or event file that grew)
leave gaps between them. Until the gaps show a rate the job is starting up, and only the start-up limit
counts: programs print a screenful at once and then say nothing until their first block of work is done, and
most false alarms of gap-based rules lie exactly there. The rate is known once the three longest gaps are of
one size, or after some minutes of progress. From then on a silence is noticed at ``silence_factor`` × the
longest gap survived, so regular long gaps (an epoch, an evaluation) are learned at their first sight, and no
threshold ever sits below what this job has done and survived.

For the output alone the start-up gap counts as survived like any other. Where another family of signals agrees
that nothing moves, it doesn't: ranks are busy while they start, and a minute of imports says nothing of a
minute in which every rank stands still.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.hang.tuning import Tuning


class ProgressRate(NamedTuple):
    """The history of one stream of progress; a value of seven numbers, cheap to copy and to journal.

    Times are seconds on the caller's monotonic clock, gaps are seconds. ``steady_s`` is the longest gap since the
    rate is known.
    """

    began_s: float
    last_s: float
    longest_s: float = 0.0
    second_s: float = 0.0
    third_s: float = 0.0
    steady_s: float = 0.0
    events: int = 0

    @classmethod
    def begin(cls, at_s: float) -> ProgressRate:
        """A generation that starts now and has not progressed yet."""
        return cls(at_s, at_s)

    def observe(self, at_s: float, tuning: Tuning) -> ProgressRate:
        """The history after progress at that time; an event older than the last one changes nothing."""
        began, last, longest, second, third, steady, events = self
        gap = at_s - last
        if gap < 0:
            return self
        if gap > steady and self.settled(tuning):
            steady = gap
        if gap > longest:
            return ProgressRate(began, at_s, gap, longest, second, steady, events + 1)
        if gap > second:
            return ProgressRate(began, at_s, longest, gap, second, steady, events + 1)
        if gap > third:
            return ProgressRate(began, at_s, longest, second, gap, steady, events + 1)
        return ProgressRate(began, at_s, longest, second, third, steady, events + 1)

    def forgive(self, silent_s: float) -> ProgressRate:
        """The history without ``silent_s`` of unwatched or declared idle time: neither a silence nor a gap survived."""
        return self._replace(began_s=self.began_s + silent_s, last_s=self.last_s + silent_s)

    def shifted(self, by_s: float) -> ProgressRate:
        """The same history on a clock that reads ``by_s`` more."""
        return self._replace(began_s=self.began_s + by_s, last_s=self.last_s + by_s)

    def silent_s(self, now_s: float) -> float:
        return now_s - self.last_s

    def settled(self, tuning: Tuning) -> bool:
        """Whether the gaps seen so far tell what a long gap is for this job: start-up is over."""
        if self.last_s - self.began_s > tuning.settle_age_s:
            return True
        return self.third_s >= max(tuning.settle_gap_min_s, tuning.settle_share * self.longest_s)

    def _governed(self, tuning: Tuning) -> bool:
        """Whether the job's own timeout counts: from the first progress on, whatever is known of the rate."""
        return tuning.timeout_s is not None and self.events > 0

    def notice_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream, taken alone, is worth a notice."""
        if self._governed(tuning) and tuning.timeout_s is not None:
            return tuning.timeout_s
        if not self.settled(tuning):
            return max(tuning.startup_s, tuning.silence_factor * self.longest_s)
        return max(tuning.silence_floor_s, tuning.silence_factor * self.longest_s)

    def agree_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream may agree with another family that nothing moves."""
        if self._governed(tuning) or not self.settled(tuning):
            return self.notice_after_s(tuning)
        # The third longest stands for gaps that repeated before the rate was known.
        return max(tuning.still_floor_s, tuning.still_factor * max(self.steady_s, self.third_s))

    def act_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream, taken alone, is acted on: the ceiling, or what the job has
        earned.
        """
        if self._governed(tuning) and tuning.timeout_s is not None:
            return max(tuning.ceiling_s, tuning.timeout_s)
        if not self.settled(tuning):
            return max(tuning.startup_ceiling_s, tuning.silence_factor * self.longest_s)
        return max(tuning.ceiling_s, tuning.silence_factor * self.longest_s)
