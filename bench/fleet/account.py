"""The account of one run: who waited, ran and was stopped when, with the checks that nothing was made up.

It is told of each start, stop and end by the simulation that holds the run times, and asks no policy.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.fleet.traces import Trace

SIZES = ((1, 1), (2, 15), (16, 32), (33, 1 << 30))
"""Classes of jobs by GPUs, with both bounds."""
SIZE_NAMES = ("1", "2–15", "16–32", ">32")
HOUR_S = 3600.0
SAVE_EVERY_S = 1800.0
"""Each job saves its state so often while it runs: a preemption loses what came after the last time."""


class Broken(Exception):
    """A run that cannot be: a GPU held twice, a job that ran for longer or shorter than it had to."""


def check(holds: bool, text: str) -> None:
    """Raises ``Broken`` where it doesn't hold."""
    if not holds:
        raise Broken(text)


@dataclass
class Progress:
    """One job's part in a run."""

    waits_since: float
    left_s: float
    waited_s: float = 0.0
    first_start: float | None = None
    running_since: float | None = None
    ended: bool = False


@dataclass
class Account:
    """Totals of one run on ``gpus`` GPUs."""

    trace: Trace
    gpus: int
    save_every_s: float = SAVE_EVERY_S
    """Infinite where no job saves: a preemption loses all of an attempt."""
    jobs: dict[str, Progress] = field(default_factory=dict)
    held: dict[object, str] = field(default_factory=dict)
    """By GPU: the job that it belongs to."""
    now: float = 0.0
    waiting: int = 0
    busy_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0
    """GPU seconds of free GPUs while a job waited."""
    lost_gpu_s: float = 0.0
    preempted: int = 0

    def __post_init__(self) -> None:
        self.requests = {asked.name: asked for asked in self.trace.requests}
        self.now = self.trace.requests[0].at

    def advance(self, to: float) -> None:
        """Time passes."""
        check(to >= self.now, f"time goes back from {self.now} to {to}")
        self.busy_gpu_s += len(self.held) * (to - self.now)
        if self.waiting:
            self.idle_gpu_s += (self.gpus - len(self.held)) * (to - self.now)
        self.now = to

    def submitted(self, name: str) -> None:
        """A job waits from now on."""
        check(name not in self.jobs, f"{name} is submitted twice")
        check(self.now >= self.requests[name].at, f"{name} is submitted before its time")
        self.jobs[name] = Progress(self.now, self.trace.durations[name])
        self.waiting += 1

    def started(self, name: str, gpus: tuple[object, ...]) -> float:
        """A job starts on these GPUs; seconds until it ends if nothing stops it."""
        job = self.jobs[name]
        check(job.running_since is None and not job.ended, f"{name} starts and has not waited")
        check(len(set(gpus)) == len(gpus) == self.requests[name].gpus, f"{name} gets {len(gpus)} GPUs")
        for gpu in gpus:
            check(gpu not in self.held, f"{name} gets {gpu}, which {self.held.get(gpu)} holds")
            self.held[gpu] = name
        check(len(self.held) <= self.gpus, "more GPUs are held than there are")
        job.waited_s += self.now - job.waits_since
        job.first_start = self.now if job.first_start is None else job.first_start
        job.running_since = self.now
        self.waiting -= 1
        return job.left_s

    def stopped(self, name: str) -> None:
        """A job is preempted: it loses what it has not saved, and waits again."""
        ran = self._leaves(name)
        job = self.jobs[name]
        lost = ran % self.save_every_s
        job.left_s -= ran - lost
        job.waits_since = self.now
        check(job.left_s > 0, f"{name} is stopped after its end")
        self.lost_gpu_s += lost * self.requests[name].gpus
        self.preempted += 1
        self.waiting += 1

    def ended(self, name: str) -> None:
        """A job ends by itself."""
        ran = self._leaves(name)
        job = self.jobs[name]
        check(abs(ran - job.left_s) < 1e-3, f"{name} ran {ran} s where {job.left_s} s were left")
        job.ended = True

    def _leaves(self, name: str) -> float:
        job = self.jobs[name]
        check(job.running_since is not None, f"{name} leaves and does not run")
        assert job.running_since is not None
        for gpu in [gpu for gpu, holder in self.held.items() if holder == name]:
            del self.held[gpu]
        ran, job.running_since = self.now - job.running_since, None
        return ran

    def close(self) -> None:
        """The run is over: every job has run in full, once, and its GPU time is all that was used."""
        check(len(self.jobs) == len(self.trace.requests), "jobs are missing")
        check(all(job.ended for job in self.jobs.values()), "a job never ended")
        check(not self.held and not self.waiting, "something is held or waits at the end")
        due = self.trace.gpu_s + self.lost_gpu_s
        check(abs(self.busy_gpu_s - due) <= 1e-6 * due + 1.0, f"{self.busy_gpu_s} GPU s used, {due} due")

    def row(self, spot: bool | None = None) -> list[str]:
        """The figures of the table, in hours; of SPOT or STANDARD jobs alone where asked."""
        chosen = [
            (self.requests[name], job)
            for name, job in self.jobs.items()
            if spot is None or self.requests[name].spot is spot
        ]
        waits = [job.waited_s for _, job in chosen]
        first = [job.first_start - asked.at for asked, job in chosen if job.first_start is not None]
        cells = [_hours(statistics.fmean(waits)), _hours(_quantile(waits, 0.9)), _hours(statistics.fmean(first))]
        for low, high in SIZES[2:]:
            of_size = [job.waited_s for asked, job in chosen if low <= asked.gpus <= high]
            cells += [_hours(_quantile(of_size, at)) if of_size else "–" for at in (0.5, 0.9)]
        if spot is None:
            lost = f"{self.lost_gpu_s / HOUR_S:,.0f} ({self.lost_gpu_s / self.trace.gpu_s:.2%})"
            cells += [f"{self.idle_gpu_s / HOUR_S:,.0f}", lost, f"{self.preempted:,}"]
        return cells


HEADS = (
    *("mean wait", "p90", "mean until first start"),
    *(f"{size} {at}" for size in SIZE_NAMES[2:] for at in ("p50", "p90")),
    *("idle GPU h while jobs wait", "GPU h lost", "preempted"),
)


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.2f}"


def _quantile(values: list[float], at: float) -> float:
    """The smallest value that so large a share doesn't exceed."""
    ordered = sorted(values)
    return ordered[min(int(at * len(ordered)), len(ordered) - 1)]
