"""``HangService`` on a real link: holds, stacks of live jobs, and evidence that is kept with the job."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller, OneWriter, job, refusal
from tests.support.stubs import agent_stub, hang_stub, job_stub

from holdfast._series.block import Block, Track, pack
from holdfast._series.figures import Figure
from holdfast._session import hang_wire
from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, ThreadStack, Vector
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.v1 import agent_pb2, hang_pb2, job_pb2, spec_pb2
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.services import series
from holdfast_controller.shell.services.streams import transfers

WORKER = "workerpool0-0"


@pytest.fixture
def jobs(controller: Controller) -> Any:
    return job_stub(controller.channel("user/ann"))


@pytest.fixture
def hangs(controller: Controller) -> Any:
    return hang_stub(controller.channel("user/ann"))


def evidence(job_id: str, **changes: Any) -> bytes:
    frames = (Frame("get", "/usr/lib/python3.11/queue.py", 171), Frame("load", "/home/ann/data_loader.py", 212))
    dump = Dump("py-spy", (ThreadStack(1, frames=frames, main=True),))
    process = ProcessEvidence(8, looks=(Look(0.0, Vector("S"), dump), Look(5.0, Vector("S"), dump)))
    of = {"job": job_id, "worker": WORKER, "host": "host-0", "generation": 1, "taken_at_s": 1e9, **changes}
    return hang_wire.pack(Evidence(**of, ranks=(RankEvidence(0, process),)))


@dataclass
class Dumper:
    """The transfer stream of an agent; ``answer`` makes the report for an order, or None to give none."""

    call: Any
    answer: Callable[[agent_pb2.TakeEvidence], agent_pb2.EvidenceReport | None]
    orders: list[agent_pb2.TakeEvidence] = field(default_factory=list)

    async def serve(self) -> None:
        try:
            await self.call.write(agent_pb2.TransferRequest(hello=agent_pb2.TransferHello()))
            while (message := await self.call.read()) is not grpc.aio.EOF:
                if message.WhichOneof("message") != "take_evidence":
                    continue
                order = message.take_evidence
                self.orders.append(order)
                report = self.answer(order)
                if report is not None:
                    report.id = order.id
                    await self.call.write(agent_pb2.TransferRequest(evidence=report))
        except grpc.aio.AioRpcError:
            pass


def always(report: agent_pb2.EvidenceReport, _: agent_pb2.TakeEvidence) -> agent_pb2.EvidenceReport:
    return report


@asynccontextmanager
async def dumping(
    controller: Controller, answer: Callable[[agent_pb2.TakeEvidence], agent_pb2.EvidenceReport | None]
) -> AsyncIterator[Dumper]:
    call = OneWriter(agent_stub(controller.channel("host/host-0")).Transfer())
    made = Dumper(call, answer)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(made.serve())
        yield made
        call.cancel()
        serving.cancel()


def quick() -> job_pb2.CustomJob:
    """A job whose silence is noticed after a second, and not acted on."""
    made = job()
    second = duration_pb2.Duration(seconds=1)
    wishes = spec_pb2.HangDetection(action=spec_pb2.HANG_ACTION_NOTIFY, floor=second, startup_timeout=second)
    made.job_spec.fault_tolerance.hang_detection.CopyFrom(wishes)
    return made


@asynccontextmanager
async def running(controller: Controller, jobs: Any, what: Any = None) -> AsyncIterator[tuple[str, Any]]:
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        made = await jobs.CreateJob(job_pb2.CreateJobRequest(job=what or job()), timeout=WITHIN_S)
        await agent.until(lambda a: "RUN" in a.phases(made.job.id))
        yield made.job.id, agent


async def tell(agent: Any, name: str, still_s: float | None, printed_s: float | None) -> None:
    """The one rank's vector, now."""
    now = time.monotonic()
    motion = Motion.WORKING if still_s is None else Motion.BLOCKED
    rank = RankFeatures(0, motion, now if still_s is None else still_s)
    vector = WorkerFeatures(WORKER, "host-0", now, (rank,), OutputFeatures(printed_s))
    report = hang_wire.to_proto(name, 1, vector, time.monotonic())
    await agent.call.write(agent_pb2.SessionRequest(features=report))


async def get(jobs: Any, name: str) -> Any:
    return (await jobs.GetJob(job_pb2.GetJobRequest(id=name), timeout=WITHIN_S)).job


