"""The rows of the scale benchmark without any hosts: the controller's own share of a relaunch, and its start.

The driver, its store on disk and the wire's encoding are the real ones; what hosts would say is put in as the
bytes that they would send. Only gRPC and its connections are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import assert_never

from bench.hollow.cluster import HollowCluster
from bench.hollow.figures import Figures, quantile
from bench.hollow.host import HOLD
from bench.scale_rows import RANKS_PER_HOST, gang
from bench.support.cluster import job
from bench.support.report import progress

from holdfast import spec
from holdfast._session import codec
from holdfast._session.assignment import Assignment, Phase
from holdfast._session.reports import Exit, ExitReason, ExitReport, ReportedState, WorkerId, WorkerReport
from holdfast.v1 import agent_pb2, host_pb2, job_pb2
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.commands import CancelAsked, JobSubmission, RestartAsked
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.convert import agent_messages
from holdfast_controller.shell.convert.gang_from_spec import gang_of
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services import agent_service
from holdfast_controller.shell.store.databases.engine import Engine
from holdfast_controller.shell.store.snapshots import AFTER_BURST_S
from holdfast_controller.shell.store.store import Store

GIB = 1 << 30
SIZES = (64, 256, 1024, 4096, 16384)
SIZES_AIMED_AT = {1024: 1.0, 16384: 1.0}
EXPONENT_AIM = 1.05
SESSION = 1
ENDED_AT_ONCE = 500


@dataclass
class Stage:
    """A driver over a store on disk, and hosts that answer each order by the bytes that agents would send."""

    driver: Driver
    answers: deque[tuple[str, bytes]] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers have come, or something durable has happened."""
    sent_bytes: int = 0
    running: dict[str, Assignment] = field(default_factory=dict)
    """By host: the newest order to run."""
    written: dict[tuple[str, Phase, int], list[bytes]] = field(default_factory=dict)
    """Answers by host, phase and generation of the order that they are to."""

    def join(self, host: str) -> None:
        """A host with eight GPUs says hello."""
        gpus = [
            host_pb2.Gpu(uuid=f"GPU-{host}-{n}", index=n, model="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB)
            for n in range(RANKS_PER_HOST)
        ]
        inventory = host_pb2.Inventory(cpu_count=64, memory_bytes=512 * GIB, max_workers=64, gpus=gpus)
        hello = agent_pb2.Hello(agent_version="1", boot_id="b", inventory=inventory, address=_address(host))
        self.driver.register(host, SESSION, lambda action: self._send(host, action))
        self.driver.feed(agent_messages.hello(host, SESSION, hello))

    def _send(self, host: str, action: act.ToHost) -> None:
        message = agent_service.to_agent(action, self.driver, packed=True)
        self.sent_bytes += len(message.SerializeToString())
        if isinstance(action, act.Assign):
            order = action.assignment
            if order.phase is Phase.RUN:
                self.running[host] = order
            answers = self.written.pop((host, order.phase, order.generation), None) or _answers(order)
            self.answers.extend((host, answer) for answer in answers)
            self.news.set()

    def write_ahead(self) -> None:
        """Have hosts' answers to the next relaunch ready: what hosts take for them is not the controller's."""
        for host, order in self.running.items():
            for phase in (Phase.PREPARE, Phase.RUN):
                following = replace(order, phase=phase, generation=order.generation + 1)
                self.written[host, phase, following.generation] = _answers(following)

    async def until(self, job_id: str, state: JobState, generation: int) -> None:
        """Put the answers in until the job is there, and that is durable."""
        found = self.driver.cluster.jobs[job_id]
        self.driver.watch("", self.news)
        while not (found.state is state and found.generation >= generation and (found.started or found.terminal)):
            # As many as a turn of the event loop would bring.
            for _ in range(min(len(self.answers), 64)):
                host, message = self.answers.popleft()
                self.driver.feed(
                    agent_service.input_of(host, SESSION, agent_pb2.SessionRequest.FromString(message))
                )
            if self.answers:
                await asyncio.sleep(0)
            else:  # to look again at once would keep the store's thread from its work
                await self.news.wait()
            self.news.clear()
        self.driver.unwatch("", self.news)
        await self.driver.settled()


def _address(host: str) -> str:
    number = int(host.rpartition("-")[2])
    return f"10.{number >> 8}.{number & 255}.7"


def _answers(order: Assignment) -> list[bytes]:
    match order.phase:
        case Phase.PREPARE:
            stopped = (
                [_ended(order.key, order.generation - 1, order.launch.ranks)] if order.launch is not None else []
            )
            return [*stopped[: order.generation - 1], _report(order, ReportedState.PREPARED)]
        case Phase.RUN:
            return [_report(order, ReportedState.RUNNING)]
        case Phase.STOP:
            return [_report(order, ReportedState.EMPTY)]
        case Phase.FORGET:
            return []
        case _:
            assert_never(order.phase)


def _report(order: Assignment, state: ReportedState) -> bytes:
    launch = order.launch
    index, first = (launch.worker_index, launch.first_rank) if launch is not None else (0, 0)
    report = WorkerReport(
        key=order.key,
        attempt=order.attempt,
        generation=order.generation,
        state=state,
        port=20_000 + index * 7919 % 10_000,
        master_port=31_000 if first == 0 else 0,
        shim_pid=1000,
        pids=tuple((rank, 2000 + rank) for rank in launch.ranks)
        if launch is not None and state is ReportedState.RUNNING
        else (),
    )
    return agent_pb2.SessionRequest(worker_report=codec.worker_report_to_proto(report)).SerializeToString()


def _ended(key: WorkerId, generation: int, ranks: range) -> bytes:
    """The ends of a worker's ranks, in one message as its agent sends those of a moment."""
    reports = agent_pb2.ExitReports()
    for rank in ranks:
        ended = Exit(1, generation, rank, ExitReason.STOPPED, signal=15, message="stopped", end_time=time.time())
        reports.reports.append(codec.exit_report_to_proto(ExitReport(rank + 1, key, ended)))
    return agent_pb2.SessionRequest(exit_reports=reports).SerializeToString()


@contextlib.asynccontextmanager
async def stage(database: Path | Engine) -> AsyncIterator[Stage]:
    """A driver that runs over a new store at ``database``."""
    store = Store(database)
    cluster = await asyncio.wrap_future(store.call(store.open))
    # Nobody here says that he lives.
    leases = LeasePolicy(3600.0, 3601.0, 3602.0, 3603.0)
    driver = Driver(store, cluster, Policies(leases, secret_key=b"k"))
    driver.start()
    writer = asyncio.get_running_loop().create_task(driver.run())
    try:
        yield Stage(driver)
    finally:
        writer.cancel()
        await asyncio.wait([writer])
        await asyncio.to_thread(store.close)


def core_gang(wanted: job_pb2.CustomJob) -> tuple[Gang, str]:
    """The gang of a job, as the core has it, and its spec as text."""
    job_file = spec.job_from_proto(wanted)
    return gang_of(job_file.job_spec), "{}"


async def submit(on: Stage, name: str, wanted: tuple[Gang, str]) -> None:
    """Submit a job under that name."""
    asked, text = wanted
    await on.driver.ask(lambda token: JobSubmission(token, "ann", "", name, JobPlan("bench", asked, text)))


async def relaunch(ranks: int, runs: int, database: Path) -> tuple[list[float], list[float], float]:
    """Seconds, and seconds of CPU without the hosts' own, of so many relaunches in place; and MB of its orders."""
    workers = ranks // RANKS_PER_HOST
    took, cpu = [], []
    async with stage(database) as on:
        for number in range(workers):
            on.join(f"host-{number}")
        await submit(on, "train", core_gang(gang(workers)))
        await on.until("train", JobState.RUNNING, 1)
        for generation in range(2, 2 + runs):
            # The snapshot of the one before is written once its burst is over; no second relaunch comes so soon.
            await asyncio.sleep(2 * AFTER_BURST_S)
            await asyncio.wrap_future(on.driver.store.call(lambda: None))
            on.write_ahead()
            on.sent_bytes = 0
            began, began_cpu = time.monotonic(), time.process_time()
            await on.driver.ask(lambda token: RestartAsked(token, "ann", "train"))
            await on.until("train", JobState.RUNNING, generation)
            took.append(time.monotonic() - began)
            cpu.append(time.process_time() - began_cpu)
        sent = on.sent_bytes / 1e6
    return took, cpu, sent


async def relaunches(directory: Path, runs: int, figures: Figures, sizes: tuple[int, ...] = SIZES) -> None:
    """The controller's share of a relaunch in place, by the size of the gang."""
    middles = []
    for ranks in sizes:
        took, cpu, sent = await relaunch(ranks, runs, directory / f"relaunch-{ranks}.db")
        progress(f"{ranks:,} ranks relaunched in {quantile(took, 0.5):.3f} s")
        middles.append(quantile(took, 0.5))
        figures.add(
            f"relaunch in place, the controller's share: {ranks:,} ranks",
            "s",
            took,
            cost=f"{max(cpu):.3f} s of CPU, orders {sent:.2f} MB",
            aim=SIZES_AIMED_AT.get(ranks),
            hollow=False,
        )
    if len(sizes) > 2:
        figures.add(
            "… exponent fitted to these medians", "", [exponent(sizes, middles)], aim=EXPONENT_AIM, hollow=False
        )


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Of the power law that fits best: the slope of the logarithms, by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


async def fill(database: Path, jobs: int, running: int) -> None:
    """A store with so many jobs, ``running`` of them on as many hosts, half of the others ended, half waiting."""
    wanted = core_gang(gang(1))
    ended = (jobs - running) // 2
    async with stage(database) as on:
        for number in range(ended):
            await submit(on, f"ended-{number}", wanted)
            await on.driver.ask(partial(_cancel, job_id=f"ended-{number}"))
        for number in range(running):
            on.join(f"host-{number}")
            await submit(on, f"runs-{number}", wanted)
            await on.until(f"runs-{number}", JobState.RUNNING, 1)
        await asyncio.gather(*(submit(on, f"waits-{number}", wanted) for number in range(jobs - running - ended)))


async def starts(directory: Path, jobs: int, runs: int, figures: Figures) -> None:
    """A controller's start with a full store: from its exec until a first job is committed and acknowledged."""
    took, cpu = [], []
    cluster = HollowCluster(directory, 0, 1, RANKS_PER_HOST)
    await asyncio.to_thread(cluster.prepare)
    cluster.database.parent.mkdir()
    await fill(cluster.database, jobs, jobs // 100)
    progress(f"a store with {jobs:,} jobs is there")
    try:
        for _ in range(runs):
            began = time.monotonic()
            cluster.start_controller()
            await cluster.listening()
            # One that was there before would wait for a second between two tries to connect.
            async with cluster.client() as client:
                await client.create_job(job([HOLD]))
                took.append(time.monotonic() - began)
            cpu.append(cluster.controller_cpu_s())
            cluster.kill_controller()
    finally:
        await cluster.close()
    figures.add(
        f"controller's start with {jobs:,} jobs in the store: to its first commit",
        "s",
        took,
        cost=f"{quantile(cpu, 0.5):.2f} s of CPU",
        aim=1,
        hollow=False,
    )


async def fill_with_ended(database: Path | Engine, events: int) -> None:
    """A store with a log of so many events: of jobs that were submitted, and cancelled while they waited."""
    wanted = core_gang(gang(1))
    async with stage(database) as on:
        for begin in range(0, events // 2, ENDED_AT_ONCE):
            names = [f"ended-{number}" for number in range(begin, min(begin + ENDED_AT_ONCE, events // 2))]
            await asyncio.gather(*(submit(on, name, wanted) for name in names))
            await asyncio.gather(*(on.driver.ask(partial(_cancel, job_id=name)) for name in names))


def _cancel(token: int, job_id: str) -> CancelAsked:
    return CancelAsked(token, "ann", job_id)
