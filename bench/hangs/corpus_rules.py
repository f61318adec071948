"""The rules that the detector's own rule for silent output is compared with; each is a ``Policy`` of the scorer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.hang.pipeline.progress_rate import ProgressRate


@dataclass(frozen=True)
class Fixed:
    """Notices and, unless it only notices, acts after so long a silence, whatever the job."""

    after_s: float
    acts: bool = True

    @property
    def shortest_s(self) -> float:
        return self.after_s

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        return rate._replace(last_s=at_s)

    def notice_after_s(self, _rate: ProgressRate) -> float:
        return self.after_s

    def act_after_s(self, _rate: ProgressRate) -> float:
        return self.after_s if self.acts else math.inf


@dataclass(frozen=True)
class Naive:
    """Three times the longest gap since the first, at least a floor."""

    floor_s: float = 120.0

    @property
    def shortest_s(self) -> float:
        return self.floor_s

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        gap_s = at_s - rate.last_s
        longest_s = max(rate.longest_s, gap_s) if rate.events else 0.0
        return rate._replace(last_s=at_s, longest_s=longest_s, events=rate.events + 1)

    def notice_after_s(self, rate: ProgressRate) -> float:
        return max(self.floor_s, 3 * rate.longest_s)

    def act_after_s(self, rate: ProgressRate) -> float:
        return self.notice_after_s(rate)


@dataclass(frozen=True)
class Release01:
    """The rule of release 0.1: twice the longest gap of all, once three of one size or 240 s of progress were seen."""

    shortest_s: float = 180.0

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        gap_s = at_s - rate.last_s
        if gap_s <= rate.third_s:
            return rate._replace(last_s=at_s)
        longest_s, second_s, third_s, _ = sorted((rate.longest_s, rate.second_s, rate.third_s, gap_s), reverse=True)
        return rate._replace(last_s=at_s, longest_s=longest_s, second_s=second_s, third_s=third_s)

    def notice_after_s(self, rate: ProgressRate) -> float:
        return max(180.0 if self._settled(rate) else 1800.0, 2 * rate.longest_s)

    def act_after_s(self, rate: ProgressRate) -> float:
        return max(1800.0 if self._settled(rate) else 3600.0, 2 * rate.longest_s)

    def _settled(self, rate: ProgressRate) -> bool:
        return rate.last_s - rate.began_s > 240.0 or rate.third_s >= max(5.0, rate.longest_s / 3)
