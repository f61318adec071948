"""The controller's reactor under a trace: its inputs are those of real agents, in virtual time, without processes.

The run times stay here. The reactor hears of a job's end when its agent would: then its workers are empty.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from bench.fleet.account import SAVE_EVERY_S, Account, check
from bench.fleet.estimates import LIMIT_S
from bench.fleet.traces import Request, Trace

from holdfast._base.job_file.choices import HangAction, SuccessPolicy
from holdfast._session.reports import (
    Exit,
    ExitReason,
    ExitReport,
    ReportedState,
    WorkerId,
    WorkerReport,
)
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Strategy, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

GIB = 1 << 30
EPOCH = 1e9
FOREVER_S = 1e12
QUIET = LeasePolicy(heartbeat_s=FOREVER_S, suspect_s=FOREVER_S, lease_s=FOREVER_S, lost_s=FOREVER_S)
"""Hosts that never fall silent, so that they needn't beat through months."""


Expects = Callable[[Request], float | None]
"""Seconds that a job's ``expectedDuration`` declares."""


def declares(asked: Request) -> float | None:
    """What the trace's user declared."""
    return asked.declared_s


def gang_of(asked: Request, gpus_each: int, expected_s: float | None = None, timeout_s: float = LIMIT_S) -> Gang:
    """Whole hosts, and one worker more for what is left over."""
    whole, rest = divmod(asked.gpus, gpus_each)
    pools = [Pool(whole, Task(("x",)), gpus=gpus_each)] if whole else []
    pools += [Pool(1, Task(("x",)), gpus=rest)] if rest else []
    return Gang(
        tuple(pools),
        timeout_s=timeout_s,
        expected_s=min(expected_s or 0.0, timeout_s),
        max_wait_s=0.0,
        success=SuccessPolicy.ALL,
        hang=HangSettings(HangAction.OFF),
        strategy=Strategy.SPOT if asked.spot else Strategy.STANDARD,
        project=asked.project,
    )


