"""What a pass over a long queue costs the controller's core, while jobs end one by one on a busy cluster.

    python -m bench.fleet.passes --jobs 10000 --hosts 1000

The real reactor in virtual time: jobs of 12 sizes, 200 users and 20 projects, half of which declare a run time.
Each job that has ended is replaced by a new one at the end of the queue, so that the queue stays as long as it was.
Python looks for cycles as seldom as in the daemon.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from bench.fleet.reactor import QUIET, gang_of
from bench.fleet.traces import Request
from bench.support.report import framed, progress

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core import reactor
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.reservation_commands import ReservationAsked
from holdfast_controller.core.step.share_commands import ShareAsked
from holdfast_controller.core.step.step import Policies, Step
from holdfast_controller.shell.main.cycles import look_at_what_is_new

GIB = 1 << 30
SIZES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 24, 32, 48, 64, 96, 128, 256)
HOURS = (0.5, 1, 2, 4, 8, 12, 24, 48)
"""Run times that jobs declare. One of four declares another, as a program would that computes it."""
EACH = 8


class Queue:
    """A busy cluster, and jobs that wait for it."""

    def __init__(self, backfill: Backfill, asked: argparse.Namespace) -> None:
        self.dice, self.spot, self.at, self.count = random.Random(1), asked.spot, 1000.0, itertools.count()
        self.running: list[str] = []
        self.passes_ms: list[float] = []
        limited = range(10 if asked.quotas else 0)
        limits = {f"p{n}": Quota(gpus=asked.hosts * EACH // 20, running_jobs=1000) for n in limited}
        self.reactor = reactor.Reactor(
            Cluster(epoch=1),
            Policies(QUIET, b"k", 1 << 30, 1 << 30, 1 << 30, quotas=limits, backfill=backfill),
        )
        for number in range(asked.hosts):
            gpus = tuple(Gpu(f"{number}-{i}", i, "NVIDIA H100", 80 * GIB) for i in range(EACH))
            self.feed(st.HostConnected(f"h{number:04}", 1, "10.0.0.1", "b", "1", Inventory(64, 512 * GIB, gpus)))
        for number in range(10 if asked.shares else 0):
            self.feed(ShareAsked(0, "root", f"p{number}", 1.0 + number))
        for number in range(3 if asked.reserved else 0):
            whose, until = f"p{number}", Wall(self.at + 1e9 + 1e7)
            selector = HostSelector(
                hosts=frozenset(f"h{number * asked.reserved + n:04}" for n in range(asked.reserved))
            )
            self.feed(ReservationAsked(0, Reservation(f"for-{whose}", whose, NEVER, until, selector)))
        while len(self.cluster.queue) < asked.jobs:
            self.submit()

    @property
    def cluster(self) -> Cluster:
        """The reactor's state."""
        return self.reactor.cluster

    def feed(self, incoming: st.Input) -> None:
        """One input; what it places runs at once."""
        decision = self.reactor.step(incoming, Now(Mono(self.at), Wall(self.at + 1e9)))
        for entry in decision.entries:
            if isinstance(entry.event, ev.JobPlaced):
                self.report(entry.event.job_id, ReportedState.PREPARED)
                self.report(entry.event.job_id, ReportedState.RUNNING)
                self.running.append(entry.event.job_id)
            elif isinstance(entry.event, ev.AttemptEnded):
                self.running.remove(entry.event.job_id)
                self.report(entry.event.job_id, ReportedState.EMPTY)

    def report(self, name: str, state: ReportedState) -> None:
        """All workers of a job report that state."""
        job = self.cluster.jobs[name]
        for member in job.gang.members:
            pids = tuple((rank, 1000 + rank) for rank in member.ranks) if state is ReportedState.RUNNING else ()
            worker = WorkerId(name, member.name)
            told = WorkerReport(worker, job.attempt, job.generation, state, 20000, 21000, shim_pid=1, pids=pids)
            self.feed(st.WorkerReported(job.places[member.index].host, 1, told))

    def submit(self) -> None:
        """One job more."""
        dice, number = self.dice, next(self.count)
        user, spot = dice.randrange(200), dice.random() < self.spot
        asked = Request(f"job-{number}", self.at, dice.choice(SIZES), f"u{user}", f"p{user % 20}", spot=spot)
        hours = dice.choice(HOURS) if dice.random() < 0.75 else dice.uniform(0.1, 48)
        gang = gang_of(asked, EACH, hours * 3600 if dice.random() < 0.5 else None)
        name = f"{dice.choice(('train', 'tune', 'eval'))}-{number}"
        self.feed(st.JobSubmission(0, asked.user, "", asked.name, JobPlan(name, gang, "{}")))

    def end_one(self) -> None:
        """A job that runs has ended, and another one is submitted for each that started."""
        self.at += 60.0
        name = self.running.pop(self.dice.randrange(len(self.running)))
        waiting = len(self.cluster.queue)
        self.feed(st.CancelAsked(0, "ann", name))
        self.report(name, ReportedState.EMPTY)
        while len(self.cluster.queue) < waiting:
            self.submit()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Every pass in here is measured, in CPU time."""

        def timed(step: Step) -> None:
            began = time.thread_time()
            place_queue(step)
            self.passes_ms.append((time.thread_time() - began) * 1000)

        with mock.patch.object(reactor, "place_queue", timed):
            yield


def measure(backfill: Backfill, asked: argparse.Namespace) -> str:
    """One row of the table."""
    queue = Queue(backfill, asked)
    gc.collect()
    look_at_what_is_new()
    with queue.timed():
        for _ in range(asked.ends):
            queue.end_one()
    gc.unfreeze()
    found = queue.passes_ms
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    figures = " | ".join(f"{value:.1f} ms" for value in (cuts[49], cuts[89], cuts[98], max(found)))
    kind = (
        f"`{backfill.value}`"
        + (f", {asked.spot:.0%} SPOT" if asked.spot else "")
        + (", quotas" if asked.quotas else "")
        + (", shares" if asked.shares else "")
        + (f", 3 × {asked.reserved} hosts reserved" if asked.reserved else "")
    )
    return f"| {kind} | {asked.jobs:,} | {len(found)} | {figures} |"


def main() -> None:
    """One row for each way of backfill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, help="that wait")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--ends", type=int, default=120, help="jobs that end")
    parser.add_argument("--spot", type=float, default=0.0, help="share of jobs that are SPOT, from 0 to 1")
    parser.add_argument("--quotas", action="store_true", help="half of the projects have one")
    parser.add_argument("--shares", action="store_true", help="half of the projects have a weight")
    parser.add_argument(
        "--reserved", type=int, default=0, help="hosts that are reserved for each of three projects"
    )
    asked = parser.parse_args()
    with framed():
        print("\n| `backfill` | waiting | passes | p50 | p90 | p99 | largest |")
        print("| --- " * 7 + "|")
        for backfill in Backfill:
            progress(f"{asked.jobs:,} jobs wait for {asked.hosts:,} hosts, {backfill.value}")
            print(measure(backfill, asked), flush=True)


if __name__ == "__main__":
    main()
