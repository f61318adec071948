"""Scores a policy on healthy runs: how often it would have spoken or killed wrongly, and how soon it would rightly.

A false notice is a silence of a healthy run longer than the policy bears, one per silence; a run ends at its first
false kill. Into every run 20 stops are injected, uniform in its time: after the stop nothing is printed any more.
The time until the policy notices and acts is counted from the stop, not from the last line before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.records.corpus import Run
from holdfast.hang.thresholds import Tuning

STOPS_PER_RUN = 20
# Two-sided 95 %.
_Z = 1.959963984540054
_DAY_H = 24.0


class Policy(Protocol):
    """Longest silence before a notice and a kill, given the progress so far. Seconds, at least ``shortest_s``."""

    @property
    def shortest_s(self) -> float: ...
    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate: ...
    def notice_after_s(self, rate: ProgressRate) -> float: ...
    def act_after_s(self, rate: ProgressRate) -> float: ...


@dataclass(frozen=True, slots=True)
class Learned:
    """The detector's own policy, when log lines are its only signal."""

    tuning: Tuning

    @property
    def shortest_s(self) -> float:
        return 0.0 if self.tuning.timeout_s is not None else min(self.tuning.silence_floor_s, self.tuning.startup_s)

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        return rate.observe(at_s, self.tuning)

    def notice_after_s(self, rate: ProgressRate) -> float:
        return rate.notice_after_s(self.tuning)

    def act_after_s(self, rate: ProgressRate) -> float:
        return rate.act_after_s(self.tuning)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bounds."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles of times, in seconds; NaN when there were none."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Score:
    """The printed result of ``holdfast hang evaluate``: shares and rates of false alarms, times of injected stops."""

    runs: int
    hours: float
    notices: int
    runs_with_notice: int
    kills: int
    runs_with_kill: int
    kills_per_24h: Interval
    notices_per_24h: Interval
    kill_share_of_runs: Interval
    notice_share_of_runs: Interval
    notice_s: Times
    kill_s: Times

    def record(self) -> dict[str, Any]:
        """The score as plain JSON values; a percentile of no times is null."""
        record = asdict(self)
        for name in ("notice_s", "kill_s"):
            record[name] = {key: None if math.isnan(value) else value for key, value in record[name].items()}
        return record


@dataclass(frozen=True, slots=True)
class RunScore:
    """The score of one run: its time, its false alarms, and how long each stop took to be noticed and acted on."""

    time_s: float
    notices: int
    killed: bool
    notice_s: tuple[float, ...]
    kill_s: tuple[float, ...]


def score(runs: Iterable[Run], policy: Policy, uniform: Callable[[], float]) -> Score:
    """The policy's score; ``uniform`` gives numbers in [0, 1), the same ones for every policy that is compared."""
    return pooled([score_run(run, policy, uniform) for run in runs])


def pooled(scores: Sequence[RunScore]) -> Score:
    """The score of runs together, each counting alike."""
    hours = sum(one.time_s for one in scores) / 3600
    notices = sum(one.notices for one in scores)
    noticed = sum(one.notices > 0 for one in scores)
    killed = sum(one.killed for one in scores)
    return Score(
        runs=len(scores),
        hours=hours,
        notices=notices,
        runs_with_notice=noticed,
        kills=killed,
        runs_with_kill=killed,
        kills_per_24h=rate_interval(killed, hours / _DAY_H),
        notices_per_24h=rate_interval(notices, hours / _DAY_H),
        kill_share_of_runs=share_interval(killed, len(scores)),
        notice_share_of_runs=share_interval(noticed, len(scores)),
        notice_s=_times([time_s for one in scores for time_s in one.notice_s]),
        kill_s=_times([time_s for one in scores for time_s in one.kill_s]),
    )


def score_run(run: Run, policy: Policy, uniform: Callable[[], float]) -> RunScore:
    """One run: its false notices, its false kill if any, and the times of its stops.

    Stops are drawn over the whole recorded time; those behind a false kill have nothing left to stop and don't
    count.
    """
    total_s = math.fsum(run.gaps_s)
    pending = sorted((uniform() * total_s for _ in range(STOPS_PER_RUN)), reverse=True)
    rate = ProgressRate.begin(0.0)
    noticed_s: list[float] = []
    killed_s: list[float] = []
    notices = 0
    now_s = 0.0
    shortest_s = policy.shortest_s
    for gap_s in run.gaps_s:
        if gap_s == 0:
            continue
        end_s = now_s + gap_s
        stopped = bool(pending) and pending[-1] < end_s
        if stopped or gap_s > shortest_s:
            notice_s, act_s = policy.notice_after_s(rate), policy.act_after_s(rate)
            killed = gap_s > act_s
            until_s = now_s + act_s if killed else end_s
            while pending and pending[-1] < until_s:
                into_s = pending.pop() - now_s
                noticed_s.append(max(0.0, notice_s - into_s))
                killed_s.append(max(0.0, act_s - into_s))
            notices += gap_s > notice_s
            if killed:
                return RunScore(until_s, notices, True, tuple(noticed_s), tuple(killed_s))
        rate = policy.observe(rate, end_s)
        now_s = end_s
    return RunScore(now_s, notices, False, tuple(noticed_s), tuple(killed_s))


def share_interval(count: int, of: int) -> Interval:
    """Wilson's score interval of a share."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0)
    share, spread = count / of, _Z * _Z / of
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def rate_interval(count: int, exposure: float) -> Interval:
    """The score interval of a rate, which is Wilson's for events that can come more than once per unit of
    exposure.
    """
    if exposure <= 0:
        return Interval(0.0, 0.0, math.inf)
    middle = count + _Z * _Z / 2
    half = _Z * math.sqrt(count + _Z * _Z / 4)
    return Interval(count / exposure, max(0.0, middle - half) / exposure, (middle + half) / exposure)


def _times(times_s: list[float]) -> Times:
    ordered = sorted(times_s)
    return Times(*(_percentile(ordered, share) for share in (0.5, 0.9, 0.99)))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: a time that did occur."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
