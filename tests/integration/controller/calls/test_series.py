"""``GetSeries``, and the reports of hosts that it shows: by credit, of a host's own workers only, over HTTP too."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.controller.calls.test_sample_streams import Host, transfer
from tests.integration.controller.cluster import WITHIN_S, Controller, job, refusal
from tests.support.stubs import agent_stub, job_stub

from holdfast._series.block import Block, Track, pack
from holdfast._series.figures import Figure
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_controller.shell.store.series.file import SeriesFile


def minute(at: int, **figures: float) -> bytes:
    tracks = {(0, Figure[name.upper()]): Track.flat([value]) for name, value in figures.items()}
    return pack(Block(at, 60, 1, {**tracks, (0, Figure.SAMPLES): Track.flat([30.0])}))


def report(number: int, name: str, block: bytes, **more: Any) -> agent_pb2.SeriesReport:
    fields = {"worker": "workerpool0-0", "generation": 1, **more}
    return agent_pb2.SeriesReport(number=number, job_id=name, block=block, **fields)


async def series(jobs: Any, name: str, **asked: Any) -> job_pb2.GetSeriesResponse:
    request = job_pb2.GetSeriesRequest(id=name, **asked)
    answer: job_pb2.GetSeriesResponse = await jobs.GetSeries(request, timeout=WITHIN_S)
    return answer


async def until(
    jobs: Any, name: str, reached: Callable[[job_pb2.GetSeriesResponse], bool], **asked: Any
) -> job_pb2.GetSeriesResponse:
    async with asyncio.timeout(WITHIN_S):
        while not reached(found := await series(jobs, name, **asked)):  # noqa: ASYNC110  # nothing says when
            await asyncio.sleep(0.1)
    return found


async def taken(host: Host, number: int) -> None:
    """Returns once the controller has dealt with that report."""
    async with asyncio.timeout(WITHIN_S):
        while (await host.ordered("take_series")).taken < number:
            host.news.clear()
            await host.news.wait()


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[tuple[Any, str]]:
    """A user's stub, and the id of a job that runs on host-0."""
    jobs = job_stub(controller.channel("user/ann"))
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)
        created = await jobs.CreateJob(job_pb2.CreateJobRequest(job=job()), timeout=WITHIN_S)
        await agent.until(lambda a: "RUN" in a.phases(created.job.id))
        yield jobs, created.job.id


def now() -> int:
    return int(time.time()) // 60 * 60


async def test_minutes_are_taken_by_credit_and_shown_with_gaps(controller: Controller) -> None:
    at = now()
    async with running(controller) as (jobs, name), transfer(controller) as host:
        granted = await host.ordered("take_series")
        assert (granted.reports, granted.taken) == (16, 0)
        await host.say(series=report(1, name, minute(at - 120, gpu_util=40, step=7)))
        await host.say(series=report(2, name, minute(at, gpu_util=60)))
        await taken(host, 2)
        found = await until(jobs, name, lambda a: len(a.series) == 2 and a.points >= 3)
        by_name = {one.figure: one for one in found.series}
        assert found.since.seconds == at - 120
        assert found.step.seconds == 60
        util = by_name["gpu_util"]
        assert (util.rank, util.unit, util.mean[0], util.mean[2]) == (0, "%", 40, 60)
        assert math.isnan(util.mean[1]) and math.isnan(util.least[1])
        assert (by_name["step"].mean[0], list(by_name["step"].least)) == (7, [])
        assert found.kept_since.seconds == at - 120
        assert found.problem == ""
        one = await series(jobs, name, figures=["gpu_util"], ranks=[0], points=1)
        assert [list(each.mean) for each in one.series] == [[50]]
        assert list((await series(jobs, name, ranks=[5])).series) == []
        banded = await series(jobs, name, figures=["gpu_util"], bands=True)
        assert [(round(each.quantile, 3), each.mean[0]) for each in banded.series] == [
            (share, 40) for share in (0, 0.1, 0.5, 0.9, 1)
        ]
        assert not any(each.HasField("rank") for each in banded.series)


