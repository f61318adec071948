"""Progress rate of a job: the gaps between its progress events, and how long a silence is normal after them.

Theory of operation. Progress events (a line that tells something new, a checkpoint or event file that grew) leave
gaps between them. They say what comes next only while they repeat: after a screenful of messages the first block of
work may take an hour, and after hours of steps the first evaluation may take as long as twenty steps.
Most false alarms of gap-based rules lie exactly there. So progress is divided into stretches. The first begins with
the job, and its end is the end of start-up; each later one begins with a gap longer than anything the job has shown
before. The cadence of a stretch is known once two gaps of one size have been seen in it, or after some minutes of
progress, at least a quarter of the gap that began it.

While the cadence is known, a silence is noticed at twice the longest gap of the stretch: twice, since a job that
skips one of its regular lines is silent for that long. While it isn't, anything may follow, and only the ceilings
count. What the job has survived since its start-up is never noticed again. The start-up itself is left out: it
happens once, and an hour of loading says nothing of steps that take seconds.

Where another family of signals agrees that nothing moves, stretches don't matter and less patience is needed.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.hang.thresholds import Tuning


class ProgressRate(NamedTuple):
    """The history of one stream of progress; a value of nine numbers, cheap to copy and to journal.

    Times are seconds on the caller's monotonic clock, gaps are seconds. ``longest_s`` is the longest gap of all,
    ``steady_s`` the longest since start-up was over, 0 until then. The last two describe the stretch: when and after
    which gap it began (None and 0: with the job); ``second_s`` and ``third_s`` are the longest gaps in it.
    """

    began_s: float
    last_s: float
    longest_s: float = 0.0
    second_s: float = 0.0
    third_s: float = 0.0
    steady_s: float = 0.0
    events: int = 0
    opened_s: float | None = None
    opening_s: float = 0.0

    @classmethod
    def begin(cls, at_s: float) -> ProgressRate:
        """A generation that starts now and has not progressed yet."""
        return cls(at_s, at_s)

    def observe(self, at_s: float, tuning: Tuning) -> ProgressRate:
        """The history after progress at that time; an event older than the last one changes nothing."""
        began, last, longest, second, third, steady, events, opened, opening = self
        gap = at_s - last
        if gap < 0:
            return self
        longest = max(longest, gap)
        if gap >= tuning.settle_gap_min_s:
            known = max(tuning.stretch_gap_min_s, tuning.gap_spread * steady) if steady else opening
            if gap > known:
                opened, opening, second, third = at_s, gap, 0.0, 0.0
            elif gap > second:
                second, third = gap, second
            elif gap > third:
                third = gap
            if steady:
                steady = max(steady, gap)
        found = ProgressRate(began, at_s, longest, second, third, steady, events + 1, opened, opening)
        if not steady and found.has_cadence(tuning):
            return found._replace(steady_s=max(second, tuning.settle_gap_min_s))
        return found

    def forgive(self, silent_s: float) -> ProgressRate:
        """The history without ``silent_s`` of unwatched or declared idle time: neither a silence nor a gap survived."""
        return self.shifted(silent_s)

    def shifted(self, by_s: float) -> ProgressRate:
        """The same history on a clock that reads ``by_s`` more."""
        opened_s = None if self.opened_s is None else self.opened_s + by_s
        return self._replace(began_s=self.began_s + by_s, last_s=self.last_s + by_s, opened_s=opened_s)

    def silent_s(self, now_s: float) -> float:
        return now_s - self.last_s

    def settled(self, tuning: Tuning) -> bool:
        """Whether start-up is over: once true, it stays true."""
        return self.steady_s > 0 or self.has_cadence(tuning)

    def has_cadence(self, tuning: Tuning) -> bool:
        """Whether the gaps of this stretch tell what a long gap is in it."""
        lasted_s = self.last_s - (self.began_s if self.opened_s is None else self.opened_s)
        if lasted_s > max(tuning.settle_age_s, tuning.settle_share * self.opening_s):
            return True
        if lasted_s < tuning.settle_span_s or self.third_s < tuning.settle_gap_min_s:
            return False
        return self.second_s <= tuning.gap_spread * self.third_s

    def notice_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream, taken alone, is worth a notice."""
        if not self.settled(tuning):
            return self._or_survived("startup_ceiling_s", tuning)
        if tuning.timeout_s is not None:
            return tuning.timeout_s
        limit_s = tuning.gap_spread * self.steady_s
        if self.has_cadence(tuning):
            limit_s = max(limit_s, tuning.silence_floor_s, tuning.silence_factor * self.second_s)
        else:
            limit_s = max(limit_s, tuning.ceiling_s)
        return min(limit_s, tuning.ceiling_s) if "ceiling_s" in tuning.given else limit_s

    def agree_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream may agree with another family that nothing moves."""
        if not self.settled(tuning):
            return self._or_survived("startup_s", tuning)
        if tuning.timeout_s is not None:
            return tuning.timeout_s
        return max(tuning.still_floor_s, tuning.still_factor * self.steady_s)

    def act_after_s(self, tuning: Tuning) -> float:
        """The silence after which this stream, taken alone, is acted on: the ceiling, or what the job has
        earned.
        """
        notice_s = self.notice_after_s(tuning)
        if not self.settled(tuning):
            return notice_s
        if tuning.timeout_s is not None:
            return max(tuning.ceiling_s, notice_s)
        if "ceiling_s" in tuning.given:
            return tuning.ceiling_s
        earned_s = tuning.ceiling_factor * self.steady_s if self.has_cadence(tuning) else tuning.startup_ceiling_s
        return max(tuning.ceiling_s, min(earned_s, tuning.startup_ceiling_s), notice_s)

    def _or_survived(self, name: str, tuning: Tuning) -> float:
        """Return that limit of start-up, or what was survived in it if that is more; never if the job set the limit."""
        limit_s: float = getattr(tuning, name)
        return limit_s if name in tuning.given else max(limit_s, tuning.gap_spread * self.longest_s)
