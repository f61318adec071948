"""What a gang's vectors cost the controller: its core alone, fed as agents would feed it, in virtual time.

Every worker tells something each ten seconds at least; half of them tell at every change, here once a second. A
look judges the whole gang, so its price grows with the ranks; how often it is taken falls with them.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import replace

from bench.support.report import Table, framed

from holdfast._base.job_file.choices import HangAction
from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

RANKS = 8
SECONDS = 20


class Gangs:
    """Jobs of equal size, one worker a host, all launched."""

    def __init__(self, jobs: int, workers: int, *, hanging: bool) -> None:
        self.now = 1000.0
        self.reactor = Reactor(Cluster(epoch=1), Policies(secret_key=b"k"))
        pools = (Pool(workers, Task(("train",)), processes=RANKS, cpus=8),)
        self.gang = Gang(pools, hang=HangSettings(HangAction.NOTIFY, startup_timeout_s=5.0 if hanging else None))
        self.jobs = [f"job-{n}" for n in range(jobs)]
        self.hosts: dict[tuple[str, int], str] = {}
        for number in range(jobs * workers):
            self.feed(st.HostConnected(f"h{number}", 1, "10.0.0.1", "b", "1", Inventory(8, 64 << 30)))
        for token, job in enumerate(self.jobs):
            self.feed(st.JobSubmission(token, "ann", "", job, JobPlan(job, self.gang, "{}")))
            for member in self.gang.members:
                host = self.hosts[job, member.index] = self.reactor.cluster.jobs[job].places[member.index].host
                place = WorkerReport(WorkerId(job, member.name), 1, 1, ReportedState.PREPARED, 20000, 20001)
                self.feed(st.WorkerReported(host, 1, place))

    def feed(self, incoming: st.Input) -> None:
        self.reactor.step(incoming, Now(Mono(self.now), Wall(self.now + 1e9)))

    def tell(self, job: str, index: int, vector: WorkerFeatures) -> None:
        host = self.hosts[job, index]
        self.feed(st.FeaturesReported(host, 1, job, 1, self.now, replace(vector, host=host, at_s=self.now)))

    def vectors(self, motion: Motion) -> list[WorkerFeatures]:
        still_s = 1000.0 if motion is Motion.BLOCKED else self.now
        output = OutputFeatures(1000.0 if motion is Motion.BLOCKED else self.now)
        return [
            WorkerFeatures(
                member.name, "", self.now, tuple(RankFeatures(r, motion, still_s) for r in member.ranks), output
            )
            for member in self.gang.members
        ]


def share(jobs: int, workers: int, motion: Motion, *, hanging: bool) -> tuple[float, int]:
    """Share of a core over ``SECONDS``, and looks taken; half of the workers tell at each change."""
    gangs = Gangs(jobs, workers, hanging=hanging)
    looks = 0
    spent = 0.0
    for second in range(SECONDS + 10):
        vectors = gangs.vectors(motion)
        counts = second >= 10
        for tenth in range(10):
            gangs.now = 1000.0 + second + tenth / 10
            began = time.perf_counter()
            for job in gangs.jobs:
                for index in range(tenth, workers, 10):
                    if index % 2 or second % 10 == index // 10 % 10:
                        gangs.tell(job, index, vectors[index])
            due = gangs.reactor.next_due()
            while due is not None and due <= gangs.now:
                looks += counts
                gangs.feed(st.TimePassed())
                due = gangs.reactor.next_due()
            if counts:
                spent += time.perf_counter() - began
    return spent / SECONDS, looks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 10, 100, 1000])
    arguments = parser.parse_args()
    table = Table("What watching for hangs costs the controller's core", "% of a core")
    with framed():
        for jobs, workers in [*((1, workers) for workers in arguments.workers), (1000, 1)]:
            for state, motion in (("work", Motion.WORKING), ("wait", Motion.BLOCKED), ("all hang", Motion.BLOCKED)):
                gc.collect()
                used, woken = share(jobs, workers, motion, hanging=state == "all hang")
                what = f"{jobs * workers * RANKS} ranks in {jobs} gang{'s' if jobs > 1 else ''}, {state}"
                table.add(what, [100 * used], f"timers due {woken / SECONDS:.1f} times a second")
        table.print()


if __name__ == "__main__":
    main()