async def test_long_points_are_whole_quarters_of_an_hour(controller: Controller) -> None:
    at = now() - 60
    async with running(controller) as (jobs, name), transfer(controller) as host:
        await host.say(series=report(1, name, minute(at, gpu_util=40)))
        await taken(host, 1)
        for minutes, step_s in ((29, 29 * 60), (30, 1800), (31, 2700), (100, 6300)):
            begins = at // 900 * 900 - 299 * minutes * 60
            asked = {
                "since": Timestamp(seconds=begins + 60),
                "until": Timestamp(seconds=begins + 300 * minutes * 60),
            }
            found = await until(jobs, name, lambda a: bool(a.series), figures=["gpu_util"], **asked)
            assert found.step.seconds == step_s
            assert found.since.seconds == (begins + 60 if minutes < 30 else (begins + 60) // 900 * 900)
            (there,) = [slot for slot, value in enumerate(found.series[0].mean) if not math.isnan(value)]
            assert 0 <= at - (found.since.seconds + there * step_s) < step_s


async def test_what_takes_long_to_read_comes_in_several_answers(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now()
    async with running(controller) as (jobs, name), transfer(controller) as host:
        for number in range(4):
            await host.say(series=report(number + 1, name, minute(at - 60 * (3 - number), cpu=number)))
        await taken(host, 4)
        whole = await until(jobs, name, lambda a: bool(a.series) and a.series[0].mean[:4] == [0, 1, 2, 3])
        monkeypatch.setattr("holdfast_controller.shell.services.series.PAGE_S", 0.0)
        page = await series(jobs, name)
        found = list(page.series[0].mean)
        while page.next_page_token:
            assert page.points == 1
            page = await series(jobs, name, page_token=page.next_page_token)
            found += page.series[0].mean
        assert found[:4] == whole.series[0].mean[:4]


async def test_what_is_too_much_for_one_answer_is_refused_with_what_to_ask_instead(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now()
    async with running(controller) as (jobs, name), transfer(controller) as host:
        await host.say(series=report(1, name, minute(at, cpu=1)))
        await taken(host, 1)
        await until(jobs, name, lambda found: bool(found.series))
        for bound in ("READ_MOST_S", "READ_MOST_BYTES"):
            with monkeypatch.context() as patched:
                patched.setattr(f"holdfast_controller.shell.services.series.{bound}", 0)
                code, error = await refusal(series(jobs, name, points=1))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "since: begins a time of which too much is kept (ask for a shorter time" in str(error)


async def test_a_rank_that_is_apart_only_in_the_part_that_is_told_has_its_extremes(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now() - 180
    others = {(rank, Figure.GPU_UTIL): Track([50.0, 50.0], [45.0, 45.0], [55.0, 55.0]) for rank in range(3)}
    apart = {(3, Figure.GPU_UTIL): Track([9.0, 91.0], [4.0, 86.0], [14.0, 96.0])}
    kept = [Block(at, 60, 2, others | apart), Block(at + 60, 60, 1, {(0, Figure.GPU_UTIL): Track.flat([50.0])})]
    rows = [(block.start, block.step * block.slots, pack(block)) for block in kept]
    monkeypatch.setattr("holdfast_controller.shell.services.series.PAGE_S", 0.0)
    monkeypatch.setattr(SeriesFile, "since", lambda *_: at)
    monkeypatch.setattr(SeriesFile, "blocks", lambda *_, **__: iter(rows))
    async with running(controller) as (jobs, name):
        found = await series(jobs, name, figures=["gpu_util"], bands=True)
        assert found.points == 1 and found.next_page_token
        (odd,) = [each for each in found.series if each.HasField("rank")]
        assert (odd.rank, list(odd.mean), list(odd.least), list(odd.most)) == (3, [9], [4], [14])


async def test_a_rank_beside_the_bands_has_its_extremes_and_so_has_each_of_few(controller: Controller) -> None:
    at = now() - 60
    levels = (50.0, 50.0, 51.0, 9.0)
    tracks = {(rank, Figure.GPU_UTIL): Track([v], [v - 5], [v + 5]) for rank, v in enumerate(levels)}
    async with running(controller) as (jobs, name), transfer(controller) as host:
        await host.say(series=report(1, name, pack(Block(at, 60, 1, tracks))))
        await host.say(series=report(2, name, pack(Block(at + 60, 60, 1, tracks))))
        await taken(host, 2)
        found = await until(jobs, name, lambda a: len(a.series) == 6, figures=["gpu_util"], bands=True, points=1)
        *banded, odd = found.series
        assert [each.mean[0] for each in banded] == [9, 9, 50, 51, 51]
        assert (odd.rank, odd.mean[0], odd.least[0], odd.most[0]) == (3, 9, 4, 14)
        each = (await series(jobs, name, figures=["gpu_util"], points=1)).series
        assert [(one.rank, one.least[0], one.most[0]) for one in each] == [
            (rank, v - 5, v + 5) for rank, v in enumerate(levels)
        ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda name, at: report(1, name, minute(at, cpu=1), worker="workerpool0-9"), "no such worker"),
        (lambda name, at: report(1, "other-1", minute(at, cpu=1)), "no such worker"),
        (lambda name, at: report(1, name, minute(at, cpu=1), generation=0), "another host's"),
        (lambda name, at: report(1, name, b"no block"), "too short"),
        (lambda name, at: report(1, name, minute(at + 9_000_000, cpu=1)), "too far"),
        (lambda name, at: report(1, name, minute(at + 7, cpu=1)), "no minute"),
        (lambda name, at: report(1, name, minute(at, cpu=1), exited_rank=0), "another length"),
    ],
)
async def test_what_no_agent_may_say_is_refused_once_and_for_all(
    controller: Controller, wrong: Callable[[str, int], agent_pb2.SeriesReport], why: str
) -> None:
    async with running(controller) as (jobs, name), transfer(controller) as host:
        await host.say(series=wrong(name, now()))
        await host.say(series=report(2, name, minute(now(), cpu=2)))
        found = await until(jobs, name, lambda a: bool(a.series))
        assert {one.figure: one.mean[0] for one in found.series} == {"cpu": 2}
        await taken(host, 2)


async def test_another_host_reports_nothing_of_a_worker(controller: Controller) -> None:
    async with running(controller) as (jobs, name):
        call = agent_stub(controller.channel("host/host-1")).Transfer()
        other = Host(call)
        async with asyncio.TaskGroup() as tasks:
            await other.say(hello=agent_pb2.TransferHello())
            reading = tasks.create_task(other.read())
            await other.say(series=report(1, name, minute(now(), cpu=1)))
            await taken(other, 1)
            reading.cancel()
            call.cancel()
        await asyncio.sleep(1.5)
        assert list((await series(jobs, name)).series) == []


async def test_a_recording_of_a_failing_exit_is_listed_and_shown(controller: Controller) -> None:
    at = now()
    block = Block(at - 900, 2, 450, {(0, Figure.POWER): Track.flat([100.0] * 225 + [700.0] * 225)})
    async with running(controller) as (jobs, name), transfer(controller) as host:
        await host.say(series=report(1, name, pack(block), exited_rank=0))
        found = await until(jobs, name, lambda a: bool(a.recordings))
        (one,) = found.recordings
        assert (one.name, one.worker, one.generation, one.rank) == ("exit-1-workerpool0-0", "workerpool0-0", 1, 0)
        assert one.until.seconds - one.since.seconds == 900
        shown = await series(jobs, name, recording=one.name, points=450)
        assert (shown.step.seconds, shown.points, shown.since.seconds) == (2, 450, at - 900)
        assert list(shown.series[0].mean) == [100.0] * 225 + [700.0] * 225
        code, error = await refusal(series(jobs, name, recording="hang-9"))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "exit-1-workerpool0-0" in error.fix


@pytest.mark.parametrize(
    "asked",
    [
        {"figures": ["temprature"]},
        {"points": 2001},
        {"points": -1},
        {"page_token": "x"},
        {"bands": True, "ranks": [0]},
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(controller: Controller, asked: dict[str, Any]) -> None:
    async with running(controller) as (jobs, name):
        code, _ = await refusal(series(jobs, name, **asked))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_agent_that_sends_none_leaves_nothing_to_show(controller: Controller) -> None:
    async with running(controller) as (jobs, name), transfer(controller):
        found = await series(jobs, name)
        assert (list(found.series), list(found.recordings)) == ([], [])
        assert not found.HasField("kept_since")