async def stands_still(jobs: Any, agent: Any, name: str, until: Callable[[Any], bool]) -> Any:
    """It prints for a moment, then nothing moves, until the job's picture shows what is awaited."""
    printed_s = None
    for _ in range(4):
        await tell(agent, name, None, printed_s)
        await asyncio.sleep(0.4)
        printed_s = time.monotonic()
    still_s = time.monotonic()
    async with asyncio.timeout(WITHIN_S):
        while not until(shown := await get(jobs, name)):
            await tell(agent, name, still_s, printed_s)
            await asyncio.sleep(0.3)
    return shown


async def kept(hangs: Any, name: str, number: int = 0) -> list[tuple[str, bytes]]:
    call = hangs.GetHangEvidence(hang_pb2.GetHangEvidenceRequest(id=name, number=number), timeout=WITHIN_S)
    return [(piece.worker, piece.content) async for piece in call]


async def stacks(hangs: Any, name: str, ranks: tuple[int, ...] = ()) -> list[hang_pb2.TakeStacksResponse]:
    call = hangs.TakeStacks(hang_pb2.TakeStacksRequest(id=name, native_ranks=ranks), timeout=WITHIN_S)
    return [answer async for answer in call]


async def connected(hangs: Any, name: str) -> list[hang_pb2.TakeStacksResponse]:
    """The first answer that a host gives."""
    async with asyncio.timeout(WITHIN_S):
        found = await stacks(hangs, name, (0, 7))
        while "not connected" in found[0].problem:
            await asyncio.sleep(0.02)
            found = await stacks(hangs, name, (0, 7))
    return found


# --- Holds --------------------------------------------------------------------------------------------------------


def hold(hangs: Any, name: str, **duration: int) -> Any:
    request = hang_pb2.HoldJobRequest(id=name, duration=duration_pb2.Duration(**duration))
    return hangs.HoldJob(request, timeout=WITHIN_S)


async def test_hold_is_shown_and_ended(controller: Controller, jobs: Any, hangs: Any) -> None:
    async with running(controller, jobs) as (name, _):
        held = (await hold(hangs, name, seconds=7200)).job
        assert 7100 < held.held_until.seconds - time.time() <= 7200
        freed = (await hold(hangs, name)).job
        assert not freed.HasField("held_until")
        events = jobs.WatchJob(job_pb2.WatchJobRequest(id=name), timeout=WITHIN_S)
        told = [(await events.read()).message for _ in range(freed.cursor - 1)]
        events.cancel()
    assert told[-2].startswith("action on hangs turned off by ann until ")
    assert told[-2].endswith(f" UTC, or: holdfast job hang-action {name} on")
    assert told[-1] == "action on hangs turned on by ann"


@pytest.mark.parametrize("duration", [{"seconds": -1}, {"nanos": -1}, {"seconds": 30 * 86_400, "nanos": 1}])
async def test_hold_out_of_range_is_refused(
    controller: Controller, jobs: Any, hangs: Any, duration: dict[str, int]
) -> None:
    async with running(controller, jobs) as (name, _):
        code, error = await refusal(hold(hangs, name, **duration))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "30 days" in str(error)


async def test_unknown_jobs_are_not_found(hangs: Any) -> None:
    for call in (
        hold(hangs, "nope", seconds=5),
        hangs.TakeStacks(hang_pb2.TakeStacksRequest(id="nope")).read(),
        hangs.GetHangEvidence(hang_pb2.GetHangEvidenceRequest(id="nope")).read(),
    ):
        code, _ = await refusal(call)
        assert code is grpc.StatusCode.NOT_FOUND


async def test_strangers_and_hosts_are_refused(controller: Controller) -> None:
    for who in ("stranger", "host/host-0"):
        stub = hang_stub(controller.channel(who))
        for call in (
            hold(stub, "a", seconds=5),
            stub.TakeStacks(hang_pb2.TakeStacksRequest(id="a")).read(),
            stub.GetHangEvidence(hang_pb2.GetHangEvidenceRequest(id="a")).read(),
        ):
            code, _ = await refusal(call)
            assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


# --- Stacks of live jobs ------------------------------------------------------------------------------------------


