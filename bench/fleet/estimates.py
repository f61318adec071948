"""Estimates of run times for the model policies. All but ``Perfect`` know ended jobs alone."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from bench.fleet.traces import Request

LIMIT_S = 7 * 86400.0
"""The default ``timeout``, for jobs that declare nothing."""
REMEMBERED = 50
FEWEST = 3


class Declared:
    """What the user declared; a week where that is nothing."""

    def of(self, asked: Request, ran_s: float) -> float:
        """Seconds that a job will run in all, having run so long."""
        limit = asked.declared_s or LIMIT_S
        while limit <= ran_s:
            limit *= 2
        return limit

    def learn(self, asked: Request, ran_s: float) -> None:
        """A job has ended."""


class Learned(Declared):
    """The 90th percentile of the last runs of the same user and size, then of the size; doubled when outlived."""

    def __init__(self) -> None:
        self.runs: defaultdict[tuple[object, ...], deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def of(self, asked: Request, ran_s: float) -> float:
        limit = super().of(asked, 0.0)
        for key in _keys(asked):
            if len(known := self.runs[key]) >= FEWEST:
                limit = min(limit, sorted(known)[min(int(0.9 * len(known)), len(known) - 1)])
                break
        while limit <= ran_s:
            limit *= 2
        return limit

    def learn(self, asked: Request, ran_s: float) -> None:
        for key in _keys(asked):
            self.runs[key].append(ran_s)


def _keys(asked: Request) -> tuple[tuple[object, ...], ...]:
    return (asked.project, asked.user, asked.gpus), (asked.project, asked.gpus), (asked.gpus,)


class Perfect(Declared):
    """The truth: a bound that no scheduler reaches, and the only one that is given the run times."""

    def __init__(self, durations: Mapping[str, float]) -> None:
        self.durations = durations

    def of(self, asked: Request, ran_s: float) -> float:
        return self.durations[asked.name]
