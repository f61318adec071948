"""A long queue: what one look at it costs the controller's core, and what users wait for meanwhile.

The core alone, on hosts that exist only in its memory: the look that is taken whenever something may have been
freed, with all hosts full, and the step in which a host is proven empty. Then a real controller with as many jobs
waiting: a page of the list over gRPC, and `holdfast ps` as a person types it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import subprocess
import sys
import time

from bench.support.cluster import DevCluster, dev_cluster, job, work_directory
from bench.support.report import Table, framed, progress

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast.client import Client
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies, Step

GIB = 1 << 30
PROJECTS = 20
AT_ONCE = 32


def ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


class Core:
    """Full hosts of eight GPUs, and jobs of 120 kinds, three priorities and twenty projects that wait for them."""

    def __init__(self, hosts: int, jobs: int) -> None:
        self.now = Now(Mono(1000.0), Wall(1e9))
        quotas = {f"p{n}": Quota(gpus=64 * (n + 1), running_jobs=100) for n in range(PROJECTS // 2)}
        self.policies = Policies(secret_key=b"k", quotas=quotas)
        self.reactor = Reactor(Cluster(epoch=1), self.policies)
        for n in range(hosts):
            gpus = tuple(Gpu(f"{n}-{i}", i, "NVIDIA H100", 80 * GIB) for i in range(8))
            self.feed(st.HostConnected(f"h{n}", 1, "10.0.0.1", "b", "1", Inventory(64, 512 * GIB, gpus)))
        for n in range(hosts):
            self.submit(f"full-{n}", Gang((Pool(1, Task(("x",)), gpus=8, cpus=64),), project="others"))
        dice = random.Random(1)
        self.submit_ms = []
        for n in range(jobs):
            pool = Pool(
                dice.choice([1, 2, 4, 8]), Task(("x",)), gpus=dice.choice([1, 2, 4, 8]), cpus=dice.randrange(1, 9)
            )
            gang = Gang((pool,), priority=3 - 3 * n // jobs, project=f"p{dice.randrange(PROJECTS)}")
            began = time.perf_counter()
            self.submit(f"job-{n}", gang)
            self.submit_ms.append(ms_since(began))

    @property
    def cluster(self) -> Cluster:
        return self.reactor.cluster

    def feed(self, incoming: st.Input) -> None:
        self.reactor.step(incoming, self.now)

    def submit(self, name: str, gang: Gang) -> None:
        self.feed(st.JobSubmission(0, "ann", "", name, JobPlan(name, gang, "{}")))

    def look(self) -> float:
        """Milliseconds of one look at the queue when nobody can start."""
        step = Step(self.cluster, self.policies, self.reactor.timers, self.now)
        began = time.perf_counter()
        place_queue(step)
        took = ms_since(began)
        assert not step.entries
        return took

    def free_one(self, name: str) -> float:
        """Milliseconds of the step in which a host is proven empty."""
        self.feed(st.CancelAsked(0, "ann", name))
        host = self.cluster.jobs[name].places[0].host
        report = WorkerReport(WorkerId(name, "workerpool0-0"), 1, 1, ReportedState.EMPTY)
        began = time.perf_counter()
        self.feed(st.WorkerReported(host, 1, report))
        return ms_since(began)

    def returns(self, within_s: float) -> float:
        """Milliseconds of the core for each host, where all return evenly within a time, as after a restart."""
        self.cluster.presence.clear()
        hosts, took, now = list(self.cluster.hosts.values()), 0.0, self.now.mono
        for number, host in enumerate(hosts):
            reports = [
                WorkerReport(WorkerId(key.rpartition("/")[0], "workerpool0-0"), 1, 1, ReportedState.PREPARED)
                for key in host.allocations
            ]
            hello = st.HostConnected(host.name, 2, host.address, "b", "1", host.inventory, tuple(reports))
            since_s = within_s * number / len(hosts)
            self.now = Now(Mono(now + since_s), Wall(self.now.wall))
            began = time.perf_counter()
            if (due := self.reactor.next_due()) is not None and due <= self.now.mono:
                self.feed(st.TimePassed())
            self.feed(hello)
            took += ms_since(began)
        return took / len(hosts)

    def reasons(self, count: int) -> float:
        """Milliseconds for the reasons of so many jobs that wait."""
        jobs = [self.cluster.jobs[name] for name in list(self.cluster.queue)[-count:]]
        began = time.perf_counter()
        hosts = schedulable_hosts(self.cluster)
        queue_view = QueueView(self.cluster, hosts, self.policies.quotas)
        assert all(wait_reason(self.cluster, job, hosts, queue_view) for job in jobs)
        return ms_since(began)


def measure_core(hosts: int, jobs: int, runs: int, table: Table) -> None:
    core = Core(hosts, jobs)
    gc.collect()
    gc.freeze()
    what = f"{jobs:,} jobs wait for {hosts:,} hosts"
    table.add(f"{what}: a look, all hosts full", [core.look() for _ in range(runs)])
    table.add(f"{what}: the reasons of all", [core.reasons(jobs) for _ in range(runs)])
    table.add(f"{what}: the reasons of a page of 100", [core.reasons(100) for _ in range(runs)])
    table.add(f"{what}: the last submissions, at its end", core.submit_ms[-200:])
    table.add(f"{what}: a host returns, all within 10 s", [core.returns(10.0) for _ in range(max(runs // 7, 1))])
    table.add(f"{what}: a host is freed", [core.free_one(f"full-{n}") for n in range(min(runs, hosts))])


async def fill(cluster: DevCluster, client: Client, jobs: int) -> float:
    """Have so many jobs wait; submissions a second."""
    cores = (await client.list_hosts())[0].inventory.cpu_count
    wanted = job(["sleep", "100000"], grace_s=0.1)
    wanted.job_spec.worker_pool_specs[0].machine_spec.cpu_count = cores
    await client.create_job(wanted)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with turns:
            await client.create_job(wanted)

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(jobs):
            tasks.create_task(one())
    return jobs / (time.monotonic() - began)


async def measure_users(cluster: DevCluster, jobs: int, runs: int, table: Table) -> None:
    pages: list[float] = []
    large: list[float] = []
    typed: list[float] = []
    async with cluster.client() as client:
        rate = await fill(cluster, client, jobs)
        for _ in range(runs):
            for count, values in ((100, pages), (1000, large)):
                began = time.perf_counter()
                listed = await client.newest_jobs(count)
                values.append(ms_since(began))
                assert len(listed) == count
                assert all("in the queue" in found.wait_reason for found in listed)
        for _ in range(max(runs // 4, 3)):
            began = time.perf_counter()
            command = [sys.executable, "-m", "holdfast", "ps"]
            await asyncio.to_thread(subprocess.run, command, env=cluster.env, check=True, capture_output=True)
            typed.append(ms_since(began))
    table.add("the newest 100 over gRPC", pages, f"submitted at {rate:.0f} a second")
    table.add("the newest 1,000 over gRPC", large)
    table.add("`holdfast ps`, process start included", typed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--core-only", action="store_true", help="without a real controller")
    arguments = parser.parse_args()
    with framed():
        table = Table("A long queue: the controller's core", "ms")
        for hosts in arguments.hosts:
            progress(f"{arguments.jobs} jobs for {hosts} hosts")
            measure_core(hosts, arguments.jobs, arguments.runs, table)
        if arguments.hosts:
            table.print()
        if not arguments.core_only:
            table = Table(f"A long queue: {arguments.jobs:,} jobs wait, what users wait for", "ms")
            with work_directory() as directory, dev_cluster(directory) as cluster:
                progress(f"{arguments.jobs} jobs for a real controller")
                asyncio.run(measure_users(cluster, arguments.jobs, arguments.runs, table))
            table.print()


if __name__ == "__main__":
    main()