async def test_stacks_of_a_live_job_come_as_the_host_sent_them(
    controller: Controller, jobs: Any, hangs: Any
) -> None:
    """Which ranks there are below a launcher only the agent knows, so it is asked for all that the user names."""
    async with running(controller, jobs) as (name, _):
        content = evidence(name)
        async with dumping(controller, lambda _: agent_pb2.EvidenceReport(content=content)) as dumper:
            found = await connected(hangs, name)
            order = dumper.orders[-1]
    assert [(a.worker, a.host, a.content, a.problem) for a in found] == [(WORKER, "host-0", content, "")]
    assert (order.job_id, order.generation, order.worker, list(order.suspects)) == (name, 1, WORKER, [0, 7])


async def test_host_that_can_take_none_says_why(controller: Controller, jobs: Any, hangs: Any) -> None:
    async with running(controller, jobs) as (name, _):
        assert [a.problem for a in await stacks(hangs, name)] == ["host-0 is not connected"]
        async with dumping(controller, lambda _: agent_pb2.EvidenceReport(problem="py-spy is missing")):
            assert [a.problem for a in await connected(hangs, name)] == ["py-spy is missing"]


async def test_host_that_goes_away_midway_is_a_problem_and_no_wait(
    controller: Controller, jobs: Any, hangs: Any
) -> None:
    """It answers once, which shows that it is there; then it leaves instead."""
    later = agent_pb2.EvidenceReport(problem="later")
    async with running(controller, jobs) as (name, _), dumping(controller, lambda _: later) as dumper:
        await connected(hangs, name)

        def leave(_: agent_pb2.TakeEvidence) -> None:
            dumper.call.cancel()

        dumper.answer = leave
        assert [a.problem for a in await stacks(hangs, name)] == ["the host went away"]


async def test_host_that_never_answers_is_given_up(
    controller: Controller, jobs: Any, hangs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "EXAMINED_WITHIN_S", 0.5)
    async with running(controller, jobs) as (name, _), dumping(controller, lambda _: None):
        assert [a.problem for a in await connected(hangs, name)] == ["host-0 gave no answer within 0.5 s"]


async def test_job_without_running_ranks_has_no_stacks(controller: Controller, jobs: Any, hangs: Any) -> None:
    name = (await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)).job.id
    code, error = await refusal(hangs.TakeStacks(hang_pb2.TakeStacksRequest(id=name)).read())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "has no running ranks" in str(error) and error.fix == "Wait until it runs."
    await jobs.CancelJob(job_pb2.CancelJobRequest(id=name), timeout=WITHIN_S)
    _, error = await refusal(hangs.TakeStacks(hang_pb2.TakeStacksRequest(id=name)).read())
    assert error.fix == f"See what was kept: holdfast job hangs {name}"


# --- Evidence that is kept ----------------------------------------------------------------------------------------


async def test_evidence_of_a_hang_is_kept_exactly(controller: Controller, jobs: Any, hangs: Any) -> None:
    async with running(controller, jobs, quick()) as (name, agent):
        code, error = await refusal(hangs.GetHangEvidence(hang_pb2.GetHangEvidenceRequest(id=name)).read())
        assert (code, "None was noticed so far" in str(error)) == (grpc.StatusCode.NOT_FOUND, True)
        content = evidence(name)
        report = agent_pb2.EvidenceReport(content=content, samples=b"before it", dumps=b"{}")
        async with dumping(controller, lambda _: report) as dumper:
            shown = await stands_still(jobs, agent, name, lambda j: j.hangs and j.hangs[-1].stacks)
            assert await kept(hangs, name) == await kept(hangs, name, 1) == [(WORKER, content)]
            assert dumper.orders[0].samples
        for wanted in (False, True):
            asked = hang_pb2.GetHangEvidenceRequest(id=name, samples=wanted)
            pieces = [(p.samples, p.dumps) async for p in hangs.GetHangEvidence(asked, timeout=WITHIN_S)]
            assert pieces == [(b"before it", b"{}") if wanted else (b"", b"")]
    hang = shown.hangs[0]
    assert (hang.number, hang.rule in ("GPUS_IDLE", "SILENCE"), hang.outcome in ("", "WOULD_RESTART")) == (
        1,
        True,
        True,
    )
    assert hang.stacks == "workerpool0-0 rank 0 is in data_loader.py:212 `queue.get`"
    assert shown.health
    for number in (2, -1):
        code, _ = await refusal(
            hangs.GetHangEvidence(hang_pb2.GetHangEvidenceRequest(id=name, number=number)).read()
        )
        assert code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("hangs_on", [True, False], ids=["a hang", "only a question"])