class Play:
    """A trace and the reactor that schedules it."""

    def __init__(
        self,
        trace: Trace,
        hosts: int,
        gpus_each: int,
        *,
        save_every_s: float = SAVE_EVERY_S,
        loan_s: float = 3600.0,
        backfill: Backfill = Backfill.PROJECTED,
        expects: Expects = declares,
    ) -> None:
        self.expects, self.reports = expects, itertools.count(1)
        self.trace, self.gpus_each, self.save_every_s = trace, gpus_each, save_every_s
        self.backfill = backfill
        self.account = Account(trace, hosts * gpus_each, save_every_s)
        self.now = self.account.now
        self.ends: list[tuple[float, int, str]] = []
        """(when, the number of the job's start, job)."""
        self.saves: list[tuple[float, int, str]] = []
        """The same for the next checkpoint of jobs that may be stopped: of others it would change nothing."""
        self.starts: dict[str, int] = {}
        self.count = itertools.count(1)
        unbounded = 1 << 30
        self.reactor = Reactor(
            Cluster(epoch=1),
            Policies(
                QUIET,
                b"k",
                unbounded,
                waiting_jobs_per_user=unbounded,
                waiting_jobs_per_project=unbounded,
                loan_s=loan_s,
                backfill=backfill,
            ),
        )
        for number in range(hosts):
            gpus = tuple(Gpu(f"{number}-{i}", i, "NVIDIA H100", 80 * GIB) for i in range(gpus_each))
            has = Inventory(64, 512 * GIB, gpus)
            self.step(st.HostConnected(f"h{number:04}", 1, "10.0.0.1", "b", "1", has))

    @property
    def cluster(self) -> Cluster:
        """The reactor's state."""
        return self.reactor.cluster

    def run(self) -> Account:
        """To the last job's end."""
        coming = list(reversed(self.trace.requests))
        while coming or self.ends or len(self.cluster.queue):
            self._drop_stale()
            times = [self.ends[0][0]] if self.ends else []
            times += [self.saves[0][0]] if self.saves else []
            times += [coming[-1].at] if coming else []
            due = self.reactor.next_due()
            if due is not None and due < FOREVER_S / 2:
                times.append(max(due, self.now))
            check(bool(times), "jobs wait and nothing will happen any more")
            self.now = min(times)
            self.account.advance(self.now)
            while self.saves and self.saves[0][0] <= self.now:
                self._save(*heapq.heappop(self.saves))
            while self.ends and self.ends[0][0] <= self.now:
                _, start, name = heapq.heappop(self.ends)
                if self.starts.get(name) == start:
                    self._end(name)
            while coming and coming[-1].at <= self.now:
                self._submit(coming.pop())
            if (due := self.reactor.next_due()) is not None and due <= self.now:
                self.step(st.TimePassed())
        self._close()
        return self.account

    def _drop_stale(self) -> None:
        for due in (self.ends, self.saves):
            while due and self.starts.get(due[0][2]) != due[0][1]:
                heapq.heappop(due)

    def _save(self, at: float, start: int, name: str) -> None:
        """The host of the first worker reports a checkpoint, if that start is the newest."""
        if self.starts.get(name) != start:
            return
        job = self.cluster.jobs[name]
        worker, host = job.gang.members[0].name, job.places[0].host
        told = WorkerFeatures(worker, host, at, (), OutputFeatures(last_checkpoint_s=at))
        self.step(st.FeaturesReported(host, 1, name, job.generation, at, told))
        heapq.heappush(self.saves, (at + self.save_every_s, start, name))

    def _submit(self, asked: Request) -> None:
        self.account.submitted(asked.name)
        # Users of longer jobs set a longer timeout, since those have run to their end.
        timeout_s = LIMIT_S if self.trace.durations[asked.name] < LIMIT_S else 100 * LIMIT_S
        gang = gang_of(asked, self.gpus_each, self.expects(asked), timeout_s)
        self.step(st.JobSubmission(0, asked.user, "", asked.name, JobPlan(asked.name, gang, "{}")))

    def _end(self, name: str) -> None:
        self.account.ended(name)
        del self.starts[name]
        job = self.cluster.jobs[name]
        for member in job.gang.members:
            for rank in member.ranks:
                done = Exit(job.attempt, job.generation, rank, ExitReason.COMPLETED, 0, end_time=self.now + EPOCH)
                report = ExitReport(next(self.reports), WorkerId(name, member.name), done)
                self.step(st.ExitsReported(job.places[member.index].host, 1, (report,)))
        self._empty(name)

    def _empty(self, name: str) -> None:
        for member in self.cluster.jobs[name].gang.members:
            self._report(name, member.index, ReportedState.EMPTY)

    def _report(self, name: str, index: int, state: ReportedState) -> None:
        job = self.cluster.jobs[name]
        member = job.gang.members[index]
        pids = tuple((rank, 1000 + rank) for rank in member.ranks) if state is ReportedState.RUNNING else ()
        report = WorkerReport(
            WorkerId(name, member.name), 1, job.generation, state, 20000, 21000, shim_pid=1, pids=pids
        )
        self.step(st.WorkerReported(job.places[index].host, 1, report))

    def step(self, incoming: st.Input) -> None:
        """One input, and what follows from it at once."""
        decision = self.reactor.step(incoming, Now(Mono(self.now), Wall(self.now + EPOCH)))
        for entry in decision.entries:
            match entry.event:
                case ev.JobPlaced(job_id=name, places=places):
                    gpus = tuple(gpu for place in places for gpu in place.gpus)
                    left_s = self.account.started(name, gpus)
                    self.starts[name] = next(self.count)
                    heapq.heappush(self.ends, (self.now + left_s, self.starts[name], name))
                    revocable = self.account.requests[name].spot or self.backfill is Backfill.LOAN
                    if revocable and math.isfinite(self.save_every_s):
                        heapq.heappush(self.saves, (self.now + self.save_every_s, self.starts[name], name))
                    self._launch(name)
                case ev.AttemptEnded(job_id=name, end_reason=EndReason.PREEMPTED):
                    self.account.stopped(name)
                    del self.starts[name]
                    self._empty(name)
                case _:
                    pass

    def _launch(self, name: str) -> None:
        for state in (ReportedState.PREPARED, ReportedState.RUNNING):
            for member in self.cluster.jobs[name].gang.members:
                self._report(name, member.index, state)

    def _close(self) -> None:
        self.account.close()
        check(not len(self.cluster.queue), "the reactor's queue is not empty at the end")
        check(not self.cluster.holdings.gpus_by_job, "the reactor holds GPUs at the end")
        check(not any(host.allocations for host in self.cluster.hosts.values()), "a host is held at the end")
