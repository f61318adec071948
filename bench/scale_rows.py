"""The rows of the scale benchmark that need a controller in a process of its own and hollow hosts around it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.hollow.cluster import HollowCluster
from bench.hollow.figures import Figures
from bench.hollow.host import EXIT, HOLD
from bench.support.cluster import await_end, job
from bench.support.report import number, progress
from bench.support.usage import own_cpu_s, pss_mb

from holdfast.client import Client
from holdfast.v1 import job_pb2

RANKS_PER_HOST = 8
AT_ONCE = 64
"""Calls of CreateJob that are under way at the same time."""
WINDOW = 1000
"""Jobs that were submitted and have not ended."""
CALL_EVERY_S = 0.02
SETTLE_S = 120.0


@dataclass(frozen=True)
class Site:
    """Where rows are measured: a cluster that is up, a client of it, and the table."""

    cluster: HollowCluster
    client: Client
    figures: Figures

    @property
    def name(self) -> str:
        return f"{self.cluster.hosts:,} agents"

    @contextlib.contextmanager
    def cpu(self, spent: dict[str, float]) -> Iterator[None]:
        """Seconds of CPU that the controller and the fleets spend in the block, and how long it takes."""
        pids = {"controller": [self.cluster.controller_pid], "fleets": self.cluster.fleet_pids}
        before = {name: sum(map(own_cpu_s, found)) for name, found in pids.items()}
        began = time.monotonic()
        yield
        for name, found in pids.items():
            spent[name] = sum(map(own_cpu_s, found)) - before[name]
        spent["wall"] = time.monotonic() - began


def gang(hosts: int, program: str = HOLD) -> job_pb2.CustomJob:
    """One worker with all GPUs of each host, a rank on each GPU."""
    wanted = job([program], replicas=hosts, processes=RANKS_PER_HOST, grace_s=1.0)
    for pool in wanted.job_spec.worker_pool_specs:
        pool.machine_spec.accelerator_type = "NVIDIA_H100_80GB"
        pool.machine_spec.accelerator_count = RANKS_PER_HOST
    return wanted


@contextlib.asynccontextmanager
async def running_gang(site: Site) -> AsyncIterator[tuple[str, float]]:
    """A gang on all hosts that runs: its id, and seconds from its submission. Cancelled afterwards."""
    began = time.monotonic()
    job_id = (await site.client.create_job(gang(site.cluster.hosts))).id
    async with contextlib.aclosing(site.client.watch_job(job_id)) as events:
        async for event in events:
            if event.state == job_pb2.JOB_STATE_RUNNING:
                break
    took = time.monotonic() - began
    try:
        yield job_id, took
    finally:
        await site.client.cancel_job(job_id)
        await await_end(site.client, job_id)


async def steady(site: Site, seconds: float) -> None:
    """What agents cost that only say that they live, and how fast users are answered meanwhile."""
    cluster, spent = site.cluster, dict[str, float]()
    await asyncio.sleep(5.0)
    with site.cpu(spent):
        await asyncio.sleep(seconds)
    share = spent["controller"] / spent["wall"] * 100
    memory = pss_mb(cluster.controller_pid)
    each_kb = (memory - cluster.empty_pss_mb) * 1000 / cluster.hosts
    beside = f"controller {memory:.0f} MB, of them {each_kb:.0f} kB for each agent"
    site.figures.add(f"{site.name}, steady: controller's CPU", "% of a core", [share], cost=beside, aim=20)
    job_id = (await site.client.create_job(job([HOLD]))).id
    calls: dict[str, list[float]] = {"GetJob": [], "ListJobs, 100": []}
    with site.cpu(spent):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for name, took in calls.items():
                began = time.monotonic()
                if name == "GetJob":
                    await site.client.get_job(job_id)
                else:
                    await site.client.newest_jobs(100)
                took.append((time.monotonic() - began) * 1000)
                await asyncio.sleep(CALL_EVERY_S)
    share = spent["controller"] / spent["wall"] * 100
    for name, took in calls.items():
        beside = f"controller at {share:.0f} % of a core"
        site.figures.add(f"{site.name}, steady: {name}", "ms", took, cost=beside, aim=100)
    await site.client.cancel_job(job_id)
    await await_end(site.client, job_id)


async def at_work(site: Site, seconds: float) -> None:
    """The largest gang trains: what its features and minutes cost the controller."""
    spent = dict[str, float]()
    async with running_gang(site):
        await asyncio.sleep(10.0)
        before = await site.cluster.tally()
        with site.cpu(spent):
            await asyncio.sleep(seconds)
        after = await site.cluster.tally()
    told = {name: after[name] - before[name] for name in ("features", "minutes")}
    site.figures.add(
        f"{site.name} with {site.cluster.hosts * RANKS_PER_HOST:,} ranks at work: controller's CPU",
        "% of a core",
        [spent["controller"] / spent["wall"] * 100],
        cost=f"{told['features'] / spent['wall']:.0f} features a second, {told['minutes']:,} minutes of workers",
    )


async def storm(site: Site, runs: int) -> None:
    """The controller is killed and comes back; every agent finds it again, and no worker has noticed."""
    took: list[float] = []
    cpu: list[float] = []
    async with running_gang(site):
        before = await site.cluster.tally()
        for _ in range(runs):
            site.cluster.kill_controller()
            began = time.monotonic()
            site.cluster.start_controller()
            spent: dict[str, float] = {}
            with site.cpu(spent):
                epoch = before["epoch"] + len(took) + 1
                tally = await site.cluster.all_connected(epoch=epoch)
            took.append(tally["at"] - began)
            cpu.append(own_cpu_s(site.cluster.controller_pid))
        after = await site.cluster.tally()
        kept = {name: (before[name], after[name]) for name in ("living", "launched", "stopped", "ended")}
        if any(was != now for was, now in kept.values()):
            raise SystemExit(f"workers did not live through the storm: {kept}")
    site.figures.add(
        f"{site.name} back after the controller was killed, its start included",
        "s",
        took,
        cost=f"{before['living']:,} ranks ran on; controller {max(cpu):.1f} s of CPU",
        aim=10,
    )


async def gangs(site: Site, runs: int) -> None:
    """From CreateJob to RUNNING, the largest gang that there is room for."""
    took, cpu, hollow = [], [], []
    for _ in range(runs):
        spent: dict[str, float] = {}
        with site.cpu(spent):
            async with running_gang(site) as (_, seconds):
                took.append(seconds)
        cpu.append(spent["controller"])
        hollow.append(spent["fleets"])
    ranks = site.cluster.hosts * RANKS_PER_HOST
    site.figures.add(
        f"gang of {ranks:,} ranks on {site.name}: submit to RUNNING",
        "s",
        took,
        cost=f"with its cancellation {max(cpu):.1f} s of the controller's CPU, {max(hollow):.1f} of the fleets'",
        aim=5,
    )


async def jobs(site: Site, seconds: float) -> None:
    """Jobs of one rank that ends at once, submitted as fast as they are done, each durable from end to end."""
    ids: set[str] = set()
    ended_before = (await site.cluster.tally())["acked"]
    room = asyncio.Semaphore(WINDOW)
    stop = time.monotonic() + seconds

    async def submit() -> None:
        while time.monotonic() < stop:
            await room.acquire()
            # No two are the same, as those of a sweep.
            ids.add((await site.client.create_job(job([EXIT, "--seed", str(len(ids))]))).id)

    async def count() -> None:
        known = 0
        while True:
            await asyncio.sleep(0.2)
            acked = (await site.cluster.tally())["acked"] - ended_before
            for _ in range(acked - known):
                room.release()
            known = acked

    spent: dict[str, float] = {}
    with site.cpu(spent):
        own = time.process_time()
        began = time.monotonic()
        counting = asyncio.get_running_loop().create_task(count())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(submit())
        await _all_ended(site.client, ids)
        took = time.monotonic() - began
        counting.cancel()
        own = time.process_time() - own
    each = {"controller": spent["controller"], "hollow hosts": spent["fleets"], "client": own}
    beside = ", ".join(f"{name} {number(cost / len(ids) * 1000)} ms" for name, cost in each.items())
    site.figures.add(
        f"durable one-rank jobs on {site.name}, {len(ids):,} in {took:.0f} s",
        "jobs/s",
        [len(ids) / took],
        cost=f"CPU of a job: {beside}",
        aim=300,
        at_least=True,
    )


async def _all_ended(client: Client, ids: set[str]) -> None:
    """Wait until the last of the jobs has ended, and see that all have ended well."""
    deadline = time.monotonic() + SETTLE_S
    while [found async for found in client.list_jobs("active=true", page_size=1000) if found.id in ids]:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all of {len(ids)} jobs have ended after {SETTLE_S:g} s more")
        await asyncio.sleep(0.2)
    bad = [found async for found in client.list_jobs("state=FAILED|CANCELLED|EXPIRED") if found.id in ids]
    if bad:
        raise SystemExit(f"{len(bad)} of {len(ids)} jobs did not succeed; the first: {bad[0].error.message}")


async def restarts(site: Site, runs: int) -> None:
    """The largest gang is relaunched in place, over the wire: from RestartJob until all of it runs again."""
    took, cpu = [], []
    async with running_gang(site) as (job_id, _):
        cursor = (await site.client.get_job(job_id)).cursor
        for _ in range(runs):
            spent: dict[str, float] = {}
            began = time.monotonic()
            with site.cpu(spent):
                await site.client.restart_job(job_id)
                async with contextlib.aclosing(site.client.watch_job(job_id, cursor)) as events:
                    async for event in events:
                        cursor = event.cursor
                        if event.type == "GangStarted":
                            break
                took.append(time.monotonic() - began)
            cpu.append(spent["controller"])
    ranks = site.cluster.hosts * RANKS_PER_HOST
    site.figures.add(
        f"gang of {ranks:,} ranks relaunched in place, over the wire",
        "s",
        took,
        cost=f"controller {max(cpu):.2f} s of CPU",
    )


async def exits(site: Site, runs: int) -> None:
    """All ranks of the largest gang end at once: until the last end is durable and acknowledged."""
    took, cpu = [], []
    for _ in range(runs):
        async with running_gang(site) as (job_id, _):
            before = await site.cluster.tally()
            spent: dict[str, float] = {}
            began = time.monotonic()
            with site.cpu(spent):
                shares = [count * RANKS_PER_HOST for count in site.cluster.shares]
                tally = await site.cluster.end(job_id, 0, shares)
            took.append(tally["at"] - began)
            cpu.append(spent["controller"])
            expected = site.cluster.hosts * RANKS_PER_HOST
            if tally["acked"] - before["acked"] != expected or tally["unacked"]:
                raise SystemExit(f"{tally['acked'] - before['acked']} of {expected} ends were acknowledged")
            ended = await await_end(site.client, job_id)
            once = Counter(e.rank for worker in ended.workers for e in worker.exits)
            if len(once) != expected or set(once.values()) != {1}:
                raise SystemExit(f"{len(once)} of {expected} ranks have a record, {max(once.values())} the most")
    site.figures.add(
        f"{site.cluster.hosts * RANKS_PER_HOST:,} exits at once: until all are durable, each once",
        "s",
        took,
        cost=f"controller {max(cpu):.2f} s of CPU",
        aim=3,
    )


def recorded_once(database: Path) -> int:
    """Ends in the log of a controller that is gone. Raises ``SystemExit`` where one is there twice, or in doubt."""
    query = (
        "SELECT type, entity, json_extract(payload, '$.exit.generation'), json_extract(payload, '$.exit.rank'),"
        " COUNT(*) FROM events WHERE type IN ('RankExited', 'LateExitFound') GROUP BY 1, 2, 3, 4"
    )
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(query).fetchall()
    bad = [row for row in rows if row[0] != "RankExited" or row[4] != 1]
    if bad:
        raise SystemExit(f"{len(bad)} ends were not recorded exactly once; the first: {bad[0]}")
    progress(f"{len(rows):,} ends are in the log, each once")
    return len(rows)