async def test_what_went_before_a_hang_is_kept_under_its_number(
    controller: Controller, jobs: Any, hangs: Any, monkeypatch: pytest.MonkeyPatch, hangs_on: bool
) -> None:
    monkeypatch.setattr(series, "NAMED_AFTER_S", 1.0)
    now = int(time.time())
    recording = pack(Block(now - 900, 2, 450, {(0, Figure.CPU): Track.flat([1.0] * 440 + [0.0] * 10)}))
    async with running(controller, jobs, quick()) as (name, agent):
        report = agent_pb2.EvidenceReport(content=evidence(name), recording=recording)
        async with dumping(controller, lambda _: report):
            asked = job_pb2.GetSeriesRequest(id=name)
            if hangs_on:
                await stands_still(jobs, agent, name, lambda j: j.hangs and j.hangs[-1].stacks)
                async with asyncio.timeout(WITHIN_S):
                    while not (found := await jobs.GetSeries(asked, timeout=WITHIN_S)).recordings:  # noqa: ASYNC110  # nothing says when
                        await asyncio.sleep(0.1)
                assert [(one.name, one.HasField("rank")) for one in found.recordings] == [("hang-1", False)]
                asked.recording = "hang-1"
                shown = await jobs.GetSeries(asked, timeout=WITHIN_S)
                assert shown.series[0].figure == "cpu" and shown.series[0].mean[-1] == 0
            else:
                await connected(hangs, name)
                await asyncio.sleep(2.5)
                assert list((await jobs.GetSeries(asked, timeout=WITHIN_S)).recordings) == []


BAD: dict[str, Callable[[str], bytes]] = {
    "bomb": lambda _: zlib.compress(b" " * (200 << 20)),
    "garbage": lambda _: b"\x00garbage",
    "no evidence": lambda _: zlib.compress(b"[[[[1]]]]"),
    "too deep": lambda _: zlib.compress(b"[" * 200_000),
    "too big a number": lambda _: zlib.compress(b'{"version":1,"frames":[],"takenAtS":1' + b"0" * 400 + b"}"),
    "another worker's": lambda name: evidence(name, worker="workerpool9-9"),
    "an older generation's": lambda name: evidence(name, generation=0),
    "another job's": lambda _: evidence("other"),
}


@pytest.mark.parametrize("what", BAD)
async def test_bad_evidence_is_noted_and_not_kept(
    controller: Controller, jobs: Any, hangs: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    async with running(controller, jobs, quick()) as (name, agent):
        content = BAD[what](name)
        async with dumping(controller, lambda _: agent_pb2.EvidenceReport(content=content)):
            shown = await stands_still(
                jobs, agent, name, lambda j: j.hangs and j.hangs[-1].HasField("diagnosed_at")
            )
            assert await kept(hangs, name) == []
    assert shown.hangs[0].stacks == ""
    assert any(record.getMessage() == "evidence.missing" for record in caplog.records)


async def test_vector_that_can_not_be_true_ends_no_session(controller: Controller, jobs: Any) -> None:
    async with running(controller, jobs, quick()) as (name, agent):
        await tell(agent, name, float("nan"), None)
        sequence = await agent.exit(name, 0)
        await agent.until(lambda a: sequence in a.acks())


async def test_evidence_holds_and_what_was_learned_outlive_the_controller(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[dict[str, KeptWatch] | None] = []
    start_driver = Driver.start

    def start_noted(driver: Driver, kept: dict[str, KeptWatch] | None = None, *rest: Any) -> None:
        woken.append(kept)
        start_driver(driver, kept, *rest)

    monkeypatch.setattr(Driver, "start", start_noted)
    content = b""
    name = ""
    for start in (1, 2):
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(config, ready.set_result))
            controller = Controller(await asyncio.wait_for(ready, WITHIN_S), certificates)
            jobs = job_stub(controller.channel("user/ann"))
            hangs = hang_stub(controller.channel("user/ann"))
            if start == 1:
                async with running(controller, jobs, quick()) as (name, agent):
                    content = evidence(name)
                    report = agent_pb2.EvidenceReport(content=content)
                    async with dumping(controller, partial(always, report)):
                        await stands_still(jobs, agent, name, lambda j: j.hangs and j.hangs[-1].stacks)
                    await hold(hangs, name, seconds=7200)
            else:
                assert await kept(hangs, name) == [(WORKER, content)]
                shown = await get(jobs, name)
                assert shown.hangs[0].number == 1
                assert shown.HasField("held_until")
            await controller.close()
            serving.cancel()
    assert woken[0] == {}
    assert set(woken[1] or {}) == {name}
